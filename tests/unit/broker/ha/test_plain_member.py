"""PlainMember and PlainStorage: what a broker without a ledger confirms, and when."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from ledgermq.broker.config.broker_config import BrokerConfig, load_broker_config
from ledgermq.broker.ha.plain_member import PlainMember
from ledgermq.broker.storage.plain_storage import PlainStorage, has_plain_log, storage_of
from ledgermq.commitlog import (
    PlainCommitLog,
    PlainLogThereError,
    SegmentLackingError,
    opening_record,
)
from ledgermq.dledger.disk_job import DiskJob
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.store import RealFileSystem
from ledgermq.dledger.store.errors import DiskFullError, StoreFailedError
from ledgermq.dledger.store.keeper import GroupCommit, Keeper
from ledgermq.dledger.store.segment import Segment
from ledgermq.protocol.record import encode_record
from ledgermq.state.errors import ConfigError
from ledgermq.state.queue_progress import Run
from tests.unit.broker.parts import Parts
from tests.unit.dledger.hand_pool import HandPool

HOST = (b"\x7f\x00\x00\x01", 10911)


class ThreadlessClock(Clock):
    """A clock whose calls from a thread arrive at once."""

    def callFromThread(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        function(*args, **kwargs)


class Told:
    """An applier that keeps what it is told."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.roles: list[tuple[Role, bool]] = []
        self.failures: list[BaseException] = []

    def committed(self, start_index: int, end_index: int) -> None:
        self.ranges.append((start_index, end_index))

    def role_changed(self, role: Role, term: int, leader_id: str | None, is_ready: bool) -> None:
        self.roles.append((role, is_ready))

    def failed(self, error: BaseException) -> None:
        self.failures.append(error)


class Running:
    """A member on a clock, its syncs in the hand of the test."""

    def __init__(self, root: Path, *, is_slave: bool = False, is_sync_flush: bool = False) -> None:
        self.clock, self.pool, self.told = ThreadlessClock(), HandPool(), Told()
        self.log = PlainCommitLog(RealFileSystem(), str(root / "commitlog"), 4096)
        self.log.open()
        self.member = PlainMember(
            self.clock,
            self.log,
            self.told,
            is_slave=is_slave,
            is_sync_flush=is_sync_flush,
            self_id="n0",
            opening_record=lambda: opening_record(1, HOST, 1000),
            keeper=Keeper(self.clock, self.pool),  # type: ignore[arg-type]
        )
        self.started = self.member.start(applied_index=-1)

    def append(self) -> int:
        self.log.append([a_record()])
        return self.log.max_offset


def a_record(topic: bytes = b"T", body: bytes = b"body") -> bytes:
    return encode_record(topic, 0, 0, 0, 0, 0, 1, HOST, 1, HOST, 0, 0, body, b"")


def test_a_master_serves_when_its_opening_record_is_confirmed(tmp_path: Path) -> None:
    running = Running(tmp_path)
    assert running.started.called
    opening_end = running.log.confirmed_offset
    assert running.told.ranges == [(0, opening_end)] and opening_end == running.log.max_offset
    assert running.told.roles == [(Role.LEADER, True)]


def test_what_a_turn_appended_is_confirmed_at_its_end(tmp_path: Path) -> None:
    running = Running(tmp_path)
    begin = running.log.confirmed_offset
    running.append()
    end = running.append()
    assert running.log.confirmed_offset == begin
    running.clock.advance(0)
    assert running.told.ranges[1:] == [(begin, end)]
    assert running.log.flushed_offset == 0
    running.clock.advance(0.5)
    running.pool.finish_one()
    assert running.log.flushed_offset == end


def test_sync_flush_confirms_what_is_on_the_disk(tmp_path: Path) -> None:
    running = Running(tmp_path, is_sync_flush=True)
    begin, first = running.log.confirmed_offset, running.append()
    running.clock.advance(0)
    second = running.append()
    running.clock.advance(0)
    assert running.told.ranges[1:] == []
    running.pool.finish_one()
    assert running.told.ranges[1:] == [(begin, first)]
    running.pool.finish_one()
    assert running.told.ranges[1:] == [(begin, first), (first, second)]


