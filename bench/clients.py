"""Our client beside the C++ library with its Python face, one process each, on the same broker.

python -m bench.clients [--before DIR] [--rounds 5] [--count 20000] [--sync-count 1000]

The PyPI package `rocketmq` carries Apache's C++ client. Each way is run by one client after the
other in every round against the same group of three, so that ratios compare what ran close in time.
DIR is another checkout, whose client takes part, too; who is first changes from round to round.
Bodies have 1 KiB. What a process costs to start is not counted; processor time is that of the whole
client process from its start, WARM_COUNT sends and imports included.

    pipelined   256 messages on their way; of the C++ library `send_async`
    threads     64 threads of the C++ library, each with one message after the other; beside our
                pipelined sends
    sync        one message after the other
    submit      `submit` of the blocking face, in bursts; beside `send_async`
    consume     a push consumer over what is stored, from its first message to its last
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bench.cluster import cluster
from tests.interop.builds import cpp_program

HERE = Path(__file__).resolve().parent
TOPIC = "Clients"
QUEUES = 4
IN_FLIGHT = 256
THREADS = 64
END_S = 400.0


class Way(NamedTuple):
    """What clients do."""

    title: str
    ours: str
    theirs: str
    count: int
    our_width: int
    their_width: int


@dataclass
class Found:
    """What the rounds of one way of one client gave."""

    whose: str
    command: list[str]
    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    took_ms: list[float] = field(default_factory=list)
    visit_us: list[float] = field(default_factory=list)

    def run(self, words: Sequence[str], count: int) -> None:
        """Runs the client's program and notes what it says."""
        before = os.times()
        done = subprocess.run(
            [*self.command, *words], capture_output=True, text=True, timeout=END_S
        )
        after = os.times()
        if done.returncode:
            said = f"{done.stdout[-500:]} {done.stderr[-1500:]}"
            raise RuntimeError(f"{self.whose} {words}: {said}")
        answer = json.loads(done.stdout.strip().splitlines()[-1])
        if answer.get("failed"):
            print(f"{self.whose} {words[0]}: {answer['failed']} failed: {answer['failure']}")
        spent_s = sum(after[2:4]) - sum(before[2:4])
        self.rates.append(count / answer["seconds"])
        self.cpu_us.append(spent_s / count * 1e6)
        self.took_ms += answer.get("ms", [])
        self.visit_us += answer.get("visit_us", [])

    def told(self) -> str:
        """Single sends, or visits, where they were timed."""
        if self.took_ms:
            cuts = statistics.quantiles(self.took_ms, n=100)
            return f"\n{self.whose}: one send p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms"
        if self.visit_us:
            return f"\n{self.whose}: one visit {statistics.median(self.visit_us):.0f} us"
        return ""


def spread(values: Sequence[float], form: str) -> str:
    """Median (lowest..highest)."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:{form}} ({low:{form}}..{high:{form}})"


def report(title: str, found: Sequence[Found]) -> str:
    """A line of the table for each other client."""
    ours, *others = found
    lines = []
    for other in others:
        rates = [a / b for a, b in zip(ours.rates, other.rates, strict=True)]
        costs = [a / b for a, b in zip(ours.cpu_us, other.cpu_us, strict=True)]
        lines.append(
            f"| {title}, {other.whose} | {spread(ours.rates, ',.0f')} |"
            f" {spread(other.rates, ',.0f')} | {spread(rates, '.2f')} |"
            f" {statistics.median(ours.cpu_us):.0f} | {statistics.median(other.cpu_us):.0f} |"
            f" {spread(costs, '.2f')} |"
        )
    return "\n".join(lines) + "".join(one.told() for one in found)


def ways_of(count: int, sync_count: int) -> tuple[Way, ...]:
    """All ways."""
    return (
        Way("pipelined", "pipelined", "pipelined", count, IN_FLIGHT, IN_FLIGHT),
        Way("pipelined, C++ in 64 threads", "pipelined", "threads", count, IN_FLIGHT, THREADS),
        Way("sync", "sync", "sync", sync_count, 1, 1),
        Way("submit", "submit", "pipelined", count, 1, IN_FLIGHT),
        Way("consume", "consume", "consume", count, 1, 1),
    )


def clients(way: Way, before: Path | None) -> list[tuple[Found, list[str]]]:
    """Who takes part, with the words that begin and end its command."""
    own = [sys.executable, str(HERE / "client_ours.py")]

    def of(folder: Path) -> list[str]:
        return ["env", f"PYTHONPATH={folder}", *own]

    cpp = Found("C++", [*cpp_program()[:-1], str(HERE / "client_cpp.py")])
    found = [(Found("ours", of(HERE.parent)), [way.ours, str(way.our_width)])]
    if before is not None and way.theirs != "threads":
        found.append((Found("before", of(before)), [way.ours, str(way.our_width)]))
    return [*found, (cpp, [way.theirs, str(way.their_width)])]


def parsed() -> argparse.Namespace:
    """The command line."""
    names = sorted({way.ours for way in ways_of(1, 1)})
    parser = argparse.ArgumentParser(description="Our client beside the C++ library.")
    parser.add_argument("--before", type=Path, metavar="DIR", help="another checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--sync-count", type=int, default=1000)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="WAY",
                        help=" ".join(names))  # fmt: skip
    return parser.parse_args()


def main() -> int:
    """Measures and prints."""
    options = parsed()
    with cluster() as running:
        for way in ways_of(options.count, options.sync_count):
            if way.ours not in options.only:
                continue
            topic = f"{TOPIC}_{way.ours}_{way.theirs}"
            running.create_topic(topic, QUEUES)
            taking = clients(way, options.before)
            if way.ours == "consume":
                words = ["pipelined", running.namesrv, topic, str(way.count), str(IN_FLIGHT)]
                Found("stored", taking[0][0].command).run(words, way.count)
            for number in range(options.rounds):
                for client, (name, width) in taking if number % 2 else reversed(taking):
                    words = [name, running.namesrv, topic, str(way.count), width]
                    client.run(words, way.count)
            print(report(way.title, [client for client, _ in taking]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
