"""Handing the leadership over, on both sides, and when a preferred member gets it."""

from dataclasses import replace

import pytest

from ledgermq.dledger.birth import Birth
from ledgermq.dledger.entry import EntryId
from ledgermq.dledger.errors import (
    DropReason,
    NotLeaderError,
    ProposalDroppedError,
    TransferRefusal,
    TransferRefusedError,
)
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.messages import (
    DLedgerCode,
    HeartBeatRequest,
    HeartBeatResponse,
    Message,
    PeerDialect,
    TransferRequest,
    TransferResponse,
    VoteRequest,
    VoteResult,
)
from ledgermq.dledger.transfer import PAUSE_MAX_MS, PAUSE_MIN_MS, PreferredLeaders, Standing
from tests.unit.dledger.lab import (
    Lab,
    acked,
    answer_to,
    append,
    appends_of,
    beat,
    config_of,
    granted,
    only_vote_response,
    run_of,
    vote,
)

JAVA = PeerDialect.JAVA


def ask(term: int, last_index: int, *, sender: str = "n1") -> TransferRequest:
    return TransferRequest(
        term=term, sender=sender, target="n0", last_index=last_index, request_id=7
    )


def asked(messages: list[Message]) -> list[TransferRequest]:
    return [m for m in messages if isinstance(m, TransferRequest)]


def only_answer(messages: list[Message]) -> tuple[DLedgerCode, int]:
    (answer,) = [m for m in messages if isinstance(m, TransferResponse)]
    return answer.code, answer.term


def leading(**changes: object) -> Lab:
    """A leader whose opening record both followers hold."""
    lab = Lab(**changes)  # type: ignore[arg-type]
    out = lab.elect()
    for peer_id in ("n1", "n2"):
        for request in appends_of(out, peer_id):
            out += lab.take(acked(request))
    assert lab.raft.is_ready_leader
    return lab


# -- the leader


def test_follower_that_has_everything_is_asked_at_once() -> None:
    lab = leading()
    transfer = lab.raft.transfer("n2", lab.now_ms)
    (request,) = asked(lab.work())
    assert (request.target, request.term, request.last_index) == ("n2", 1, 0)
    assert transfer.is_asked
    assert transfer.code is None


def test_follower_is_asked_only_when_it_holds_all_and_all_is_committed() -> None:
    lab = leading()
    lab.raft.propose([b"a", b"b"], lab.now_ms)
    out = lab.work()
    lab.raft.transfer("n2", lab.now_ms)
    assert asked(lab.work()) == []
    (to_n1,) = appends_of(out, "n1")
    assert asked(lab.take(acked(to_n1))) == []
    assert lab.raft.commit_index == 2
    (to_n2,) = appends_of(out, "n2")
    assert [m.last_index for m in asked(lab.take(acked(to_n2)))] == [2]


def test_proposals_are_refused_while_the_leadership_is_handed_over() -> None:
    lab = leading()
    lab.raft.transfer("n2", lab.now_ms)
    lab.work()
    lab.now_ms += 100
    with pytest.raises(ProposalDroppedError) as caught:
        lab.raft.propose([b"a"], lab.now_ms)
    assert caught.value.reason is DropReason.TRANSFERRING
    assert (caught.value.value, caught.value.limit) == (100, 3000)
    assert lab.raft.last_index == 0


def test_leader_steps_down_for_the_vote_of_whom_it_asked() -> None:
    lab = leading()
    transfer = lab.raft.transfer("n2", lab.now_ms)
    lab.work()
    answer = only_vote_response(lab.take(vote(2, EntryId(1, 0), sender="n2")))
    assert answer.result is VoteResult.ACCEPT
    assert (lab.raft.role, lab.raft.term, transfer.code) == (Role.CANDIDATE, 2, None)


def test_leader_that_gets_no_answer_leads_on() -> None:
    lab = leading(transfer_timeout_ms=400)
    transfer = lab.raft.transfer("n2", lab.now_ms)
    lab.pass_time(399)
    assert transfer.code is None
    lab.pass_time(1)
    assert transfer.code is DLedgerCode.TIMEOUT
    assert lab.raft.role is Role.LEADER
    assert lab.raft.propose([b"a"], lab.now_ms)


def test_leader_whose_follower_refuses_leads_on() -> None:
    lab = leading()
    transfer = lab.raft.transfer("n2", lab.now_ms)
    (request,) = asked(lab.work())
    failed = DLedgerCode.TAKE_LEADERSHIP_FAILED
    refusal = TransferResponse(
        term=1, sender="n2", target="n0", code=failed, request_id=request.request_id
    )
    lab.take(refusal)
    assert transfer.code is failed
    lab.now_ms += 1
    again = lab.raft.transfer("n2", lab.now_ms)
    lab.take(refusal)
    assert again.code is None, "the answer of an attempt that is over"


