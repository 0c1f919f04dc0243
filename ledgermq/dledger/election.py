"""LeaderElector: rounds of votes. Asks for them, counts them, and answers those of others.

Pictures of a candidate's phases:

    among LedgerMQ members           WAITING ──> PRE_VOTE ──majority──> VOTE ──majority──> leader
                                        ^           │ refused             │ refused
                                        └───────────┴─────────────────────┘ after a random wait
    with a Java member               WAITING ──> VOTE ──PASSED──> leader
                                        ^          │ else: the wait and the term of the next round
                                        └──────────┘ follow from the answers

What a single vote or a whole round means is decided in votes.py. Becoming leader, follower or
candidate is Raft's business: the methods here say when a round is won.

Source: DLedgerLeaderElector; Raft 5.2, thesis 9.6.
"""

import random
from typing import Final

from ledgermq.dledger.config import NEVER
from ledgermq.dledger.log import RaftLog
from ledgermq.dledger.member_state import Candidate, MemberState, Outbox, Phase
from ledgermq.dledger.messages import VoteRequest, VoteResponse, VoteResult
from ledgermq.dledger.pace import Pace
from ledgermq.dledger.strangers import is_stranger
from ledgermq.dledger.transfer import PreferredLeaders
from ledgermq.dledger.votes import (
    RoundResult,
    Verdict,
    Voter,
    count_grants,
    is_dledger_round_over,
    is_round_over,
    judge_dledger_round,
    judge_vote,
    judge_vote_as_dledger,
)

# DLedger asks again in the next step of its loop.
REVOTE_IMMEDIATELY_MS: Final = 10
# So many of the longest waits later stands a member that should not lead: all others had their
# rounds by then, and it stands only where none of them has enough of the log to be elected.
_UNFIT_WAITS: Final = 5


