"""What a message costs when there is more of everything: topics, connections, stored bytes.

python -m bench.growth [--rounds 9] [--seconds 12] [--gib 20] [--json FILE] [--page]

Messages of 1 KiB; processor time of the leader and of a follower for one message, and the leader's
own memory. Topics and connections: a group of three, few and many loaded in turns, back and forth,
so that their ratio is of runs close in time and none always comes first; a load is longer than the
time between two flushes of the queues, so that each has its own. Stored bytes (`--gib`): one
broker, whose log is filled by batches of messages of 100 KiB; a second broker beside it, whose log
stays small, is loaded in turns with it, shortly, and tells what else the machine was doing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import page
from bench.catch_up import log_end
from bench.cluster import Running, cluster, cpu_seconds, resident_mb
from bench.page import markdown
from bench.peer_rows import finished
from bench.peer_table import spread
from ledgermq.cli.remote import Remote

TOPIC = "Growth"
TOPICS = (1, 1000)
# Each has some in flight; together they have the same.
CONNECTIONS = (10, 1000)
IN_FLIGHT = 2000
GIB = 1 << 30
# Sizes of the log, the last as the option says.
STORES_GIB = (1, 5)
# The topics are made by the first sends, which a broker allows an address ten times a second, as it
# allows it 1,000 connections, 100 of them a second; and the disk may be full of other things.
SETTINGS = (
    "flushDiskType=ASYNC_FLUSH",
    "maxNewTopicsPerAddress=100000",
    "maxConnectionsPerAddress=10000",
    "maxNewConnectionsPerAddress=10000",
    "diskMaxUsedSpaceRatio=95",
)
FILL = ("--body-bytes", 102_400, "--batch", 32, "--connections", 2, "--in-flight", 2)
FILL_S = 5.0
# Loads of logs whose sizes matter: they make them grow.
STORE_LOAD_S = 3.0
PARTS = ("topics", "connections", "store")
COLUMNS = (
    "what", "leader, CPU µs a message", "ratio", "follower, CPU µs", "ratio", "messages/s",
    "memory of the leader, MB",
)  # fmt: skip
# Of one load: figures by name.
Figures = dict[str, float]


class Members:
    """The brokers of a running cluster: who leads, and one that follows."""

    def __init__(self, running: Running) -> None:
        self.namesrv = running.namesrv
        brokers = running.brokers()
        leader = running.leader()
        self.address = str(leader["address"])
        self.leader = int(str(leader["pid"]))
        self.followers = [int(str(b["pid"])) for b in brokers if b["pid"] != leader["pid"]]

    def send(self, seconds: float, *words: object) -> Figures:
        """Runs a load; returns CPU microseconds a message, rate and memory."""
        command = [sys.executable, "-m", "bench.load", "--address", self.address]
        command += ["--topic", TOPIC, "--seconds", str(seconds), *map(str, words)]
        before = cpu_seconds(self.leader), self._followers_s()
        done = subprocess.run(command, capture_output=True, text=True)
        result = finished(command, done)
        count = result["messages"] / 1e6
        figures = {
            "leader_us": (cpu_seconds(self.leader) - before[0]) / count,
            "messages_per_second": result["messages_per_second"],
            "memory_mb": resident_mb(self.leader),
        }
        if self.followers:
            figures["follower_us"] = (self._followers_s() - before[1]) / count / len(self.followers)
        return figures

    def log_bytes(self) -> int:
        """Bytes of the leader's log."""
        with Remote(self.namesrv) as remote:
            return log_end(remote, self.address)

    def _followers_s(self) -> float:
        return sum(cpu_seconds(pid) for pid in self.followers)


def compared(
    members: Members, rounds: int, seconds: float, loads: Mapping[str, tuple[object, ...]]
) -> dict[str, list[Figures]]:
    """Runs loads in turns; returns the figures of each round."""
    found: dict[str, list[Figures]] = {name: [] for name in loads}
    for words in loads.values():
        members.send(seconds, *words)
    turns = list(loads.items())
    for _ in range(rounds):
        for name, words in turns:
            found[name].append(members.send(seconds, *words))
            print(f"{name}: {found[name][-1]}", file=sys.stderr, flush=True)
        turns.reverse()
    return found


