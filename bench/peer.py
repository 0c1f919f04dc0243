"""LedgerMQ's group beside Apache's, on one machine, under the same loads in turns.

python -m bench.peer [--java 4.9.3] [--heap 1024] [--rounds 3] [--seconds 4]

Needs Java 17 and Maven. Each round starts one group of three, runs every load against it, kills its
leader and stops it, and then does the same with the other: members of Apache's group that idle take
a core by themselves. A row gives medians and spread; the ratio is the median of the rounds' ratios.
The load program (`load.py`, `pull_load.py`) costs the same for both; Apache's own producer is a JVM
and costs more.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.__main__ import markdown
from bench.availability import QUEUES, Senders
from bench.availability import TOPIC as KILL_TOPIC
from bench.peers import OURS, Peer, java, ours
from tests.interop.builds import HERE, OPENED, maven_class_path

TOPIC = "PeerTopic"
PRODUCER = "org.apache.rocketmq.example.benchmark.Producer"
# It prints a line of figures each ten seconds; the first is of the time in which the JVM compiles.
PRODUCER_LINES = 2
SEND_TPS = re.compile(r"Send TPS: (\d+).*?Average RT: *([\d.]+)")
KILL_REST_S = 3.0
WARM_UPS = 3
PULL = "32 a pull, 4 connections"
STOCK = "Apache's producer, 64 threads"


@dataclass(frozen=True)
class Load:
    """One way to send."""

    name: str
    body_bytes: int = 1024
    batch: int = 0
    connections: int = 4
    in_flight: int = 64


LOADS = (
    Load("1 KiB, 256 in flight"),
    Load("1 KiB, 16 in flight", connections=1, in_flight=16),
    Load("1 KiB, 1 in flight", connections=1, in_flight=1),
    Load("100 B, 256 in flight", body_bytes=100),
    Load("10 KiB, 256 in flight", body_bytes=10_240),
    Load("1 KiB, batches of 32, 32 in flight", batch=32, in_flight=8),
)
MEMORY = "memory of the leader, MB"
START = "start of the group, s"
KILL = "kill -9 of the leader: s until messages are taken"
Figures = dict[str, float]
# By load, by group: one for each round.
Results = dict[str, dict[str, list[Figures]]]
Group = Callable[[], contextlib.AbstractContextManager[Peer]]


def run_json(module: str, *words: object) -> Figures:
    """Runs a load program; returns what it printed."""
    command = [sys.executable, "-m", f"bench.{module}", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")
    result: Figures = json.loads(done.stdout)
    return result


def costed(peer: Peer, run: Callable[[], Figures]) -> Figures:
    """Runs a load and adds what a message cost the members together."""
    before = peer.cpu_seconds()
    result = run()
    used_s = peer.cpu_seconds() - before
    return {**result, "cpu_us": used_s * 1e6 / max(1, result["messages"])}


def send(peer: Peer, load: Load, seconds: float) -> Figures:
    """Sends to the leader."""
    words: list[object] = ["--address", peer.leader(), "--topic", TOPIC, "--seconds", seconds]
    words += ["--body-bytes", load.body_bytes, "--batch", load.batch]
    words += ["--connections", load.connections, "--in-flight", load.in_flight]
    return costed(peer, lambda: run_json("load", *words))


def pull(peer: Peer, seconds: float) -> Figures:
    """Reads what was sent, which lies in memory, 32 messages a request."""
    words = ("--address", peer.leader(), "--topic", TOPIC, "--seconds", seconds)
    return costed(peer, lambda: run_json("pull_load", *words))


def stock_producer(peer: Peer, version: str) -> Figures:
    """Apache's own benchmark producer, 64 threads that each wait for their answer."""
    class_path = maven_class_path(HERE / "java" / "benchmark-pom.xml", version)
    words = ["java", "-Xmx512m", *OPENED, "-cp", class_path, PRODUCER]
    words += ["-t", TOPIC, "-w", "64", "-s", "1024", "-n", peer.namesrv]
    found: list[tuple[float, float]] = []
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        text = ""
        try:
            for line in process.stdout:
                text += line
                found = [(float(tps), float(ms)) for tps, ms in SEND_TPS.findall(text)]
                if len(found) >= PRODUCER_LINES:
                    break
        finally:
            process.kill()
    if len(found) < PRODUCER_LINES:
        raise RuntimeError(f"Apache's producer ended early:\n{text[-2000:]}")
    rate, mean_ms = found[-1]
    return {"messages_per_second": rate, "mean_ms": mean_ms}


