"""Leader: the duties of a leader in its term, and the state only a leader has.

Heart beats, one `EntryDispatcher` for each peer, how far the log is committed, and when the silence
of a majority ends the leadership. Made anew for each term; nothing of it outlives the role.

Source: Raft 5.3, 5.4.2, thesis 6.2; DLedgerLeaderElector.maintainAsLeader,
DLedgerServer.handleAppend.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from ledgermq.dledger.birth import is_agreed, is_same
from ledgermq.dledger.config import Timing
from ledgermq.dledger.confirmations import Confirmations
from ledgermq.dledger.dispatcher import EntryDispatcher
from ledgermq.dledger.entry import BLANK_BYTES_MIN, EntrySlice, check_fits
from ledgermq.dledger.errors import (
    ColdDataError,
    DropReason,
    ProposalDroppedError,
    TransferRefusal,
    TransferRefusedError,
)
from ledgermq.dledger.log import RaftLog
from ledgermq.dledger.member_state import MemberState, Outbox
from ledgermq.dledger.messages import (
    UNCOUNTED_ROUND,
    DLedgerCode,
    HeartBeatRequest,
    HeartBeatResponse,
    PeerDialect,
    PushResponse,
    TransferRequest,
    TransferResponse,
)
from ledgermq.dledger.pace import Pace, Wait
from ledgermq.dledger.quorum import QuorumAckChecker
from ledgermq.dledger.transfer import PreferredLeaders, Standing, Transfer
from ledgermq.measures.histogram import Histogram

# A member that was not ready to follow gets its next heart beat after this (DLedger: at once).
NOT_READY_RETRY_MS: Final = 20
# Least time between two heart beats of which the second may end a follower's recovery.
RECOVERY_BEAT_MS: Final = 20
# Rounds of heart beats whose answers still tell how long they took.
_ROUNDS_KEPT: Final = 64

# Makes the body of the record that opens a term: from the term, and the body of the entry before
# it, b"" in an empty log.
MakeOpening = Callable[[int, bytes], bytes]


class _Loss(NamedTuple):
    """A peer has lost state."""

    # Of the peer's process that said so: one that began later may have lost more. 0: not known.
    life: int
    # Of the log when it was learned: an entry committed behind it was committed without the peer.
    last_index: int


class Leader:
    """The leader of one term.

    Invariants:
    1. The log is only appended to (Raft 5.3, Leader Append-Only).
    2. What is counted for the commit index is durable: the peers' `match_index`, and of the own log
       what the driver reported as persisted. Under SYNC_FLUSH that is synced, in whatever mode
       the follower is: it is asked for a sync, and an answer without one counts for nothing.
    3. In a group with a birth only peers are counted that have shown in this term that they hold
       it, by their vote or by the answer to a heart beat.
    """

    def __init__(
        self,
        state: MemberState,
        log: RaftLog,
        outbox: Outbox,
        preferred: PreferredLeaders,
        reads: Confirmations,
        pace: Pace,
        voters: Collection[str],
        commit_index: int,
        now_ms: float,
        make_opening: MakeOpening | None,
    ) -> None:
        """Begins the leadership of the present term; nothing is sent yet.

        Args:
            voters: peers that gave their vote, as members with this leader's birth.
            make_opening: makes the record that opens the term; None when there is none.
        """
        config = state.config
        self._state = state
        self._config = config
        self._log = log
        self._outbox = outbox
        self._make_opening = make_opening
        self._checker = QuorumAckChecker(config.quorum_count)
        self._dispatchers = {
            peer_id: EntryDispatcher(config, log, peer_id=peer_id, term=state.term, dialect=dialect)
            for peer_id, dialect in state.dialects.items()
        }
        # Last entry of the log when the leadership began, the opening record included: once it is
        # committed, so is everything older.
        self.ready_index = log.last_index
        # Index of the record that opened the term, or None when there was none to propose.
        self.opening_index: int | None = None
        # Where the first uncommitted entry begins: bounds the bytes that wait for a majority.
        self._uncommitted_position = log.end_before(commit_index + 1)
        # When each peer last answered as a follower.
        self._heard_ms = dict.fromkeys(state.dialects, now_ms)
        # Who said last that it follows another leader in this term.
        self._deniers: set[str] = set()
        # Peers that said they have lost state: replicated to, counted for nothing.
        self._recovering: dict[str, _Loss] = {}
        # Peers that have not shown in this term that they hold the group's birth.
        self._unproven: set[str] = set()
        if not state.is_mixed and is_agreed(state.birth):
            self._unproven = set(state.dialects) - set(voters)
        self._next_heart_beat_ms = self._last_heart_beat_ms = now_ms
        # Number of the last heart beat round, and when (`Pace.own_ms`) the last ones were sent.
        self._round = 0
        self._sent_ms: dict[int, float] = {}
        self._pace = pace
        # Since when a majority is silent, as of the last time that this member came late.
        self._silence = Wait(now_ms)
        # When it is looked at next: answers only put its end off.
        self._silence_look_ms = now_ms
        # The attempt to hand over that is under way; no proposals are taken meanwhile.
        self._transfer: Transfer | None = None
        self._preferred = preferred
        preferred.will_look(now_ms)
        self._reads = reads
        reads.lead()

    def open_term(self) -> None:
        """Appends the record that opens the term, which all older entries commit with (Raft 8)."""
        if self._make_opening is not None:
            self._append_opening(self._make_opening)
            self.opening_index = self.ready_index = self._log.last_index

    def _append_opening(self, make_body: MakeOpening) -> None:
        log, term = self._log, self._state.term
        last = b""
        if log.first_index <= log.last_index:
            last = bytes(next(log.read(log.last_index, 1, 1).bodies()))
        log.encode([make_body(term, last)], term)

    def propose(
        self, bodies: Sequence[bytes], commit_index: int, segment_bytes: int, now_ms: float
    ) -> list[EntrySlice]:
        """Appends bodies, within the limits; see `Raft.propose`."""
        log, config = self._log, self._config
        if self._transfer is not None:
            waited_ms = int(now_ms - self._transfer.started_ms)
            limit = config.transfer_timeout_ms
            raise ProposalDroppedError(DropReason.TRANSFERRING, waited_ms, limit)
        check_fits(
            max(map(len, bodies)), min(config.entry_bytes_max, segment_bytes - BLANK_BYTES_MIN)
        )
        waiting_count = log.last_index - commit_index + len(bodies)
        if waiting_count > config.proposals_max:
            limit = config.proposals_max
            raise ProposalDroppedError(DropReason.PENDING_FULL, waiting_count, limit)
        waiting_bytes = log.end_position - self._uncommitted_position + sum(map(len, bodies))
        if waiting_bytes > config.proposal_bytes_max:
            limit = config.proposal_bytes_max
            raise ProposalDroppedError(DropReason.BYTES_PENDING, waiting_bytes, limit)
        return log.encode(bodies, self._state.term)

    def find_commit_index(self, commit_index: int) -> int:
        """Tells how far the log is committed by now (Raft 5.4.2)."""
        log = self._log
        # What retention has removed was committed, though this leader has not counted that far yet.
        least_index = max(commit_index, log.first_index - 1)
        match_indexes = [log.persisted_index]
        if self._recovering or self._unproven:
            for peer_id, dispatcher in self._dispatchers.items():
                match_indexes.append(dispatcher.match_index if self.counts(peer_id) else -1)
        else:
            match_indexes += [peer.match_index for peer in self._dispatchers.values()]
        found = self._checker.commit_index(
            match_indexes, commit_index=least_index, term=self._state.term, term_at=log.term_at
        )
        if found > commit_index:
            self._uncommitted_position = log.end_before(found + 1)
        return found

    def match_index(self, peer_id: str) -> int:
        """Tells how far a peer durably holds the log, as far as it is known; -1 if it is not."""
        return self._dispatchers[peer_id].match_index

    def round_trips(self, peer_id: str) -> Histogram:
        """Tells how long pushes to a peer took to be confirmed in this term, in seconds."""
        return self._dispatchers[peer_id].round_trips

    def silent_ms(self, peer_id: str, now_ms: float) -> float:
        """Tells for how long nothing was heard of a peer."""
        return max(now_ms - self._heard_ms[peer_id], 0.0)

    def is_live(self, peer_id: str, now_ms: float) -> bool:
        """Tells whether a peer answers: it missed one heart beat at most."""
        return now_ms - self._heard_ms[peer_id] < self._live_silence_ms()

    def deadline_ms(self) -> float:
        """Tells when `tick` is due."""
        deadline_ms = min(
            self._heart_beat_due_ms(), self._silence_look_ms, self._preferred.next_look_ms
        )
        if self._transfer is not None:
            deadline_ms = min(deadline_ms, self._transfer.deadline_ms)
        for dispatcher in self._dispatchers.values():
            deadline_ms = min(deadline_ms, dispatcher.deadline_ms())
        return deadline_ms

    def tick(self, commit_index: int, now_ms: float) -> bool:
        """Sends heart beats that are due, gives up what was not answered.

        Returns:
            False when no majority was heard of for the election timeout: the leadership is over
            (check-quorum, thesis 6.2; maxHeartBeatLeak).
        """
        if now_ms >= self._silence_look_ms:
            end_ms = self._silence_deadline_ms()
            if now_ms >= end_ms:
                return False
            # Not later than a patience without a stretch: that may have become shorter by then.
            timeout_ms = self._state.timing.election_timeout_ms
            self._silence_look_ms = min(end_ms, now_ms + timeout_ms)
        if now_ms >= self._heart_beat_due_ms():
            self._send_heart_beats(commit_index, now_ms)
        for dispatcher in self._dispatchers.values():
            dispatcher.tick(now_ms)
        if self._transfer is not None and now_ms >= self._transfer.deadline_ms:
            self._end_transfer(DLedgerCode.TIMEOUT, now_ms)
        if now_ms >= self._preferred.next_look_ms:
            self._preferred.will_look(now_ms)
            self._look_for_preferred(commit_index, now_ms)
        return True

    def make_pushes(self, commit_index: int, now_ms: float) -> None:
        """Puts what each follower may be sent now into the outbox."""
        for dispatcher in self._dispatchers.values():
            self._outbox.messages += dispatcher.make_pushes(commit_index, now_ms)
        if self._transfer is not None:
            self._ask_transferee(self._transfer, commit_index)

    def take_cold(self) -> list[tuple[str, ColdDataError]]:
        """Returns what pushes lack in memory, by peer; see `Raft.take_cold`."""
        found = [(peer_id, peer.take_cold()) for peer_id, peer in self._dispatchers.items()]
        return [(peer_id, cold) for peer_id, cold in found if cold is not None]

    def loaded(self, peer_id: str) -> None:
        """See `Raft.loaded`."""
        self._dispatchers[peer_id].loaded()

    def transfer(self, target_id: str, now_ms: float) -> Transfer:
        """Begins to hand over; see `Raft.transfer`."""
        if target_id not in self._dispatchers:
            raise TransferRefusedError(TransferRefusal.UNKNOWN_MEMBER, target_id, 0, 0)
        config, under_way = self._config, self._transfer
        if under_way is not None:
            waited_ms, limit = int(now_ms - under_way.started_ms), config.transfer_timeout_ms
            raise TransferRefusedError(TransferRefusal.UNDER_WAY, target_id, waited_ms, limit)
        if not self.counts(target_id):
            raise TransferRefusedError(TransferRefusal.RECOVERING, target_id, 0, 0)
        silent_ms, limit = int(now_ms - self._heard_ms[target_id]), self._live_silence_ms()
        if silent_ms >= limit:
            raise TransferRefusedError(TransferRefusal.SILENT, target_id, silent_ms, limit)
        lag_count = self._lag_of(target_id)
        if lag_count >= config.transfer_lag_max:
            limit = config.transfer_lag_max
            raise TransferRefusedError(TransferRefusal.BEHIND, target_id, lag_count, limit)
        self._transfer = Transfer(
            self._state.term, target_id, now_ms, now_ms + config.transfer_timeout_ms
        )
        return self._transfer

    def on_transfer_response(self, response: TransferResponse, now_ms: float) -> None:
        """Takes the answer of the member that was asked to lead; 200 is told by its votes, too."""
        transfer = self._transfer
        if transfer is None or not transfer.is_asked or transfer.target_id != response.sender:
            return
        if response.code != DLedgerCode.SUCCESS and response.request_id == _request_id(transfer):
            self._end_transfer(response.code, now_ms)

    def on_heart_beat_response(self, response: HeartBeatResponse, now_ms: float) -> bool:
        """Takes an answer of this term; False when it ends the leadership: so many follow another
        leader in this term (409) as make a majority. Of fewer, one word is none: who says so counts
        as silent (DLedgerLeaderElector.sendHeartbeats asks for a majority, too).
        """
        if response.code == DLedgerCode.INCONSISTENT_LEADER:
            self._deniers.add(response.sender)
            return len(self._deniers) < self._config.quorum_count
        self._deniers.discard(response.sender)
        if response.code == DLedgerCode.SUCCESS:
            sent_ms = self._sent_ms.get(response.round)
            if sent_ms is not None:
                self._pace.answered(sent_ms)
            self._prove(response)
            self._heard(response.sender, response.recovering, now_ms, response.life)
            if self.counts(response.sender):
                self._reads.echoed(response.sender, response.round)
        elif response.code == DLedgerCode.TERM_NOT_READY:
            # It has entered the term by now, and follows at the next heart beat.
            soon_ms = now_ms + NOT_READY_RETRY_MS
            self._next_heart_beat_ms = min(self._next_heart_beat_ms, soon_ms)
        return True

    def on_push_response(self, response: PushResponse, now_ms: float) -> None:
        """Takes an answer of this term."""
        if response.code in (DLedgerCode.SUCCESS, DLedgerCode.INCONSISTENT_STATE):
            self._heard(response.sender, response.recovering, now_ms)
        if response.is_synced or not self._config.is_sync_flush:
            self._dispatchers[response.sender].respond(response, now_ms)

    def needed_index(self, commit_index: int, now_ms: float) -> int:
        """Tells the first entry that a follower which is alive may still ask for."""
        limit_ms = self._live_silence_ms()
        needed_index = commit_index + 1
        for peer_id, dispatcher in self._dispatchers.items():
            if now_ms - self._heard_ms[peer_id] < limit_ms:
                needed_index = min(needed_index, dispatcher.match_index + 1)
        return needed_index

    def set_dialect(self, peer_id: str, dialect: PeerDialect) -> None:
        """See `Raft.set_dialect`; a member that has come back hears at once whom to follow."""
        self._dispatchers[peer_id].set_dialect(dialect)
        if not self._state.is_mixed:
            self._next_heart_beat_ms = self._last_heart_beat_ms
        else:
            self._unproven.clear()

    def unreachable(self, peer_id: str, now_ms: float) -> None:
        """See `Raft.unreachable`."""
        self._dispatchers[peer_id].unreachable(now_ms)

    def _ask_transferee(self, transfer: Transfer, commit_index: int) -> None:
        """Asks the target once it has all that this leader has, and all of it is committed."""
        last_index = self._log.last_index
        target_id = transfer.target_id
        if transfer.is_asked or commit_index < last_index or self._lag_of(target_id) > 0:
            return
        transfer.is_asked = True
        self._outbox.messages.append(
            TransferRequest(
                term=self._state.term,
                sender=self._config.self_id,
                target=target_id,
                last_index=last_index,
                request_id=_request_id(transfer),
            )
        )

    def _end_transfer(self, code: DLedgerCode, now_ms: float) -> None:
        """Gives the attempt up: this leader goes on as if nothing had been."""
        transfer, self._transfer = self._transfer, None
        assert transfer is not None
        transfer.code = code
        self._preferred.not_taken(transfer.target_id, now_ms)

    def _look_for_preferred(self, commit_index: int, now_ms: float) -> None:
        """Hands over to a member that should lead rather than this one."""
        if self._transfer is not None or commit_index < self.ready_index:
            return
        limit_ms = self._live_silence_ms()
        standings = [
            Standing(
                peer_id,
                self._lag_of(peer_id),
                self.counts(peer_id) and now_ms - self._heard_ms[peer_id] < limit_ms,
            )
            for peer_id in self._dispatchers
        ]
        target_id = self._preferred.find_target(standings, now_ms)
        if target_id is not None:
            self.transfer(target_id, now_ms)

    def counts(self, peer_id: str) -> bool:
        """Tells whether a peer is counted: it has not lost state, and holds the group's birth."""
        return peer_id not in self._recovering and peer_id not in self._unproven

    def _prove(self, response: HeartBeatResponse) -> None:
        """Notes that the peer holds the birth of this leader, if it does."""
        if is_same(response.birth, self._state.birth):
            self._unproven.discard(response.sender)

    def _lag_of(self, peer_id: str) -> int:
        return self._log.last_index - self._dispatchers[peer_id].match_index

    def _live_silence_ms(self) -> int:
        """A member that answers has been heard of within this: it missed one heart beat at most."""
        return 2 * self._state.timing.heart_beat_ms

    def _heard(self, peer_id: str, recovering: bool, now_ms: float, life: int = 0) -> None:
        """Notes that a peer answers; `life` is that of a heart beat's answer."""
        self._heard_ms[peer_id] = now_ms
        self._dispatchers[peer_id].heard()
        loss = self._recovering.get(peer_id)
        if not recovering:
            self._recovering.pop(peer_id, None)
        elif loss is None or life not in (0, loss.life):
            self._recovering[peer_id] = _Loss(life, self._log.last_index)
            # Those that count may have been silent for longer.
            self._silence_look_ms = now_ms

    def serve_recovering(self, commit_index: int, applied_index: int) -> None:
        """Does what ends the recovery of followers, as soon as it can.

        It ends with an entry that was committed without them after this leader knew of their loss.
        A follower that has all there is waits for one: an idle leader proposes it, but not before
        what stands on the ledger has applied everything, for until then it takes up the
        leadership and wants the log as it is. A follower that has such an entry waits to hear that
        it is committed: the next heart beat says so.
        """
        for peer_id, loss in self._recovering.items():
            if self._dispatchers[peer_id].match_index < commit_index:
                continue
            if loss.last_index < commit_index:
                soon_ms = self._last_heart_beat_ms + RECOVERY_BEAT_MS
                self._next_heart_beat_ms = min(self._next_heart_beat_ms, soon_ms)
            elif self._make_opening is not None and self._log.last_index == applied_index:
                self._append_opening(self._make_opening)

    def excuse(self, late_ms: float, now_ms: float, timing: Timing) -> None:
        """Takes that this member comes late itself: answers may lie unread."""
        heard_ms = self._majority_ms()
        if heard_ms != self._silence.since_ms:
            self._silence.begin(heard_ms)
        self._silence.excuse(late_ms, now_ms, timing)

    def has_live_leader(self, now_ms: float, timing: Timing) -> bool:
        """Tells whether a majority was heard of within the election timeout."""
        timeout_ms, heard_ms = timing.election_timeout_ms, self._majority_ms()
        if heard_ms != self._silence.since_ms:
            return now_ms - heard_ms < timeout_ms
        return not self._silence.is_over(timeout_ms, now_ms)

    def _silence_deadline_ms(self) -> float:
        timing, heard_ms = self._state.timing, self._majority_ms()
        patience_ms = timing.election_timeout_ms * self._pace.majority_stretch(timing)
        if heard_ms != self._silence.since_ms:
            return heard_ms + patience_ms
        return self._silence.end_ms(patience_ms)

    def _majority_ms(self) -> float:
        heard_ms = [heard for peer_id, heard in self._heard_ms.items() if self.counts(peer_id)]
        return self._checker.silence_deadline_ms(heard_ms, 0)

    def _heart_beat_due_ms(self) -> float:
        return min(self._next_heart_beat_ms, self._reads.beat_due_ms(self._last_heart_beat_ms))

    def _send_heart_beats(self, commit_index: int, now_ms: float) -> None:
        self._last_heart_beat_ms = now_ms
        self._next_heart_beat_ms = now_ms + self._state.timing.heart_beat_ms
        self._round += 1
        self._reads.round_began(self._round)
        self._sent_ms[self._round] = self._pace.own_ms
        self._sent_ms.pop(self._round - _ROUNDS_KEPT, None)
        for peer_id, dialect in self._state.dialects.items():
            round_number, told_index, life = self._round, None, 0
            if dialect is not PeerDialect.JAVA and commit_index >= 0:
                told_index = commit_index
            if peer_id in self._recovering:
                # Its recovery ends with an entry that a majority committed without it.
                round_number, (life, last_index) = UNCOUNTED_ROUND, self._recovering[peer_id]
                told_index = told_index if commit_index > last_index else None
            self._outbox.messages.append(
                HeartBeatRequest(
                    term=self._state.term,
                    sender=self._config.self_id,
                    target=peer_id,
                    commit_index=told_index,
                    read_round=round_number,
                    life=life,
                    birth=self._state.birth,
                    members_digest=self._state.members_digest,
                )
            )


def _request_id(transfer: Transfer) -> int:
    """Tells attempts apart: two of one term do not begin within the same microsecond."""
    return int(transfer.started_ms * 1000)
