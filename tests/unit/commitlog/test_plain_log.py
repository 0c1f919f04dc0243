"""PlainCommitLog: records back to back, blanks, a master's and a slave's way, recovery."""

import os
from pathlib import Path

import pytest

from ledgermq.commitlog import LogOffsetError, PlainCommitLog, PlainReport
from ledgermq.commitlog.plain_records import PLAIN_BLANK, PLAIN_BLANK_MAGIC
from ledgermq.dledger.errors import EntryTooLargeError
from ledgermq.dledger.store import RealFileSystem
from ledgermq.dledger.store.errors import CorruptStoreError
from ledgermq.protocol.record import decode_record, encode_record

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


def test_a_view_outlives_its_segment(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    log.append([record(b"%02d" % i * 150, i) for i in range(12)])
    view = log.read(0, 392)
    assert log.drop_before(SEGMENT_BYTES) == log.min_offset == SEGMENT_BYTES
    log.close()
    assert decode_record(view).body == b"00" * 150
