"""The tables of DLedger 0.3.1.2 for votes and rounds, and Raft's order for LedgerMQ members."""

import pytest

from ledgermq.dledger.config import JAVA_TIMING
from ledgermq.dledger.entry import EntryId
from ledgermq.dledger.messages import VoteRequest, VoteResult
from ledgermq.dledger.votes import (
    Answer,
    RoundResult,
    Verdict,
    Voter,
    is_dledger_round_over,
    is_round_over,
    judge_dledger_round,
    judge_vote,
    judge_vote_as_dledger,
)

R = VoteResult


def voter(
    term: int = 5,
    voted_for: str | None = None,
    leader_id: str | None = None,
    last: tuple[int, int] = (4, 10),
    recovering: bool = False,
    has_live_leader: bool = False,
) -> Voter:
    members = ("n0", "n1", "n2")
    return Voter(
        "n0", members, term, voted_for, leader_id, EntryId(*last), recovering, has_live_leader
    )


def ask(
    term: int = 5, last: tuple[int, int] = (4, 10), sender: str = "n1", pre_vote: bool = False
) -> VoteRequest:
    return VoteRequest(
        term=term,
        sender=sender,
        target="n0",
        last_term=last[0],
        last_index=last[1],
        pre_vote=pre_vote,
    )


# The rows of DLedgerLeaderElector.handleVote, in their order; each one also fails all later rows
# that it can, so that the order is tested.
DLEDGER_ROWS = [
    (ask(sender="x", term=1, last=(1, 1)), voter(), Verdict(R.REJECT_UNKNOWN_LEADER, 5)),
    (ask(sender="n0", term=1, last=(1, 1)), voter(), Verdict(R.REJECT_UNEXPECTED_LEADER, 5)),
    (ask(term=1, last=(3, 99)), voter(), Verdict(R.REJECT_EXPIRED_LEDGER_TERM, 5)),
    (ask(term=1, last=(4, 9)), voter(), Verdict(R.REJECT_SMALL_LEDGER_END_INDEX, 5)),
    # A higher term with a shorter log is not adopted.
    (ask(term=9, last=(4, 9)), voter(), Verdict(R.REJECT_SMALL_LEDGER_END_INDEX, 5)),
    (ask(term=4), voter(voted_for="n2"), Verdict(R.REJECT_EXPIRED_VOTE_TERM, 5)),
    (ask(), voter(voted_for="n2", leader_id="n2"), Verdict(R.REJECT_ALREADY_HAS_LEADER, 5)),
    (ask(), voter(voted_for="n2"), Verdict(R.REJECT_ALREADY_VOTED, 5)),
    (ask(term=6), voter(voted_for="n2", leader_id="n2"), Verdict(R.REJECT_TERM_NOT_READY, 5, 6)),
    (ask(last=(6, 10)), voter(last=(6, 10)), Verdict(R.REJECT_TERM_SMALL_THAN_LEDGER, 6)),
    (ask(), voter(), Verdict(R.ACCEPT, 5)),
    (ask(), voter(voted_for="n1"), Verdict(R.ACCEPT, 5)),
    (ask(last=(5, 0)), voter(), Verdict(R.ACCEPT, 5)),
    (ask(term=0, last=(-1, -1)), voter(term=0, last=(-1, -1)), Verdict(R.ACCEPT, 0)),
    # Where we differ: a known leader is as good as a vote; lost state answers nothing that counts.
    (ask(), voter(leader_id="n2"), Verdict(R.REJECT_ALREADY_HAS_LEADER, 5)),
    (ask(term=6), voter(recovering=True), Verdict(R.UNKNOWN, 5)),
]


@pytest.mark.parametrize(("request_", "voter_", "verdict"), DLEDGER_ROWS)
def test_vote_in_dledgers_order(request_: VoteRequest, voter_: Voter, verdict: Verdict) -> None:
    assert judge_vote_as_dledger(request_, voter_) == verdict


RAFT_ROWS = [
    (ask(sender="x"), voter(), R.REJECT_UNKNOWN_LEADER),
    (ask(sender="n0"), voter(), R.REJECT_UNEXPECTED_LEADER),
    # The term comes before the log.
    (ask(term=4, last=(1, 1)), voter(), R.REJECT_EXPIRED_VOTE_TERM),
    (ask(last=(1, 1)), voter(voted_for="n2"), R.REJECT_ALREADY_VOTED),
    (ask(last=(1, 1)), voter(leader_id="n2"), R.REJECT_ALREADY_HAS_LEADER),
    (ask(last=(3, 99)), voter(), R.REJECT_EXPIRED_LEDGER_TERM),
    (ask(last=(4, 9)), voter(), R.REJECT_SMALL_LEDGER_END_INDEX),
    (ask(), voter(), R.ACCEPT),
    (ask(last=(5, 0)), voter(), R.ACCEPT),
    (ask(last=(4, 11)), voter(voted_for="n1"), R.ACCEPT),
    (ask(), voter(recovering=True), R.UNKNOWN),
]


