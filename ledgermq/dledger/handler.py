"""EntryHandler: what a follower does with a push, and what it answers.

Called after the term was compared and the sender accepted as the leader of the present term. Rules
that DLedger lacks:

- An entry is appended only behind a log that was verified against this leader in this term: by the
  entry before it (LedgerMQ leaders), or by COMPARE or TRUNCATE (Java leaders, whose APPEND names no
  entry before it). Else the answer is 406, which makes any leader compare.
- The leader's commit index counts only up to what was verified.
- What was verified against this leader, and what is committed, is never cut: a TRUNCATE that comes
  late or twice cannot delete entries that were acknowledged since. A leader that contradicts a
  committed entry is a broken invariant.
- An entry whose position is not where this log would place it is refused before a byte is written.

Source: DLedgerEntryPusher.EntryHandler; Raft 5.3.
"""

from ledgermq.dledger.entry import EntryId, EntrySlice
from ledgermq.dledger.errors import ContradictionError
from ledgermq.dledger.log import RaftLog
from ledgermq.dledger.member_state import Follower, MemberState, Outbox
from ledgermq.dledger.messages import (
    AppendRequest,
    CommitRequest,
    CompareRequest,
    DLedgerCode,
    PeerDialect,
    PushKind,
    PushRequest,
    PushResponse,
    TruncateRequest,
)


