"""MixedMessageStore: both parts are read, made again, and given up by retention."""

import shutil
from pathlib import Path

import pytest

from ledgermq.commitlog import (
    LogOffsetError,
    MixedLog,
    MixedMessageStore,
    PlainCommitLog,
    StoreReport,
)
from ledgermq.commitlog.plain_records import PLAIN_BLANK, PLAIN_BLANK_MAGIC
from ledgermq.protocol.record import decode_record
from tests.unit.commitlog.single_member import Broker, clean
from tests.unit.commitlog.single_member import message as ledger_message
from tests.unit.commitlog.test_plain_store import Plain

SEGMENT_BYTES = 4096
HOUR_MS = 3_600_000


def plain_part(root: Path, count: int = 60) -> int:
    """A plain store, closed by a blank as Java leaves it for a ledger; returns its end."""
    plain = Plain(root, segment_bytes=SEGMENT_BYTES)
    plain.open()
    plain.send(count)
    plain.send(3, queue_id=1)
    end = plain.log.max_offset
    plain.close()
    path = root / "commitlog" / f"{end - end % SEGMENT_BYTES:020d}"
    content = bytearray(path.read_bytes())
    at = end % SEGMENT_BYTES
    PLAIN_BLANK.pack_into(content, at, SEGMENT_BYTES - at, PLAIN_BLANK_MAGIC)
    path.write_bytes(content)
    return end - at + SEGMENT_BYTES


class Mixed(Broker):
    """A broker on both parts; the ledger begins where the plain part ends."""

    def __init__(self, root: Path, divided_offset: int) -> None:
        super().__init__(
            root,
            segment_bytes=SEGMENT_BYTES,
            open_store=False,
            queue_segment_bytes=400,
            index_entry_count=500,
        )
        if self.ledger_store.first_position < divided_offset:
            self.ledger_store.reset(0, divided_offset)
            # Java writes no such file.
            (root / "dledger-n0/start").unlink()
        self.plain = PlainCommitLog(self.file_system, f"{root}/commitlog", SEGMENT_BYTES)
        log = MixedLog(self.plain, self.ledger_store, self.ledger_store.data, divided_offset)
        self.store = MixedMessageStore(self.config, log, self.file_system, lambda: self.now_ms)
        self.plain.open()
        log.check()
        self.report: StoreReport = self.open()

    def bodies(self, queue_id: int = 0) -> list[str]:
        found: list[str] = []
        offset = first = self.store.min_offset("T", queue_id)
        while offset < self.store.max_offset("T", queue_id):
            result = self.pull("T", queue_id, offset)
            found += [decode_record(part).body.decode() for part in result.parts]
            offset = result.next_begin_offset
        assert len(found) == offset - first
        return found

    def close(self) -> None:
        super().close()
        self.plain.close()


@pytest.fixture
def divided_offset(tmp_path: Path) -> int:
    return plain_part(tmp_path)


def send(mixed: Mixed, first: int, count: int) -> None:
    for number in range(first, first + count):
        body = b"T0-%d" % number
        mixed.send(ledger_message(body, "T", 0, b"KEYS\x01" + body))


def test_messages_of_both_parts_are_read_by_queue_key_and_place(
    tmp_path: Path, divided_offset: int
) -> None:
    mixed = Mixed(tmp_path, divided_offset).lead()
    send(mixed, 60, 60)
    assert mixed.bodies() == [f"T0-{number}" for number in range(120)]
    assert mixed.bodies(1) == ["T1-0", "T1-1", "T1-2"]
    for number in (5, 59, 60, 119):
        [part] = mixed.store.query("T", f"T0-{number}", 9, 0, 1 << 60).parts
        record = decode_record(part)
        assert record.body == b"T0-%d" % number
        assert (record.physical_offset < divided_offset) is (number < 60)
        assert mixed.store.record_at(record.physical_offset) == part
    assert mixed.store.min_physical_offset == 0
    assert mixed.store.earliest_store_time() == 1_000_000
    mixed.close()


@pytest.mark.parametrize("lost", ["", "consumequeue/T/0", "index", "dispatch.checkpoint"])
def test_a_restart_finds_both_parts_and_makes_again_what_is_lost(
    tmp_path: Path, divided_offset: int, lost: str
) -> None:
    mixed = Mixed(tmp_path, divided_offset).lead()
    send(mixed, 60, 30)
    mixed.close()
    if lost:
        path = tmp_path / lost
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    again = Mixed(tmp_path, divided_offset).lead()
    assert again.report.was_clean or lost == "dispatch.checkpoint"
    send(again, 90, 5)
    assert again.bodies() == [f"T0-{number}" for number in range(95)]
    assert len(again.store.query("T", "T0-7", 9, 0, 1 << 60).parts) == 1
    assert len(again.store.query("T", "T0-93", 9, 0, 1 << 60).parts) == 1
    again.close()


def test_entries_of_java_are_not_taken_for_what_the_plain_checkpoint_names(
    tmp_path: Path, divided_offset: int
) -> None:
    shutil.copytree(tmp_path / "commitlog", tmp_path / "java/commitlog")
    java = Mixed(tmp_path / "java", divided_offset).lead()
    send(java, 60, 1)
    java.close()
    shutil.copytree(tmp_path / "java/dledger-n0", tmp_path / "dledger-n0")
    mixed = Mixed(tmp_path, divided_offset)
    assert mixed.report.rebuilt_because == "the checkpoint is that of another kind of log"
    assert mixed.bodies() == [f"T0-{number}" for number in range(61)]
    mixed.close()


def test_a_restart_before_the_first_entry_loses_nothing(
    tmp_path: Path, divided_offset: int
) -> None:
    Mixed(tmp_path, divided_offset).close()
    mixed = Mixed(tmp_path, divided_offset)
    assert mixed.report.was_clean
    assert len(mixed.bodies()) == 60
    [part] = mixed.store.query("T", "T0-59", 9, 0, 1 << 60).parts
    assert mixed.store.record_at(decode_record(part).physical_offset) == part
    mixed.close()


def test_retention_takes_the_plain_part_and_then_the_ledger(
    tmp_path: Path, divided_offset: int
) -> None:
    mixed = Mixed(tmp_path, divided_offset).lead()
    mixed.now_ms += 1000 * HOUR_MS
    send(mixed, 60, 60)
    mixed.store.flush()
    assert clean(mixed.store, mixed.now_ms, 4, 10).drop_before == divided_offset
    assert list((tmp_path / "commitlog").iterdir()) == []
    assert mixed.store.min_physical_offset == divided_offset
    assert mixed.bodies() == [f"T0-{number}" for number in range(60, 120)]
    assert clean(mixed.store, mixed.now_ms, 4, 10).drop_before == 0
    mixed.close()


def test_parts_that_do_not_fit_are_refused(tmp_path: Path, divided_offset: int) -> None:
    Mixed(tmp_path, divided_offset).lead().close()
    shutil.rmtree(tmp_path / "dledger-n0")
    with pytest.raises(LogOffsetError, match="begin of the ledger"):
        broker = Broker(tmp_path, segment_bytes=SEGMENT_BYTES, open_store=False)
        broker.ledger_store.reset(0, divided_offset + SEGMENT_BYTES)
        broker.ledger_store.close()
        Mixed(tmp_path, divided_offset)
