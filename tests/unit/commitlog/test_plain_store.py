"""PlainMessageStore: send, read, restart after a kill, rebuild, retention, damage."""

import shutil
import struct
from pathlib import Path

import pytest

from ledgermq.commitlog import (
    AppendMessage,
    AppendResult,
    DamagedFileError,
    GetMessageStatus,
    PlainCommitLog,
    PlainMessageStore,
    StoreConfig,
    StoreReport,
)
from ledgermq.dledger.store import RealFileSystem
from ledgermq.dledger.store.segment import Segment
from ledgermq.protocol.record import PHYSICAL_OFFSET_OFFSET, decode_record
from ledgermq.protocol.sysflag import TRANSACTION_PREPARED
from tests.unit.commitlog.single_member import clean

SEGMENT_BYTES = 4096
HOST = (b"\x7f\x00\x00\x01", 10911)
HOUR_MS = 3_600_000


class Plain:
    """A store on a folder, driven as a broker does."""

    def __init__(
        self, root: Path, *, segment_bytes: int = SEGMENT_BYTES, has_light_queues: bool = False
    ) -> None:
        self.now_ms = 1_000_000
        self.arrivals: list[tuple[str, int, int, int]] = []
        self.watched: list[tuple[bytes, int]] = []
        files = RealFileSystem()
        self.log = PlainCommitLog(files, str(root / "commitlog"), segment_bytes)
        self.config = StoreConfig(
            root=str(root),
            queue_segment_bytes=400,
            index_slot_count=50,
            index_entry_count=500,
            has_light_queues=has_light_queues,
        )
        self.store = PlainMessageStore(self.config, self.log, files, lambda: self.now_ms)
        self.store.on_dispatched(self.arrivals.extend)
        self.store.watch_topic("Watched", lambda body, index: self.watched.append((body, index)))

    def open(self) -> StoreReport:
        self.log.open(durable_offset=self.store.durable_offset)
        report = self.store.open()
        self.store.become_leader()
        return report

    def close(self) -> None:
        self.store.close()
        self.log.close()

    def send(self, count: int, topic: str = "T", queue_id: int = 0, start: int = 0) -> None:
        self.append(
            [message(f"{topic}{queue_id}-{start + i}", topic, queue_id) for i in range(count)]
        )
        self.confirm()

    def append(self, messages: list[AppendMessage]) -> list[AppendResult]:
        return self.store.append(messages)

    def confirm(self) -> None:
        self.log.confirm(self.log.whole_offset)
        self.store.committed(self.store.dispatched_index + 1, self.log.confirmed_offset)

    def read(self, topic: str = "T", queue_id: int = 0) -> list[str]:
        found, offset = [], self.store.min_offset(topic, queue_id)
        while True:
            result = self.store.get_message(topic, queue_id, offset, 32, None)
            if result.status is not GetMessageStatus.FOUND:
                return found
            found += [decode_record(part).body.decode() for part in result.parts]
            offset = result.next_begin_offset


def message(body: str, topic: str = "T", queue_id: int = 0, sys_flag: int = 0) -> AppendMessage:
    properties = f"UNIQ_KEY\x01{body}\x02KEYS\x01k1 k2".encode()
    return AppendMessage(
        topic, queue_id, 0, sys_flag, 1, HOST, HOST, 0, 0, body.encode(), properties
    )


@pytest.fixture
def plain(tmp_path: Path) -> Plain:
    made = Plain(tmp_path)
    made.open()
    return made


def test_messages_are_read_by_queue_place_key_and_time(plain: Plain) -> None:
    plain.send(50)
    plain.now_ms += 1000
    plain.send(50, start=50)
    plain.send(3, queue_id=1)
    assert plain.read() == [f"T0-{i}" for i in range(100)]
    assert plain.read(queue_id=1) == ["T1-0", "T1-1", "T1-2"]
    assert plain.log.max_offset > 3 * SEGMENT_BYTES
    assert plain.arrivals[:2] == [("T", 0, 1, 0), ("T", 0, 2, 0)] and len(plain.arrivals) == 103
    result = plain.store.query("T", "T0-77", 10, 0, 1 << 60)
    assert [decode_record(part).body for part in result.parts] == [b"T0-77"]
    place = decode_record(result.parts[0]).physical_offset
    assert plain.store.record_at(place) == result.parts[0]
    assert plain.store.record_at(place + 1) is None
    assert plain.store.offset_by_time("T", 0, 1_000_900) == 50
    assert plain.store.earliest_store_time() == 1_000_000
    assert plain.store.min_physical_offset == 0


