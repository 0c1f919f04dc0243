"""A member whose disk refuses a write: it leaves the group, nothing acknowledged is lost.

The operating system refuses it: a process may be forbidden to write beyond a place of any file.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest

from tests.fault.up_group import Load, addresses, small_group, stop_and_verify, wait_until_whole
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        sys.platform != "linux",
        reason="only Linux limits another process (prlimit); the simulation fails writes without",
    ),
]
# An eighth of a segment of the log; no other file of a member is as large.
LIMIT_BYTES = 512 << 10
BODY_BYTES = 5_000
REFUSED = "File too large"


@pytest.mark.parametrize("role", ["LEADER", "FOLLOWER"])
def test_a_member_that_cannot_write_makes_way(tmp_path: Path, role: str) -> None:
    with small_group(tmp_path) as group:
        with Load(addresses(group), BODY_BYTES) as load:
            wait_until_whole(group)
            node = next(node for node in group.nodes() if node["role"] == role)
            name = node["id"]
            resource.prlimit(node["pid"], resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))
            wait_until(
                lambda: REFUSED in group.log_text(name), what="a refused write", deadline_s=60
            )
            load.wait_for_more(100)
            # Another member leads, or the next process of this one, which knows as much.
            assert group.wait_for_leader()["pid"] != node["pid"]
            # It ends by itself, and `up` starts it again, without the limit.
            wait_until(
                lambda: node["pid"] not in [found["pid"] for found in group.nodes()],
                what="the end of a process that can do no more",
                deadline_s=60,
            )
            load.wait_for_more(20)
            wait_until_whole(group)
        load.judge(group)
        stop_and_verify(group)
        # What was written in part is no damage: the member counts at once.
        assert "recovering, no vote" not in group.log_text(name).split(REFUSED)[-1]