def test_success_of_a_later_term_is_entered() -> None:
    lab = leading(dialect=JAVA, opening=False)
    success = TransferResponse(
        term=2, sender="n2", target="n0", code=DLedgerCode.SUCCESS, request_id=1
    )
    lab.take(success)
    assert (lab.raft.role, lab.raft.term) == (Role.CANDIDATE, 2)


def test_refusals_say_why() -> None:
    lab = leading(transfer_lag_max=2)

    def refusal(target_id: str) -> tuple[TransferRefusal, int, int]:
        with pytest.raises(TransferRefusedError) as caught:
            lab.raft.transfer(target_id, lab.now_ms)
        return caught.value.reason, caught.value.value, caught.value.limit

    assert refusal("n0")[0] is TransferRefusal.UNKNOWN_MEMBER
    assert refusal("n9")[0] is TransferRefusal.UNKNOWN_MEMBER
    lab.raft.propose([b"a", b"b"], lab.now_ms)
    out = lab.work()
    assert refusal("n1") == (TransferRefusal.BEHIND, 2, 2)
    (to_n1,) = appends_of(out, "n1")
    lab.take(answer_to(to_n1, 200, end_index=2, recovering=True))
    assert refusal("n1")[0] is TransferRefusal.RECOVERING
    lab.now_ms += 1000
    assert refusal("n2") == (TransferRefusal.SILENT, 1000, 1000)
    lab = leading()
    lab.raft.transfer("n1", lab.now_ms)
    assert refusal("n2")[0] is TransferRefusal.UNDER_WAY


def test_follower_cannot_hand_over() -> None:
    lab = Lab([1], term=1)
    lab.take(beat(1))
    with pytest.raises(NotLeaderError):
        lab.raft.transfer("n2", lab.now_ms)


# -- the follower


def test_follower_that_is_asked_leads_the_next_term_without_a_pre_vote() -> None:
    lab = Lab([1, 1], term=1)
    lab.take(beat(1))
    out = lab.take(ask(1, 1))
    votes = [m for m in out if isinstance(m, VoteRequest)]
    assert [(m.term, m.pre_vote) for m in votes] == [(2, False), (2, False)]
    out = lab.take(granted(votes[0], "n1"))
    assert lab.raft.role is Role.LEADER
    assert only_answer(out) == (DLedgerCode.SUCCESS, 2)


def test_follower_waits_for_what_it_lacks() -> None:
    lab = Lab([1, 1], term=1)
    lab.take(beat(1))
    first, second, third = run_of([1, 1, 1])
    assert asked(lab.take(ask(1, 2))) == []
    assert lab.raft.role is Role.FOLLOWER
    lab.take(append(1, third, second.last_id))
    assert (lab.raft.role, lab.raft.term) == (Role.CANDIDATE, 2)
    assert first.last_index == 0


def test_follower_that_does_not_catch_up_goes_on_following() -> None:
    lab = Lab([1, 1], term=1)
    lab.take(beat(1))
    lab.take(ask(1, 2))
    out: list[Message] = []
    for _ in range(2):
        out += lab.pass_time(500)
        out += lab.take(beat(1))
    assert only_answer(out) == (DLedgerCode.TAKE_LEADERSHIP_FAILED, 1)
    third = run_of([1, 1, 1])[2]
    lab.take(append(1, third, EntryId(1, 1)))
    assert lab.raft.role is Role.FOLLOWER, "too late"


def test_follower_that_loses_the_election_says_so() -> None:
    lab = Lab([1, 1], term=1)
    lab.take(beat(1))
    lab.take(ask(1, 1))
    assert only_answer(lab.take(beat(2, sender="n2"))) == (DLedgerCode.TAKE_LEADERSHIP_FAILED, 2)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (ask(0, 1), DLedgerCode.INCONSISTENT_TERM),
        (ask(1, 1, sender="n2"), DLedgerCode.INCONSISTENT_LEADER),
        (ask(2, 1), DLedgerCode.INCONSISTENT_LEADER),
    ],
)
def test_only_the_leader_of_the_term_is_obeyed(request_: TransferRequest, code: int) -> None:
    lab = Lab([1, 1], term=1)
    lab.take(beat(1))
    assert only_answer(lab.take(request_))[0] == code


def test_member_that_is_not_fit_to_lead_declines() -> None:
    lab = Lab([1, 1], term=1)
    lab.raft.preferred.set_unfit(True, lab.now_ms)
    lab.take(beat(1))
    assert only_answer(lab.take(ask(1, 1)))[0] is DLedgerCode.TAKE_LEADERSHIP_FAILED
    assert lab.raft.role is Role.FOLLOWER
    recovering = Lab([1, 1], term=1, recovering=True)
    recovering.take(beat(1))
    assert only_answer(recovering.take(ask(1, 1)))[0] is DLedgerCode.TAKE_LEADERSHIP_FAILED


