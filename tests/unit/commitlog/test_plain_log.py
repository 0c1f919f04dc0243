"""PlainCommitLog: records back to back, blanks, a master's and a slave's way, recovery."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledgermq.commitlog import LogOffsetError, PlainCommitLog, PlainReport, SegmentLackingError
from ledgermq.commitlog.plain_records import PLAIN_BLANK, PLAIN_BLANK_MAGIC
from ledgermq.dledger.disk_job import DiskJob
from ledgermq.dledger.errors import EntryTooLargeError
from ledgermq.dledger.store import RealFileSystem
from ledgermq.dledger.store.errors import CorruptStoreError, StoreFailedError, UnreadableError
from ledgermq.dledger.store.filesystem import File
from ledgermq.dledger.store.segment import Segment
from ledgermq.protocol.record import decode_record, encode_record
from tests.fault.lossy_disk import new_disk

SEGMENT_BYTES = 4096
HOST = (b"\x7f\x00\x00\x01", 10911)


def record(body: bytes, queue_offset: int = 0) -> bytes:
    return encode_record(
        b"T", 0, 0, queue_offset, 0, 0, 1000, HOST, 1000 + queue_offset, HOST, 0, 0, body, b""
    )


def opened(root: Path, **known: int) -> tuple[PlainCommitLog, PlainReport]:
    log = PlainCommitLog(RealFileSystem(), str(root / "commitlog"), SEGMENT_BYTES)
    return log, log.open(**known)


def file_of(root: Path, start: int = 0) -> Path:
    return root / "commitlog" / f"{start:020d}"


def bodies(log: PlainCommitLog) -> list[bytes]:
    found, offset = [], log.min_offset
    while offset < log.confirmed_offset:
        data, walk = log.records(offset, 100)
        for start in walk.starts:
            assert decode_record(data, start - offset).physical_offset == start
            found.append(decode_record(data, start - offset).body)
        assert walk.next_offset > offset
        offset = walk.next_offset
    return found


def test_records_say_where_they_stand_and_a_blank_closes_a_segment(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    sent = [b"%02d" % i * 150 for i in range(10)]
    offsets = log.append([record(body) for body in sent])
    log.confirm(log.max_offset)
    assert bodies(log) == sent
    # 10 records of 392 bytes: the 11th would leave less than 8 bytes, so a blank comes before it.
    size = len(record(sent[0]))
    assert offsets == [i * size for i in range(10)]
    assert log.append([record(b"x" * 300)]) == [SEGMENT_BYTES]
    content = file_of(tmp_path).read_bytes()
    assert PLAIN_BLANK.unpack_from(content, 10 * size) == (
        SEGMENT_BYTES - 10 * size,
        PLAIN_BLANK_MAGIC,
    )
    assert not content[10 * size + 8 :].strip(b"\0")


def test_a_record_fits_when_exactly_a_blank_is_left(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    first = record(b"a" * 1000)
    fixed = len(record(b""))
    second = record(b"b" * (SEGMENT_BYTES - 8 - len(first) - fixed))
    assert log.append([first, second]) == [0, len(first)]
    assert log.max_offset == SEGMENT_BYTES - 8
    assert log.append([record(b"c")]) == [SEGMENT_BYTES]
    with pytest.raises(EntryTooLargeError):
        log.append([record(b"c"), record(b"d" * SEGMENT_BYTES)])
    assert log.max_offset == SEGMENT_BYTES + len(record(b"c"))


def test_readers_see_what_was_confirmed(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    log.append([record(b"one")])
    end = log.max_offset
    assert bodies(log) == []
    log.confirm(end)
    log.append([record(b"two")])
    assert bodies(log) == [b"one"]
    with pytest.raises(AssertionError):
        log.confirm(end - 1)


@pytest.mark.parametrize("step", [1, 7, 100, 392, 5000])
def test_a_slave_gets_the_same_files_in_pieces_of_any_size(tmp_path: Path, step: int) -> None:
    master, _ = opened(tmp_path / "master")
    slave, _ = opened(tmp_path / "slave")
    master.append([record(b"%02d" % i * 150, i) for i in range(25)])
    offset = 0
    while offset < master.max_offset:
        with master.read(offset, step) as piece:
            assert offset % SEGMENT_BYTES + len(piece) <= SEGMENT_BYTES
            offset = slave.append_raw(offset, piece)
        assert slave.max_offset == offset
        assert slave.whole_offset <= offset
        slave.confirm(slave.whole_offset)
    assert len(master.read(offset, step)) == 0
    assert slave.whole_offset == slave.max_offset == master.max_offset
    assert len(bodies(slave)) == 25
    for name in os.listdir(tmp_path / "slave/commitlog"):
        path = Path("commitlog") / name
        assert (tmp_path / "slave" / path).read_bytes() == (tmp_path / "master" / path).read_bytes()


def test_a_slave_begins_at_the_start_of_any_segment(tmp_path: Path) -> None:
    master, _ = opened(tmp_path / "master")
    slave, _ = opened(tmp_path / "slave")
    master.append([record(b"%02d" % i * 150, i) for i in range(25)])
    with pytest.raises(LogOffsetError):
        slave.append_raw(100, master.read(100, 50))
    slave.append_raw(2 * SEGMENT_BYTES, master.read(2 * SEGMENT_BYTES, 5000))
    slave.confirm(slave.whole_offset)
    assert slave.min_offset == 2 * SEGMENT_BYTES
    assert slave.max_offset == master.max_offset
    assert len(bodies(slave)) == 5


def test_bytes_that_do_not_continue_the_log_are_refused(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    log.append_raw(0, record(b"one"))
    end = log.max_offset
    for offset in (0, end - 1, end + 1):
        with pytest.raises(LogOffsetError):
            log.append_raw(offset, b"more")
    # Nothing that begins so can ever become a record here.
    for garbage in (b"\0" * 8, b"\0\0\1\0garbage", record(b"of another place")):
        with pytest.raises(LogOffsetError):
            log.append_raw(end, garbage)
        assert log.max_offset == log.whole_offset == end
    with pytest.raises(LogOffsetError):
        log.read(end + 1, 10)


def test_a_torn_tail_is_copied_aside_and_cut(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    offsets = log.append([record(b"%02d" % i * 150, i) for i in range(12)])
    log.sync()
    log.close()
    path, at = file_of(tmp_path, SEGMENT_BYTES), offsets[11] - SEGMENT_BYTES
    content = bytearray(path.read_bytes())
    content[at + 200] ^= 1
    path.write_bytes(content)
    log, report = opened(tmp_path, durable_offset=offsets[11])
    assert report.end_offset == log.max_offset == log.confirmed_offset == offsets[11]
    assert report.cut_reason is not None
    assert Path(report.copy).read_bytes() == bytes(content[at:]).rstrip(b"\0")
    assert log.append([record(b"again")]) == [offsets[11]]
    log.close()
    log, report = opened(tmp_path)
    assert report.cut_reason is None
    assert bodies(log)[-1] == b"again"


@pytest.mark.parametrize("known", [{"durable_offset": 3 * SEGMENT_BYTES}, {}])
def test_damage_below_what_was_on_disk_is_told_and_nothing_changes(
    tmp_path: Path, known: dict[str, int]
) -> None:
    log, _ = opened(tmp_path)
    log.append([record(b"%02d" % i * 150, i) for i in range(35)])
    log.close()
    path = file_of(tmp_path, SEGMENT_BYTES)
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptStoreError, match="00000000000000004096 is damaged at offset 392"):
        opened(tmp_path, **known)
    assert path.read_bytes() == content
    assert len(os.listdir(tmp_path / "commitlog")) == 4


def test_a_good_record_behind_a_bad_one_tells_damage_in_a_log_of_java(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    offsets = log.append([record(b"%02d" % i * 150, i) for i in range(5)])
    log.close()
    path = file_of(tmp_path)
    content = bytearray(path.read_bytes())
    content[offsets[2] + 200] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptStoreError, match=f"the log goes on at {offsets[3]}"):
        opened(tmp_path)
    assert path.read_bytes() == content
    # What LedgerMQ knows to be above its last flush may have come to the disk in any order.
    _, report = opened(tmp_path, durable_offset=offsets[1])
    assert report.end_offset == offsets[2]


def test_a_missing_last_file_is_damage_when_it_was_there(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    log.append([record(b"%02d" % i * 150, i) for i in range(12)])
    end = log.max_offset
    log.close()
    file_of(tmp_path, SEGMENT_BYTES).unlink()
    with pytest.raises(CorruptStoreError):
        opened(tmp_path, durable_offset=end)
    _, report = opened(tmp_path)
    assert report.end_offset == SEGMENT_BYTES


def test_files_made_ahead_are_no_part_of_the_log(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    log.append([record(b"one")])
    end = log.max_offset
    log.close()
    file_of(tmp_path, SEGMENT_BYTES).write_bytes(bytes(SEGMENT_BYTES))
    log, report = opened(tmp_path, durable_offset=end)
    assert (report.end_offset, report.cut_reason, report.record_count) == (end, None, 1)
    assert os.listdir(tmp_path / "commitlog") == [f"{0:020d}"]


def failing(*_: Any) -> None:
    raise OSError(errno.EIO, "Input/output error")


def test_a_disk_whose_sync_failed_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = opened(tmp_path)
    log.append([record(b"one")])
    with monkeypatch.context() as broken:
        broken.setattr(Segment, "sync", failing)
        with pytest.raises(OSError, match="Input/output error"):
            log.sync()
    # The kernel tells of bytes that it could not write once; then they count as written.
    with pytest.raises(StoreFailedError):
        log.sync()
    assert log.flushed_offset == 0 and isinstance(log.failure, StoreFailedError)
    with pytest.raises(StoreFailedError):
        log.append([record(b"two")])


@pytest.mark.parametrize("is_slave", [False, True])
def test_a_write_that_fails_is_final(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_slave: bool
) -> None:
    log, _ = opened(tmp_path)

    def append(body: bytes) -> None:
        if is_slave:
            log.append_raw(log.max_offset, record(body))
        else:
            log.append([record(body)])

    with monkeypatch.context() as broken:
        broken.setattr(Segment, "write", failing)
        with pytest.raises(StoreFailedError):
            append(b"one")
    # A part of it may be there, and would stand behind what is written now.
    with pytest.raises(StoreFailedError):
        append(b"two")
    with pytest.raises(StoreFailedError):
        log.sync()


def test_the_first_sync_writes_anew_what_was_not_on_disk_for_certain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = opened(tmp_path)
    log.append([record(b"%02d" % i * 150, i) for i in range(5)])
    durable = log.max_offset
    log.append([record(b"%02d" % i * 150, i) for i in range(5, 12)])
    end = log.max_offset
    log.close()
    rewritten: list[tuple[int, int]] = []

    def note(segment: Segment, offset: int, stop: int) -> None:
        rewritten.append((segment.start_offset + offset, segment.start_offset + stop))

    monkeypatch.setattr(Segment, "rewrite", note)
    # A sync may have failed before: its pages count as written, and are not.
    opened(tmp_path, durable_offset=durable)
    assert sorted(rewritten) == [(durable, SEGMENT_BYTES), (SEGMENT_BYTES, end)]


def test_a_view_outlives_its_segment(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    log.append([record(b"%02d" % i * 150, i) for i in range(12)])
    view = log.read(0, 392)
    assert log.drop_before(SEGMENT_BYTES) == log.min_offset == SEGMENT_BYTES
    log.close()
    assert decode_record(view).body == b"00" * 150


class WatchedFileSystem(RealFileSystem):
    """Refuses all that may wait for a disk, but in a job."""

    def __init__(self) -> None:
        self.is_in_job = False

    def reserve(self, path: str, size_bytes: int) -> File:
        assert self.is_in_job, f"{path} is made in a turn"
        return super().reserve(path, size_bytes)

    def remove(self, path: str) -> None:
        assert self.is_in_job, f"{path} is removed in a turn"
        super().remove(path)

    def sync_directory(self, directory: str) -> None:
        assert self.is_in_job, f"{directory} is synced in a turn"
        super().sync_directory(directory)


class Served:
    """A log as a member runs it, with a keeper of the test."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files = WatchedFileSystem()
        self.log = PlainCommitLog(self.files, str(root / "commitlog"), SEGMENT_BYTES)
        self.log.open()
        self.log.waits_for_disk = False
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._watched(getattr(os, name)))

    def _watched(self, sync: Callable[[int], None]) -> Callable[[int], None]:
        def call(number: int) -> None:
            assert self.files.is_in_job, "a sync in a turn"
            sync(number)

        return call

    def do(self, job: DiskJob | None) -> None:
        assert job is not None
        self.files.is_in_job = True
        job.do()
        self.files.is_in_job = False