class LeaderElector:
    """The elections of one member."""

    def __init__(
        self,
        state: MemberState,
        log: RaftLog,
        rng: random.Random,
        outbox: Outbox,
        pace: Pace,
        preferred: PreferredLeaders,
    ) -> None:
        """Binds what elections read and change.

        The vote that `state` was loaded with matters: a member that voted for itself may have led
        that term before it was restarted, so it must not lead it again.
        """
        self._state = state
        self._config = state.config
        self._log = log
        self._rng = rng
        self._outbox = outbox
        self._pace = pace
        self._preferred = preferred
        # When (`Pace.own_ms`) each peer was asked for the first time since its last answer.
        self._asked_ms: dict[str, float] = {}
        self._burnt_term = state.term if state.voted_for == state.config.self_id else -1

    def next_round_ms(self, now_ms: float) -> float:
        """Draws when a candidate asks next; a recovering member never does, but when it is new, for
        the birth of its group.
        """
        if self._state.recovering and not self._state.is_new:
            return NEVER
        timing = self._state.timing
        wait_ms = self._rng.uniform(timing.vote_wait_min_ms, timing.vote_wait_max_ms)
        if self._preferred.is_unfit and self._config.peer_ids:
            wait_ms += _UNFIT_WAITS * timing.vote_wait_max_ms
        return now_ms + wait_ms * self._pace.vote_stretch(timing)

    def draw_patience_ms(self) -> float:
        """Draws what a follower waits beyond the election timeout."""
        timing = self._state.timing
        return self._rng.uniform(0, timing.vote_wait_max_ms - timing.vote_wait_min_ms)

    def way_changed(self, peer_id: str) -> None:
        """A connection opened or broke: what was asked on it before measures nothing."""
        self._asked_ms.pop(peer_id, None)

    def end(self) -> None:
        """There is a leader."""
        self._asked_ms.clear()
        self._pace.leader_found()

    def start_round(self, candidate: Candidate, now_ms: float) -> bool:
        """Asks all peers, and tells whether the round is won already (a group of one).

        Source: DLedgerLeaderElector.maintainAsCandidate; among LedgerMQ members thesis 9.6.
        """
        state = self._state
        assert state.may_vote
        if candidate.is_transferee:
            candidate.is_transferee = False
            state.raise_term(state.term + 1)
            return self._ask(candidate, Phase.VOTE, state.term, now_ms)
        if not state.is_mixed and state.dialects:
            return self._ask(candidate, Phase.PRE_VOTE, state.term + 1, now_ms)
        if not state.is_mixed or candidate.raises_term:
            state.raise_term(max(candidate.known_max_term, state.term + 1))
            candidate.raises_term = False
        return self._ask(candidate, Phase.VOTE, state.term, now_ms)

    def judge_round(self, candidate: Candidate, now_ms: float, *, is_last_call: bool) -> bool:
        """Goes on when the round is decided or its time is up; tells whether it is won."""
        answers, member_count = candidate.tally.values(), len(self._config.members)
        if self._state.is_mixed and candidate.phase is Phase.VOTE:
            if not is_last_call and not is_dledger_round_over(answers, member_count):
                return False
            return self._judge_dledger_round(candidate, now_ms)
        if not is_last_call and not is_round_over(answers, member_count):
            return False
        if count_grants(answers) < self._config.quorum_count:
            is_taken = VoteResult.REJECT_ALREADY_VOTED in (result for result, _ in answers)
            if candidate.phase is Phase.VOTE and is_taken:
                self._pace.vote_split()
            candidate.begin(Phase.WAITING, self.next_round_ms(now_ms))
            return False
        if candidate.phase is Phase.PRE_VOTE:
            self._state.raise_term(candidate.round_term)
            return self._ask(candidate, Phase.VOTE, candidate.round_term, now_ms)
        return True

    def record(self, response: VoteResponse, candidate: Candidate, now_ms: float) -> bool:
        """Counts an answer of the present round; tells whether the round is won now."""
        asked_ms = self._asked_ms.pop(response.sender, None)
        if asked_ms is not None:
            self._pace.answered(asked_ms)
        phase = Phase.PRE_VOTE if response.pre_vote else Phase.VOTE
        if candidate.phase is not phase or candidate.round_term != response.round_term:
            return False
        if not self._state.may_vote:
            return False
        result = response.result
        if is_stranger(response, self._state):
            result = VoteResult.UNKNOWN
        candidate.tally[response.sender] = (result, response.term)
        return self.judge_round(candidate, now_ms, is_last_call=False)

    def way_opened(self, candidate: Candidate, peer_id: str) -> None:
        """Asks a peer whose connection has just opened, if a round is under way: what it was asked
        before was dropped or lost, and members that reach each other again need not wait for the
        next round.
        """
        if candidate.phase is not Phase.WAITING and peer_id not in candidate.tally:
            self._send_request(candidate, peer_id)
            # The member was not called for this: its clock may be behind.
            self._asked_ms.pop(peer_id, None)

    def answer(self, request: VoteRequest, *, has_live_leader: bool) -> Verdict:
        """Judges a vote request, gives the vote, and answers.

        Returns:
            The verdict; with `raise_term_to` the caller enters that term as a candidate.
        """
        state, log = self._state, self._log
        voter = Voter(
            self_id=self._config.self_id,
            members=self._config.members,
            term=state.term,
            voted_for=state.voted_for,
            leader_id=state.leader_id,
            last_id=log.last_id,
            # With a Java member there is no birth. Then only a new group has a candidate without a
            # log; in any other a member with an empty disk may have forgotten what it acknowledged.
            recovering=not state.may_vote or (state.is_new and request.last_index >= 0),
            has_live_leader=has_live_leader,
        )
        if state.is_mixed and not request.pre_vote:
            verdict = judge_vote_as_dledger(request, voter)
        else:
            verdict = judge_vote(request, voter)
        if verdict.result is VoteResult.ACCEPT and not request.pre_vote:
            state.vote(request.sender)
        self._respond(request, verdict)
        return verdict

    def refuse(self, request: VoteRequest) -> None:
        """Answers a candidate of another cluster or member list: no vote, whatever it asks for."""
        self._respond(request, Verdict(VoteResult.UNKNOWN, self._state.term))

    def _respond(self, request: VoteRequest, verdict: Verdict) -> None:
        self._outbox.after_persist.append(
            VoteResponse(
                term=verdict.term,
                sender=self._config.self_id,
                target=request.sender,
                result=verdict.result,
                round_term=request.term,
                pre_vote=request.pre_vote,
                birth=self._state.birth,
                members_digest=self._state.members_digest,
                asked_on=request.asked_on,
            )
        )

    def _ask(self, candidate: Candidate, phase: Phase, term: int, now_ms: float) -> bool:
        state, self_id = self._state, self._config.self_id
        own_result = VoteResult.ACCEPT
        if phase is Phase.VOTE:
            if state.voted_for in (None, self_id):
                state.vote(self_id)
            else:
                own_result = VoteResult.REJECT_ALREADY_VOTED
        timing = state.timing
        round_ms = timing.vote_round_ms + self._rng.uniform(0, timing.vote_wait_max_ms)
        candidate.begin(phase, now_ms + round_ms * self._pace.vote_stretch(timing))
        candidate.round_term = term
        candidate.tally = {self_id: (own_result, state.term)}
        for peer_id in state.dialects:
            self._send_request(candidate, peer_id)
        return self.judge_round(candidate, now_ms, is_last_call=False)

    def _send_request(self, candidate: Candidate, peer_id: str) -> None:
        self._asked_ms.setdefault(peer_id, self._pace.own_ms)
        self._outbox.messages.append(
            VoteRequest(
                term=candidate.round_term,
                sender=self._config.self_id,
                target=peer_id,
                last_index=self._log.last_id.index,
                last_term=self._log.last_term,
                pre_vote=candidate.phase is Phase.PRE_VOTE,
                birth=self._state.birth,
                members_digest=self._state.members_digest,
            )
        )

    def _judge_dledger_round(self, candidate: Candidate, now_ms: float) -> bool:
        outcome = judge_dledger_round(
            candidate.tally.values(),
            term=candidate.round_term,
            member_count=len(self._config.members),
            timing=self._state.timing,
        )
        candidate.begin(Phase.WAITING, candidate.deadline_ms)
        candidate.raises_term = outcome.result is RoundResult.WAIT_TO_VOTE_NEXT
        candidate.known_max_term = max(candidate.known_max_term, outcome.known_max_term)
        if outcome.result is RoundResult.REVOTE_IMMEDIATELY:
            candidate.deadline_ms = now_ms + REVOTE_IMMEDIATELY_MS
        elif outcome.result is not RoundResult.PASSED:
            candidate.deadline_ms = self.next_round_ms(now_ms) + outcome.extra_wait_ms
        elif self._state.term != self._burnt_term:
            return True
        else:
            # The voters have just shown that their logs are no newer, so that a higher term may be
            # asked for without harm to a leader they might have.
            candidate.raises_term = True
            return self.start_round(candidate, now_ms)
        return False
