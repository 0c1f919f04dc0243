"""What a follower does when it hears that the process of its leader, or of somebody else, ended."""

from ledgermq.dledger.entry import EntryId
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.messages import PeerDialect, VoteResult
from tests.unit.dledger.lab import Lab, beat, only_vote_response, vote


def test_leader_whose_process_ended_is_not_waited_for() -> None:
    lab = Lab(term=3)
    lab.take(beat(3))
    lab.raft.peer_ended("n2", lab.now_ms)
    assert lab.raft.leader_id == "n1"
    lab.raft.peer_ended("n1", lab.now_ms)
    assert (lab.raft.role, lab.raft.leader_id, lab.raft.term) == (Role.CANDIDATE, None, 3)
    # Both followers learn of it at about the same time, and ask a random wait later.
    assert all(request.term == 4 for request in lab.until_asked(pre_vote=True))
    assert lab.config.timing.vote_wait_min_ms <= lab.now_ms <= lab.config.timing.vote_wait_max_ms
    request = vote(4, EntryId(-1, -1), sender="n2", pre_vote=True)
    assert only_vote_response(lab.take(request)).result is VoteResult.ACCEPT


def test_leader_that_was_wrongly_taken_for_ended_goes_on() -> None:
    lab = Lab(term=3)
    lab.take(beat(3))
    lab.raft.peer_ended("n1", lab.now_ms)
    lab.until_asked(pre_vote=True)
    lab.take(beat(3))
    assert (lab.raft.role, lab.raft.leader_id, lab.raft.term) == (Role.FOLLOWER, "n1", 3)


def test_end_of_a_follower_changes_nothing_for_its_leader() -> None:
    lab = Lab()
    lab.elect()
    lab.raft.peer_ended("n1", lab.now_ms)
    assert lab.raft.role is Role.LEADER


def test_with_a_java_member_its_silence_is_waited_for() -> None:
    lab = Lab(term=3, dialect=PeerDialect.JAVA)
    lab.take(beat(3))
    lab.raft.peer_ended("n1", lab.now_ms)
    assert (lab.raft.role, lab.raft.leader_id) == (Role.FOLLOWER, "n1")
