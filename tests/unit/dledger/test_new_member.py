"""A member with an empty disk: one of a new group, or one whose disk was replaced."""

from dataclasses import replace

import pytest

from ledgermq.dledger.birth import Birth
from ledgermq.dledger.entry import EntryId
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.messages import (
    BirthReport,
    DLedgerCode,
    HeartBeatRequest,
    HeartBeatResponse,
    PeerDialect,
    VoteResult,
)
from ledgermq.dledger.raft import Raft
from tests.unit.dledger.lab import (
    Lab,
    acked,
    answer_to,
    append,
    appends_of,
    beat,
    only_beat_response,
    only_push_response,
    only_vote_response,
    run_of,
    vote,
)

BIRTH = Birth("0f" * 16, ("n0", "n1", "n2"), is_agreed=True)


def beat_answer(sender: str, *, recovering: bool = False) -> HeartBeatResponse:
    return HeartBeatResponse(
        term=1, sender=sender, target="n0", code=DLedgerCode.SUCCESS, recovering=recovering
    )


def brought(term: int, birth: Birth = BIRTH) -> HeartBeatRequest:
    return HeartBeatRequest(term=term, sender="n1", target="n0", commit_index=None, birth=birth)


@pytest.mark.parametrize("last", [EntryId(-1, -1), EntryId(2, 7)])
@pytest.mark.parametrize("pre_vote", [False, True])
def test_it_votes_for_nobody(last: EntryId, pre_vote: bool) -> None:
    """It may have acknowledged entries that this candidate lacks."""
    for birth in (None, replace(BIRTH, is_agreed=False), BIRTH):
        lab = Lab(is_new=True)
        request = replace(vote(3, last, pre_vote=pre_vote), birth=birth)
        assert only_vote_response(lab.take(request)).result is VoteResult.UNKNOWN


def test_it_asks_nobody_for_votes_but_what_they_are() -> None:
    lab = Lab(is_new=True)
    asked = lab.pass_time(3_000)
    assert {type(message) for message in asked} == {BirthReport}
    assert lab.raft.term == 0


def test_with_a_java_member_it_votes_for_a_candidate_without_a_log_only() -> None:
    """There is no birth then: only a new group has such a candidate."""
    for last, result in (
        (EntryId(2, 7), VoteResult.UNKNOWN),
        (EntryId(-1, -1), VoteResult.ACCEPT),
    ):
        lab = Lab(is_new=True, term=3, dialect=PeerDialect.JAVA)
        assert only_vote_response(lab.take(vote(3, last))).result is result


def test_a_vote_for_itself_does_not_make_an_empty_disk_trustworthy() -> None:
    """An answer to the life before made a member with a replaced disk a candidate, and after that
    it gave votes to members that lacked what it had acknowledged."""
    lab = Lab(is_new=True, dialect=PeerDialect.JAVA)
    lab.raft._state.raise_term(3)
    lab.raft._state.vote("n0")
    lab.raft._state.raise_term(4)
    assert only_vote_response(lab.take(vote(4, EntryId(2, 7)))).result is VoteResult.UNKNOWN


@pytest.mark.parametrize("birth", [None, BIRTH])
def test_it_recovers_when_it_meets_a_leader(birth: Birth | None) -> None:
    lab = Lab(is_new=True)
    response = only_beat_response(lab.take(replace(brought(4), birth=birth)))
    assert lab.raft.role is Role.FOLLOWER
    assert lab.raft.recovering and response.recovering
    assert lab.raft.birth == response.birth == birth
    assert lab.hard_state.birth == birth


def test_an_older_store_recovers_when_a_leader_brings_it_the_birth() -> None:
    """It has a log and votes of a time before births; what it did since, if anything, is lost."""
    lab = Lab([1, 1], term=1)
    lab.take(brought(4))
    assert lab.raft.recovering and lab.raft.birth == BIRTH
    assert only_vote_response(lab.take(replace(vote(5, EntryId(1, 1)), birth=BIRTH))).result is (
        VoteResult.UNKNOWN
    )


