"""What waits for the disk, and in which order it is let go."""

from collections.abc import Iterable
from typing import Any, cast

import pytest
from twisted.python.threadpool import ThreadPool

from ledgermq.dledger.disk_job import DiskJob
from ledgermq.dledger.entry import EntryId
from ledgermq.dledger.messages import DLedgerCode, PushKind, PushResponse
from ledgermq.dledger.replica.config import FlushDiskType, ReplicaConfig
from ledgermq.dledger.replica.durability import ANSWER_BYTES, ANSWERS_MAX, Durability
from ledgermq.dledger.storage import LedgerStore
from ledgermq.dledger.store.errors import CorruptStoreError
from ledgermq.dledger.store.keeper import GroupCommit, Keeper
from tests.unit.dledger.hand_pool import DirectReactor, HandPool


class CheckpointStore:
    """A store whose syncs are held by the pool; it counts them and notes checkpoints."""

    def __init__(self) -> None:
        self.checkpoints: list[int] = []
        self.error: OSError | None = None
        self.sync_count = 0

    def write_checkpoint(self, commit_index: int) -> None:
        self.checkpoints.append(commit_index)

    def begin_sync(self) -> DiskJob:
        return DiskJob(self._sync)

    def _sync(self) -> None:
        self.sync_count += 1
        if self.error is not None:
            raise self.error


class Rig:
    """A Durability with a keeper whose jobs the test ends, and what it did."""

    def __init__(self, flush_disk_type: FlushDiskType) -> None:
        self.pool = HandPool()
        keeper = Keeper(cast(Any, DirectReactor()), cast(ThreadPool, self.pool))
        self.store = CheckpointStore()
        self.done: list[Any] = []
        self.joined: list[EntryId] = []
        self.durability = Durability(
            ReplicaConfig(group="g", self_id="n0", peers="n0-h:1", flush_disk_type=flush_disk_type),
            keeper,
            cast(LedgerStore, self.store),
            finish=self._finish,
            joined=self.joined.append,
            synced=lambda: self.done.append("synced"),
            failed=self.done.append,
        )

    def _finish(self, persist_id: EntryId | None, answers: Iterable[PushResponse]) -> None:
        self.done.append((persist_id, [answer.request_id for answer in answers]))


def answer(
    request_id: int, index: int | None = None, *, is_synced: bool = True
) -> list[PushResponse]:
    return [
        PushResponse(
            term=1,
            sender="n0",
            target="n1",
            kind=PushKind.APPEND,
            code=DLedgerCode.SUCCESS,
            index=request_id if index is None else index,
            count=1,
            begin_index=0,
            end_index=0,
            request_id=request_id,
            is_synced=is_synced,
        )
    ]


def test_answers_wait_for_their_sync() -> None:
    rig = Rig(FlushDiskType.SYNC_FLUSH)
    rig.durability.finish(EntryId(1, 5), answer(1))
    assert rig.done == []
    rig.pool.finish_one()
    assert rig.done == [(EntryId(1, 5), [1]), "synced"]


def test_answer_without_entries_waits_for_the_sync_under_way() -> None:
    """It may testify to entries of the Ready before: a COMPARE of an entry that is not synced."""
    rig = Rig(FlushDiskType.SYNC_FLUSH)
    rig.durability.finish(EntryId(1, 5), answer(1))
    rig.durability.finish(None, answer(2))
    rig.durability.finish(EntryId(1, 6), answer(3))
    assert rig.done == []
    rig.pool.finish_one()
    assert rig.done == [(EntryId(1, 5), [1, 2]), "synced"]
    rig.pool.finish_one()
    rig.durability.finish(None, answer(4))
    assert rig.done[2:] == [(EntryId(1, 6), [3]), "synced", (None, [4])]


def test_a_sync_lets_go_what_was_there_when_it_began_and_nothing_else() -> None:
    rig = Rig(FlushDiskType.SYNC_FLUSH)
    rig.durability.finish(EntryId(1, 5), answer(1))
    rig.durability.finish(EntryId(1, 6), answer(2))
    rig.durability.finish(EntryId(1, 7), answer(3))
    rig.pool.finish_one()
    assert rig.done == [(EntryId(1, 5), [1]), "synced"]
    rig.durability.finish(EntryId(1, 8), answer(4))
    rig.pool.finish_one()
    assert rig.done[2:] == [(EntryId(1, 7), [2, 3]), "synced"]
    assert rig.joined == [EntryId(1, 6)]


def test_what_waits_for_a_sync_that_hangs_is_bounded() -> None:
    rig = Rig(FlushDiskType.SYNC_FLUSH)
    rig.durability.finish(EntryId(1, 5), answer(0))
    for number in range(1, 5 * ANSWERS_MAX):
        rig.durability.finish(EntryId(1, 5 + number), answer(number))
        # A leader that hears nothing repeats what it sent.
        rig.durability.finish(None, answer(number, index=1))
        assert len(rig.pool.work) == 1
        assert rig.durability.answers_bytes <= 2 * ANSWERS_MAX * ANSWER_BYTES
    assert len(rig.joined) == 5 * ANSWERS_MAX - 2
    rig.pool.finish_all()
    (_, first), _, (last_id, answers), _ = rig.done
    assert first == [0] and last_id == EntryId(1, 4 + 5 * ANSWERS_MAX)
    assert answers[-1] == 5 * ANSWERS_MAX - 1 and len(answers) == ANSWERS_MAX


