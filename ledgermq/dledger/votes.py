"""May this vote be granted, and what does this round of votes mean? Pure functions.

Two orders of checks exist side by side. Among LedgerMQ members it is Raft's: a higher term is
adopted first, then the vote of that term is given once, to a candidate whose log is up to date; a
pre-vote asks the same without changing anything. As soon as a member of the group is Java, it is
DLedger's: the log is compared before the term, and a higher term answers "not ready, ask again".
Both give at most one vote a term, and never to a shorter log, so that they mix safely.

Source: Raft 5.2, 5.4.1 and thesis 9.6; DLedgerLeaderElector.handleVote and maintainAsCandidate.
"""

from collections.abc import Collection, Iterable
from enum import Enum
from typing import Final, NamedTuple

from ledgermq.dledger.config import Timing
from ledgermq.dledger.entry import EntryId
from ledgermq.dledger.messages import VoteRequest, VoteResult

# Answer and the voter's term that came with it.
Answer = tuple[VoteResult, int]


_LOG_IS_NEWER: Final = frozenset(
    {VoteResult.REJECT_EXPIRED_LEDGER_TERM, VoteResult.REJECT_SMALL_LEDGER_END_INDEX}
)
_TERM_IS_HIGHER: Final = frozenset(
    {VoteResult.REJECT_EXPIRED_VOTE_TERM, VoteResult.REJECT_TERM_SMALL_THAN_LEDGER}
)


class Voter(NamedTuple):
    """What a member's answer to a vote depends on."""

    self_id: str
    members: Collection[str]
    term: int
    voted_for: str | None
    # Leader of `term` as far as it is known.
    leader_id: str | None
    # End of the log.
    last_id: EntryId
    # The member has lost state and may not vote.
    recovering: bool
    # A leader was heard of within the election timeout, or this member is a leader with a majority.
    has_live_leader: bool


class Verdict(NamedTuple):
    """What a vote request comes to."""

    result: VoteResult
    # Term of the answer.
    term: int
    # DLedger's order only: the voter enters this term as a candidate, without having voted.
    raise_term_to: int | None = None


def judge_vote(request: VoteRequest, voter: Voter) -> Verdict:
    """Decides about a vote or a pre-vote in Raft's order of checks.

    A pre-vote is granted when a vote would be and no leader is alive. A vote for a higher term
    comes here after the term was adopted.

    Source: Raft 5.2, 5.4.1; thesis 9.6.
    """
    result = _refuse_stranger(request, voter)
    if result is None and request.term < voter.term:
        result = VoteResult.REJECT_EXPIRED_VOTE_TERM
    if result is None and request.pre_vote:
        if voter.has_live_leader:
            result = VoteResult.REJECT_ALREADY_HAS_LEADER
    elif result is None:
        assert request.term == voter.term, (request.term, voter.term)
        result = _refuse_taken(request, voter)
    if result is None:
        result = _refuse_shorter_log(request, voter)
    if result is None:
        result = VoteResult.UNKNOWN if voter.recovering else VoteResult.ACCEPT
    return Verdict(result, voter.term)


def judge_vote_as_dledger(request: VoteRequest, voter: Voter) -> Verdict:
    """Decides about a vote in DLedger's order of checks.

    Differs from Java in this: a member that has lost state answers UNKNOWN, which Java does not
    count; a leader that is known for the term refuses other candidates also when this member has
    not voted.

    Source: DLedgerLeaderElector.handleVote.
    """
    result = _refuse_stranger(request, voter)
    if result is not None:
        return Verdict(result, voter.term)
    if voter.recovering:
        return Verdict(VoteResult.UNKNOWN, voter.term)
    result = _refuse_shorter_log(request, voter)
    if result is not None:
        return Verdict(result, voter.term)
    if request.term < voter.term:
        return Verdict(VoteResult.REJECT_EXPIRED_VOTE_TERM, voter.term)
    if request.term > voter.term:
        return Verdict(VoteResult.REJECT_TERM_NOT_READY, voter.term, request.term)
    result = _refuse_taken(request, voter)
    if result is not None:
        return Verdict(result, voter.term)
    if request.term < voter.last_id.term:
        return Verdict(VoteResult.REJECT_TERM_SMALL_THAN_LEDGER, voter.last_id.term)
    return Verdict(VoteResult.ACCEPT, voter.term)


def _refuse_stranger(request: VoteRequest, voter: Voter) -> VoteResult | None:
    if request.sender not in voter.members:
        return VoteResult.REJECT_UNKNOWN_LEADER
    if request.sender == voter.self_id:
        return VoteResult.REJECT_UNEXPECTED_LEADER
    return None


