"""Strangers: in a group with a birth, who lacks it counts for nothing, whatever it says."""

from dataclasses import replace

import pytest

from ledgermq.dledger.birth import Birth
from ledgermq.dledger.entry import EntryId
from ledgermq.dledger.errors import TransferRefusedError
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.messages import (
    DLedgerCode,
    HeartBeatRequest,
    HeartBeatResponse,
    Message,
    PeerDialect,
    PushResponse,
    TransferRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from tests.unit.dledger.lab import (
    Lab,
    acked,
    append,
    appends_of,
    beat,
    granted,
    only_beat_response,
    only_push_response,
    only_vote_response,
    run_of,
    vote,
)

BIRTH = Birth("0f" * 16, ("n0", "n1", "n2"), is_agreed=True)
OTHER = Birth("0e" * 16, ("n0", "n1", "n2"), is_agreed=True)
HELD = Birth("0e" * 16, ("n0", "n1", "n2"))


def born(terms: tuple[int, ...] = (1, 1), **changes: object) -> Lab:
    return Lab(terms, term=1, birth=BIRTH, **changes)


def elected(voters: tuple[str, ...] = ("n1",)) -> tuple[Lab, list[Message]]:
    """A leader with a birth, and its first messages."""
    lab = born()
    out: list[Message] = []
    for pre_vote in (True, False):
        asked = lab.until_asked(pre_vote=True)[0] if pre_vote else asked_in(out)
        for voter in voters:
            out = lab.take(replace(granted(asked, voter), birth=BIRTH))
    assert lab.raft.role is Role.LEADER
    return lab, out


def asked_in(messages: list[Message]) -> VoteRequest:
    return next(m for m in messages if isinstance(m, VoteRequest))


def beat_answer(sender: str, term: int, birth: Birth | None) -> HeartBeatResponse:
    return HeartBeatResponse(
        term=term, sender=sender, target="n0", code=DLedgerCode.SUCCESS, birth=birth
    )


@pytest.mark.parametrize("birth", [None, HELD, OTHER])
@pytest.mark.parametrize("pre_vote", [False, True])
def test_a_stranger_gets_no_vote_and_raises_no_term(birth: Birth | None, pre_vote: bool) -> None:
    lab = born()
    request = replace(vote(9, EntryId(8, 99), pre_vote=pre_vote), birth=birth)
    response = only_vote_response(lab.take(request))
    assert (response.result, response.term) == (VoteResult.UNKNOWN, 1)
    assert response.birth == BIRTH
    assert lab.raft.term == 1


def test_a_member_of_the_group_gets_its_vote() -> None:
    lab = born()
    for birth in (BIRTH, replace(BIRTH, is_agreed=False)):
        request = replace(vote(2, EntryId(1, 1)), birth=birth)
        assert only_vote_response(lab.take(request)).result is VoteResult.ACCEPT


@pytest.mark.parametrize("birth", [None, HELD, OTHER])
def test_votes_of_strangers_elect_nobody(birth: Birth | None) -> None:
    lab = born()
    asked = lab.until_asked(pre_vote=True)[0]
    for voter in ("n1", "n2"):
        out = lab.take(replace(granted(asked, voter), birth=birth))
        assert not [m for m in out if isinstance(m, VoteRequest)]
    # The pre-votes are those of members; the votes are not.
    asked = lab.until_asked(pre_vote=True)[0]
    asked = asked_in(lab.take(replace(granted(asked, "n1"), birth=BIRTH)))
    assert not asked.pre_vote
    for voter in ("n1", "n2"):
        lab.take(replace(granted(asked, voter), birth=birth))
    assert lab.raft.role is Role.CANDIDATE


def test_a_term_that_a_stranger_tells_is_not_entered() -> None:
    lab = born()
    asked = lab.until_asked(pre_vote=True)[0]
    lab.take(replace(granted(asked, "n1"), birth=OTHER, term=77, result=VoteResult.UNKNOWN))
    assert lab.raft.term == 1


@pytest.mark.parametrize("birth", [None, HELD, OTHER])
def test_no_leader_without_the_birth_is_followed(birth: Birth | None) -> None:
    lab = born()
    response = only_beat_response(lab.take(replace(beat(7), birth=birth)))
    assert (response.code, response.term) == (DLedgerCode.UNKNOWN_GROUP, 1)
    assert lab.raft.leader_id is None and lab.raft.term == 1


def test_who_asks_for_the_term_is_told_it() -> None:
    """DLedger's tools send a heart beat of no term, in the name of a member."""
    response = only_beat_response(born().take(beat(-1)))
    assert (response.code, response.term) == (DLedgerCode.EXPIRED_TERM, 1)


def test_a_push_is_taken_when_a_heart_beat_has_told_of_the_birth() -> None:
    lab, (entry,) = born((1,)), run_of([1, 2])[1:]
    push = append(2, entry, EntryId(1, 0))
    assert only_push_response(lab.take(push)).code is DLedgerCode.INCONSISTENT_LEADER
    lab.take(replace(beat(2), birth=BIRTH))
    assert only_push_response(lab.take(push)).code is DLedgerCode.SUCCESS


def test_a_refused_push_goes_out_again_when_the_follower_answers_a_heart_beat() -> None:
    lab, out = elected()
    (push,) = appends_of(out, "n2")
    refused = replace(acked(push), code=DLedgerCode.INCONSISTENT_LEADER, end_index=1)
    assert appends_of(lab.take(refused), "n2") == []
    again = appends_of(lab.take(beat_answer("n2", lab.raft.term, BIRTH)), "n2")
    assert [m.entries.first_index for m in again] == [push.entries.first_index]


def test_what_a_peer_acknowledges_counts_when_it_has_shown_the_birth() -> None:
    lab, out = elected()
    (push,) = appends_of(out, "n2")
    lab.take(acked(push))
    assert lab.raft.commit_index == -1
    lab.take(beat_answer("n2", lab.raft.term, None))
    assert lab.raft.commit_index == -1
    lab.take(beat_answer("n2", lab.raft.term, BIRTH))
    assert lab.raft.commit_index == push.entries.last_index


def test_a_voter_has_shown_it() -> None:
    lab, out = elected()
    (push,) = appends_of(out, "n1")
    lab.take(acked(push))
    assert lab.raft.commit_index == push.entries.last_index


def test_an_entry_that_every_member_holds_is_not_committed_by_a_stranger() -> None:
    """Entries of older terms commit when all hold them: a stranger is not one of these."""
    lab = born(opening=False)
    asked = lab.until_asked(pre_vote=True)[0]
    out = lab.take(replace(granted(asked, "n1"), birth=BIRTH))
    lab.take(replace(granted(asked_in(out), "n1"), birth=BIRTH))
    assert lab.raft.role is Role.LEADER
    term = lab.raft.term
    for peer in ("n1", "n2"):
        dispatcher = lab.raft._duty._dispatchers[peer]
        dispatcher._start_append(1)
    lab.take(beat_answer("n1", term, BIRTH))
    assert lab.raft.commit_index == -1
    lab.take(beat_answer("n2", term, BIRTH))
    assert lab.raft.commit_index == 1


def test_a_leader_that_strangers_answer_has_no_majority() -> None:
    lab, _ = elected()
    term = lab.raft.term
    for _ in range(20):
        lab.pass_time(100)
        lab.take(beat_answer("n2", term, OTHER))
    assert lab.raft.role is Role.CANDIDATE


def test_the_leadership_is_not_handed_to_a_stranger() -> None:
    lab, out = elected()
    (push,) = appends_of(out, "n2")
    lab.take(acked(push))
    with pytest.raises(TransferRefusedError, match="counts for nothing"):
        lab.raft.transfer("n2", lab.now_ms)


def test_a_stranger_does_not_take_over() -> None:
    lab = Lab(is_new=True)
    lab.take(replace(beat(1), birth=BIRTH))
    request = TransferRequest(term=1, sender="n1", target="n0", last_index=-1, request_id=3)
    (answer,) = [m for m in lab.take(request) if m.target == "n1"]
    assert getattr(answer, "code", None) is DLedgerCode.TAKE_LEADERSHIP_FAILED


def test_a_member_that_has_met_a_birth_elects_nobody_without_it() -> None:
    """Its store is older than births, and there is a group that has one."""
    lab = Lab([1, 1], term=1)
    lab.raft._state.has_met_birth = True
    assert {type(m) for m in lab.pass_time(3_000)}.isdisjoint({VoteRequest})
    assert only_vote_response(lab.take(vote(2, EntryId(1, 1)))).result is VoteResult.UNKNOWN


def test_a_member_with_a_birth_keeps_todays_rule_beside_a_java_member() -> None:
    lab = born(dialect=PeerDialect.JAVA)
    response = only_vote_response(lab.take(vote(1, EntryId(1, 1))))
    assert response.result is VoteResult.ACCEPT
    lab.take(beat(1))
    assert lab.raft.leader_id == "n1"


def test_all_voices_carry_the_birth() -> None:
    lab, out = elected()
    voices = [m for m in out if isinstance(m, HeartBeatRequest | VoteRequest | VoteResponse)]
    assert voices and all(m.birth == BIRTH for m in voices)
    assert not [m for m in out if isinstance(m, PushResponse)]
