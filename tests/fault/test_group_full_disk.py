"""A member whose disk is full: it says so and lives, the group goes on, space brings it back."""

from __future__ import annotations

import contextlib
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.up_cluster import UpCluster
from tests.fault.small_disk import NoMountError, SmallDisk
from tests.fault.up_group import (
    NODES,
    Load,
    addresses,
    small_group,
    stop_and_verify,
    wait_until_whole,
)
from tests.waiting import wait_until

# Waits are long, for a starved machine; several may follow each other.
pytestmark = pytest.mark.timeout(300)
# A store of this test begins with a little less than 4 MiB.
LARGE_BYTES = 128 << 20
# From here the last tenth of a disk, in which no messages are taken, is near.
BALLAST_PERCENT = 87
SETTINGS = ("mappedFileSizeCommitLog=1048576", "maxMessageSize=65536")
# Nothing is deleted to make room and nobody looks at the disk, so that it really runs full.
BLIND = "cleanResourceInterval=86400000"
BODY_BYTES = 5_000
NO_ROOM = "no room on the disk for"
_NO_MOUNT = (
    "a disk that really runs full is a tmpfs of its own, which only root (CAP_SYS_ADMIN, Linux) may"
    " mount; run as root for this test, the simulation fills its disks without"
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below pytest's own: a run that is killed leaves a mount, which pytest cannot clean."""
    with tempfile.TemporaryDirectory(prefix="ledgermq-disks-") as name:
        yield Path(name)


@pytest.fixture
def disks(folder: Path) -> Iterator[dict[str, SmallDisk]]:
    """A roomy disk for the store of each member."""
    with contextlib.ExitStack() as stack:
        found = {}
        for node in NODES:
            try:
                found[node] = SmallDisk(folder / "data" / node, LARGE_BYTES)
            except NoMountError as error:
                pytest.skip(f"{_NO_MOUNT}: {error}")
            stack.callback(found[node].unmount)
        yield found


def wait_until_full(group: UpCluster, node: str) -> None:
    wait_until(
        lambda: NO_ROOM in group.log_text(node),
        what=f"the end of the disk of {node}",
        deadline_s=60,
    )


def restart(group: UpCluster, *nodes: str) -> None:
    """Ends members in order; `up` starts them again."""
    group.signal(signal.SIGTERM, *(node for node in group.nodes() if node["id"] in nodes))


def judge(group: UpCluster, load: Load) -> None:
    load.judge(group)
    stop_and_verify(group)


def test_a_full_follower_leaves_the_group_and_comes_back(
    folder: Path, disks: dict[str, SmallDisk]
) -> None:
    with small_group(folder, *SETTINGS, BLIND) as group:
        with Load(addresses(group), BODY_BYTES) as load:
            wait_until_whole(group)
            full = next(node for node in group.nodes() if node["role"] == "FOLLOWER")
            disks[full["id"]].fill()
            wait_until_full(group, full["id"])
            load.wait_for_more(100)
            assert full["pid"] in {node["pid"] for node in group.nodes()}
            disks[full["id"]].grow()
            restart(group, full["id"])
            load.wait_for_more(20)
            wait_until_whole(group)
        judge(group, load)


def test_a_full_leader_hands_over_and_comes_back(folder: Path, disks: dict[str, SmallDisk]) -> None:
    with small_group(folder, *SETTINGS, BLIND) as group:
        with Load(addresses(group), BODY_BYTES) as load:
            wait_until_whole(group)
            full = group.wait_for_leader()
            disks[full["id"]].fill()
            wait_until_full(group, full["id"])
            load.wait_for_more(100)
            assert group.wait_for_leader()["id"] != full["id"]
            assert full["pid"] in {node["pid"] for node in group.nodes()}
            disks[full["id"]].grow()
            restart(group, full["id"])
            wait_until_whole(group)
        judge(group, load)


def test_a_group_of_full_disks_refuses_and_loses_nothing(
    folder: Path, disks: dict[str, SmallDisk]
) -> None:
    with small_group(folder, *SETTINGS, BLIND) as group:
        with Load(addresses(group), BODY_BYTES) as load:
            wait_until_whole(group)
            pids = {node["pid"] for node in group.nodes()}
            for disk in disks.values():
                disk.fill()
            wait_until(
                lambda: sum(NO_ROOM in group.log_text(node) for node in NODES) >= 2,
                what="the end of the disks of a majority",
                deadline_s=60,
            )
            load.refusals.clear()
            wait_until(
                lambda: len(load.refusals) == len(NODES),
                what="a refusal of each member",
                deadline_s=60,
            )
            assert all(remark for _, remark in load.refusals.values())
            assert {node["pid"] for node in group.nodes()} == pids
            for disk in disks.values():
                disk.grow()
            restart(group, *NODES)
            load.wait_for_more(20)
            wait_until_whole(group)
        judge(group, load)


def test_a_nearly_full_leader_takes_no_messages_until_there_is_room(
    folder: Path, disks: dict[str, SmallDisk]
) -> None:
    """The last tenth of the disk is not for messages; no restart is needed."""
    watching = ("cleanResourceInterval=100", "cleanFileForciblyEnable=false")
    with small_group(folder, *SETTINGS, *watching) as group:
        with Load(addresses(group), BODY_BYTES) as load:
            wait_until_whole(group)
            pids = {node["pid"] for node in group.nodes()}
            ballast: dict[str, Path] = {}

            def is_refused() -> bool:
                # On a starved machine another member may lead before the disk is full.
                leader = group.wait_for_leader()
                if leader["id"] not in ballast:
                    ballast[leader["id"]] = disks[leader["id"]].put_ballast(BALLAST_PERCENT)
                _, remark = load.refusals.get(leader["address"], (0, ""))
                return "messages are not taken: the disk" in (remark or "")

            wait_until(is_refused, what="a refusal", deadline_s=60)
            for path in ballast.values():
                path.unlink()
            load.wait_for_more(20)
        assert {node["pid"] for node in group.nodes()} == pids
        assert not any(NO_ROOM in group.log_text(node) for node in NODES)
        judge(group, load)
