"""When entries count as written, and what waits for that: steps 5 and 6 of a Ready.

SYNC_FLUSH: Ready values with entries wait for a sync; many share one, and they are finished in
their order. A push answer of a Ready without entries waits, too, while syncs are under way: it may
testify to entries of a Ready before. ASYNC_FLUSH: all is finished at once, and a sync follows in
the background; but an answer that is to be synced, for its leader counts no other, waits for a sync
as under SYNC_FLUSH. The commit index is noted on disk now and then.

However long a sync takes, what waits is bounded. There are two batches at most: what the running
sync covers, and what the next one will. In a batch the last persist id stands for all, and an
answer replaces an earlier one about the same entries; above `ANSWERS_MAX` the oldest is dropped, as
a network may do.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from ledgermq.dledger.disk_job import DiskJob
from ledgermq.dledger.entry import EntryId
from ledgermq.dledger.messages import PushKind, PushResponse
from ledgermq.dledger.replica.config import FlushDiskType, ReplicaConfig
from ledgermq.dledger.storage import LedgerStore
from ledgermq.dledger.store.keeper import GroupCommit, Keeper

# Push answers in one batch: those to several windows of all leaders of a while.
ANSWERS_MAX: Final = 1024
# What one takes in memory, rounded up.
ANSWER_BYTES: Final = 512

# Sends the answers, then tells the core that the entry is durable.
Finish = Callable[[EntryId | None, Iterable[PushResponse]], None]


class _Batch:
    """Ready values whose last steps wait for the same sync."""

    __slots__ = ("answers", "number", "persist_id")

    def __init__(self) -> None:
        # Of the last Ready with entries up to this one; its sync lets this one go.
        self.number = 0
        # Of that Ready; None where the batch has answers only.
        self.persist_id: EntryId | None = None
        # By what they are about, oldest first.
        self.answers: dict[tuple[str, PushKind, int | None], PushResponse] = {}

    def add_answers(self, answers: Iterable[PushResponse]) -> None:
        """Takes answers, each in place of an earlier one about the same entries."""
        kept = self.answers
        for answer in answers:
            key = answer.target, answer.kind, answer.index
            kept.pop(key, None)
            kept[key] = answer
            if len(kept) > ANSWERS_MAX:
                del kept[next(iter(kept))]


class Durability:
    """Keeps the order between the disk, the answers and the core.

    Numbers that only grow, all of them the reactor's: Ready values with entries are counted as they
    come (`_appended`), a sync takes down how many there were when it was begun, and when it has
    ended so many are durable (`_durable`).

    Invariants: the batches that wait are in the order in which their Ready values came, one at most
    is covered by no sync that has begun; `_durable` never passes the number that a sync took down
    before it began.
    """

    def __init__(
        self,
        config: ReplicaConfig,
        keeper: Keeper,
        store: LedgerStore,
        *,
        finish: Finish,
        joined: Callable[[EntryId], None],
        synced: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Nothing waits yet.

        Args:
            config: says what "durable" means.
            keeper: runs the syncs.
            store: is synced, and gets the checkpoint.
            finish: does step 6 of one Ready, or of several as of the last of them.
            joined: told of the persist id that will not be given to `finish`: that of the next
                Ready stands for both.
            synced: called once after a sync, when its Ready values are finished.
            failed: told of the error that ends the replica.
        """
        self._config = config
        self._is_syncing = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._store = store
        self._finish = finish
        self._joined = joined
        self._synced = synced
        self._failed = failed
        self._unfinished: deque[_Batch] = deque()
        # What a member with ASYNC_FLUSH found in its log may never have been synced.
        self._appended = 0 if self._is_syncing else 1
        self._durable = 0
        # How many there were when the last sync began.
        self._begun = 0
        self._syncs = GroupCommit(keeper, self._note_begin)
        self._checkpoint_index = -1
        self._checkpoint_at_ms = 0.0

    def sync(self) -> Deferred[None]:
        """Has all that was written up to now, and until the sync begins, brought to the disk.

        Returns:
            Fires when it is there; fails with the error that ended the keeper.
        """
        return self._syncs.request()

    @property
    def answers_bytes(self) -> int:
        """What the answers that wait take in memory."""
        return ANSWER_BYTES * sum(len(batch.answers) for batch in self._unfinished)

    def _note_begin(self) -> DiskJob | None:
        self._begun = self._appended
        return self._begin_sync()

    def _begin_sync(self) -> DiskJob | None:
        appended = self._appended
        job = self._store.begin_sync()
        if job is None:
            self._durable = appended
            return None

        def end() -> DiskJob | None:
            self._durable = appended
            return job.end()

        return DiskJob(job.run, end)

    def finish(self, persist_id: EntryId | None, answers: Iterable[PushResponse]) -> None:
        """Finishes a Ready, now or when its entries are as durable as configured.

        Args:
            persist_id: its last entry; None when it has none.
            answers: push answers that testify to what is in the log.
        """
        if persist_id is not None:
            self._appended += 1
        if not self._unfinished:
            is_waiting = self._is_syncing or any(answer.is_synced for answer in answers)
            if not is_waiting or self._appended == self._durable:
                self._finish(persist_id, answers)
                return
        # The last batch is joined when the sync that lets it go covers this Ready, too.
        waiting, number = self._unfinished, self._appended
        is_new = not waiting or (waiting[-1].number <= self._begun and waiting[-1].number < number)
        if is_new:
            waiting.append(_Batch())
        batch = waiting[-1]
        batch.number = number
        batch.add_answers(answers)
        if persist_id is not None:
            if batch.persist_id is not None:
                self._joined(batch.persist_id)
            batch.persist_id = persist_id
        if is_new:
            self.sync().addCallbacks(self._sync_done, self._sync_failed)

    def begin(self) -> Deferred[None]:
        """Brings what was recovered to the disk, and notes there that it is.

        It would be noted some seconds later: a bit that flips until then passes for a torn write.
        """
        commit_index = self._store.read_checkpoint()
        if commit_index >= 0:
            self._store.write_checkpoint(commit_index)
        return self.sync()

    def keep_up(self, commit_index: int, now_ms: float) -> None:
        """Does what is due in the background; called each `flush_interval_ms`.

        A checkpoint that was noted gets to the disk with the next sync, so one is asked for.
        """
        is_due = now_ms - self._checkpoint_at_ms >= self._config.checkpoint_interval_ms
        has_news = is_due and commit_index != self._checkpoint_index
        if has_news:
            self._checkpoint_at_ms = now_ms
            self._checkpoint_index = commit_index
            self._store.write_checkpoint(commit_index)
        is_wanted = has_news or (not self._is_syncing and self._appended != self._durable)
        # While the disk hangs, one sync waits behind the one that does not end.
        if is_wanted and not self._syncs.is_asked:
            self.sync().addCallbacks(self._sync_done, self._sync_failed)

    def drop(self) -> None:
        """Forgets what waits: nothing of it will be sent."""
        self._unfinished.clear()

    def end(self, commit_index: int) -> Deferred[None]:
        """Notes the commit index and syncs a last time.

        Where none is known nothing is noted: beside an empty log of a member that never voted, a
        checkpoint would tell of a vote that was lost.
        """
        if commit_index >= 0:
            self._store.write_checkpoint(commit_index)
        return self.sync()

    def _sync_done(self, _: object) -> None:
        """Finishes what is durable by now; whoever else waited for this sync finds nothing left."""
        waiting = self._unfinished
        if not waiting or waiting[0].number > self._durable:
            return
        try:
            while waiting and waiting[0].number <= self._durable:
                first = waiting.popleft()
                self._finish(first.persist_id, first.answers.values())
            self._synced()
        except Exception as error:
            # The core may have gone half a step: as in a turn, that is the end of the member.
            self._failed(error)

    def _sync_failed(self, failure: Failure) -> None:
        assert failure.value is not None
        self._failed(failure.value)