@pytest.mark.parametrize("queue_offset", [0, 1, 2, -1, 1 << 40])
def test_a_record_made_for_its_place_inside_of_a_body_is_no_record(
    plain: Plain, queue_offset: int
) -> None:
    """A sender can tell where his next message will stand, and write that into its body."""
    plain.send(1)
    inner = bytearray(plain.store.record_at(0) or b"")
    outer = message("")._replace(body=b"....." + inner)
    (probe,) = plain.append([outer])
    distance = plain.log.read_bytes(probe.physical_offset, probe.record_bytes).index(inner)
    place = plain.log.whole_offset + distance
    # Of the record, its place in the queue and in the log.
    struct.pack_into(">qq", inner, PHYSICAL_OFFSET_OFFSET - 8, queue_offset, place)
    (made,) = plain.append([outer._replace(body=b"....." + inner)])
    plain.confirm()
    assert made.physical_offset + distance == place
    assert plain.log.read_bytes(place, len(inner)) == inner
    assert plain.store.record_at(place) is None
    assert plain.store.record_at(made.physical_offset) is not None


def test_what_is_not_confirmed_is_not_seen(plain: Plain) -> None:
    results = plain.append([message("one")])
    assert plain.read() == [] and plain.store.record_at(results[0].physical_offset) is None
    plain.confirm()
    assert plain.read() == ["one"]


def test_watched_records_come_with_their_place(plain: Plain) -> None:
    results = plain.append(
        [
            message("before"),
            message("state", topic="Watched", sys_flag=TRANSACTION_PREPARED),
            message("behind"),
        ]
    )
    plain.confirm()
    assert plain.watched == [(b"state", results[1].physical_offset)]
    assert plain.read() == ["before", "behind"]


