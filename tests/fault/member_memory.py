"""Memory of a member that waits for its disk, under load, and of the others.

    python -m tests.fault.member_memory [--minutes 10] [--kinds full,stuck,syncs,leader]

    full     a follower whose disk has no room for another segment
    stuck    a follower whose disk does not answer
    syncs    a follower whose syncs do not end, while its writes go on
    leader   the same of a leader

For each kind a group of three runs as processes and takes messages. In the end the disk is well
again: the member must catch up, every acknowledged message must be there, all three stores must be
equal, and the memory must be a horizontal line. The rows of a table in Markdown are printed. It
mounts file systems, so it is for root.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.e2e.up_cluster import Node, UpCluster
from tests.fault.small_disk import SmallDisk
from tests.fault.stuck_disk import StuckDisk, StuckSyncs
from tests.fault.up_group import (
    NODES,
    Load,
    addresses,
    counts,
    small_group,
    stop_and_verify,
    wait_until_whole,
)
from tests.processes import resident_mb
from tests.waiting import wait_until

DISK_BYTES = 1 << 30
# Nothing is deleted to make room, and nobody looks at the disk before it is full.
BLIND = "cleanResourceInterval=86400000"
SETTINGS = ("flushDiskType=SYNC_FLUSH", "mappedFileSizeCommitLog=8388608")
BODY_BYTES = 8_000
REST_S = 0.1
SAMPLE_S = 15.0
# What may be more in the last third than in the one before: a tenth, and what one allocator block
# more or less makes.
GROWTH = 1.1
GROWTH_MB = 4.0
NO_ROOM = "no room on the disk for"
HEAD = """\
| disk | before | the member: first, second third, last third, most | the others | messages |
|---|---|---|---|---|
"""


class Trouble(NamedTuple):
    """A group, how the disk of a member is hurt, and how that ends."""

    group: UpCluster
    begin: Callable[[Node], None]
    end: Callable[[Node], None]


@contextlib.contextmanager
def full(folder: Path) -> Iterator[Trouble]:
    with contextlib.ExitStack() as stack:
        disks = {node: SmallDisk(folder / "data" / node, DISK_BYTES) for node in NODES}
        for disk in disks.values():
            stack.callback(disk.unmount)
        group = stack.enter_context(small_group(folder, *SETTINGS, BLIND))

        def begin(node: Node) -> None:
            disks[node["id"]].fill()
            wait_until(
                lambda: NO_ROOM in group.log_text(node["id"]),
                what="the end of the disk",
                deadline_s=120,
            )

        yield Trouble(group, begin, lambda node: disks[node["id"]].grow())


@contextlib.contextmanager
def stuck(folder: Path) -> Iterator[Trouble]:
    with contextlib.ExitStack() as stack:
        disks = {node: StuckDisk(folder / "data" / node, DISK_BYTES) for node in NODES}
        for disk in disks.values():
            stack.callback(disk.unmount)
        group = stack.enter_context(small_group(folder, *SETTINGS, BLIND))
        yield Trouble(
            group,
            lambda node: disks[node["id"]].stick(),
            lambda node: disks[node["id"]].release(),
        )


@contextlib.contextmanager
def syncs(folder: Path) -> Iterator[Trouble]:
    held = StuckSyncs(folder)
    group = UpCluster(folder, len(NODES), (*SETTINGS, BLIND), held.environment)

    def begin(node: Node) -> None:
        assert node["pid"] is not None
        held.stick(node["pid"])

    with group:
        yield Trouble(group, begin, lambda node: held.release())


KINDS = {"full": full, "stuck": stuck, "syncs": syncs, "leader": syncs}


def run(kind: str, minutes: float) -> str:
    """Returns a row of the table."""
    with tempfile.TemporaryDirectory(prefix="ledgermq-disks-") as name, contextlib.ExitStack() as s:
        trouble = s.enter_context(KINDS[kind](Path(name)))
        group = trouble.group
        load = s.enter_context(Load(addresses(group), BODY_BYTES, rest_s=REST_S))
        wait_until_whole(group)
        load.wait_for_more(100)
        role = "LEADER" if kind == "leader" else "FOLLOWER"
        hurt = next(node for node in group.nodes() if node["role"] == role)
        before = resident_mb(hurt["pid"])
        trouble.begin(hurt)
        counted = load.taken_count
        samples = sample(group, hurt["id"], minutes)
        assert hurt["pid"] in {node["pid"] for node in group.nodes()}, "it was started again"
        taken = load.taken_count - counted
        trouble.end(hurt)
        load.wait_for_more(20)
        wait_until(
            lambda: group.has_all() and counts(group.log_text(hurt["id"])),
            what="the member to be back",
            deadline_s=120,
        )
        load.stop()
        load.judge(group)
        stop_and_verify(group)
    row = [kind, f"{before:.0f}"]
    for values in samples:
        part = len(values) // 3
        earlier, later = (statistics.mean(v) for v in (values[part : 2 * part], values[-part:]))
        row.append(f"{values[0]:.0f}, {earlier:.0f}, {later:.0f}, {max(values):.0f}")
        assert later <= GROWTH * earlier + GROWTH_MB, f"{kind}: grows, MB: {values}"
    return f"| {' | '.join([*row, f'{taken:,}'])} |"


def sample(group: UpCluster, hurt_id: str, minutes: float) -> list[list[float]]:
    """Returns the memory of the member that waits, and the largest one of the others, in MB."""
    own, others = list[float](), list[float]()
    never, end_s = threading.Event(), time.monotonic() + 60 * minutes
    while time.monotonic() < end_s:
        never.wait(min(SAMPLE_S, 10 * minutes))
        of_all = {node["id"]: resident_mb(node["pid"]) for node in group.nodes()}
        own.append(of_all.pop(hurt_id))
        others.append(max(of_all.values()))
    return [own, others]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--kinds", default=",".join(KINDS))
    arguments = parser.parse_args()
    sys.stdout.write(HEAD)
    for kind in arguments.kinds.split(","):
        sys.stdout.write(f"{run(kind, arguments.minutes)}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