def test_turns_that_wait_for_one_sync_are_confirmed_as_one(tmp_path: Path) -> None:
    """However long a disk hangs, little waits for it."""
    running = Running(tmp_path, is_sync_flush=True)
    begin, first = running.log.confirmed_offset, running.append()
    running.clock.advance(0)
    for _ in range(20):
        last = running.append()
        running.clock.advance(0)
    assert len(running.pool.work) == 1
    running.pool.finish_all()
    assert running.told.ranges[1:] == [(begin, first), (first, last)]


@pytest.mark.parametrize("is_sync_flush", [True, False])
def test_a_disk_that_hangs_is_asked_for_one_sync_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_sync_flush: bool
) -> None:
    running = Running(tmp_path, is_sync_flush=is_sync_flush)
    requests: list[None] = []
    request = GroupCommit.request

    def count(commit: GroupCommit) -> Any:
        requests.append(None)
        return request(commit)

    monkeypatch.setattr(GroupCommit, "request", count)
    for _ in range(20):
        running.append()
        running.clock.advance(1)
    # One is running, and a turn and the upkeep wait for the next one.
    assert len(requests) <= 3
    running.pool.finish_all()
    assert running.log.flushed_offset == running.log.max_offset


def test_a_disk_that_fails_stops_it_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Running(tmp_path, is_sync_flush=True)
    confirmed = running.log.confirmed_offset

    def fail() -> None:
        raise OSError(5, "Input/output error")

    running.append()
    monkeypatch.setattr(Segment, "sync", lambda segment: fail())
    running.clock.advance(0)
    running.pool.finish_one()
    assert [str(error) for error in running.told.failures] == ["[Errno 5] Input/output error"]
    assert running.log.confirmed_offset == confirmed
    assert running.member.failure is running.told.failures[0]
    with pytest.raises(StoreFailedError, match="Input/output error"):
        running.append()
    assert running.clock.getDelayedCalls() == []


def test_a_master_makes_files_in_the_keepers_thread(tmp_path: Path) -> None:
    running = Running(tmp_path)
    big = a_record(body=b"x" * 3900)
    for _ in range(3):
        # More at once than a file made ahead could help with.
        with pytest.raises(SegmentLackingError):
            running.log.append([big, big])
        before = running.log.max_offset
        made = running.member.make_room()
        assert not made.called
        running.pool.finish_all()
        assert made.called and running.log.max_offset == before
        running.log.append([big, big])
        running.clock.advance(0)
        running.pool.finish_all()
    assert running.told.failures == []


def test_a_disk_that_makes_no_file_is_told_and_tried_again_or_ends_it_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Running(tmp_path)
    big = a_record(body=b"x" * 3900)
    found: list[Failure] = []
    for number in (28, 5):

        def allocate(handle: int, offset: int, size: int, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "posix_fallocate", allocate)
        with pytest.raises(SegmentLackingError):
            running.log.append([big])
        running.member.make_room().addErrback(found.append)
        running.pool.finish_all()
        assert len(running.told.failures) == int(number == 5)
    assert found[0].check(DiskFullError) and found[1].check(OSError)


@pytest.mark.parametrize("is_slave", [False, True])
def test_a_write_that_fails_stops_it_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_slave: bool
) -> None:
    running = Running(tmp_path, is_slave=is_slave)
    running.clock.advance(0.5)
    running.pool.finish_all()
    if is_slave:
        with pytest.raises(SegmentLackingError):
            running.log.append_raw(0, a_record())
        running.member.make_room()
        running.pool.finish_all()

    def fail() -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(Segment, "write", lambda segment, offset, data: fail())
        with pytest.raises(StoreFailedError, match="Input/output error"):
            if is_slave:
                running.log.append_raw(0, a_record())
            else:
                running.append()
    running.clock.advance(0.5)
    [failure] = running.told.failures
    assert isinstance(failure, StoreFailedError) and running.member.failure is failure
    assert running.clock.getDelayedCalls() == []


def test_a_disk_that_hangs_is_asked_once_for_the_next_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Running(tmp_path)
    size = len(a_record())
    while running.log.max_offset <= 4096 * 3 // 4:
        running.append()
    asked: list[None] = []
    begin = running.log.begin_ahead

    def begin_ahead() -> DiskJob | None:
        asked.append(None)
        return begin()

    monkeypatch.setattr(running.log, "begin_ahead", begin_ahead)
    for _ in range(5):
        running.append()
        running.clock.advance(0)
    assert running.log.max_offset + size < 4096 and len(running.pool.work) == 1
    running.pool.finish_all()
    assert len(asked) == 1


