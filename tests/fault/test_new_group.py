"""Members of a group that has not met yet, which are started and stopped one after the other."""

import tempfile
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from tests.fault.bit_flips import StoreGroup
from tests.fault.killed_group import MEMBERS, KilledGroup, judge
from tests.free_ports import free_ports
from tests.waiting import wait_until

_WAITS = "the group is not born yet and has no leader"


class NewGroupTest(TestCase):
    timeout = 200

    async def test_members_that_were_stopped_before_they_met_elect_a_leader(self) -> None:
        """A checkpoint of an empty log told of a lost vote: nobody voted, for ever."""
        with tempfile.TemporaryDirectory() as folder:
            group = StoreGroup(reactor, Path(folder), free_ports(3))
            for member in group.members:
                await member.start()
                await member.stop()
            await group.start()
            try:
                await group.send([b"%d" % number for number in range(20)])
                await group.wait_until_equal()
            finally:
                await group.stop()


def test_two_new_disks_and_one_with_the_log_lose_nothing(tmp_path: Path) -> None:
    """Whoever starts first, and whoever has the log: two empty disks do not elect each other."""
    group = KilledGroup(tmp_path, "SYNC_FLUSH")
    try:
        for member_id in MEMBERS:
            group.start(member_id)
        group.wait_until_all_count()
        group.wait_for_acks(300)
        for number, order in enumerate(permutations(MEMBERS)):
            holder = MEMBERS[number % len(MEMBERS)]
            _kill_all(group)
            acked = len(group.acked)
            _start_on_new_disks(group, order, holder)
            states = [group.members[member_id].state() for member_id in MEMBERS]
            assert {state.role for state in states} == {"CANDIDATE"}, (order, holder, states)
            assert len(group.acked) == acked, (order, holder)
            _kill_all(group)
            for member_id in set(MEMBERS) - {holder}:
                group.put_back(member_id)
        # One of the two disks is gone for good.
        group.wipe("n2")
        for member_id in MEMBERS:
            group.start(member_id)
        group.wait_until_all_count()
        group.wait_for_acks(300)
        judge(group)
    finally:
        _kill_all(group)


def _start_on_new_disks(group: KilledGroup, order: Sequence[str], holder: str) -> None:
    """Starts one after the other; the next one comes when the one before has nobody to vote for.

    A member on an empty disk says that it waits three seconds after its start: a dozen rounds of
    votes, if there were any.
    """
    for number, member_id in enumerate(order):
        said = group.log_text(member_id).count(_WAITS)
        if member_id != holder:
            group.wipe(member_id)
        group.start(member_id)
        there = set(order[: number + 1])
        if member_id != holder:
            wait_until(
                lambda name=member_id, said=said: group.log_text(name).count(_WAITS) > said,
                what=f"{member_id} to say that it waits",
            )
        empty = [name for name in there if name != holder]
        wait_until(
            lambda empty=empty, there=there: all(
                _has_met(group, name, there, holder) for name in empty
            ),
            what=f"{empty} to know who is there",
        )


def _has_met(group: KilledGroup, member_id: str, there: set[str], holder: str) -> bool:
    """Whether a member on an empty disk says what it must of all others."""
    text = group.members[member_id].ask("birth")
    if any(f"{name} (not reached)" not in text for name in set(MEMBERS) - there):
        return False
    if holder in there and f"{holder} (holds birth" not in text:
        return False
    return not any(f"{name} (" in text for name in there - {member_id, holder})


def _kill_all(group: KilledGroup) -> None:
    for member_id in list(group.members):
        group.kill(member_id)