def test_a_log_that_is_served_writes_where_there_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served(tmp_path, monkeypatch)
    log = served.log
    sent = [b"%02d" % i * 150 for i in range(30)]
    for body in sent:
        end = log.max_offset
        try:
            log.append([record(body)])
        except SegmentLackingError:
            assert log.max_offset == log.whole_offset == end
            served.do(log.begin_room())
            log.append([record(body)])
    assert log.begin_room() is None
    # Two segments at once.
    more = [b"+%02d" % i * 100 for i in range(25)]
    with pytest.raises(SegmentLackingError):
        log.append([record(body) for body in more])
    served.do(log.begin_room())
    log.append([record(body) for body in more])
    log.confirm(log.max_offset)
    assert bodies(log) == [*sent, *more]


def test_a_log_that_is_served_is_cut_in_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, _ = opened(tmp_path / "master")
    [_, end] = master.append([record(b"one"), record(b"two")])
    one, two = bytes(master.read(0, end)), bytes(master.read(end, SEGMENT_BYTES))
    served = Served(tmp_path, monkeypatch)
    log = served.log
    with pytest.raises(SegmentLackingError):
        log.append_raw(0, one)
    served.do(log.begin_room())
    assert log.append_raw(0, one) == end
    served.do(log.begin_sync())
    garbage = b"\0\0\1\0garbage" * 10
    # What is to be cut may have been taken down by a sync.
    log.append_raw(end, two[:3])
    synced = log.begin_sync()
    with pytest.raises(LogOffsetError):
        log.append_raw(end + 3, garbage)
    assert log.max_offset == log.whole_offset == end
    with pytest.raises(SegmentLackingError):
        log.append_raw(end, two)
    served.do(synced)
    served.do(log.begin_room())
    assert log.flushed_offset == end
    assert not file_of(tmp_path).read_bytes()[end:].strip(b"\0")
    assert log.append_raw(end, two) == log.whole_offset
    assert log.begin_room() is None