@pytest.mark.parametrize("flush_disk_type", list(FlushDiskType))
def test_a_disk_that_hangs_is_asked_for_one_sync_more(
    monkeypatch: pytest.MonkeyPatch, flush_disk_type: FlushDiskType
) -> None:
    rig = Rig(flush_disk_type)
    requests: list[None] = []
    request = GroupCommit.request

    def count(commit: GroupCommit) -> Any:
        requests.append(None)
        return request(commit)

    monkeypatch.setattr(GroupCommit, "request", count)
    for number in range(20):
        rig.durability.finish(EntryId(1, number), answer(number, is_synced=False))
        rig.durability.keep_up(number, 5_000.0 * (number + 1))
    # One is running, and one batch and the checkpoint wait for the next one.
    assert len(requests) <= 3


def test_the_newest_answer_about_the_same_entries_is_kept() -> None:
    rig = Rig(FlushDiskType.SYNC_FLUSH)
    rig.durability.finish(EntryId(1, 5), answer(1, index=5))
    for number in range(2, 100):
        rig.durability.finish(None, answer(number, index=5))
    assert rig.durability.answers_bytes == ANSWER_BYTES
    rig.pool.finish_all()
    assert rig.done == [(EntryId(1, 5), [99]), "synced"]


def test_a_sync_that_somebody_else_asked_for_lets_go_what_it_covers() -> None:
    rig = Rig(FlushDiskType.SYNC_FLUSH)
    rig.durability.keep_up(3, 5_000.0)
    rig.durability.sync()
    rig.durability.finish(EntryId(1, 5), answer(1))
    rig.pool.finish_all()
    assert rig.done == [(EntryId(1, 5), [1]), "synced"]


def test_a_sync_with_nothing_to_do_lets_go_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(FlushDiskType.SYNC_FLUSH)
    monkeypatch.setattr(rig.store, "begin_sync", lambda: None)
    rig.durability.finish(EntryId(1, 5), answer(1))
    assert rig.done == [(EntryId(1, 5), [1]), "synced"]


def test_failed_sync_lets_nothing_go() -> None:
    rig = Rig(FlushDiskType.SYNC_FLUSH)
    error = OSError("disk")
    rig.store.error = error
    rig.durability.finish(EntryId(1, 5), answer(1))
    rig.pool.finish_one()
    assert rig.done == [error]


def test_nothing_goes_after_drop() -> None:
    rig = Rig(FlushDiskType.SYNC_FLUSH)
    rig.durability.finish(EntryId(1, 5), answer(1))
    rig.durability.drop()
    rig.pool.finish_one()
    assert rig.done == []


def test_async_flush_waits_for_nothing_and_syncs_in_the_background() -> None:
    rig = Rig(FlushDiskType.ASYNC_FLUSH)
    rig.durability.finish(None, answer(1, is_synced=False))
    rig.durability.keep_up(-1, 500.0)
    rig.pool.finish_all()
    assert rig.store.sync_count == 1, "what was recovered may never have been synced"
    rig.durability.keep_up(-1, 1000.0)
    assert rig.pool.work == []
    rig.durability.finish(EntryId(1, 5), answer(2, is_synced=False))
    assert rig.done == [(None, [1]), (EntryId(1, 5), [2])]
    rig.durability.keep_up(-1, 1500.0)
    rig.durability.keep_up(-1, 2000.0)
    assert len(rig.pool.work) == 1
    error = rig.store.error = OSError("disk")
    rig.pool.finish_all()
    assert rig.done[-1] is error


def test_async_flush_syncs_before_an_answer_that_says_so() -> None:
    """The leader is in SYNC_FLUSH; entries of before, of any leader, are synced with it."""
    rig = Rig(FlushDiskType.ASYNC_FLUSH)
    rig.durability.finish(EntryId(1, 5), answer(1, is_synced=False))
    rig.durability.finish(None, answer(2))
    rig.durability.finish(EntryId(1, 6), answer(3))
    rig.durability.finish(None, answer(4))
    assert rig.done == [(EntryId(1, 5), [1])]
    rig.pool.finish_one()
    assert rig.done[1:] == [(None, [2]), "synced"]
    rig.pool.finish_one()
    assert rig.done[3:] == [(EntryId(1, 6), [3, 4]), "synced"]
    rig.durability.finish(None, answer(5))
    assert rig.done[-1] == (None, [5])
    assert rig.store.sync_count == 2


def test_recovered_entries_are_synced_before_they_are_vouched_for() -> None:
    rig = Rig(FlushDiskType.ASYNC_FLUSH)
    rig.durability.finish(None, answer(1))
    assert rig.done == []
    rig.pool.finish_one()
    assert rig.done == [(None, [1]), "synced"]


def test_checkpoint_is_written_each_three_seconds_while_the_commit_index_moves() -> None:
    rig = Rig(FlushDiskType.SYNC_FLUSH)
    rig.pool.holds = False
    for now_ms in range(0, 12_000, 500):
        rig.durability.keep_up(min(now_ms // 500, 16), now_ms)
    assert rig.store.checkpoints == [6, 12, 16]
    assert rig.store.sync_count == 3
    rig.durability.end(20)
    assert rig.store.checkpoints == [6, 12, 16, 20]
    assert rig.store.sync_count == 4


def test_member_that_knows_of_no_commit_notes_none_when_it_ends() -> None:
    rig = Rig(FlushDiskType.SYNC_FLUSH)
    rig.durability.end(-1)
    rig.pool.finish_all()
    assert rig.store.checkpoints == []
    assert rig.store.sync_count == 1


def test_what_fails_when_a_sync_has_ended_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(FlushDiskType.SYNC_FLUSH)
    error = CorruptStoreError("data", 0, "head", 1, 2, 5)

    def fail(persist_id: EntryId | None, answers: Iterable[PushResponse]) -> None:
        raise error

    monkeypatch.setattr(rig.durability, "_finish", fail)
    rig.durability.finish(EntryId(1, 5), answer(1))
    rig.pool.finish_all()
    assert rig.done == [error]
