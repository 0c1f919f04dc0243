"""What waits for the disk, and in which order it is let go."""

from typing import Any, cast

from twisted.internet.defer import Deferred, succeed

from ledgermq.dledger.entry import EntryId
from ledgermq.dledger.messages import DLedgerCode, Message, PushKind, PushResponse
from ledgermq.dledger.replica.config import FlushDiskType, ReplicaConfig
from ledgermq.dledger.replica.durability import Durability
from ledgermq.dledger.storage import LedgerStore
from ledgermq.dledger.store.flusher import Flusher


class FakeFlusher:
    """Syncs when the test says so."""

    def __init__(self) -> None:
        self.requests: list[Deferred[None]] = []

    def request(self) -> Deferred[None]:
        self.requests.append(Deferred())
        return self.requests[-1]

    def stop(self) -> Deferred[None]:
        return succeed(None)


class CheckpointStore:
    def __init__(self) -> None:
        self.checkpoints: list[int] = []

    def write_checkpoint(self, commit_index: int) -> None:
        self.checkpoints.append(commit_index)


class Rig:
    """A Durability with a flusher that the test moves, and what it did."""

    def __init__(self, flush_disk_type: FlushDiskType) -> None:
        self.flusher = FakeFlusher()
        self.store = CheckpointStore()
        self.done: list[Any] = []
        self.durability = Durability(
            ReplicaConfig(group="g", self_id="n0", peers="n0-h:1", flush_disk_type=flush_disk_type),
            cast(Flusher, self.flusher),
            cast(LedgerStore, self.store),
            finish=self._finish,
            synced=lambda: self.done.append("synced"),
            failed=self.done.append,
        )

    def _finish(self, persist_id: EntryId | None, answers: list[Message]) -> None:
        self.done.append((persist_id, [cast(PushResponse, a).request_id for a in answers]))


def answer(request_id: int) -> list[Message]:
    return [
        PushResponse(
            term=1,
            sender="n0",
            target="n1",
            kind=PushKind.APPEND,
            code=DLedgerCode.SUCCESS,
            index=0,
            count=1,
            begin_index=0,
            end_index=0,
            request_id=request_id,
        )
    ]


def test_answers_wait_for_their_sync() -> None:
    rig = Rig(FlushDiskType.SYNC_FLUSH)
    rig.durability.finish(EntryId(1, 5), answer(1))
    assert rig.done == []
    rig.flusher.requests[0].callback(None)
    assert rig.done == [(EntryId(1, 5), [1]), "synced"]


def test_answer_without_entries_waits_for_the_sync_under_way() -> None:
    """It may testify to entries of the Ready before: a COMPARE of an entry that is not synced."""
    rig = Rig(FlushDiskType.SYNC_FLUSH)
    rig.durability.finish(EntryId(1, 5), answer(1))
    rig.durability.finish(None, answer(2))
    rig.durability.finish(EntryId(1, 6), answer(3))
    assert rig.done == []
    rig.flusher.requests[0].callback(None)
    assert rig.done == [(EntryId(1, 5), [1]), (None, [2]), "synced"]
    rig.flusher.requests[1].callback(None)
    rig.durability.finish(None, answer(4))
    assert rig.done[3:] == [(EntryId(1, 6), [3]), "synced", (None, [4])]


def test_ready_values_are_finished_in_their_order() -> None:
    rig = Rig(FlushDiskType.SYNC_FLUSH)
    rig.durability.finish(EntryId(1, 5), answer(1))
    rig.durability.finish(EntryId(1, 6), answer(2))
    rig.flusher.requests[1].callback(None)
    assert rig.done == []
    rig.flusher.requests[0].callback(None)
    assert rig.done == [(EntryId(1, 5), [1]), (EntryId(1, 6), [2]), "synced"]


def test_failed_sync_lets_nothing_go() -> None:
    rig = Rig(FlushDiskType.SYNC_FLUSH)
    error = OSError("disk")
    rig.durability.finish(EntryId(1, 5), answer(1))
    rig.flusher.requests[0].errback(error)
    assert rig.done == [error]


def test_nothing_goes_after_drop() -> None:
    rig = Rig(FlushDiskType.SYNC_FLUSH)
    rig.durability.finish(EntryId(1, 5), answer(1))
    rig.durability.drop()
    rig.flusher.requests[0].callback(None)
    assert rig.done == []


def test_async_flush_waits_for_nothing_and_syncs_in_the_background() -> None:
    rig = Rig(FlushDiskType.ASYNC_FLUSH)
    rig.durability.finish(None, answer(1))
    rig.durability.keep_up(-1, 500.0)
    assert rig.flusher.requests == []
    rig.durability.finish(EntryId(1, 5), answer(2))
    assert rig.done == [(None, [1]), (EntryId(1, 5), [2])]
    rig.durability.keep_up(-1, 1000.0)
    rig.durability.keep_up(-1, 1500.0)
    assert len(rig.flusher.requests) == 1
    error = OSError("disk")
    rig.flusher.requests[0].errback(error)
    assert rig.done[-1] is error


def test_checkpoint_is_written_each_three_seconds_while_the_commit_index_moves() -> None:
    rig = Rig(FlushDiskType.SYNC_FLUSH)
    for now_ms in range(0, 12_000, 500):
        rig.durability.keep_up(min(now_ms // 500, 16), now_ms)
    assert rig.store.checkpoints == [6, 12, 16]
    assert len(rig.flusher.requests) == 3
    rig.durability.end(20)
    assert rig.store.checkpoints == [6, 12, 16, 20]
    assert len(rig.flusher.requests) == 4


def test_member_that_knows_of_no_commit_notes_none_when_it_ends() -> None:
    rig = Rig(FlushDiskType.SYNC_FLUSH)
    rig.durability.end(-1)
    assert rig.store.checkpoints == []
    assert len(rig.flusher.requests) == 1
