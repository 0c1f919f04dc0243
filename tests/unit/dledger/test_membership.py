"""Members with different lists of members, and peers that contradict a committed entry."""

import random
from dataclasses import replace

import pytest

from ledgermq.dledger.birth import Birth, Standing
from ledgermq.dledger.census import Census
from ledgermq.dledger.entry import EntryId
from ledgermq.dledger.errors import ContradictionError
from ledgermq.dledger.log import RaftLog
from ledgermq.dledger.member_state import MemberState, Outbox, Role
from ledgermq.dledger.membership import Cluster, find_mismatch, members_digest
from ledgermq.dledger.messages import (
    BirthReport,
    DLedgerCode,
    HeartBeatResponse,
    Message,
    PeerDialect,
    VoteRequest,
    VoteResult,
)
from ledgermq.dledger.storage import HardState
from tests.unit.dledger.lab import (
    CODEC,
    Lab,
    beat,
    config_of,
    disk_of,
    granted,
    only_beat_response,
    only_vote_response,
    run_of,
    truncate,
    vote,
)

MEMBERS = ("n0", "n1", "n2")
BIRTH = Birth("0f" * 16, MEMBERS, is_agreed=True)
OWN_DIGEST = members_digest(MEMBERS)
OTHER_DIGEST = members_digest(("n0", "n1", "n2", "n3", "n4"))


def bootstrapped(terms: tuple[int, ...] = (1, 1), **changes: object) -> Lab:
    return Lab(terms, term=1, birth=BIRTH, **changes)


def test_the_digest_is_that_of_the_ids_in_any_order() -> None:
    assert members_digest(("n2", "n0", "n1")) == OWN_DIGEST > 0
    lists = [("n0",), ("n0", "n1"), MEMBERS, ("n0", "n1", "n12"), ("n0", "n1", "n2", "n3")]
    assert len({members_digest(one) for one in lists}) == len(lists)


def test_a_mismatch_names_both_lists_or_both_clusters() -> None:
    own = Cluster("0f" * 16, MEMBERS)
    assert find_mismatch("n1", Cluster("", ("n2", "n1", "n0")), own) is None
    assert find_mismatch("n1", Cluster("", ("n0", "n1")), own) == (
        "n1 has another member list: n0, n1; expected n0, n1, n2 (key dLegerPeers)"
    )
    found = find_mismatch("n1", Cluster("0e" * 16, MEMBERS), own)
    assert found == (
        f"n1 belongs to a different cluster (cluster id {'0e' * 16}, expected {'0f' * 16})"
    )


@pytest.mark.parametrize("dialect", [PeerDialect.LEDGERMQ, PeerDialect.JAVA])
@pytest.mark.parametrize("pre_vote", [False, True])
def test_no_vote_for_another_member_list(pre_vote: bool, dialect: PeerDialect) -> None:
    """LedgerMQ members compare their lists also in a group with a Java member."""
    lab = bootstrapped()
    lab.raft.set_dialect("n2", dialect)
    request = vote(9, EntryId(8, 99), pre_vote=pre_vote)
    request = replace(request, birth=BIRTH, members_digest=OTHER_DIGEST)
    response = only_vote_response(lab.take(request))
    assert (response.result, response.term) == (VoteResult.UNKNOWN, 1)
    assert response.members_digest == OWN_DIGEST
    assert lab.raft.term == 1


def test_a_vote_of_another_member_list_is_not_counted() -> None:
    lab = bootstrapped()
    asked = lab.until_asked(pre_vote=True)[0]
    assert asked.members_digest == OWN_DIGEST
    for voter in ("n1", "n2"):
        answer = replace(granted(asked, voter), birth=BIRTH, members_digest=OTHER_DIGEST)
        assert not [m for m in lab.take(answer) if isinstance(m, VoteRequest)]
    assert lab.raft.role is Role.CANDIDATE and lab.raft.term == 1


def test_no_heartbeat_of_another_member_list_is_followed() -> None:
    lab = bootstrapped()
    request = replace(beat(7), birth=BIRTH, members_digest=OTHER_DIGEST)
    response = only_beat_response(lab.take(request))
    assert (response.code, response.term) == (DLedgerCode.UNKNOWN_GROUP, 1)
    assert response.members_digest == OWN_DIGEST
    assert lab.raft.leader_id is None and lab.raft.term == 1


def test_answers_of_another_member_list_do_not_keep_a_leader() -> None:
    lab = bootstrapped()
    asked = lab.until_asked(pre_vote=True)[0]
    for _ in range(2):
        out = lab.take(replace(granted(asked, "n1"), birth=BIRTH, members_digest=OWN_DIGEST))
        asked = next((m for m in out if isinstance(m, VoteRequest)), asked)
    assert lab.raft.role is Role.LEADER
    timing = lab.config.timing
    for _ in range(timing.heart_beats_missed_max + 2):
        lab.take(
            HeartBeatResponse(
                term=lab.raft.term,
                sender="n1",
                target="n0",
                code=DLedgerCode.SUCCESS,
                birth=BIRTH,
                members_digest=OTHER_DIGEST,
            )
        )
        lab.pass_time(timing.heart_beat_ms)
    assert lab.raft.role is not Role.LEADER


