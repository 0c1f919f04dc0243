"""MemberState: what must be saved, and which times hold."""

import pytest

from ledgermq.dledger.config import FAST_TIMING
from ledgermq.dledger.member_state import MemberState
from ledgermq.dledger.messages import PeerDialect
from ledgermq.dledger.storage import HardState
from tests.unit.dledger.lab import SLOW, config_of


def state() -> MemberState:
    return MemberState(config_of(), HardState(3, None), recovering=False)


def test_only_a_change_is_to_be_saved() -> None:
    member = state()
    assert member.take_hard_state() is None
    member.vote("n1")
    assert member.take_hard_state() == HardState(3, "n1")
    assert member.take_hard_state() is None


def test_who_follows_in_the_first_term_saves_that_it_gave_no_vote() -> None:
    """Else its log is that of a member that forgot its votes, and it gives none after a start."""
    member = MemberState(config_of(), HardState(0), recovering=False, is_saved=False)
    assert member.take_hard_state() is None
    member.leader_id = "n1"
    assert member.take_hard_state() == HardState(0)
    assert member.take_hard_state() is None


def test_what_was_lost_is_not_covered_by_what_is_saved_then() -> None:
    member = MemberState(config_of(), HardState(0), recovering=True, is_saved=False)
    member.leader_id = "n1"
    assert member.take_hard_state() is None


def test_a_new_term_opens_vote_and_leader() -> None:
    member = state()
    member.vote("n1")
    member.leader_id = "n1"
    member.raise_term(4)
    assert (member.term, member.voted_for, member.leader_id) == (4, None, None)


def test_a_vote_is_given_once() -> None:
    member = state()
    member.vote("n1")
    with pytest.raises(AssertionError):
        member.vote("n2")


def test_a_term_never_falls() -> None:
    with pytest.raises(AssertionError):
        state().raise_term(3)


def test_one_java_member_brings_its_times() -> None:
    member = state()
    assert member.timing is FAST_TIMING
    member.set_dialect("n2", PeerDialect.JAVA)
    assert member.timing is SLOW
    member.set_dialect("n2", PeerDialect.LEDGERMQ)
    assert member.timing is FAST_TIMING