def _refuse_taken(request: VoteRequest, voter: Voter) -> VoteResult | None:
    """One vote a term; a known leader is as good as a vote for it."""
    if voter.leader_id is not None and voter.leader_id != request.sender:
        return VoteResult.REJECT_ALREADY_HAS_LEADER
    if voter.voted_for is not None and voter.voted_for != request.sender:
        return VoteResult.REJECT_ALREADY_VOTED
    return None


def _refuse_shorter_log(request: VoteRequest, voter: Voter) -> VoteResult | None:
    if request.last_term < voter.last_id.term:
        return VoteResult.REJECT_EXPIRED_LEDGER_TERM
    if request.last_term == voter.last_id.term and request.last_index < voter.last_id.index:
        return VoteResult.REJECT_SMALL_LEDGER_END_INDEX
    return None


class RoundResult(Enum):
    """What a round of votes came to (VoteResponse.ParseResult)."""

    PASSED = "elected"
    REVOTE_IMMEDIATELY = "ask again at once, in the same term"
    WAIT_TO_REVOTE = "ask again later, in the same term"
    WAIT_TO_VOTE_NEXT = "ask again later, in a higher term"


class RoundOutcome(NamedTuple):
    """The result of a round, and what follows from it for the next one."""

    result: RoundResult
    # Added to the usual wait.
    extra_wait_ms: int = 0
    # A higher term that a voter named; -1 when none did.
    known_max_term: int = -1


def count_grants(answers: Iterable[Answer]) -> int:
    """Returns how many voters said yes."""
    return sum(result is VoteResult.ACCEPT for result, _ in answers)


def is_round_over(answers: Collection[Answer], member_count: int) -> bool:
    """Tells whether more answers to a round of Raft's kind cannot change it.

    It is over when a majority granted, when so many refused that no majority is left, or when all
    have answered.
    """
    quorum_count = member_count // 2 + 1
    granted = count_grants(answers)
    return granted >= quorum_count or len(answers) - granted > member_count - quorum_count


def is_dledger_round_over(answers: Collection[Answer], member_count: int) -> bool:
    """Tells whether a round of DLedger's kind is judged before its time is up.

    Source: DLedgerLeaderElector.maintainAsCandidate.
    """
    quorum_count = member_count // 2 + 1
    results = [result for result, _ in answers]
    granted = count_grants(answers)
    not_ready = results.count(VoteResult.REJECT_TERM_NOT_READY)
    return (
        VoteResult.REJECT_ALREADY_HAS_LEADER in results
        or granted >= quorum_count
        or granted + not_ready >= quorum_count
        or len(results) >= member_count
    )


def judge_dledger_round(
    answers: Collection[Answer], *, term: int, member_count: int, timing: Timing
) -> RoundOutcome:
    """Decides what a round of votes in DLedger's way means; the first rule that fits wins.

    Args:
        answers: of all who answered, the candidate's own one included.
        term: that was asked for.
        member_count: of the group.
        timing: for the waits that follow.

    Source: DLedgerLeaderElector.maintainAsCandidate.
    """
    quorum_count = member_count // 2 + 1
    results = [result for result, _ in answers]
    granted = count_grants(answers)
    not_ready = results.count(VoteResult.REJECT_TERM_NOT_READY)
    valid = sum(result is not VoteResult.UNKNOWN for result in results)
    bigger = sum(result in _LOG_IS_NEWER for result in results)
    known = max((t for result, t in answers if result in _TERM_IS_HIGHER), default=-1)
    if known > term:
        return RoundOutcome(RoundResult.WAIT_TO_VOTE_NEXT, known_max_term=known)
    if VoteResult.REJECT_ALREADY_HAS_LEADER in results:
        return RoundOutcome(RoundResult.WAIT_TO_REVOTE, timing.election_timeout_ms)
    if valid < quorum_count:
        return RoundOutcome(RoundResult.WAIT_TO_REVOTE)
    if valid - bigger < quorum_count:
        return RoundOutcome(RoundResult.WAIT_TO_REVOTE, timing.vote_wait_max_ms)
    if granted >= quorum_count:
        return RoundOutcome(RoundResult.PASSED)
    if granted + not_ready >= quorum_count:
        return RoundOutcome(RoundResult.REVOTE_IMMEDIATELY)
    return RoundOutcome(RoundResult.WAIT_TO_VOTE_NEXT)
