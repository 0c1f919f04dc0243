"""Leaders killed with SIGKILL under load: nothing acknowledged is lost, all members stay equal."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.killed_group import KilledGroup, judge
from tests.line_process import wait_for_leader

KILLS = 3
ACKED_BETWEEN_KILLS = 300


@pytest.fixture(params=["SYNC_FLUSH", "ASYNC_FLUSH"])
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KilledGroup]:
    group = KilledGroup(tmp_path, request.param)
    yield group
    for member_id in list(group.members):
        group.kill(member_id)


def test_leaders_killed_one_after_another_lose_nothing(group: KilledGroup) -> None:
    for member_id in ("n0", "n1", "n2"):
        group.start(member_id)
    for _ in range(KILLS):
        group.wait_until_all_count()
        leader_id = wait_for_leader(group.members)
        group.wait_for_acks(ACKED_BETWEEN_KILLS)
        group.kill(leader_id)
        group.wait_for_acks(ACKED_BETWEEN_KILLS)
        group.start(leader_id)
    judge(group)


def test_all_members_killed_at_once_lose_nothing(group: KilledGroup) -> None:
    for member_id in ("n0", "n1", "n2"):
        group.start(member_id)
    group.wait_for_acks(ACKED_BETWEEN_KILLS)
    judge(group)