def test_a_store_whose_sync_failed_is_closed_without_a_mark(
    plain: Plain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.send(10)
    plain.store.flush()
    durable = plain.log.flushed_offset
    mark = (tmp_path / "dispatch.checkpoint").read_bytes()
    plain.send(10, start=10)

    def fail() -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(Segment, "sync", lambda segment: fail())
        with pytest.raises(OSError, match="Input/output error"):
            plain.log.sync()
    assert plain.store.failure is not None
    # A second sync would say that all is well, and the mark that nothing behind it may be missing.
    plain.close()
    assert (tmp_path / "dispatch.checkpoint").read_bytes() == mark
    again = Plain(tmp_path)
    assert again.store.durable_offset == durable
    again.open()
    assert len(again.read()) == 20


def test_a_killed_store_goes_on_where_it_was(tmp_path: Path) -> None:
    plain = Plain(tmp_path / "a")
    plain.open()
    plain.send(30)
    plain.store.flush()
    plain.send(30, start=30)
    plain.append([message(f"T0-{i}") for i in range(60, 70)])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    again = Plain(tmp_path / "b")
    report = again.open()
    assert (report.rebuilt_because, report.rebuilt_queues, report.was_clean) == ("", [], False)
    assert again.read() == [f"T0-{i}" for i in range(70)]
    assert [result.queue_offset for result in again.append([message("next")])] == [70]
    again.confirm()
    again.close()
    third = Plain(tmp_path / "b")
    assert third.open().was_clean
    assert third.read()[-1] == "next"


@pytest.mark.parametrize("step", [50, 1000, 5000])
def test_a_slave_dispatches_what_its_master_sends_in_pieces(tmp_path: Path, step: int) -> None:
    master, slave = Plain(tmp_path / "master"), Plain(tmp_path / "slave")
    master.open()
    slave.log.open()
    slave.store.open()
    master.send(60)
    master.append([message("state", topic="Watched", sys_flag=TRANSACTION_PREPARED)])
    master.confirm()
    master.send(60, start=60)
    while slave.log.max_offset < master.log.max_offset:
        with master.log.read(slave.log.max_offset, step) as piece:
            slave.log.append_raw(slave.log.max_offset, piece)
        slave.confirm()
    assert slave.read() == master.read() == [f"T0-{i}" for i in range(120)]
    assert slave.watched == master.watched
    assert slave.store.max_physical_offset == slave.log.max_offset
    scrub = slave.store.make_scrub()
    while scrub.step(step):
        pass
    assert scrub.byte_count == slave.log.max_offset
    # Made again from the log, all at once.
    slave.store.close()
    slave.log.close()
    shutil.rmtree(tmp_path / "slave/consumequeue")
    again = Plain(tmp_path / "slave")
    again.open()
    assert again.read() == master.read()


@pytest.mark.parametrize("lost", ["consumequeue", "index", "dispatch.checkpoint"])
def test_what_is_derived_can_be_made_again(tmp_path: Path, lost: str) -> None:
    plain = Plain(tmp_path)
    plain.open()
    plain.send(90)
    plain.send(5, queue_id=3)
    plain.close()
    path = tmp_path / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    again = Plain(tmp_path)
    again.open()
    assert again.read() == [f"T0-{i}" for i in range(90)]
    assert len(again.read(queue_id=3)) == 5
    assert len(again.store.query("T", "T0-77", 10, 0, 1 << 60).parts) == 1


def test_retention_drops_whole_segments_and_what_points_there(plain: Plain) -> None:
    plain.send(60)
    plain.now_ms += 100 * HOUR_MS
    plain.send(60, start=60)
    plain.store.flush()
    decision = clean(plain.store, plain.now_ms, 4, 10)
    assert decision.drop_before == plain.log.min_offset > 0
    first = plain.store.min_offset("T", 0)
    assert 0 < first <= 60
    assert plain.read() == [f"T0-{i}" for i in range(first, 120)]
    plain.close()


def test_a_damaged_record_is_told_and_not_served(plain: Plain) -> None:
    told: list[DamagedFileError] = []
    plain.store.on_damage(told.append)
    plain.send(20)
    result = plain.store.query("T", "T0-7", 10, 0, 1 << 60)
    place = decode_record(result.parts[0]).physical_offset
    segment = plain.log._segments.segment_at(place)
    at = place + 88 - segment.start_offset
    segment.write(at, bytes([segment.read(at, 1)[0] ^ 1]))
    with pytest.raises(DamagedFileError, match=f"record at {place}"):
        plain.store.get_message("T", 0, 0, 32, None)
    assert not told[0].is_derived
    scrub = plain.store.make_scrub()
    with pytest.raises(DamagedFileError, match=f"record at {place}"):
        scrub.step(1 << 20)


def test_the_scrub_compares_queues_and_keys_with_the_log(plain: Plain) -> None:
    plain.send(60)
    plain.append([message("not confirmed")])
    scrub = plain.store.make_scrub()
    while scrub.step(1000):
        pass
    assert scrub.round_count == 1
    assert scrub.byte_count == plain.store.max_physical_offset


@pytest.mark.parametrize("is_clean", [True, False])
def test_store_times_go_on_over_a_restart_with_a_clock_that_is_behind(
    tmp_path: Path, is_clean: bool
) -> None:
    plain = Plain(tmp_path)
    plain.open()
    plain.send(3)
    if is_clean:
        plain.close()
    again = Plain(tmp_path)
    again.now_ms = plain.now_ms - 500_000
    again.open()
    assert again.store.next_store_time(b"") == plain.now_ms
    again.send(3, start=3)
    parts = again.store.get_message("T", 0, 0, 32, None).parts
    assert [decode_record(part).store_timestamp for part in parts] == [plain.now_ms] * 6
    again.now_ms = plain.now_ms + 1
    again.send(1, start=6)
    assert again.store.store_time("T", 0, 6) == again.now_ms
    again.close()


@pytest.mark.parametrize("is_clean", [True, False])
def test_searches_by_time_find_what_was_stored_after_the_clock_was_set_back(
    tmp_path: Path, is_clean: bool
) -> None:
    plain = Plain(tmp_path)
    plain.open()
    for number in range(20):
        plain.now_ms += 1000
        plain.send(1, start=number)
    if is_clean:
        plain.close()
    again = Plain(tmp_path)
    again.now_ms = plain.now_ms - HOUR_MS
    again.open()
    for number in range(20, 40):
        again.now_ms += 1000
        again.send(1, start=number)
    latest_ms = plain.now_ms
    for at_ms, offset in ((1_016_000, 15), (latest_ms, 19), (latest_ms + 1, 39)):
        assert again.store.offset_by_time("T", 0, at_ms) == offset
    for key, begin_ms, count in (("k1", 1_000_000, 40), ("k1", latest_ms, 21), ("T0-33", 0, 1)):
        assert len(again.store.query("T", key, 99, begin_ms, latest_ms).parts) == count
    again.close()
