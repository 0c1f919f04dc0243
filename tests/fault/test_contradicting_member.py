"""A member whose log is newer than that of its group, and wrong: the healthy majority goes on."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fault.killed_group import MEMBERS, KilledGroup
from tests.line_process import wait_for_leader, wait_until_equal
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(400)

_WRONG, *_HEALTHY = MEMBERS
# Entries that the others commit while it is away.
_COUNT = 100
_REMEDY = f"stop {_WRONG} on 127.0.0.1, move its store directory"


@pytest.mark.parametrize(
    "counts", [(10, 10, 10), (10, 300, 10), (300, 10, 10)], ids=["shorter", "longer", "same term"]
)
def test_member_with_a_wrong_newer_log_does_not_hold_up_others(
    tmp_path: Path, counts: Sequence[int]
) -> None:
    """It was elected again and again, since those that it contradicted went on to vote for it.

    Its first entries have the term of those that the others committed meanwhile: two leaders of one
    term have written them. By term and index they are equal; only their checksums differ.
    """
    group = KilledGroup(tmp_path, "SYNC_FLUSH")
    try:
        for member_id in MEMBERS:
            group.start(member_id, feeds=False)
        group.wait_until_all_count()
        _append(group, MEMBERS, "first")
        group.kill(_WRONG)
        _append(group, _HEALTHY, "kept")
        for count in counts:
            _write_alone(group, count)
        group.start(_WRONG, feeds=False)
        wait_until(
            lambda: any(_REMEDY in group.log_text(one) for one in _HEALTHY),
            what=f"a member that says what to do with {_WRONG}",
        )
        _append(group, _HEALTHY, "more")
        group.kill(_WRONG)
        group.wipe(_WRONG)
        group.start(_WRONG, feeds=False)
        _append(group, _HEALTHY, "last")
        # Those that are stopped last may elect a leader, which writes an entry of its own.
        end = wait_until_equal(group.members) + 1
        for member in group.members.values():
            member.stop()
        group.members.clear()
        first, *others = (group.bodies(one)[:end] for one in MEMBERS)
        assert all(other == first for other in others)
        for prefix in ("first", "kept", "more", "last"):
            wanted = [b"%s%d" % (prefix.encode(), number) for number in range(_COUNT)]
            assert [body for body in first if body.startswith(prefix.encode())] == wanted
    finally:
        for member_id in list(group.members):
            group.kill(member_id)


def _append(group: KilledGroup, member_ids: Sequence[str], prefix: str) -> None:
    """Appends entries at the leader that these members have."""
    leader = wait_for_leader({one: group.members[one] for one in member_ids})
    assert group.members[leader].append(_COUNT, prefix) == _COUNT


def _write_alone(group: KilledGroup, count: int) -> None:
    """Has one member lead a list without others for a term, beside its group.

    This program does not check its list at the start, as brokers do.
    """
    peers = group.peers
    group.peers = peers.partition(";")[0]
    group.start(_WRONG, feeds=False)
    member = group.members[_WRONG]
    wait_until(lambda: member.state().role == "LEADER", what="a leader of nobody else")
    assert member.append(count, "wrong") == count
    group.kill(_WRONG)
    group.peers = peers
