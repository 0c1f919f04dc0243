"""When entries count as written, and what waits for that: steps 5 and 6 of a Ready.

SYNC_FLUSH: each Ready with entries asks for a sync; many share one, and Ready values are finished
in their order. A push answer of a Ready without entries waits, too, while syncs are under way: it
may testify to entries of a Ready before. ASYNC_FLUSH: all is finished at once, and a sync follows
in the background. The commit index is noted on disk now and then.
"""

from collections import deque
from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from ledgermq.dledger.entry import EntryId
from ledgermq.dledger.messages import Message
from ledgermq.dledger.replica.config import FlushDiskType, ReplicaConfig
from ledgermq.dledger.storage import LedgerStore
from ledgermq.dledger.store.flusher import Flusher

# Sends the answers, then tells the core that the entry is durable.
Finish = Callable[[EntryId | None, list[Message]], None]


class _Unfinished:
    """A Ready whose last steps wait for the disk."""

    __slots__ = ("answers", "is_durable", "persist_id")

    def __init__(self, persist_id: EntryId | None, answers: list[Message]) -> None:
        self.persist_id = persist_id
        self.answers = answers
        self.is_durable = persist_id is None


class Durability:
    """Keeps the order between the disk, the answers and the core.

    Invariant: the Ready values that wait are in the order in which they came.
    """

    def __init__(
        self,
        config: ReplicaConfig,
        flusher: Flusher,
        store: LedgerStore,
        *,
        finish: Finish,
        synced: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Nothing waits yet.

        Args:
            config: says what "durable" means.
            flusher: syncs `store`.
            store: gets the checkpoint.
            finish: does step 6 of one Ready.
            synced: called once after a sync, when its Ready values are finished.
            failed: told of the error that ends the replica.
        """
        self._config = config
        self._is_syncing = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._flusher = flusher
        self._store = store
        self._finish = finish
        self._synced = synced
        self._failed = failed
        self._unfinished: deque[_Unfinished] = deque()
        # Entries were appended since the last sync in the background.
        self._has_unsynced = False
        self._checkpoint_index = -1
        self._checkpoint_at_ms = 0.0

    def begin(self) -> Deferred[None]:
        """Makes durable what a crash may have left in the page cache."""
        return self._flusher.request()

    def finish(self, persist_id: EntryId | None, answers: list[Message]) -> None:
        """Finishes a Ready, now or when its entries are as durable as configured.

        Args:
            persist_id: its last entry; None when it has none.
            answers: push answers that testify to what is in the log.
        """
        if not self._is_syncing:
            self._has_unsynced = self._has_unsynced or persist_id is not None
            self._finish(persist_id, answers)
            return
        if persist_id is None and not self._unfinished:
            self._finish(None, answers)
            return
        unfinished = _Unfinished(persist_id, answers)
        self._unfinished.append(unfinished)
        if persist_id is not None:
            synced = self._flusher.request().addCallback(self._sync_done, unfinished)
            synced.addErrback(self._sync_failed)

    def keep_up(self, commit_index: int, now_ms: float) -> None:
        """Does what is due in the background; called each `flush_interval_ms`.

        A checkpoint that was noted gets to the disk with the next sync, so one is asked for.
        """
        is_due = now_ms - self._checkpoint_at_ms >= self._config.checkpoint_interval_ms
        if is_due and commit_index != self._checkpoint_index:
            self._checkpoint_at_ms = now_ms
            self._checkpoint_index = commit_index
            self._store.write_checkpoint(commit_index)
            self._has_unsynced = True
        if self._has_unsynced:
            self._has_unsynced = False
            self._flusher.request().addErrback(self._sync_failed)

    def drop(self) -> None:
        """Forgets what waits: nothing of it will be sent."""
        self._unfinished.clear()

    def end(self, commit_index: int) -> Deferred[None]:
        """Notes the commit index, syncs a last time and ends the flusher's thread.

        Where none is known nothing is noted: beside an empty log of a member that never voted, a
        checkpoint would tell of a vote that was lost.
        """
        if commit_index >= 0:
            self._store.write_checkpoint(commit_index)
        synced = self._flusher.request()
        return self._flusher.stop().addCallback(lambda _: synced)

    def abandon(self) -> Deferred[None]:
        """Ends the flusher's thread without asking the disk again."""
        return self._flusher.stop()

    def _sync_done(self, _: object, unfinished: _Unfinished) -> None:
        unfinished.is_durable = True
        waiting = self._unfinished
        if not waiting or not waiting[0].is_durable:
            return
        while waiting and waiting[0].is_durable:
            first = waiting.popleft()
            self._finish(first.persist_id, first.answers)
        self._synced()

    def _sync_failed(self, failure: Failure) -> None:
        assert failure.value is not None
        self._failed(failure.value)
