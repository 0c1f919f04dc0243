"""Members that reach each other again elect at once, whatever was asked while they did not."""

from ledgermq.dledger.member_state import Role
from ledgermq.dledger.messages import PeerDialect, VoteRequest
from tests.unit.dledger.lab import Lab, beat, granted


def asked_of(lab: Lab) -> list[VoteRequest]:
    return [message for message in lab.work() if isinstance(message, VoteRequest)]


def open_way(lab: Lab, peer_id: str) -> list[VoteRequest]:
    lab.raft.set_dialect(peer_id, lab.dialects[peer_id])
    return asked_of(lab)


def test_peer_that_is_found_in_the_midst_of_a_round_is_asked_at_once() -> None:
    lab = Lab(term=3)
    lost = lab.until_asked(pre_vote=True)
    assert open_way(lab, "n1") == [request for request in lost if request.target == "n1"]
    (vote, _) = [m for m in lab.take(granted(lost[0], "n1")) if isinstance(m, VoteRequest)]
    assert (vote.target, vote.pre_vote, vote.term) == ("n1", False, 4)
    # The vote itself, too, when the way broke in between.
    assert open_way(lab, "n1") == [vote]
    lab.take(granted(vote, "n1"))
    assert (lab.raft.role, lab.raft.term) == (Role.LEADER, 4)


def test_peer_that_has_answered_is_not_asked_again() -> None:
    lab = Lab(term=3, member_count=5)
    (first, *_) = lab.until_asked(pre_vote=True)
    lab.take(granted(first, "n1"))
    assert open_way(lab, "n1") == []
    assert [request.target for request in open_way(lab, "n2")] == ["n2"]


def test_nobody_is_asked_between_rounds_or_by_a_follower() -> None:
    lab = Lab(term=3)
    assert open_way(lab, "n1") == []
    lab.take(beat(3))
    assert lab.raft.role is Role.FOLLOWER
    assert open_way(lab, "n2") == []


def test_same_holds_with_java_members() -> None:
    lab = Lab(term=3, dialect=PeerDialect.JAVA)
    lost = lab.until_asked(pre_vote=False)
    assert open_way(lab, "n2") == [request for request in lost if request.target == "n2"]