class Bootstrap:
    """The bootstrap state of n0, and reports of its peers."""

    def __init__(self, birth: Birth | None) -> None:
        self.outbox = Outbox()
        saved = HardState(1, None, birth)
        self.state = MemberState(config_of(3), saved, recovering=False)
        self.state.is_new = birth is None
        log = RaftLog(disk_of([] if birth is None else [1, 1]), CODEC, 1000)
        self.census = Census(self.state, log, random.Random(1), self.outbox)
        for peer_id in ("n1", "n2"):
            self.census.way_opened(peer_id)
        self.asked: dict[str, int] = {}
        for message in self.outbox.messages:
            assert isinstance(message, BirthReport)
            self.asked[message.target] = message.number

    def report(self, sender: str, digest: int, birth: Birth | None) -> None:
        standing = Standing.NEW if self.state.is_new else Standing.OLDER
        self.census.receive(
            BirthReport(
                term=0,
                sender=sender,
                target="n0",
                life=5,
                number=7,
                answers=self.asked[sender],
                wants_answer=False,
                standing=standing,
                birth=birth,
                members_digest=digest,
            )
        )


def test_members_with_another_list_bootstrap_nothing() -> None:
    group = Bootstrap(None)
    group.report("n1", OWN_DIGEST, None)
    group.report("n2", OTHER_DIGEST, None)
    assert group.state.birth is None and not group.state.may_vote
    assert group.census.waits_for() == {"n2": "has another member list (key dLegerPeers)"}
    group.report("n2", OWN_DIGEST, None)
    assert group.state.birth is not None and group.state.birth.members == MEMBERS


def test_a_store_without_a_list_takes_the_one_of_all() -> None:
    """Programs that kept no list left a birth that may be that of fewer or more members."""
    group = Bootstrap(replace(BIRTH, members=()))
    assert not group.state.may_vote and sorted(group.asked) == ["n1", "n2"]
    group.report("n1", OWN_DIGEST, replace(BIRTH, members=()))
    group.report("n2", OTHER_DIGEST, BIRTH)
    assert not group.state.may_vote
    assert group.census.waits_for() == {"n2": "has another member list (key dLegerPeers)"}
    group.report("n2", OWN_DIGEST, replace(BIRTH, group_id="0e" * 16))
    assert not group.state.may_vote
    group.report("n2", OWN_DIGEST, BIRTH)
    assert group.state.may_vote and group.state.birth == BIRTH


def test_a_store_without_a_list_takes_that_of_its_leader() -> None:
    lab = Lab((1, 1), term=1, birth=replace(BIRTH, members=()))
    out = lab.pass_time(10 * lab.config.timing.vote_wait_max_ms)
    assert not [m for m in out if isinstance(m, VoteRequest)]
    response = only_beat_response(
        lab.take(replace(beat(1), birth=BIRTH, members_digest=OWN_DIGEST))
    )
    assert response.code is DLedgerCode.SUCCESS and lab.raft.birth == BIRTH
    assert lab.hard_state.birth == BIRTH


# A peer that contradicts a committed entry.


def contradicted() -> tuple[Lab, Message]:
    """n0 follows n1, which wants to cut entry 1, committed here; returns what n1 says next."""
    lab = bootstrapped((1, 1), checkpoint=1)
    lead = replace(beat(2), birth=BIRTH, members_digest=OWN_DIGEST)
    lab.take(lead)
    assert lab.raft.leader_id == "n1"
    entry = run_of((1, 2), salt=b"other")[1]
    with pytest.raises(ContradictionError):
        lab.take(truncate(2, entry, commit_index=1))
    return lab, lead


def test_a_contradicting_leader_is_left_and_not_answered() -> None:
    lab, lead = contradicted()
    assert lab.raft.contradicting == {"n1"}
    assert lab.raft.leader_id is None and lab.raft.role is Role.CANDIDATE
    request = replace(vote(9, EntryId(8, 99)), birth=BIRTH, members_digest=OWN_DIGEST)
    assert lab.take(lead) == [] and lab.take(request) == []
    assert lab.raft.term == 2 and lab.raft.leader_id is None


def test_others_elect_a_leader_beside_a_contradicting_one() -> None:
    lab, _ = contradicted()
    asked = lab.until_asked(pre_vote=True)[0]
    for _ in range(2):
        out = lab.take(replace(granted(asked, "n2"), birth=BIRTH, members_digest=OWN_DIGEST))
        asked = next((m for m in out if isinstance(m, VoteRequest)), asked)
    assert lab.raft.role is Role.LEADER and lab.raft.term == 3


def test_a_contradicting_member_that_lost_its_log_counts_again() -> None:
    lab, lead = contradicted()
    answer = HeartBeatResponse(term=2, sender="n1", target="n0", code=DLedgerCode.SUCCESS)
    lab.take(answer)
    assert lab.raft.contradicting == {"n1"}
    lab.take(replace(answer, recovering=True))
    assert lab.raft.contradicting == frozenset()
    lab.take(lead)
    assert lab.raft.leader_id == "n1"


def test_a_contradicting_member_is_ignored_for_a_while() -> None:
    """One forged message in an open group takes a follower away from its leader only so long."""
    lab, lead = contradicted()
    lab.now_ms += 10 * lab.config.timing.election_timeout_ms - 1
    assert lab.take(lead) == []
    lab.now_ms += 1
    assert only_beat_response(lab.take(lead)).code is DLedgerCode.SUCCESS
    assert lab.raft.contradicting == {"n1"}
    entry = run_of((1, 2), salt=b"other")[1]
    with pytest.raises(ContradictionError):
        lab.take(truncate(2, entry, commit_index=1))
    # Twice as long the next time.
    lab.now_ms += 20 * lab.config.timing.election_timeout_ms - 1
    assert lab.take(lead) == []
    lab.now_ms += 1
    assert lab.take(lead) != []
    lab.take(truncate(2, run_of((1, 1))[1], commit_index=1))
    assert lab.raft.contradicting == frozenset()


def test_a_new_process_of_a_contradicting_member_is_heard() -> None:
    lab, _ = contradicted()
    lab.raft.peer_ended("n1", lab.now_ms)
    assert lab.raft.contradicting == frozenset()