class EntryHandler:
    """The follower's side of replication, on its own log."""

    def __init__(self, state: MemberState, log: RaftLog, outbox: Outbox) -> None:
        self._state = state
        self._log = log
        self._outbox = outbox

    def refuse(self, request: PushRequest, *, is_leader: bool) -> None:
        """Answers a push of a past term, of another than the known leader, or of a stranger.

        To a Java leader an APPEND or TRUNCATE that fails for any reason is 406, and a COMMIT never
        fails; to a COMPARE any other code is a pause. A LedgerMQ leader of a past term is told the
        present one.

        Args:
            request: the push; nothing of it is carried out.
            is_leader: whether this member leads itself.
        """
        is_past = request.term < self._state.term
        code, term = DLedgerCode.INCONSISTENT_LEADER, request.term
        if request.sender not in self._state.dialects:
            code = DLedgerCode.UNKNOWN_MEMBER
        elif self._is_java(request) and isinstance(request, CommitRequest):
            code = DLedgerCode.SUCCESS
        elif self._is_java(request) and not isinstance(request, CompareRequest):
            code = DLedgerCode.INCONSISTENT_STATE
        elif is_past:
            code = DLedgerCode.INCONSISTENT_TERM
            term = request.term if self._is_java(request) else self._state.term
        elif is_leader:
            code = DLedgerCode.NOT_FOLLOWER
        self.answer(request, code, term)

    def answer(self, request: PushRequest, code: DLedgerCode, term: int) -> None:
        """Answers a push with a code and the ends of the log as they are now."""
        kind, first_index, count = PushKind.COMMIT, None, 0
        is_synced = self._state.config.is_sync_flush
        if not isinstance(request, CommitRequest):
            is_synced = is_synced or request.wants_sync
        match request:
            case AppendRequest():
                kind, first_index = PushKind.APPEND, request.entries.first_index
                count = request.entries.count
            case CompareRequest():
                kind, first_index, count = PushKind.COMPARE, request.entry.first_index, 1
            case TruncateRequest():
                kind, first_index, count = PushKind.TRUNCATE, request.entry.first_index, 1
        log = self._log
        is_empty = log.last_index < log.first_index
        self._outbox.after_persist.append(
            PushResponse(
                term=term,
                sender=self._state.config.self_id,
                target=request.sender,
                kind=kind,
                code=code,
                index=first_index,
                count=count,
                begin_index=-1 if is_empty else log.first_index,
                # An empty log that begins later goes on there: what lies before it was committed.
                end_index=-1 if is_empty and self._is_java(request) else log.last_index,
                request_id=request.request_id,
                recovering=self._state.recovering,
                is_synced=is_synced,
            )
        )

    def handle(self, request: PushRequest, follower: Follower, commit_index: int) -> DLedgerCode:
        """Carries out a push of the present leader.

        Args:
            request: of the member's own term.
            follower: the member's state; `verified_index` is kept up to date here.
            commit_index: of the member; nothing at or below it is changed.

        Returns:
            SUCCESS; INCONSISTENT_STATE (406), which makes the leader compare; DISK_ERROR (414) when
            a LedgerMQ leader's entry does not stand where this log would place it;
            UNEXPECTED_ARGUMENT (411) for a request that contradicts itself. Nothing was changed
            unless it is SUCCESS.

        Raises:
            ContradictionError: the leader contradicts a committed entry.
        """
        from_java = self._is_java(request)
        match request:
            case AppendRequest():
                if request.entries.last_term > request.term:
                    return DLedgerCode.UNEXPECTED_ARGUMENT
                if request.previous is None or from_java:
                    return self._append_of_java(request.entries, follower, commit_index)
                return self._append(request, request.previous, follower, commit_index)
            case CompareRequest():
                return self._compare(request.entry, follower, commit_index)
            case TruncateRequest():
                if request.entry.last_term > request.term:
                    return DLedgerCode.UNEXPECTED_ARGUMENT
                return self._truncate(request, follower, commit_index, from_java=from_java)
            case CommitRequest():
                return DLedgerCode.SUCCESS

    def _is_java(self, request: PushRequest) -> bool:
        return self._state.dialects.get(request.sender) is PeerDialect.JAVA

    def _append(
        self, request: AppendRequest, previous: EntryId, follower: Follower, commit_index: int
    ) -> DLedgerCode:
        """AppendEntries as in Raft figure 2, receiver steps 2 to 4.

        Equal term and index mean an equal prefix (Raft 5.3) unless two leaders have written in one
        term, as members with different lists could. Then the chain checksums differ. Neither log
        can be completed from the other, committed or not, so it is a contradiction.
        """
        log, entries = self._log, request.entries
        if previous.index != entries.first_index - 1 or previous.term > entries.first_term:
            return DLedgerCode.UNEXPECTED_ARGUMENT
        if previous.index > log.last_index:
            return DLedgerCode.INCONSISTENT_STATE
        if previous.index >= log.first_index and log.term_at(previous.index) != previous.term:
            if previous.index <= commit_index:
                own_term = log.term_at(previous.index)
                raise ContradictionError(
                    f"committed entry {previous.index} keeps its term", own_term, previous.term
                )
            return DLedgerCode.INCONSISTENT_STATE
        if request.chain_mismatch is not None and previous.index >= log.first_index:
            raise _other_history(previous.index, previous.term, *request.chain_mismatch)
        new_index = self._first_new(entries)
        self._check_history(entries, new_index)
        if new_index is None:
            follower.verified_index = max(follower.verified_index, entries.last_index)
            return DLedgerCode.SUCCESS
        if not log.fits(entries.slice_from(new_index)):
            return DLedgerCode.DISK_ERROR
        self._append_from(new_index, entries, follower, commit_index)
        return DLedgerCode.SUCCESS

    def _check_history(self, entries: EntrySlice, new_index: int | None) -> None:
        """Compares the last entry of a run that the log holds by term and index with its own."""
        log, index = self._log, (entries.last_index + 1 if new_index is None else new_index) - 1
        if index < max(entries.first_index, log.first_index):
            return
        own, theirs = log.chain_crc_at(index), entries.head_at(index).chain_crc
        if own != theirs and own and theirs:
            raise _other_history(index, entries.term_at(index), own, theirs)

    def _append_of_java(
        self, entries: EntrySlice, follower: Follower, commit_index: int
    ) -> DLedgerCode:
        """APPEND without a word about the entry before it (handleDoAppend, handleDoBatchAppend)."""
        log = self._log
        verified_index = follower.verified_index
        if entries.last_index <= verified_index:
            # Sent twice. A leader that started again in the same term may differ: compare then.
            is_same = self._holds_all(entries, commit_index)
            return DLedgerCode.SUCCESS if is_same else DLedgerCode.INCONSISTENT_STATE
        if verified_index < log.last_index or entries.first_index > log.last_index + 1:
            return DLedgerCode.INCONSISTENT_STATE
        new = entries.slice_from(max(entries.first_index, log.last_index + 1))
        if new.first_term < log.last_term or not log.fits(new):
            return DLedgerCode.INCONSISTENT_STATE
        log.append(new)
        follower.verified_index = log.last_index
        return DLedgerCode.SUCCESS

    def _compare(self, entry: EntrySlice, follower: Follower, commit_index: int) -> DLedgerCode:
        """Tells whether the log has this entry; then it equals the leader's up to it (Raft 5.3).

        Source: handleDoCompare. What retention has removed was committed, so it is common.
        """
        index = entry.first_index
        if index < self._log.first_index and index <= commit_index:
            return DLedgerCode.SUCCESS
        if self._log.holds(entry):
            follower.verified_index = max(follower.verified_index, index)
            return DLedgerCode.SUCCESS
        if index <= follower.verified_index:
            # Only a leader that lost its log and leads the same term again (a Java leader can).
            follower.verified_index = commit_index
        return DLedgerCode.INCONSISTENT_STATE

    def _truncate(
        self, request: TruncateRequest, follower: Follower, commit_index: int, *, from_java: bool
    ) -> DLedgerCode:
        """Makes the log contain this entry; cuts, or starts afresh, what contradicts it.

        Only a Java leader's request cuts entries behind an equal one: a LedgerMQ leader proves
        the conflict by APPEND.

        Source: handleDoTruncate, DLedgerMmapFileStore.truncate.
        """
        log, entry = self._log, request.entry
        index = entry.first_index
        is_held = index < log.first_index or log.holds(entry)
        if index <= commit_index and not is_held:
            raise ContradictionError("a committed entry is never truncated", commit_index, index)
        if is_held and index <= log.last_index:
            follower.verified_index = max(follower.verified_index, index)
            own_end = max(follower.verified_index, commit_index)
            if from_java and own_end < log.last_index and log.last_term != request.term:
                log.truncate(own_end + 1)
            return DLedgerCode.SUCCESS
        if index <= follower.verified_index:
            follower.verified_index = commit_index
        if index - 1 > min(follower.verified_index, log.last_index):
            # The log before the entry is not known to be the leader's: begin anew with the entry,
            # where it can stand: what was there is gone afterwards.
            if not log.has_room(entry):
                return DLedgerCode.INCONSISTENT_STATE if from_java else DLedgerCode.DISK_ERROR
            log.reset(index, entry.position)
        elif log.fits(entry):
            if index <= log.last_index:
                log.truncate(index)
        else:
            return DLedgerCode.INCONSISTENT_STATE if from_java else DLedgerCode.DISK_ERROR
        log.append(entry)
        follower.verified_index = index
        return DLedgerCode.SUCCESS

    def _append_from(
        self, new_index: int, entries: EntrySlice, follower: Follower, commit_index: int
    ) -> None:
        """Cuts what contradicts the entries, and appends those that are new."""
        log = self._log
        if new_index <= log.last_index:
            if new_index <= max(commit_index, follower.verified_index):
                raise ContradictionError(
                    "an entry that is committed or was verified against this leader is never cut",
                    max(commit_index, follower.verified_index) + 1,
                    new_index,
                )
            log.truncate(new_index)
        log.append(entries.slice_from(new_index))
        follower.verified_index = entries.last_index

    def _first_new(self, entries: EntrySlice) -> int | None:
        """Finds the first entry that the log does not have; None when it has them all.

        Equal term and index mean an equal prefix (Raft 5.3, Log Matching), so that one look at the
        end of the overlap is enough unless there is a conflict.
        """
        log = self._log
        low = max(entries.first_index, log.first_index)
        high = min(entries.last_index, log.last_index)
        if high < low or log.term_at(high) == entries.term_at(high):
            next_index = max(high + 1, entries.first_index)
            return next_index if next_index <= entries.last_index else None
        while low < high:
            middle = (low + high) // 2
            if log.term_at(middle) == entries.term_at(middle):
                low = middle + 1
            else:
                high = middle
        return low

    def _holds_all(self, entries: EntrySlice, commit_index: int) -> bool:
        log = self._log
        for index in range(max(entries.first_index, log.first_index), entries.last_index + 1):
            if not log.holds(entries.slice_from(index).take(1, 1)):
                return False
        return entries.first_index >= log.first_index or entries.last_index <= commit_index


def _other_history(index: int, term: int, own: int, theirs: int) -> ContradictionError:
    invariant = f"entry {index} of term {term} is the same on all members, its chain checksum too"
    return ContradictionError(invariant, own, theirs)