def time_to_writable(peer: Peer) -> float:
    """Seconds without a leader that takes messages, around one ``kill -9`` of the leader."""
    peer.create_topic(KILL_TOPIC, QUEUES)
    with Senders(list(peer.members)) as senders:
        senders.rest(KILL_REST_S)
        killed = time.perf_counter()
        peer.kill_leader()
        senders.rest(0.5)
        senders.wait_for_more(100)
        return senders.longest_gap_ms(killed, time.perf_counter()) / 1000


def cell(values: Sequence[float], digits: int = 0) -> str:
    """Median and spread."""
    ordered = sorted(values)
    middle, low, high = (
        f"{value:,.{digits}f}" for value in (statistics.median(ordered), ordered[0], ordered[-1])
    )
    return f"{middle} ({low}..{high})"


def row(name: str, results: dict[str, list[Figures]], key: str, digits: int = 0) -> tuple[str, ...]:
    """One line: ours, theirs, and the ratio of each round."""
    mine = [figures[key] for figures in results[OURS]]
    (other,) = (name for name in results if name != OURS)
    theirs = [figures[key] for figures in results[other]]
    ratios = [a / b if b else float("inf") for a, b in zip(mine, theirs, strict=True)]
    return name, cell(mine, digits), cell(theirs, digits), cell(ratios, 2)


def measure(peer: Peer, seconds: float, version: str) -> dict[str, Figures]:
    """Runs all loads against a group that was just started; its leader is killed in the end."""
    peer.create_topic(TOPIC, 4)
    # The JVM compiles what it runs often; Python's kind of that is over at once.
    for _ in range(WARM_UPS):
        send(peer, LOADS[0], seconds)
    found = {load.name: send(peer, load, seconds) for load in LOADS}
    found[PULL] = pull(peer, seconds)
    found[STOCK] = stock_producer(peer, version)
    found[MEMORY] = {"MB": peer.resident_mb()}
    found[START] = {"s": peer.start_s}
    found[KILL] = {"s": time_to_writable(peer)}
    return found


def run_rounds(groups: Sequence[Group], rounds: int, seconds: float, version: str) -> Results:
    """Runs all loads; returns the figures by load and group, one for each round."""
    results: Results = {}
    for number in range(rounds):
        # Neither is always the first.
        for group in groups if number % 2 else reversed(groups):
            with group() as peer:
                for name, figures in measure(peer, seconds, version).items():
                    results.setdefault(name, {}).setdefault(peer.name, []).append(figures)
            print(f"round {number + 1} of {peer.name} is done", file=sys.stderr, flush=True)
    return results


def table(results: Results) -> list[tuple[str, ...]]:
    """The rows of the table."""
    rows = []
    for load in LOADS:
        of_load = results[load.name]
        rows.append(row(f"{load.name}: messages/s", of_load, "messages_per_second"))
        rows.append(row("p50 ms", of_load, "p50_ms", 2))
        rows.append(row("p99 ms", of_load, "p99_ms", 2))
        rows.append(row("CPU µs a message, all members", of_load, "cpu_us", 1))
    rows.append(row(f"{PULL}: messages/s", results[PULL], "messages_per_second"))
    rows.append(row("MB/s", results[PULL], "mb_per_second"))
    rows.append(row("CPU µs a message", results[PULL], "cpu_us", 2))
    rows.append(row(f"{STOCK}: messages/s", results[STOCK], "messages_per_second"))
    rows.append(row(MEMORY, results[MEMORY], "MB"))
    rows.append(row(START, results[START], "s", 2))
    rows.append(row(KILL, results[KILL], "s", 2))
    return rows


def main() -> int:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description="LedgerMQ beside Apache RocketMQ with DLedger")
    parser.add_argument("--java", default="4.9.3", metavar="RELEASE")
    parser.add_argument("--heap", type=int, default=1024, metavar="MIB", help="of each Java broker")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of one load")
    parser.add_argument("--sync", action="store_true", help="LedgerMQ with SYNC_FLUSH")
    options = parser.parse_args()
    flush = "SYNC_FLUSH" if options.sync else "ASYNC_FLUSH"
    groups = (
        functools.partial(ours, f"flushDiskType={flush}"),
        functools.partial(java, options.java, options.heap),
    )
    results = run_rounds(groups, options.rounds, options.seconds, options.java)
    (other,) = (name for name in results[STOCK] if name != OURS)
    print(
        f"{other} (batch push, heap of {options.heap} MiB each) and {OURS} ({flush}), groups of"
        f" three on {platform.machine()}; {options.rounds} rounds of {options.seconds:g} s;"
        " median (lowest..highest).\n"
    )
    print(markdown(("load", OURS, other, "ratio"), table(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
