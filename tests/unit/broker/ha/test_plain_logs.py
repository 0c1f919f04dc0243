"""Replication between two plain commit logs on disk: the slave's files are those of the master."""

from pathlib import Path

import pytest

from ledgermq.broker.ha.errors import OffsetsDisagreeError
from ledgermq.broker.ha.frames import FRAME_HEAD
from ledgermq.broker.ha.master_link import MasterLink
from ledgermq.broker.ha.replicated_log import ReplicatedLog
from ledgermq.broker.ha.slave_link import SlaveLink
from ledgermq.commitlog import LogOffsetError, PlainCommitLog
from ledgermq.dledger.store import RealFileSystem
from ledgermq.protocol.record import encode_record

SEGMENT_BYTES = 4096
HOST = (b"\x7f\x00\x00\x01", 10911)


def record(body: bytes) -> bytes:
    return encode_record(b"T", 0, 0, 0, 0, 0, 1000, HOST, 1000, HOST, 0, 0, body, b"")


def opened(folder: Path) -> PlainCommitLog:
    log = PlainCommitLog(RealFileSystem(), str(folder), SEGMENT_BYTES)
    log.open()
    return log


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.read_bytes().strip(b"\0")
    }


def copy(master: ReplicatedLog, slave: ReplicatedLog, *, bytes_max: int = 1 << 30) -> MasterLink:
    """One connection that breaks after so many bytes."""
    times = {"heart_beat_ms": 5000, "silence_ms_max": 20_000, "now_ms": 0.0}
    at_master = MasterLink(master, batch_bytes_max=500, **times)
    at_slave = SlaveLink(slave, **times)
    at_master.receive(at_slave.take_report(0) or b"", 0)
    while frame := at_master.take_frame(0):
        piece = frame[:bytes_max]
        at_slave.receive(piece, 0)
        bytes_max -= len(piece)
        if not bytes_max:
            return at_master
    at_master.receive(at_slave.take_report(0) or b"", 0)
    return at_master


@pytest.fixture
def master(tmp_path: Path) -> PlainCommitLog:
    log = opened(tmp_path / "master")
    log.append([record(b"%03d" % i * 50) for i in range(60)])
    return log


def test_files_are_equal_blanks_included(tmp_path: Path, master: PlainCommitLog) -> None:
    slave = opened(tmp_path / "slave")
    # Not from the last file on, as an empty one would: the first bytes are copied by hand.
    slave.append_raw(0, bytes(master.read(0, 100)))
    assert copy(master, slave).acknowledged_offset == master.max_offset
    assert slave.max_offset == master.max_offset
    assert files(tmp_path / "slave") == files(tmp_path / "master")
    assert len(files(tmp_path / "master")) == 4


def test_an_empty_slave_has_the_last_file(tmp_path: Path, master: PlainCommitLog) -> None:
    slave = opened(tmp_path / "slave")
    copy(master, slave)
    last = max(files(tmp_path / "master"))
    assert files(tmp_path / "slave") == {last: files(tmp_path / "master")[last]}
    assert slave.min_offset == int(last)
    master.append([record(b"more" * 50) for _ in range(20)])
    copy(master, slave)
    assert slave.max_offset == master.max_offset


@pytest.mark.parametrize("is_killed", [False, True])
def test_connections_may_break_anywhere_and_the_slave_be_killed(
    tmp_path: Path, master: PlainCommitLog, is_killed: bool
) -> None:
    slave = opened(tmp_path / "slave")
    slave.append_raw(0, bytes(master.read(0, 1)))
    bytes_max = 1
    while slave.max_offset < master.max_offset:
        copy(master, slave, bytes_max=bytes_max)
        bytes_max = bytes_max * 3 % 1201 + FRAME_HEAD.size + 450
        assert slave.max_offset <= master.max_offset
        if is_killed:
            # The part of a record that came last is cut at the next start, and is sent again.
            slave.close()
            slave = opened(tmp_path / "slave")
            if slave.max_offset == 0:
                slave.append_raw(0, bytes(master.read(0, len(record(b"000" * 50)))))
    assert files(tmp_path / "slave") == files(tmp_path / "master")


def test_logs_that_parted_are_seen_where_the_records_do_not_continue(
    tmp_path: Path, master: PlainCommitLog
) -> None:
    """The slave ends where a record of its own ends, which is in the middle of a master's."""
    slave = opened(tmp_path / "slave")
    slave.append([record(b"own" * 77)])
    before = files(tmp_path / "slave")
    with pytest.raises(LogOffsetError):
        copy(master, slave)
    assert slave.max_offset == slave.whole_offset
    assert files(tmp_path / "slave") == before


def test_a_slave_with_a_log_of_its_own_is_refused_and_keeps_it(
    tmp_path: Path, master: PlainCommitLog
) -> None:
    slave = opened(tmp_path / "slave")
    slave.append([record(b"own" * 100) for _ in range(200)])
    before = files(tmp_path / "slave")
    with pytest.raises(OffsetsDisagreeError):
        copy(master, slave)
    assert files(tmp_path / "slave") == before