def test_an_empty_log_may_begin_elsewhere_than_a_file_was_made_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master's retention goes on while the slave's disk works."""
    served = Served(tmp_path, monkeypatch)
    log = served.log
    for start in (SEGMENT_BYTES, 3 * SEGMENT_BYTES):
        with pytest.raises(SegmentLackingError):
            log.append_raw(start, b"bytes")
        assert log.max_offset == 0, "it is not known yet where it begins"
        served.do(log.begin_room())
    assert os.listdir(log.directory) == [file_of(tmp_path, 3 * SEGMENT_BYTES).name]
    log.append_raw(3 * SEGMENT_BYTES, record(b"one")[:2])
    assert log.min_offset == 3 * SEGMENT_BYTES


def test_a_slave_gets_what_stands_before_an_unreadable_page() -> None:
    disk = new_disk()
    log = PlainCommitLog(disk, "/commitlog", 16_384)
    log.open()
    log.append([record(b"%02d" % n * 500) for n in range(10)])
    log.sync()
    log.close()
    disk.files[f"/commitlog/{0:020d}"].fail_reads(8192)
    assert len(log.read(5000, 10_000)) == 8192 - 5000
    with pytest.raises(UnreadableError, match="Input/output error"):
        log.read(8192, 100)


def test_an_unreadable_place_in_what_was_on_disk_is_damage() -> None:
    disk = new_disk()
    log = PlainCommitLog(disk, "/commitlog", 16_384)
    log.open()
    log.append([record(b"%02d" % n * 500) for n in range(10)])
    log.sync()
    end = log.max_offset
    log.close()
    disk.files[f"/commitlog/{0:020d}"].fail_reads(4096)
    again = PlainCommitLog(disk, "/commitlog", 16_384)
    with pytest.raises(CorruptStoreError, match="Input/output error"):
        again.open(durable_offset=end)
    # What was never synced is a torn tail, readable or not.
    torn = PlainCommitLog(disk, "/commitlog", 16_384)
    assert torn.open(durable_offset=1000).end_offset <= 4096
