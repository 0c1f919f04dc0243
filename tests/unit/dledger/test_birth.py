"""The rules of a birth: whose words count, and when a group has one."""

from itertools import product

import pytest

from ledgermq.dledger.birth import (
    Birth,
    Claim,
    Standing,
    are_kin,
    disagree,
    may_lead,
    next_birth,
)

MEMBERS = ("n0", "n1", "n2")
HELD = Birth("a" * 32, MEMBERS)
AGREED = HELD.agreed()
OTHER = Birth("b" * 32, MEMBERS, is_agreed=True)
NEW = Claim(Standing.NEW, None)
OLDER = Claim(Standing.OLDER, None)
LOST = Claim(Standing.LOST, None)


def decide(
    claims: dict[str, Claim], self_id: str = "n0", founders: tuple[str, ...] = MEMBERS
) -> Birth | None:
    return next_birth(
        self_id, claims, members=MEMBERS, founders=founders, draw_id=lambda: HELD.group_id
    )


def test_members_count_for_each_other_with_one_birth_or_while_none_is_agreed() -> None:
    births = (None, HELD, AGREED, OTHER)
    kin = {(a, b) for a, b in product(births, births) if are_kin(a, b)}
    assert kin == {
        (None, None),
        (None, HELD),
        (HELD, None),
        (HELD, HELD),
        (HELD, AGREED),
        (AGREED, HELD),
        (AGREED, AGREED),
        (OTHER, OTHER),
    }


def test_a_leader_brings_an_agreed_birth_to_a_member_without_one() -> None:
    assert may_lead(AGREED, None)
    assert may_lead(AGREED, HELD)
    assert not may_lead(None, AGREED)
    assert not may_lead(OTHER, AGREED)
    assert not may_lead(OTHER, HELD)


def test_births_disagree_only_when_there_are_two() -> None:
    assert disagree(AGREED, OTHER)
    assert not disagree(AGREED, HELD)
    assert not disagree(AGREED, None)


@pytest.mark.parametrize("claim", [NEW, OLDER])
def test_the_first_member_draws_the_id_when_all_are_there_and_alike(claim: Claim) -> None:
    claims = dict.fromkeys(MEMBERS, claim)
    assert decide(claims) == HELD
    assert decide(claims, "n1") is None


@pytest.mark.parametrize("own", [NEW, OLDER])
@pytest.mark.parametrize(
    "others",
    [
        {},
        {"n1": NEW},
        {"n1": OLDER},
        {"n1": NEW, "n2": OLDER},
        {"n1": OLDER, "n2": LOST},
        {"n1": NEW, "n2": LOST},
        {"n1": NEW, "n2": Claim(Standing.OLDER, AGREED)},
        {"n1": OLDER, "n2": Claim(Standing.OLDER, AGREED)},
    ],
)
def test_nothing_is_drawn_while_one_is_missing_or_of_another_kind(
    own: Claim, others: dict[str, Claim]
) -> None:
    assert decide({"n0": own, **others}) is None


def test_a_member_that_lost_its_state_waits_for_a_leader() -> None:
    assert decide({"n0": LOST, "n1": OLDER, "n2": OLDER}) is None
    assert decide(dict.fromkeys(MEMBERS, LOST)) is None


def test_what_one_holds_the_others_take() -> None:
    holder = Claim(Standing.NEW, HELD)
    assert decide({"n0": NEW, "n1": holder, "n2": NEW}) == HELD
    assert decide({"n0": NEW, "n1": holder, "n2": NEW}, "n2") == HELD
    # All must be there for this, too.
    assert decide({"n0": NEW, "n1": holder}) is None


def test_two_births_that_are_held_are_nobodys() -> None:
    other = Claim(Standing.NEW, Birth("b" * 32, MEMBERS))
    assert decide({"n0": NEW, "n1": Claim(Standing.NEW, HELD), "n2": other}) is None


def test_it_is_agreed_when_all_hold_it() -> None:
    holder = Claim(Standing.NEW, HELD)
    assert decide({"n0": holder, "n1": holder}) == HELD
    assert decide({"n0": holder, "n1": holder, "n2": NEW}) == HELD
    assert decide(dict.fromkeys(MEMBERS, holder)) == AGREED


def test_whoever_holds_it_believes_that_it_is_agreed() -> None:
    told = Claim(Standing.OLDER, AGREED)
    assert decide({"n0": Claim(Standing.NEW, HELD), "n1": told}) == AGREED
    # But not one that holds nothing: it may have forgotten what it has promised since.
    assert decide({"n0": NEW, "n1": told, "n2": told}) is None


def test_an_agreed_birth_stays_whatever_others_say() -> None:
    claims = {"n0": Claim(Standing.OLDER, AGREED), "n1": Claim(Standing.OLDER, OTHER)}
    assert decide(claims) == AGREED


def test_a_held_birth_stays_beside_another() -> None:
    claims = {"n0": Claim(Standing.NEW, HELD), "n1": Claim(Standing.OLDER, OTHER), "n2": NEW}
    assert decide(claims) == HELD


def test_founders_that_the_configuration_names_are_enough() -> None:
    founders = ("n1", "n2")
    claims = {"n1": NEW, "n2": NEW}
    birth = decide(claims, "n1", founders)
    assert birth == HELD
    holder = Claim(Standing.NEW, birth)
    assert decide({"n1": holder, "n2": holder}, "n2", founders) == birth.agreed()
    # A member that founds nothing waits for their leader.
    assert decide({"n0": NEW, **claims}, "n0", founders) is None
    assert decide({"n0": NEW, "n1": holder, "n2": holder}, "n0", founders) is None


@pytest.mark.parametrize("third", [OLDER, LOST, Claim(Standing.OLDER, AGREED)])
def test_founders_do_not_found_beside_a_member_that_is_not_new(third: Claim) -> None:
    assert decide({"n0": NEW, "n1": NEW, "n2": third}, founders=("n0", "n1")) is None


def test_a_birth_of_other_founders_is_not_taken() -> None:
    """The members are not configured alike: that is for a person to mend."""
    of_two = Claim(Standing.NEW, Birth("a" * 32, ("n0", "n1")))
    assert decide({"n0": of_two, "n1": NEW, "n2": NEW}, "n1") is None


def test_founders_mean_nothing_to_an_older_store() -> None:
    assert decide({"n0": OLDER, "n1": OLDER}, founders=("n0", "n1")) is None