def filled(growing: Members, small: Members, rounds: int, gib: int) -> dict[str, list[Figures]]:
    """Fills a log, and at each size loads it and the small one in turns.

    What the growing one cost is told as if the small one had always cost what it did at first.
    """
    found: dict[str, list[Figures]] = {}
    first_us = 0.0
    for goal in sorted({*(size for size in STORES_GIB if size < gib), gib}):
        while growing.log_bytes() < goal * GIB:
            growing.send(FILL_S, *FILL)
        pairs = []
        for number in range(rounds + 1):
            pair = growing.send(STORE_LOAD_S), small.send(STORE_LOAD_S)
            # The first after a filling is of queues and pages that were long not used.
            if number:
                pairs.append(pair)
        beside_us = statistics.median(small_one["leader_us"] for _, small_one in pairs)
        first_us = first_us or beside_us
        found[f"log of {goal} GiB"] = [
            {**large, "leader_us": large["leader_us"] * first_us / beside_us} for large, _ in pairs
        ]
        print(f"log of {goal} GiB: {pairs}", file=sys.stderr, flush=True)
    return found


def rows_of(part: dict[str, list[Figures]]) -> list[tuple[str, ...]]:
    """The table's rows of one part; ratios are to its first."""
    first = next(iter(part.values()))
    rows = []
    for name, rounds in part.items():
        cells = [name]
        for figure in ("leader_us", "follower_us"):
            values = [figures[figure] for figures in rounds if figure in figures]
            pairs = zip(rounds, first, strict=True)
            ratios = [a[figure] / b[figure] for a, b in pairs if b.get(figure)]
            cells += [spread(values, 1), spread(ratios, 2)]
        rates = [figures["messages_per_second"] for figures in rounds]
        cells += [spread(rates), f"{rounds[-1]['memory_mb']:.0f}"]
        rows.append(tuple(cells))
    return rows


def text_of(document: dict[str, Any]) -> str:
    """The part of docs/performance.md."""
    about = document["about"]
    rows = [row for part in document["parts"].values() for row in rows_of(part)]
    head = (
        f"{page.machine_line(about)} {about['rounds']} rounds, loads of {about['seconds']:g} s"
        f" ({STORE_LOAD_S:g} s where bytes are stored);"
        " median (lowest..highest); ratios to the first row of their kind."
    )
    return f"{head}\n\n{markdown(COLUMNS, rows)}"


def main() -> int:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description="cost of a message as a store grows")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--gib", type=int, default=0, help="of log; 0 leaves this part out")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART",
                        help=f"of {', '.join(PARTS)}")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--page", action="store_true", help="renew docs/performance.md")
    options = parser.parse_args()
    rounds, seconds = options.rounds, options.seconds
    about = {**page.machine(), "rounds": rounds, "seconds": seconds}
    parts: dict[str, dict[str, list[Figures]]] = {}
    loads: dict[str, dict[str, tuple[object, ...]]] = {
        "topics": {
            f"{count:,} topic{'s' * (count > 1)}": ("--topics", count, "--queues", 1)
            for count in TOPICS
        },
        "connections": {
            f"{count:,} connections": ("--connections", count, "--in-flight", IN_FLIGHT // count)
            for count in CONNECTIONS
        },
    }
    for part, of_part in loads.items():
        if part in options.only:
            with cluster(3, SETTINGS) as running:
                parts[part] = compared(Members(running), rounds, seconds, of_part)
    if options.gib and "store" in options.only:
        with contextlib.ExitStack() as clusters:
            pair = [Members(clusters.enter_context(cluster(1, SETTINGS))) for _ in range(2)]
            parts["store"] = filled(pair[0], pair[1], rounds, options.gib)
    document = {"about": about, "parts": parts}
    print(text_of(document))
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.page:
        page.renew("growth", text_of(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
