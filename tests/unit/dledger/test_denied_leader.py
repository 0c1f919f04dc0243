"""A leader and members that say they follow another one in its term (409): Raft rules that out."""

from ledgermq.dledger.member_state import Role
from ledgermq.dledger.messages import DLedgerCode, HeartBeatResponse
from tests.unit.dledger.lab import Lab, beat


def answer(lab: Lab, sender: str, code: DLedgerCode) -> None:
    lab.take(HeartBeatResponse(term=lab.raft.term, sender=sender, target="n0", code=code))


def leader(*peers: str) -> Lab:
    lab = Lab(peers=peers) if peers else Lab()
    lab.elect()
    return lab


def test_the_word_of_one_member_ends_no_leadership() -> None:
    lab = leader()
    for _ in range(3):
        answer(lab, "n1", DLedgerCode.INCONSISTENT_LEADER)
    assert lab.raft.role is Role.LEADER


def test_so_many_as_make_a_majority_end_it() -> None:
    lab = leader()
    answer(lab, "n1", DLedgerCode.INCONSISTENT_LEADER)
    answer(lab, "n2", DLedgerCode.INCONSISTENT_LEADER)
    assert lab.raft.role is Role.CANDIDATE


def test_who_follows_again_takes_its_word_back() -> None:
    lab = leader()
    answer(lab, "n1", DLedgerCode.INCONSISTENT_LEADER)
    answer(lab, "n1", DLedgerCode.SUCCESS)
    answer(lab, "n2", DLedgerCode.INCONSISTENT_LEADER)
    assert lab.raft.role is Role.LEADER


def test_who_says_so_counts_as_silent() -> None:
    lab = leader()
    for _ in range(100):
        lab.pass_time(100)
        answer(lab, "n1", DLedgerCode.INCONSISTENT_LEADER)
    assert lab.raft.role is not Role.LEADER


def test_what_was_said_in_an_earlier_term_counts_no_more() -> None:
    lab = leader()
    answer(lab, "n1", DLedgerCode.INCONSISTENT_LEADER)
    term = lab.raft.term
    lab.take(beat(term + 1))
    assert lab.raft.role is not Role.LEADER
    lab.elect()
    assert lab.raft.role is Role.LEADER and lab.raft.term > term + 1
    answer(lab, "n2", DLedgerCode.INCONSISTENT_LEADER)
    assert lab.raft.role is Role.LEADER
