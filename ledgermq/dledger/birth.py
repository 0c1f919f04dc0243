"""Birth: the moment from which a group is one group, and the rules about it. Pure functions.

A group is born once: an id, drawn at random, and the list of its members (membership.py). Every
member keeps both beside its vote. In a group that has a birth, a member without it has lost its
disk, or comes from elsewhere: it may have forgotten what it promised, so nothing that it says
counts (`are_kin`) until a leader of the group has brought it the birth and it has caught up.

    no birth ──all needed are alike──> held ──all needed hold it──> agreed
        │                                                             ^
        └──a leader brings it: the member recovers────────────────────┘

A birth that is only held changes nothing yet. It is agreed when all that are needed have it on
disk, so that the loss of any minority of the disks leaves a majority that has it. Needed are

    by members that are new         those that found the group: all, or those that the
                                    configuration names; all of them must be new
    by members of an older store    all members; each must have its log and its votes

and the first of them, by name, draws the id. One member that is missing, that has an agreed birth
already, another member list, or that is of another kind is enough, and nothing is drawn: two empty
disks never make a group of their own beside a third member that has a log.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple


class Standing(IntEnum):
    """What a member without an agreed birth is; the numbers are those of the wire."""

    # It holds no entry, and has never voted for another: of a new group, or with a new disk.
    NEW = 1
    # It has a log or a vote from a time before births.
    OLDER = 2
    # It has lost a part of what it may have promised, and recovers.
    LOST = 3


@dataclass(frozen=True, slots=True)
class Birth:
    """When and by whom a group was founded, so to speak: the same on all members, for good."""

    # 128 random bits as 32 hex digits.
    group_id: str
    # Ids of all members of the group, sorted. Empty on a member whose store was made before lists
    # were kept, until all members are known to have the same one (`census.Census`).
    members: tuple[str, ...]
    # Whether all of them are known to hold it.
    is_agreed: bool = False

    def agreed(self) -> "Birth":
        """Returns the same birth as one that all hold."""
        return self if self.is_agreed else replace(self, is_agreed=True)


class Claim(NamedTuple):
    """What a member says of itself."""

    standing: Standing
    birth: Birth | None
    # Whether its member list is that of this member.
    has_same_members: bool = True


def is_agreed(birth: Birth | None) -> bool:
    """Tells whether there is a birth, and all hold it."""
    return birth is not None and birth.is_agreed


def is_same(one: Birth | None, other: Birth | None) -> bool:
    """Tells whether two members hold one birth."""
    return one is not None and other is not None and one.group_id == other.group_id


def are_kin(one: Birth | None, other: Birth | None) -> bool:
    """Tells whether two members count for each other: with one birth, or while none is agreed."""
    return is_same(one, other) or not (is_agreed(one) or is_agreed(other))


def may_lead(leader: Birth | None, own: Birth | None) -> bool:
    """Tells whether a member may follow a leader: of its kin, or one that brings it the birth."""
    return are_kin(leader, own) or (own is None and is_agreed(leader))


def disagree(one: Birth | None, other: Birth | None) -> bool:
    """Tells whether two members have births of two groups."""
    return one is not None and other is not None and one.group_id != other.group_id


def next_birth(
    self_id: str,
    claims: Mapping[str, Claim],
    *,
    members: Collection[str],
    founders: Collection[str],
    draw_id: Callable[[], str],
) -> Birth | None:
    """Decides which birth a member holds from now on.

    Args:
        self_id: the member.
        claims: what each member has said that was heard of, its own claim included.
        members: of the group.
        founders: those that a new group needs.
        draw_id: draws an id.

    Returns:
        The birth, the one held before when nothing follows from the claims; None while there is
        none.
    """
    own = claims[self_id]
    needed = frozenset(founders if own.standing is Standing.NEW else members)
    have_other_members = any(not claim.has_same_members for claim in claims.values())
    claims = {id_: claim for id_, claim in claims.items() if claim.has_same_members}
    known = [claim.birth for claim in claims.values() if claim.birth is not None]
    if own.birth is not None:
        holders = {id_ for id_, claim in claims.items() if is_same(claim.birth, own.birth)}
        is_told = any(birth.is_agreed and is_same(birth, own.birth) for birth in known)
        return own.birth.agreed() if is_told or needed <= holders else own.birth
    are_alike = own.standing is not Standing.LOST and all(
        claim.standing is own.standing for claim in claims.values()
    )
    if have_other_members or not are_alike or self_id not in needed or not needed <= claims.keys():
        return None
    if known:
        # Whatever subset of the same list the holders were configured to wait for is a majority of
        # it, so two births cannot both be held by all that are needed for them.
        first = known[0]
        is_one = not any(birth.is_agreed or disagree(birth, first) for birth in known)
        return first if is_one and frozenset(first.members) == frozenset(members) else None
    return Birth(draw_id(), tuple(sorted(members))) if self_id == min(needed) else None