def test_a_slave_confirms_whole_records_and_never_leads(tmp_path: Path) -> None:
    running = Running(tmp_path, is_slave=True)
    assert running.told.roles == [(Role.FOLLOWER, False)] and running.log.max_offset == 0
    master = PlainCommitLog(RealFileSystem(), str(tmp_path / "master"), 4096)
    master.open()
    [_, second] = master.append([a_record(), a_record()])
    data = bytes(master.read(0, 4096))
    with pytest.raises(SegmentLackingError):
        running.log.append_raw(0, data[: second + 10])
    made = running.member.make_room()
    running.pool.finish_one()
    assert made.called
    running.log.append_raw(0, data[: second + 10])
    running.clock.advance(0)
    assert running.told.ranges == [(0, second)]
    running.log.append_raw(second + 10, data[second + 10 :])
    running.clock.advance(0)
    assert running.told.ranges == [(0, second), (second, len(data))]


def test_a_stop_takes_the_last_turn_and_syncs(tmp_path: Path) -> None:
    running = Running(tmp_path)
    end = running.append()
    stopped = running.member.stop()
    assert running.told.ranges[-1][1] == end and not stopped.called
    running.pool.finish_one()
    assert stopped.called and running.log.flushed_offset == end
    assert running.clock.getDelayedCalls() == []


def config_of(root: Path, **settings: str) -> BrokerConfig:
    return load_broker_config(None, {"storePathRootDir": str(root), **settings})


def test_what_lies_in_the_directory_decides_about_the_log(tmp_path: Path) -> None:
    plain = {"enableDLegerCommitLog": "false"}
    assert not has_plain_log(config_of(tmp_path))
    assert has_plain_log(config_of(tmp_path, **plain))
    (tmp_path / "commitlog").mkdir()
    assert not has_plain_log(config_of(tmp_path))
    (tmp_path / "commitlog" / f"{0:020d}").touch()
    assert has_plain_log(config_of(tmp_path))
    ledger = tmp_path / "dledger-n0/data"
    ledger.mkdir(parents=True)
    assert has_plain_log(config_of(tmp_path))
    (ledger / f"{0:020d}").touch()
    assert not has_plain_log(config_of(tmp_path, **plain))
    with pytest.raises(ConfigError, match="holds a ledger"):
        has_plain_log(config_of(tmp_path, brokerRole="SLAVE", brokerId="1"))


def test_a_plain_log_is_not_passed_over_for_a_ledger(tmp_path: Path) -> None:
    log = tmp_path / "commitlog" / f"{0:020d}"
    log.parent.mkdir()
    log.touch()
    group = {"enableDLegerCommitLog": "true", "dLegerPeers": "n0-h:1", "dLegerSelfId": "n0"}
    config = config_of(tmp_path, mappedFileSizeDLedgerIndex="32768", **group)
    storage = storage_of(config)(config, ThreadlessClock(), Parts().state, lambda: 0)
    with pytest.raises(PlainLogThereError, match=f"store convert {tmp_path} NEW_DIRECTORY"):
        storage.open()
    assert not (tmp_path / "abort").exists() and not (tmp_path / "dledger-n0").exists()


@pytest.mark.parametrize("kept", [0, 1, 3, 4])
def test_deliveries_behind_a_plan_are_counted_up_to_the_next_start(
    tmp_path: Path, kept: int
) -> None:
    config = config_of(tmp_path, mappedFileSizeCommitLog="65536", maxMessageSize="1024")
    parts = Parts()
    storage = PlainStorage(config, ThreadlessClock(), parts.state, lambda: 0)
    storage.open()
    progress = parts.state.progress
    progress.replace({3: 9})
    # Long enough that they lie in several segments.
    [place] = storage.log.append([a_record(body=b"plan")])
    storage.log.append([a_record(body=b"delivery" * 4000)] * kept)
    end = storage.log.max_offset

    def cursor() -> object:
        storage.log.confirm(storage.log.max_offset)
        storage.messages._dispatcher.dispatched_index = storage.log.max_offset - 1
        return progress.to_json()["offsetTable"][3]

    progress.planned((Run(3, 10, 4),), place)
    assert cursor() == 9 + kept
    if kept < 4:
        # Not decided: its master may still be about to append the others.
        assert "plan" in progress.to_json()
    storage.log.append([opening_record(1, HOST, 1000), *[a_record()] * 5])
    assert cursor() == 9 + kept and "plan" not in progress.to_json()
    assert storage.log.max_offset > end