@pytest.mark.parametrize(("request_", "voter_", "result"), RAFT_ROWS)
def test_vote_in_rafts_order(request_: VoteRequest, voter_: Voter, result: VoteResult) -> None:
    assert judge_vote(request_, voter_) == Verdict(result, 5)


PRE_VOTE_ROWS = [
    (ask(term=6, pre_vote=True), voter(), R.ACCEPT),
    # Whom it voted for does not matter for the next term.
    (ask(term=6, pre_vote=True), voter(voted_for="n2"), R.ACCEPT),
    (ask(term=6, pre_vote=True), voter(has_live_leader=True), R.REJECT_ALREADY_HAS_LEADER),
    (ask(term=4, pre_vote=True), voter(), R.REJECT_EXPIRED_VOTE_TERM),
    (ask(term=6, last=(4, 9), pre_vote=True), voter(), R.REJECT_SMALL_LEDGER_END_INDEX),
    (ask(term=6, pre_vote=True), voter(recovering=True), R.UNKNOWN),
]


@pytest.mark.parametrize(("request_", "voter_", "result"), PRE_VOTE_ROWS)
def test_pre_vote(request_: VoteRequest, voter_: Voter, result: VoteResult) -> None:
    assert judge_vote(request_, voter_) == Verdict(result, 5)


def answers(*results: VoteResult, term: int = 5) -> list[Answer]:
    return [(result, term) for result in results]


# The rows of DLedgerLeaderElector.maintainAsCandidate for three members; the first that fits wins.
ROUND_ROWS = [
    ([*answers(R.ACCEPT, R.ACCEPT), (R.REJECT_EXPIRED_VOTE_TERM, 8)], "WAIT_TO_VOTE_NEXT", 0, 8),
    ([*answers(R.ACCEPT), (R.REJECT_TERM_SMALL_THAN_LEDGER, 7)], "WAIT_TO_VOTE_NEXT", 0, 7),
    (answers(R.ACCEPT, R.ACCEPT, R.REJECT_ALREADY_HAS_LEADER), "WAIT_TO_REVOTE", 6000, -1),
    (answers(R.ACCEPT), "WAIT_TO_REVOTE", 0, -1),
    (answers(R.ACCEPT, R.UNKNOWN, R.UNKNOWN), "WAIT_TO_REVOTE", 0, -1),
    (answers(R.ACCEPT, R.REJECT_EXPIRED_LEDGER_TERM), "WAIT_TO_REVOTE", 1000, -1),
    (
        answers(R.ACCEPT, R.REJECT_SMALL_LEDGER_END_INDEX, R.REJECT_EXPIRED_LEDGER_TERM),
        "WAIT_TO_REVOTE",
        1000,
        -1,
    ),
    (answers(R.ACCEPT, R.ACCEPT), "PASSED", 0, -1),
    (answers(R.ACCEPT, R.ACCEPT, R.REJECT_SMALL_LEDGER_END_INDEX), "PASSED", 0, -1),
    (answers(R.ACCEPT, R.REJECT_TERM_NOT_READY), "REVOTE_IMMEDIATELY", 0, -1),
    (answers(R.ACCEPT, R.REJECT_ALREADY_VOTED), "WAIT_TO_VOTE_NEXT", 0, -1),
    # A voter's term that is not higher says nothing.
    (answers(R.ACCEPT, R.REJECT_EXPIRED_VOTE_TERM), "WAIT_TO_VOTE_NEXT", 0, -1),
]


@pytest.mark.parametrize(("given", "result", "extra_wait_ms", "known"), ROUND_ROWS)
def test_round_in_dledgers_way(
    given: list[Answer], result: str, extra_wait_ms: int, known: int
) -> None:
    outcome = judge_dledger_round(given, term=5, member_count=3, timing=JAVA_TIMING)
    assert outcome == (RoundResult[result], extra_wait_ms, known)


@pytest.mark.parametrize(
    ("given", "is_over"),
    [
        (answers(R.ACCEPT), False),
        (answers(R.ACCEPT, R.REJECT_ALREADY_VOTED), False),
        (answers(R.ACCEPT, R.REJECT_ALREADY_HAS_LEADER), True),
        (answers(R.ACCEPT, R.ACCEPT), True),
        (answers(R.ACCEPT, R.REJECT_TERM_NOT_READY), True),
        (answers(R.ACCEPT, R.UNKNOWN, R.UNKNOWN), True),
    ],
)
def test_when_dledger_stops_waiting(given: list[Answer], is_over: bool) -> None:
    assert is_dledger_round_over(given, 3) is is_over


@pytest.mark.parametrize(
    ("given", "is_over"),
    [
        (answers(R.ACCEPT), False),
        (answers(R.ACCEPT, R.REJECT_ALREADY_VOTED), False),
        (answers(R.ACCEPT, R.ACCEPT), True),
        (answers(R.ACCEPT, R.REJECT_ALREADY_VOTED, R.REJECT_ALREADY_VOTED), True),
    ],
)
def test_when_a_raft_round_is_decided(given: list[Answer], is_over: bool) -> None:
    assert is_round_over(given, 3) is is_over
