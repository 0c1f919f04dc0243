"""What a signature costs: two groups side by side, one with access control, loaded in turns.

python -m bench.signed [9] [3] [3]      so many pairs, of so many seconds each, of so many members

Two ratios, each of a group with access control on and signed requests to one without: that of the
leader's processor time for one message, and that of messages a second. The first says what a
signature costs; the second what is left of the throughput, and on a machine that is busy otherwise
it says little. Both groups are loaded one right after the other: only such pairs can be compared.
Other programs take caches and make every message dearer, by turns: the quickest load of each side
is the one that they disturbed least, and the ratio of these two stands in a column of its own.
A round before the pairs brings the load program and the broker to what they do in the long run.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from bench.cluster import Running, cluster, cpu_seconds
from bench.page import markdown

TOPIC = "Signed"
QUEUES = 4
ACCOUNT = "bench-app:secret-of-the-bench"
RULES = """
accounts:
- {accessKey: operator, secretKey: secret-of-all, admin: true}
- accessKey: bench-app
  secretKey: secret-of-the-bench
  topicPerms: [Signed=PUB|SUB]
  defaultGroupPerm: SUB
"""
OPERATOR = "accessKey: operator\nsecretKey: secret-of-all\n"
COLUMNS = (
    "load", "leader µs, signed / unsigned", "signed", "unsigned", "at their quickest",
    "messages/s, signed / unsigned", "pairs",
)  # fmt: skip


class Cost(NamedTuple):
    """What a load took."""

    # Processor time of the leader for a message.
    leader_us: float
    messages_per_second: float


class Side:
    """A group, with access control or without."""

    def __init__(self, running: Running, is_signed: bool) -> None:
        """Takes a running group."""
        self._running = running
        self._words = ("--account", ACCOUNT) if is_signed else ()

    def cost(self, module: str, seconds: float) -> Cost:
        """Runs a load."""
        leader = self._running.leader()
        pid = int(str(leader["pid"]))
        before = cpu_seconds(pid)
        words = ("--address", str(leader["address"]), "--topic", TOPIC, "--seconds", str(seconds))
        done = subprocess.run(
            [sys.executable, "-m", f"bench.{module}", *words, *self._words],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        result = json.loads(done.stdout)
        if result.get("refused"):
            raise RuntimeError(result["first_refusal"])
        leader_us = (cpu_seconds(pid) - before) * 1e6 / float(result["messages"])
        return Cost(leader_us, float(result["messages_per_second"]))


def measure(sides: tuple[Side, Side], module: str, pairs: int, seconds: float) -> tuple[str, ...]:
    """Runs the pairs of one load; returns the cells of its row but the first."""
    costs: tuple[list[Cost], list[Cost]] = ([], [])
    for side in sides:
        side.cost(module, seconds)
    for number in range(pairs):
        # Neither is always the first.
        for at in (0, 1) if number % 2 else (1, 0):
            costs[at].append(sides[at].cost(module, seconds))
    signed, unsigned = costs
    leader, throughput = (
        ratio_of([cost[part] for cost in signed], [cost[part] for cost in unsigned])
        for part in (0, 1)
    )
    medians = (f"{statistics.median(cost.leader_us for cost in side):.1f}" for side in costs)
    least = [min(cost.leader_us for cost in side) for side in costs]
    quickest = f"{least[0] / least[1]:.2f} ({least[0]:.1f} / {least[1]:.1f})"
    return leader, *medians, quickest, throughput, str(pairs)


def ratio_of(signed: list[float], unsigned: list[float]) -> str:
    """Returns median, least and greatest ratio of the pairs."""
    ratios = sorted(a / b for a, b in zip(signed, unsigned, strict=True))
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})"


def table(pairs: int, seconds: float, nodes: int) -> str:
    """Runs all loads; returns the table."""
    with contextlib.ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="ledgermq-rules-")))
        rules, operator = folder / "plain_acl.yml", folder / "operator.yml"
        for path, text in ((rules, RULES), (operator, OPERATOR)):
            path.touch(mode=0o600)
            path.write_text(text)
        flush = "flushDiskType=ASYNC_FLUSH"
        closed = ends.enter_context(cluster(nodes, (flush, "aclEnable=true", f"aclFile={rules}")))
        open_ = ends.enter_context(cluster(nodes, (flush,)))
        closed.create_topic(TOPIC, QUEUES, "--acl-config", str(operator))
        open_.create_topic(TOPIC, QUEUES)
        sides = (Side(closed, True), Side(open_, False))
        rows = [
            ("sends, 1 KiB, 4 x 64 in flight", *measure(sides, "load", pairs, seconds)),
            ("pulls, 1 KiB, 4 queues, 32 a pull", *measure(sides, "pull_load", pairs, seconds)),
        ]
    return markdown(COLUMNS, rows)


def main() -> None:
    """Prints the table."""
    words = [*sys.argv[1:], *("9", "3", "3")[len(sys.argv) - 1 :]]
    print(table(int(words[0]), float(words[1]), int(words[2])))


if __name__ == "__main__":
    main()
