"""One turn of a replica: what is gathered, in which order it is carried out, and what is left."""

import random
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import globalLogPublisher
from twisted.python.threadpool import ThreadPool

from ledgermq.dledger.birth import Birth
from ledgermq.dledger.disk_job import DiskJob
from ledgermq.dledger.entry import EntryCodec, EntryId, EntrySlice
from ledgermq.dledger.errors import (
    AppliedEntriesCutError,
    ApplierBehindError,
    NotLeaderError,
)
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.messages import AppendRequest, HeartBeatRequest, PeerDialect
from ledgermq.dledger.ready import Ready
from ledgermq.dledger.replica import FlushDiskType, Replica, ReplicaConfig
from ledgermq.dledger.replica.memory import memory_bounds
from ledgermq.dledger.storage import HardState
from ledgermq.dledger.store.errors import DiskFullError, VoteStateLostError
from ledgermq.dledger.store.keeper import Keeper
from ledgermq.dledger.store.memory_store import DLedgerMemoryStore
from ledgermq.protocol.checksum import crc32c
from tests.unit.dledger.hand_pool import HandPool


class ThreadedClock(MemoryReactorClock):
    """A clock to which calls from threads come at once."""

    def callFromThread(self, callable: Callable[..., Any], *args: Any) -> None:
        callable(*args)

    def pass_ms(self, ms: int) -> None:
        for _ in range(ms // 10):
            self.advance(0.01)


class Journal:
    """Store, vote store and applier that write down what is asked of them, in order."""

    def __init__(self) -> None:
        self.lines: list[Any] = []
        self.state: HardState | None = None
        self.is_lost = False
        self.failure: BaseException | None = None
        # The disk has no room; so often it said so.
        self.is_full = False
        self.no_room: Exception = DiskFullError("a file", 1)
        self.refused_count = 0

    def load(self) -> HardState | None:
        if self.is_lost:
            raise VoteStateLostError("dledger-n0/identity", "missing")
        return self.state

    def save(self, state: HardState) -> None:
        self._look_for_room()
        self.state = state
        self.lines.append(("vote", state.term, state.voted_for))

    def _look_for_room(self) -> None:
        if self.is_full:
            self.refused_count += 1
            raise self.no_room

    def committed(self, start_index: int, end_index: int) -> None:
        self._look_for_room()
        self.lines.append(("committed", start_index, end_index))

    def role_changed(self, role: Role, term: int, leader_id: str | None, is_ready: bool) -> None:
        self.lines.append((role.name, term, leader_id, is_ready))

    def failed(self, error: BaseException) -> None:
        self.failure = error
        self.lines.append("failed")


class JournaledStore(DLedgerMemoryStore):
    """A memory store that writes down appends and syncs, and can fail."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(1 << 20)
        self.journal = journal
        self.error: OSError | None = None
        self.sync_error: OSError | None = None

    def append(self, entries: EntrySlice) -> None:
        if self.error is not None:
            raise self.error
        self.journal.lines.append(("append", entries.first_index, entries.last_index))
        super().append(entries)

    def begin_sync(self) -> DiskJob:
        return DiskJob(self._sync)

    def _sync(self) -> None:
        self.journal.lines.append("sync")
        if self.sync_error is not None:
            raise self.sync_error


class Rig:
    """One replica that is its whole group, unless told otherwise."""

    def __init__(
        self,
        flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH,
        peers: str = "n0-127.0.0.1:1",
        **changes: Any,
    ) -> None:
        self.clock = ThreadedClock()
        # Syncs of SYNC_FLUSH end when the test says so.
        self.pool = HandPool(holds=flush_disk_type is FlushDiskType.SYNC_FLUSH)
        self.journal = Journal()
        self.store = JournaledStore(self.journal)
        self.config = ReplicaConfig(
            group="g", self_id="n0", peers=peers, flush_disk_type=flush_disk_type, **changes
        )
        self.replica = self.make()

    def make(self) -> Replica:
        return Replica(
            self.config,
            self.clock,
            self.store,
            self.journal,
            EntryCodec(crc32c),
            random.Random(1),
            self.journal,
            lambda term, last: b"opening",
            keeper=Keeper(cast(Any, self.clock), cast(ThreadPool, self.pool)),
        )

    def finish_job(self) -> None:
        self.pool.finish_one()

    def start(self, **words: Any) -> None:
        self.replica.start(**words)
        self.clock.pass_ms(20)
        self.journal.lines.clear()

    def stop(self) -> None:
        stopped: list[object] = []
        self.replica.stop().addCallback(stopped.append)
        self.pool.finish_all()
        assert stopped == [None]


@pytest.fixture
def errors() -> Iterator[list[Any]]:
    """Failures that were logged."""
    found: list[Any] = []

    def observe(event: Any) -> None:
        if "log_failure" in event:
            found.append(event["log_failure"].value)

    globalLogPublisher.addObserver(observe)
    yield found
    globalLogPublisher.removeObserver(observe)


def test_first_turn_saves_the_vote_then_writes_then_tells() -> None:
    rig = Rig()
    rig.replica.start()
    rig.clock.pass_ms(20)
    assert rig.journal.lines == [
        ("vote", 1, "n0"),
        ("append", 0, 0),
        ("LEADER", 1, "n0", False),
        ("committed", 0, 1),
        ("LEADER", 1, "n0", True),
    ]
    assert rig.replica.is_ready_leader
    rig.stop()


def test_proposals_of_one_turn_make_one_append_and_one_commit() -> None:
    rig = Rig()
    rig.start()
    for i in range(5):
        rig.replica.propose([b"%d" % i] * 4)
    assert rig.journal.lines == []
    rig.clock.advance(0)
    assert rig.journal.lines[-1] == ("committed", 1, 21)
    assert [line for line in rig.journal.lines if line[0] == "committed"] == [("committed", 1, 21)]
    rig.stop()


def test_sync_flush_commits_after_the_sync_only() -> None:
    rig = Rig(FlushDiskType.SYNC_FLUSH)
    rig.replica.start()
    rig.finish_job()
    rig.clock.pass_ms(20)
    assert rig.journal.lines == ["sync"], "nobody is told of a leader whose vote is not on disk"
    rig.finish_job()
    rig.clock.advance(0)
    assert not rig.replica.is_ready_leader, "the opening record is not on disk"
    rig.finish_job()
    rig.clock.advance(0)
    assert rig.replica.is_ready_leader
    rig.journal.lines.clear()
    rig.replica.propose([b"x"])
    rig.clock.advance(0)
    rig.clock.pass_ms(20)
    assert ("committed", 1, 2) not in rig.journal.lines
    assert rig.replica.commit_index == 0
    rig.finish_job()
    rig.clock.advance(0)
    assert rig.journal.lines == [("append", 1, 1), "sync", ("committed", 1, 2)]
    rig.stop()


def test_catching_up_is_done_in_parts() -> None:
    rig = Rig(apply_count_max=10)
    rig.start()
    rig.replica.propose([b"x"] * 25)
    rig.clock.advance(0)
    ranges = [line[1:] for line in rig.journal.lines if line[0] == "committed"]
    assert ranges == [(1, 11), (11, 21), (21, 26)]
    rig.stop()


def test_restarted_applier_hears_of_what_it_lacks_only() -> None:
    rig = Rig()
    rig.start()
    rig.replica.propose([b"x"] * 9)
    rig.clock.advance(0)
    rig.stop()
    rig.clock = ThreadedClock()
    rig.replica = rig.make()
    rig.replica.start(applied_index=6)
    rig.journal.lines.clear()
    rig.clock.pass_ms(20)
    ranges = [line[1:] for line in rig.journal.lines if line[0] == "committed"]
    assert ranges[0][0] == 7
    assert ranges[-1][1] == 11
    rig.stop()


def test_stopped_replica_leaves_nothing_to_call() -> None:
    rig = Rig(peers="n0-127.0.0.1:1;n1-127.0.0.1:2;n2-127.0.0.1:3")
    rig.start()
    rig.stop()
    assert rig.clock.getDelayedCalls() == []
    with pytest.raises(NotLeaderError):
        rig.replica.propose([b"x"])


def test_what_was_proposed_before_stop_is_written_and_noted() -> None:
    rig = Rig()
    rig.start()
    rig.replica.propose([b"x"] * 3)
    rig.stop()
    assert ("committed", 1, 4) in rig.journal.lines
    assert rig.store.read_checkpoint() == 3


def test_disk_error_is_final_and_told_last(errors: list[Any]) -> None:
    rig = Rig()
    rig.start()
    rig.store.error = OSError(5, "Input/output error")
    rig.replica.propose([b"x"])
    rig.clock.advance(0)
    assert rig.journal.lines == ["failed"]
    assert rig.replica.failure is rig.store.error
    assert rig.journal.failure is rig.store.error
    assert errors == [rig.store.error]
    assert (rig.replica.role, rig.replica.leader_id) == (Role.CANDIDATE, None)
    with pytest.raises(NotLeaderError):
        rig.replica.propose([b"x"])
    rig.stop()
    assert rig.clock.getDelayedCalls() == []


def test_failed_sync_is_final_and_never_tried_again(errors: list[Any]) -> None:
    rig = Rig(FlushDiskType.SYNC_FLUSH)
    rig.replica.start()
    for _ in range(3):
        rig.finish_job()
        rig.clock.pass_ms(20)
    assert rig.replica.is_ready_leader
    rig.journal.lines.clear()
    rig.store.sync_error = OSError(5, "Input/output error")
    rig.replica.propose([b"x"])
    rig.clock.advance(0)
    rig.finish_job()
    rig.stop()
    assert rig.journal.lines == [("append", 1, 1), "sync", "failed"]
    assert errors == [rig.store.sync_error]
    assert rig.clock.getDelayedCalls() == []


def test_port_that_is_taken_fails_the_start() -> None:
    rig = Rig()
    error = OSError("taken")

    def listen(*args: Any, **words: Any) -> None:
        raise error

    rig.clock.listenTCP = listen  # type: ignore[method-assign]
    failures: list[Any] = []
    rig.replica.start().addErrback(failures.append)
    assert failures[0].value is error
    rig.replica.stop()
    assert rig.clock.getDelayedCalls() == []


def test_lost_vote_state_makes_a_member_that_does_not_vote() -> None:
    rig = Rig(peers="n0-127.0.0.1:1;n1-127.0.0.1:2;n2-127.0.0.1:3")
    rig.journal.is_lost = True
    rig.start()
    rig.clock.pass_ms(5000)
    assert rig.replica.role is Role.CANDIDATE
    assert not [line for line in rig.journal.lines if line[0] == "vote"]
    rig.stop()


def test_member_with_a_store_in_memory_has_lost_what_it_promised_to_keep() -> None:
    """It comes back, empty, to the group that it is of, and counts no more than any empty disk."""
    rig = Rig(peers="n0-127.0.0.1:1;n1-127.0.0.1:2;n2-127.0.0.1:3")
    birth = Birth("0f" * 16, ("n0", "n1", "n2"), is_agreed=True)
    rig.journal.state = HardState(1, "n0", birth)
    rig.start()
    for peer_id in ("n1", "n2"):
        rig.replica.dialect_found(peer_id, PeerDialect.LEDGERMQ)
    assert not rig.replica.is_recovering
    view = rig.replica.view()
    assert view is not None and view.birth is None
    beat = HeartBeatRequest(
        term=2, sender="n1", target="n0", commit_index=None, read_round=1, birth=birth
    )
    rig.replica.message_received(beat)
    rig.clock.pass_ms(20)
    assert (rig.replica.role, rig.replica.leader_id) == (Role.FOLLOWER, "n1")
    assert rig.replica.is_recovering
    assert rig.journal.state == HardState(2, None, birth)
    rig.stop()


def test_vote_that_finds_no_room_is_saved_when_there_is_some() -> None:
    rig = Rig()
    rig.journal.is_full = True
    rig.replica.start()
    rig.clock.pass_ms(3_500)
    assert {line[0] for line in rig.journal.lines if line != "sync"} == {"CANDIDATE"}
    assert 3 <= rig.journal.refused_count <= 4
    assert rig.replica.failure is None
    rig.journal.is_full = False
    rig.clock.pass_ms(1_100)
    assert rig.replica.is_ready_leader
    rig.stop()


@pytest.mark.parametrize("error", [DiskFullError("/v", 8), ApplierBehindError("units wait")])
def test_what_cannot_be_applied_yet_is_applied_later(error: Exception) -> None:
    rig = Rig()
    rig.start()
    rig.journal.no_room = error
    rig.journal.is_full = True
    rig.replica.propose([b"x"])
    rig.clock.pass_ms(20)
    rig.replica.propose([b"y"])
    rig.clock.pass_ms(2_500)
    assert rig.journal.refused_count == 3 and rig.replica.commit_index == 2
    assert not [line for line in rig.journal.lines if line[0] == "committed"]
    rig.journal.is_full = False
    rig.clock.pass_ms(1_100)
    assert ("committed", 1, 3) in rig.journal.lines and rig.replica.failure is None
    rig.stop()


def test_stop_while_there_is_no_room_leaves_nothing_behind() -> None:
    rig = Rig()
    rig.start()
    rig.journal.is_full = True
    rig.replica.propose([b"x"])
    rig.clock.pass_ms(20)
    rig.stop()
    assert rig.clock.getDelayedCalls() == []


def test_a_leader_without_room_for_its_entries_leads_no_longer_and_stands_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    rig.start()

    def make_room() -> None:
        rig.journal._look_for_room()

    def begin_room(runs: Any) -> DiskJob:
        return DiskJob(make_room)

    monkeypatch.setattr(rig.store, "has_room", lambda runs: False)
    monkeypatch.setattr(rig.store, "begin_room", begin_room)
    rig.journal.is_full = True
    rig.replica.propose([b"x"])
    rig.clock.pass_ms(2_500)
    assert rig.replica.role is Role.CANDIDATE and not rig.replica.is_ready_leader
    term = rig.replica.term
    assert [line for line in rig.journal.lines if line != "sync"] == [
        ("CANDIDATE", term, None, False)
    ]
    with pytest.raises(NotLeaderError):
        rig.replica.propose([b"y"])
    rig.journal.is_full = False
    rig.clock.pass_ms(2_000)
    assert rig.replica.is_ready_leader and rig.replica.term > term
    # What was proposed before is there, and committed with the next opening.
    assert ("append", 1, 1) in rig.journal.lines
    rig.stop()


def test_a_follower_without_room_says_whom_it_follows_when_there_is_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(peers="n0-127.0.0.1:1;n1-127.0.0.1:2;n2-127.0.0.1:3")
    rig.journal.state = HardState(1, "n1")
    rig.start()
    for peer_id in ("n1", "n2"):
        rig.replica.dialect_found(peer_id, PeerDialect.LEDGERMQ)

    def hear(seconds: int) -> None:
        for _ in range(2 * seconds):
            rig.replica.message_received(
                HeartBeatRequest(term=1, sender="n1", target="n0", commit_index=None, read_round=1)
            )
            rig.clock.pass_ms(500)

    hear(1)
    monkeypatch.setattr(rig.store, "has_room", lambda runs: False)
    monkeypatch.setattr(rig.store, "begin_room", lambda runs: DiskJob(rig.journal._look_for_room))
    rig.journal.is_full = True
    entry = EntryCodec(crc32c).encode(
        [b"a"], first_index=0, term=1, position=0, previous_chain_crc=0
    )
    rig.replica.message_received(
        AppendRequest(
            term=1,
            sender="n1",
            target="n0",
            entries=entry,
            previous=EntryId(-1, -1),
            commit_index=-1,
            request_id=1,
        )
    )
    hear(3)
    roles = [line for line in rig.journal.lines if line[0] in ("CANDIDATE", "FOLLOWER")]
    assert roles[-2:] == [("FOLLOWER", 1, "n1", False), ("CANDIDATE", 1, None, False)]
    rig.journal.is_full = False
    hear(2)
    roles = [line for line in rig.journal.lines if line[0] in ("CANDIDATE", "FOLLOWER")]
    assert roles[-1] == ("FOLLOWER", 1, "n1", False)
    assert rig.replica.role is Role.FOLLOWER and rig.store.last_index == 0
    rig.stop()


@pytest.mark.parametrize("is_hanging", [True, False])
def test_memory_of_a_follower_without_a_disk_is_bounded(
    monkeypatch: pytest.MonkeyPatch, is_hanging: bool
) -> None:
    """The disk is full, or does not answer, and two leaders repeat all that they have for hours."""
    rig = Rig(peers="n0-127.0.0.1:1;n1-127.0.0.1:2;n2-127.0.0.1:3", inbox_bytes_max=1 << 20)
    rig.journal.state = HardState(1, "n1")
    rig.start()
    for peer_id in ("n1", "n2"):
        rig.replica.dialect_found(peer_id, PeerDialect.LEDGERMQ)
    monkeypatch.setattr(rig.store, "has_room", lambda runs: False)
    monkeypatch.setattr(rig.store, "begin_room", lambda runs: DiskJob(rig.journal._look_for_room))
    rig.journal.is_full, rig.pool.holds = not is_hanging, is_hanging
    codec, chain_crc, position = EntryCodec(crc32c), 0, 0
    window: list[EntrySlice] = []
    for index in range(16):
        entry = codec.encode(
            [b"x" * 40_000],
            first_index=index,
            term=1,
            position=position,
            previous_chain_crc=chain_crc,
        )
        position, chain_crc = entry.end_position, entry.last_chain_crc
        window.append(entry)

    def push_all(term: int, sender: str, request_id: int) -> None:
        beat = HeartBeatRequest(term=term, sender=sender, target="n0", read_round=request_id)
        rig.replica.message_received(beat)
        for entries in window:
            index = entries.first_index
            rig.replica.message_received(
                AppendRequest(
                    term=term,
                    sender=sender,
                    target="n0",
                    entries=entries,
                    previous=EntryId(1, index - 1) if index else EntryId(-1, -1),
                    commit_index=-1,
                    request_id=request_id,
                )
            )
        rig.clock.pass_ms(500)

    sizes = list[int]()
    for hour in range(200):
        push_all(1, "n1", hour)
        push_all(2, "n2", hour)
        use, bounds = rig.replica.memory_use, memory_bounds(rig.config)
        assert all(part <= bound for part, bound in zip(use, bounds, strict=True))
        sizes.append(sum(use))
    assert sizes[2:] == sizes[2:3] * 198
    rig.journal.is_full = rig.pool.holds = False
    rig.pool.finish_all()
    for attempt in range(4):
        push_all(2, "n2", 300 + attempt)
    assert rig.store.last_index == 15
    rig.stop()


def test_a_cut_of_what_was_applied_is_done_and_ends_the_member(errors: list[Any]) -> None:
    """Under ASYNC_FLUSH a power cut may take from a majority what this member has applied."""
    rig = Rig()
    rig.start()
    rig.replica.propose([b"x", b"y"])
    rig.clock.pass_ms(20)
    assert rig.replica.applied_index == 2
    rig.replica._carry_out(Ready(truncate_from=2), rig.replica._raft)  # type: ignore[arg-type]
    assert rig.store.last_index == 1
    assert isinstance(rig.journal.failure, AppliedEntriesCutError)
    assert "entries 2 to 2 were lost by a majority" in str(rig.journal.failure)
    rig.stop()
    assert errors == [rig.journal.failure]
