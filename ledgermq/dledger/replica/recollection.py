"""Recollection: what a member knows of its former life, and the mark of what it forgot.

A member that lost its votes, or entries that it may have acknowledged, recovers: it gives no vote
and counts for nothing until it has caught up. Whether it has is the core's to say; that it has not
must survive any number of restarts, so it is noted on disk before the core acts on it, and the note
goes only when the vote of the recovered member is on disk.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Final, NamedTuple

from twisted.logger import Logger

from ledgermq.dledger.birth import is_agreed
from ledgermq.dledger.disk_job import DiskJob
from ledgermq.dledger.raft import Raft
from ledgermq.dledger.storage import HardState, LedgerStore, VoteStore
from ledgermq.dledger.store.errors import CorruptStoreError, DiskFullError, VoteStateLostError
from ledgermq.dledger.store.memory_store import DLedgerMemoryStore
from ledgermq.dledger.store.repair_mark import RepairMark

_LOSS: Final = "its log, its votes or the birth of its group are gone, and the others have them"

_log = Logger()


class FormerLife(NamedTuple):
    """How a member starts."""

    state: HardState | None
    is_recovering: bool
    # It holds no entry and no agreed birth, and has voted for nobody: of a new group, or with a new
    # disk.
    is_new: bool


class Recollection:
    """Votes and repair mark of one member."""

    def __init__(
        self,
        self_id: str,
        votes: VoteStore,
        mark: RepairMark | None,
        peer_ids: Collection[str],
    ) -> None:
        """Reads nothing yet; without a mark (tests) nothing is remembered over a restart."""
        self._has_peers = bool(peer_ids)
        self._self_id = self_id
        self._votes = votes
        self._mark = mark
        # As noted on disk.
        self.is_recovering = False

    def load(self, store: LedgerStore, *, is_recovering: bool) -> FormerLife:
        """Returns what is known, and notes it when that is less than there was.

        Args:
            store: of the member, open.
            is_recovering: the caller knows of a loss.

        Raises:
            VoteStateLostError: the votes are lost, and there are no peers to recover from.
        """
        repair = self._mark.read() if self._mark is not None else None
        reason = "the store has lost entries" if is_recovering else None
        if repair is not None and repair.is_recovering:
            reason = repair.reason
        state = None
        try:
            state = self._votes.load()
        except VoteStateLostError as error:
            if not self._has_peers:
                cure = "if its group never had other members, remove this file and start again"
                why = f"{error.reason}; this member has no peers to recover from: {cure}"
                raise VoteStateLostError(error.path, why) from error
            reason = str(error)
        if reason is not None:
            self._begin(reason)
        is_new = store.first_index == 0 and store.last_index < 0
        if is_new and state is not None:
            if isinstance(store, DLedgerMemoryStore):
                # It is empty after each start, so that the member has lost what it promised.
                state = replace(state, birth=None)
            else:
                has_voted = state.has_voted or state.voted_for not in (None, self._self_id)
                is_new = not (has_voted or is_agreed(state.birth))
        return FormerLife(state, reason is not None, is_new)

    def note_loss(self, raft: Raft) -> None:
        """Before the member takes part: the core may have found a loss itself; blocks."""
        if raft.recovering and not self.is_recovering:
            self._begin(_LOSS)

    def begin_loss(self, raft: Raft) -> DiskJob | None:
        """Before the effects of a step are carried out: begins `note_loss`; None: no loss."""
        if not raft.recovering or self.is_recovering:
            return None
        self._tell_begin(_LOSS)
        return DiskJob(lambda: self._mark_begin(_LOSS))

    def begin_end(self, raft: Raft) -> DiskJob | None:
        """After the effects of a step were carried out, the vote among them; None: no end."""
        if not self.is_recovering or raft.recovering:
            return None
        self.is_recovering = False
        _log.info("{self_id}: recovered, it votes and counts again", self_id=self._self_id)
        return None if self._mark is None else DiskJob(self._mark.clear)

    def note_failure(self, error: BaseException) -> None:
        """Has the next opening look at all of a store that gave bad bytes.

        The member stops in any case: where the disk does not take the mark, that is logged.
        """
        if self._mark is None or not isinstance(error, CorruptStoreError):
            return
        try:
            self._mark.suspect(str(error))
        except (OSError, DiskFullError) as reason:
            _log.error(
                "{self_id}: the next start will not look at all of the store, for this could not"
                " be noted: {reason}",
                self_id=self._self_id,
                reason=str(reason),
            )

    def _begin(self, reason: str) -> None:
        self._tell_begin(reason)
        self._mark_begin(reason)

    def _mark_begin(self, reason: str) -> None:
        if self._mark is not None:
            self._mark.begin_recovery(reason)

    def _tell_begin(self, reason: str) -> None:
        self.is_recovering = True
        _log.warn(
            "{self_id}: recovering, no vote and no acknowledgement until it has caught up:"
            " {reason}",
            self_id=self._self_id,
            reason=reason,
        )