def test_an_older_store_takes_no_birth_that_is_only_held() -> None:
    lab = Lab([1, 1], term=1)
    lab.take(brought(4, replace(BIRTH, is_agreed=False)))
    assert lab.raft.birth is None and not lab.raft.recovering


def test_under_a_java_leader_it_counts() -> None:
    lab = Lab(is_new=True, dialect=PeerDialect.JAVA)
    lab.take(beat(0))
    assert not lab.raft.recovering


def test_a_leader_whose_kind_is_not_known_yet_is_followed_a_little_later() -> None:
    """The heart beat of a Java leader may come before this member has a connection to it; taken for
    a sign that its disk is lost, it silenced two of three for good when that leader died."""
    lab = Lab(is_new=True, dialect=PeerDialect.UNKNOWN)
    (entry,) = run_of([1])
    assert only_push_response(lab.take(append(1, entry, None))).code is not DLedgerCode.SUCCESS
    response = only_beat_response(lab.take(beat(1)))
    assert response.code is DLedgerCode.TERM_NOT_READY
    assert lab.raft.leader_id is None and not lab.raft.recovering
    lab.raft.set_dialect("n1", PeerDialect.JAVA)
    lab.take(beat(1))
    assert lab.raft.leader_id == "n1" and not lab.raft.recovering


def test_a_leader_that_names_a_birth_is_none_of_java() -> None:
    lab = Lab(is_new=True, dialect=PeerDialect.UNKNOWN)
    lab.take(brought(1))
    assert lab.raft.leader_id == "n1" and lab.raft.recovering


def test_an_idle_leader_proposes_one_entry_for_a_recovering_follower() -> None:
    """Only what is committed without it ends its recovery."""
    lab = Lab()
    frames = lab.elect()
    lab.take(acked(appends_of(frames, "n1")[0]))
    lab.take(beat_answer("n2", recovering=True))
    (frame,) = appends_of(frames, "n2")
    assert lab.raft.commit_index == lab.raft.last_index == 0
    pushed = lab.take(answer_to(frame, 200, end_index=0, recovering=True))
    assert lab.raft.last_index == 1
    (to_voter,), (to_late,) = appends_of(pushed, "n1"), appends_of(pushed, "n2")
    lab.take(acked(to_voter))
    assert lab.raft.commit_index == 1
    lab.take(answer_to(to_late, 200, end_index=1, recovering=True))
    beats = [m for m in lab.pass_time(21) if isinstance(m, HeartBeatRequest)]
    assert [m.commit_index for m in beats if m.target == "n2"] == [1]
    assert lab.raft.last_index == 1


def test_heart_beats_do_not_hurry_for_a_follower_that_is_behind() -> None:
    """Its recovery could not end yet."""
    lab = Lab()
    frames = lab.elect()
    lab.take(acked(appends_of(frames, "n1")[0]))
    lab.take(beat_answer("n2", recovering=True))
    lab.raft.propose([b"body"], lab.now_ms)
    (entry,) = appends_of(lab.work(), "n1")
    lab.take(acked(entry))
    assert lab.raft.commit_index == 1
    (frame,) = appends_of(frames, "n2")
    lab.take(answer_to(frame, 200, end_index=0, recovering=True))
    assert not [m for m in lab.pass_time(300) if isinstance(m, HeartBeatRequest)]


def test_entry_for_a_recovering_follower_waits_until_all_is_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that is about to take up its leadership wants the log as it is."""
    lab = Lab()
    with monkeypatch.context() as patch:
        patch.setattr(Raft, "applied", lambda self, index: None)
        frames = lab.elect()
        lab.take(acked(appends_of(frames, "n1")[0]))
        lab.take(beat_answer("n2", recovering=True))
        (frame,) = appends_of(frames, "n2")
        lab.take(answer_to(frame, 200, end_index=0, recovering=True))
        lab.take(beat_answer("n1"))
        lab.pass_time(600)
        assert lab.raft.commit_index == lab.raft.last_index == 0
    lab.raft.applied(0)
    assert lab.raft.last_index == 1
