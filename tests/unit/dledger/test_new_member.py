"""A member with an empty disk: one of a new group, or one whose disk was replaced."""

import pytest

from ledgermq.dledger.entry import EntryId
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.messages import (
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
    appends_of,
    beat,
    only_vote_response,
    vote,
)


def beat_answer(sender: str, *, recovering: bool = False) -> HeartBeatResponse:
    return HeartBeatResponse(
        term=1, sender=sender, target="n0", code=DLedgerCode.SUCCESS, recovering=recovering
    )


def test_it_gives_no_vote_to_a_candidate_with_a_log() -> None:
    """It may have acknowledged entries that this candidate lacks."""
    lab = Lab(is_new=True)
    assert only_vote_response(lab.take(vote(3, EntryId(2, 7)))).result is VoteResult.UNKNOWN


def test_it_votes_in_a_new_group_and_is_an_ordinary_member_then() -> None:
    lab = Lab(is_new=True)
    assert only_vote_response(lab.take(vote(1, EntryId(-1, -1)))).result is VoteResult.ACCEPT
    assert lab.hard_state.is_founder
    lab.take(beat(1))
    assert not lab.raft.recovering


def test_a_vote_for_itself_does_not_make_an_empty_disk_trustworthy() -> None:
    """An answer to the life before made a member with a replaced disk a candidate, and after that
    it gave votes to members that lacked what it had acknowledged."""
    lab = Lab(is_new=True)
    lab.raft._state.raise_term(2)
    lab.raft._state.vote("n0")
    assert only_vote_response(lab.take(vote(3, EntryId(2, 7)))).result is VoteResult.UNKNOWN
    lab.take(beat(4))
    assert lab.raft.recovering


def test_it_recovers_when_it_meets_a_leader_that_it_has_not_voted_for() -> None:
    lab = Lab(is_new=True)
    lab.take(beat(4))
    assert lab.raft.role is Role.FOLLOWER
    assert lab.raft.recovering


def test_under_a_java_leader_it_counts() -> None:
    lab = Lab(is_new=True, dialect=PeerDialect.JAVA)
    lab.take(beat(0))
    assert not lab.raft.recovering


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
