"""Our client beside the C++ library with its Python face, one process each, on the same broker.

python -m bench.clients [--rounds 5] [--count 20000] [--sync-count 1000]

The PyPI package `rocketmq` carries Apache's C++ client. Each way is run by one client after the
other in every round against the same group of three, so that ratios compare what ran close in time.
Bodies have 1 KiB. What a process costs to start is not counted; processor time is that of the whole
client process from its start, WARM_COUNT sends and imports included.

    pipelined   256 messages on their way; of the C++ library `send_async`
    threads     64 threads of the C++ library, each with one message after the other; beside our
                pipelined sends
    sync        one message after the other
    consume     a push consumer over what is stored, from its first message to its last
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from bench.cluster import cluster
from tests.interop.builds import cpp_program

HERE = Path(__file__).resolve().parent
TOPIC = "Clients"
QUEUES = 4
IN_FLIGHT = 256
THREADS = 64
END_S = 400.0


@dataclass
class Found:
    """What the rounds of one way of one client gave."""

    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    took_ms: list[float] = field(default_factory=list)

    def spread(self) -> str:
        """Messages a second: median (min..max)."""
        low, high = min(self.rates), max(self.rates)
        return f"{statistics.median(self.rates):,.0f} ({low:,.0f}..{high:,.0f})"


def run(command: list[str], words: list[str], count: int, found: Found) -> None:
    """Runs one client program and notes what it says."""
    before = os.times()
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=END_S)
    after = os.times()
    if done.returncode:
        raise RuntimeError(f"{command[-1]} {words}: {done.stdout[-500:]} {done.stderr[-1500:]}")
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    if answer.get("failed"):
        print(f"{command[-1]} {words[0]}: {answer['failed']} failed: {answer['failure']}")
    spent_s = sum(after[2:4]) - sum(before[2:4])
    found.rates.append(count / answer["seconds"])
    found.cpu_us.append(spent_s / count * 1e6)
    found.took_ms += answer.get("ms", [])


def report(ours: Found, theirs: Found, name: str) -> str:
    """A line of the table."""
    ratios = [a / b for a, b in zip(ours.rates, theirs.rates, strict=True)]
    line = (
        f"| {name} | {ours.spread()} | {theirs.spread()} | {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f}..{max(ratios):.2f}) | {statistics.median(ours.cpu_us):.0f} | "
        f"{statistics.median(theirs.cpu_us):.0f} |"
    )
    for found, whose in ((ours, "ours"), (theirs, "C++")):
        if found.took_ms:
            cuts = statistics.quantiles(found.took_ms, n=100)
            line += f"\n{whose}: one send p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms"
    return line


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="Our client beside the C++ library.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--sync-count", type=int, default=1000)
    options = parser.parse_args()
    ours = [sys.executable, str(HERE / "client_ours.py")]
    theirs = [*cpp_program()[:-1], str(HERE / "client_cpp.py")]
    os.environ["PYTHONPATH"] = str(HERE.parent)
    count = options.count
    ways = (
        ("pipelined", "pipelined", "pipelined", count, IN_FLIGHT),
        ("pipelined, C++ in 64 threads", "pipelined", "threads", count, THREADS),
        ("sync", "sync", "sync", options.sync_count, 1),
        ("consume", "consume", "consume", count, 1),
    )
    with cluster() as running:
        for name, our_way, their_way, way_count, width in ways:
            topic = f"{TOPIC}_{our_way}_{width}"
            running.create_topic(topic, QUEUES)
            if our_way == "consume":
                words = ["pipelined", running.namesrv, topic, str(count), str(IN_FLIGHT)]
                run(ours, words, count, Found())
            found = Found(), Found()
            for _ in range(options.rounds):
                our_width = IN_FLIGHT if our_way == "pipelined" else width
                words = [running.namesrv, topic, str(way_count), str(our_width)]
                run(ours, [our_way, *words], way_count, found[0])
                words[-1] = str(width)
                run(theirs, [their_way, *words], way_count, found[1])
            print(report(*found, name), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