def test_java_voters_are_asked_again_when_they_were_not_ready() -> None:
    lab = Lab([1, 1], term=1, dialect=JAVA)
    lab.take(beat(1))
    first = [m for m in lab.take(ask(1, 1)) if isinstance(m, VoteRequest)]
    assert [m.term for m in first] == [2, 2]
    for voter, request in zip(("n1", "n2"), first, strict=True):
        answer = granted(request, voter)
        lab.take(
            type(answer)(
                term=1,
                sender=voter,
                target="n0",
                result=VoteResult.REJECT_TERM_NOT_READY,
                round_term=2,
            )
        )
    again = [m for m in lab.pass_time(20) if isinstance(m, VoteRequest)]
    assert [m.term for m in again] == [2, 2]
    assert only_answer(lab.take(granted(again[0], "n1"))) == (DLedgerCode.SUCCESS, 2)


# -- preferred leaders


def answer_beats(lab: Lab, messages: list[Message], *peer_ids: str) -> None:
    for message in messages:
        if isinstance(message, HeartBeatRequest) and message.target in peer_ids:
            lab.take(
                HeartBeatResponse(
                    term=message.term,
                    sender=message.target,
                    target="n0",
                    code=DLedgerCode.SUCCESS,
                    round=message.read_round,
                )
            )


def pass_time_answering(lab: Lab, milliseconds: int, *peer_ids: str) -> list[TransferRequest]:
    requests: list[TransferRequest] = []
    for _ in range(milliseconds // 100):
        out = lab.pass_time(100)
        requests += asked(out)
        answer_beats(lab, out, *peer_ids)
    return requests


def test_leader_hands_over_to_a_preferred_member() -> None:
    lab = leading(preferred_leader_ids=("n2",))
    (request,) = pass_time_answering(lab, 1500, "n1", "n2")
    assert request.target == "n2"


def test_preferred_leader_keeps_the_leadership() -> None:
    lab = leading(preferred_leader_ids=("n0", "n2"))
    assert pass_time_answering(lab, 5000, "n1", "n2") == []


def test_preferred_member_that_is_silent_is_not_asked() -> None:
    lab = leading(preferred_leader_ids=("n2",))
    lab.pass_time(999)
    assert pass_time_answering(lab, 3000, "n1") == []


def test_preferred_member_that_does_not_take_over_is_asked_ever_more_rarely() -> None:
    lab = leading(preferred_leader_ids=("n2",))
    times: list[float] = []
    for _ in range(700):
        if pass_time_answering(lab, 100, "n1", "n2"):
            times.append(lab.now_ms)
    gaps = [round((b - a) / 1000) for a, b in zip(times, times[1:], strict=False)]
    assert len(gaps) == 2
    assert PAUSE_MIN_MS / 1000 <= gaps[0] <= 15
    assert 2 * PAUSE_MIN_MS / 1000 <= gaps[1] <= 25


def test_member_that_loses_the_leadership_time_and_again_gets_longer_pauses() -> None:
    preferred = PreferredLeaders(config_of(preferred_leader_ids=("n1",)))
    fit = [Standing("n1", 0, True), Standing("n2", 0, True)]
    now_ms, pauses = 0.0, []
    for _ in range(9):
        preferred.leader_changed("n1", now_ms)
        now_ms += 500
        preferred.leader_changed("n2", now_ms)
        start_ms = now_ms
        while preferred.find_target(fit, now_ms) is None:
            now_ms += 1000
        pauses.append(now_ms - start_ms)
    assert pauses[:3] == [PAUSE_MIN_MS, 2 * PAUSE_MIN_MS, 4 * PAUSE_MIN_MS]
    assert pauses[-1] == PAUSE_MAX_MS
    preferred.leader_changed("n1", now_ms)
    now_ms += PAUSE_MAX_MS
    preferred.leader_changed("n2", now_ms)
    assert preferred.find_target(fit, now_ms + PAUSE_MIN_MS) == "n1", "it had led long enough"


def test_preferred_member_nearest_to_the_leader_is_chosen() -> None:
    preferred = PreferredLeaders(config_of(5, preferred_leader_ids=("n1", "n2", "n3", "n4")))
    standings = [
        Standing("n1", 3, True),
        Standing("n2", 2, True),
        Standing("n3", 0, False),
        Standing("n4", 1000, True),
    ]
    assert preferred.find_target(standings, 0.0) == "n2"
    assert preferred.find_target(standings[2:], 0.0) is None


def test_who_may_not_vote_yet_takes_nothing_over() -> None:
    """A leader that lies asks for it, and says which group this is before that is agreed."""
    lab = Lab((1, 1, 1), term=1, checkpoint=2)
    lab.take(beat(1, commit_index=2))
    lab.take(ask(1, 3))
    birth = Birth("ab" * 16, ("n0", "n1", "n2"), True)
    lab.take(replace(beat(1, commit_index=2), birth=birth))
    messages = lab.take(append(1, run_of((1, 1, 1, 1))[3], EntryId(1, 2)))
    assert only_answer(messages) == (DLedgerCode.TAKE_LEADERSHIP_FAILED, 1)
