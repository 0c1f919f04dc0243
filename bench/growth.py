"""What a message costs when there is more of everything: topics, connections, stored bytes.

python -m bench.growth [--rounds 3] [--seconds 3] [--gib 20]

One broker, messages of 1 KiB; processor time of its process for one message, and its own memory.
Few and many are loaded in turns, so that their ratio is of runs close in time; the bytes of the
store only grow, so that its rows are in the order of the run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from bench.__main__ import markdown
from bench.cluster import Running, cluster, cpu_seconds, resident_mb

TOPIC = "Growth"
TOPICS = (1, 1000)
# Each has some in flight; together they have the same.
CONNECTIONS = (10, 1000)
IN_FLIGHT = 2000
GIB = 1 << 30
# The topics are made by the first sends, which a broker allows an address ten times a second.
SETTINGS = ("maxNewTopicsPerAddress=100000",)
BODY_BYTES = 1024
COLUMNS = ("what", "CPU µs a message", "ratio to the first", "messages/s", "memory, MB")


class Broker:
    """The one broker of a running cluster."""

    def __init__(self, running: Running) -> None:
        leader = running.leader()
        self.address = str(leader["address"])
        self.pid = int(str(leader["pid"]))

    def send(self, seconds: float, *words: object) -> tuple[float, float]:
        """Runs a load; returns CPU microseconds a message, and messages a second."""
        command = [sys.executable, "-m", "bench.load", "--address", self.address]
        command += ["--seconds", str(seconds), *map(str, words)]
        before = cpu_seconds(self.pid)
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        result = json.loads(done.stdout)
        if result["refused"]:
            raise RuntimeError(f"refused: {result['first_refusal']}")
        used_us = (cpu_seconds(self.pid) - before) * 1e6 / result["messages"]
        return used_us, result["messages_per_second"]


def compared(
    broker: Broker, rounds: int, seconds: float, loads: dict[str, tuple[object, ...]]
) -> list[tuple[str, ...]]:
    """Runs loads in turns; returns a row for each."""
    costs: dict[str, list[tuple[float, float]]] = {name: [] for name in loads}
    memory: dict[str, float] = {}
    for words in loads.values():
        broker.send(seconds, *words)
    for _ in range(rounds):
        for name, words in loads.items():
            costs[name].append(broker.send(seconds, *words))
            memory[name] = resident_mb(broker.pid)
    first = next(iter(costs.values()))
    rows = []
    for name, found in costs.items():
        ratios = [cost / base for (cost, _), (base, _) in zip(found, first, strict=True)]
        rows.append(
            (
                name,
                f"{statistics.median(cost for cost, _ in found):.1f}",
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})",
                f"{statistics.median(rate for _, rate in found):,.0f}",
                f"{memory[name]:.0f}",
            )
        )
    return rows


def log_bytes(running: Running) -> int:
    """Bytes of the segments of the log."""
    return sum(path.stat().st_size for path in Path(running.data).glob("*/dledger-*/data/*"))


def filled(running: Running, broker: Broker, seconds: float, gib: int) -> list[tuple[str, ...]]:
    """Measures, fills the store, and measures again at 1, 2, 4 … GiB."""
    rows: list[tuple[str, ...]] = []
    first_us = 0.0
    goal = 1
    while goal <= gib:
        while log_bytes(running) < goal * GIB:
            broker.send(10, "--topic", TOPIC, "--body-bytes", 65_536, "--in-flight", 8)
        broker.send(seconds, "--topic", TOPIC)
        cost_us, rate = broker.send(seconds, "--topic", TOPIC)
        first_us = first_us or cost_us
        memory = f"{resident_mb(broker.pid):.0f}"
        rows.append(
            (
                f"log of {goal} GiB",
                f"{cost_us:.1f}",
                f"{cost_us / first_us:.2f}",
                f"{rate:,.0f}",
                memory,
            )
        )
        goal = goal * 2 if goal * 2 <= gib or goal == gib else gib
    return rows


def main() -> int:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description="cost of a message as a store grows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--gib", type=int, default=0, help="of log; 0 leaves this part out")
    options = parser.parse_args()
    rows: list[tuple[str, ...]] = []
    with cluster(1, SETTINGS) as running:
        broker = Broker(running)
        topics = {f"{count:,} topics": ("--topic", TOPIC, "--topics", count) for count in TOPICS}
        rows += compared(broker, options.rounds, options.seconds, topics)
        connections = {
            f"{count:,} connections": (
                "--topic", TOPIC, "--connections", count, "--in-flight", IN_FLIGHT // count,
            )
            for count in CONNECTIONS
        }  # fmt: skip
        rows += compared(broker, options.rounds, options.seconds, connections)
        if options.gib:
            rows += filled(running, broker, options.seconds, options.gib)
    print(markdown(COLUMNS, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
