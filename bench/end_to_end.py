"""Replicated sends into a group of real processes: messages/s, latency, CPU, beside the limit.

Each row starts from the same load program (`load.py`); CPU microseconds are those of the brokers'
processes for one message, so that the rows can be compared on a busy machine too.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

from bench.cluster import Running, cluster, cpu_seconds, resident_mb
from bench.limits import replicated_limit_mb_per_second

TOPIC = "BenchTopic"
ROUNDS = 3


@dataclass(frozen=True)
class Row:
    """One load."""

    name: str
    body_bytes: int = 1024
    batch: int = 0
    connections: int = 4
    in_flight: int = 64
    nodes: int = 3
    settings: tuple[str, ...] = ("flushDiskType=ASYNC_FLUSH",)


ROWS = (
    Row("1 KiB, 4 x 64 in flight"),
    Row("1 KiB, 4 x 64, SYNC_FLUSH", settings=("flushDiskType=SYNC_FLUSH",)),
    Row("1 KiB, 1 x 1 in flight", connections=1, in_flight=1),
    Row("100 B, 4 x 64", body_bytes=100),
    Row("10 KiB, 4 x 64", body_bytes=10_240),
    Row("1 KiB, batches of 32, 4 x 8", batch=32, in_flight=8),
    Row("1 KiB, 4 x 64, one node", nodes=1),
)


def measure(row: Row, running: Running, seconds: float) -> dict[str, float]:
    """Runs the load once and adds what it cost the brokers."""
    leader = running.leader()
    pids = {str(broker["id"]): int(str(broker["pid"])) for broker in running.brokers()}
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    words = [
        "--address", str(leader["address"]), "--topic", TOPIC, "--seconds", str(seconds),
        "--body-bytes", str(row.body_bytes), "--batch", str(row.batch),
        "--connections", str(row.connections), "--in-flight", str(row.in_flight),
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "bench.load", *words], check=True, capture_output=True, text=True
    )
    result: dict[str, float] = json.loads(done.stdout)
    used = {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}
    leader_us = used.pop(str(leader["id"])) * 1e6 / max(1, result["messages"])
    followers = [cpu * 1e6 / max(1, result["messages"]) for cpu in used.values()]
    result["leader_us"] = round(leader_us, 1)
    result["follower_us"] = round(max(followers, default=0.0), 1)
    return result


def run_row(row: Row, seconds: float, limit: float) -> tuple[str, ...]:
    """Returns the cells of one table row: the median of some rounds, and their spread."""
    with cluster(row.nodes, row.settings) as running:
        running.create_topic(TOPIC, 4)
        measure(row, running, 1.0)
        results = [measure(row, running, seconds) for _ in range(ROUNDS)]
        resident = resident_mb(int(str(running.leader()["pid"])))
    results.sort(key=lambda result: result["messages_per_second"])
    middle = results[len(results) // 2]
    rates = [f"{result['messages_per_second']:,.0f}" for result in results]
    if any(result["refused"] for result in results):
        rates.append(f"REFUSED: {middle['first_refusal']}")
    return (
        row.name,
        f"{middle['messages_per_second']:,.0f} ({rates[0]}..{rates[-1]})",
        f"{middle['mb_per_second']:.1f}",
        f"{limit / max(middle['mb_per_second'], 0.001):.0f}",
        f"{middle['leader_us']:.1f}",
        f"{middle['follower_us']:.1f}",
        f"{middle['p50_ms']:.1f}",
        f"{middle['p99_ms']:.1f}",
        f"{resident:.0f}",
    )


COLUMNS = (
    "load", "messages/s (min..max)", "MB/s", "limit / ours", "leader µs", "follower µs", "p50 ms",
    "p99 ms", "leader MB",
)  # fmt: skip


def pull_row(seconds: float) -> tuple[str, ...]:
    """One row: consumers read a topic that lies in memory, 32 messages a request."""
    with cluster(3, ("flushDiskType=ASYNC_FLUSH",)) as running:
        running.create_topic(TOPIC, 4)
        measure(ROWS[0], running, 2.0)
        leader = running.leader()
        pid = int(str(leader["pid"]))
        before = cpu_seconds(pid)
        words = ["--address", str(leader["address"]), "--topic", TOPIC, "--seconds", str(seconds)]
        done = subprocess.run(
            [sys.executable, "-m", "bench.pull_load", *words],
            check=True,
            capture_output=True,
            text=True,
        )
        result: dict[str, float] = json.loads(done.stdout)
        used_us = (cpu_seconds(pid) - before) * 1e6 / result["messages"]
    return (
        "1 KiB, 4 queues, 32 a pull",
        f"{result['messages_per_second']:,.0f}",
        f"{result['mb_per_second']:.0f}",
        f"{used_us:.1f}",
        f"{result['p50_ms']:.2f}",
        f"{result['p99_ms']:.2f}",
    )


PULL_COLUMNS = ("load", "messages/s", "MB/s", "leader µs", "p50 ms", "p99 ms")


def table(seconds: float = 4.0) -> list[tuple[str, ...]]:
    """All rows."""
    return [run_row(row, seconds, replicated_limit_mb_per_second(row.nodes)) for row in ROWS]


def main() -> None:
    """Prints the rows named on the command line by number, or all."""
    chosen = [ROWS[int(word)] for word in sys.argv[1:]] or list(ROWS)
    print(" | ".join(COLUMNS))
    for row in chosen:
        print(" | ".join(run_row(row, 4.0, replicated_limit_mb_per_second(row.nodes))), flush=True)


if __name__ == "__main__":
    main()
