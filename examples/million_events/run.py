"""Sends the generated events through a running cluster and checks that the same ones come out.

    python run.py --namesrv 127.0.0.1:9876 --count 1000000

Two members of one consumer group share the queues of a topic, `ledgermq send` sends the events with
the order as key, and at the end number, bytes and checksum of what both consumed together must be
those of the input. Exit code 0 when they are.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

from generate import events

LEDGERMQ = (sys.executable, "-m", "ledgermq.cli.main")
QUEUES = 4
CONSUMERS = 2
MODULUS = 1 << 256
MB = 1_000_000


def write_events(path: Path, count: int) -> dict[str, Any]:
    """Writes the events as lines; returns their figures as `ledgermq consume` gives them."""
    total = size_bytes = 0
    with open(path, "wb", buffering=1 << 20) as file:
        for line in events(count):
            file.write(line + b"\n")
            size_bytes += len(line)
            total += int.from_bytes(hashlib.sha256(line).digest(), "big")
    return {"count": count, "bytes": size_bytes, "sha256_sum": f"{total % MODULUS:064x}"}


def start_consumer(options: argparse.Namespace, topic: str) -> subprocess.Popen[str]:
    """Starts one member of the group."""
    words = [
        *LEDGERMQ, "consume", "-n", options.namesrv, "-t", topic, "-g", f"{topic}-readers",
        "--from", "first", "--checksum", "--json", "--show-queues",
        "--until-idle", str(options.idle),
    ]  # fmt: skip
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_share(stderr: IO[str]) -> None:
    """Reads what a member says until it has its part of the queues."""
    for line in stderr:
        if line.startswith(f"{QUEUES // CONSUMERS} queues"):
            return
    raise SystemExit("a consumer ended before it had its queues")


def added(sums: list[dict[str, Any]]) -> dict[str, Any]:
    """Adds up the figures of several consumers."""
    total = sum(int(one["sha256_sum"], 16) for one in sums) % MODULUS
    return {
        "count": sum(one["count"] for one in sums),
        "bytes": sum(one["bytes"] for one in sums),
        "sha256_sum": f"{total:064x}",
    }


def main() -> int:
    """Runs all of it; returns the exit code."""
    parser = argparse.ArgumentParser(description="Events in, the same events out.")
    parser.add_argument("-n", "--namesrv", default="127.0.0.1:9876")
    parser.add_argument("--cluster", default="DefaultCluster")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--idle", type=float, default=15.0, help="seconds without a message")
    options = parser.parse_args()
    topic = f"million_events_{int(time.time())}_{os.getpid()}"

    with tempfile.TemporaryDirectory(prefix="million-events-") as folder:
        path = Path(folder) / "events.jsonl"
        expected = write_events(path, options.count)
        print(f"generated {expected['count']:,} events, {expected['bytes'] / MB:.1f} MB")
        subprocess.run(
            [
                *LEDGERMQ, "admin", "updateTopic", "-n", options.namesrv, "-c", options.cluster,
                "-t", topic, "-r", str(QUEUES), "-w", str(QUEUES),
            ],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        consumers = [start_consumer(options, topic) for _ in range(CONSUMERS)]
        try:
            for consumer in consumers:
                assert consumer.stderr is not None
                wait_for_share(consumer.stderr)
            begun_s = time.monotonic()
            with open(path, "rb") as file:
                sent = subprocess.run(
                    [
                        *LEDGERMQ, "send", "-n", options.namesrv, "-t", topic, "--file", "-",
                        "--key-field", "order", "--json",
                    ],
                    stdin=file, stdout=subprocess.PIPE, text=True, check=False,
                )  # fmt: skip
            outputs = [consumer.communicate()[0] for consumer in consumers]
            took_s = time.monotonic() - begun_s - options.idle
        finally:
            for consumer in consumers:
                consumer.kill()
    if sent.returncode != 0 or any(consumer.returncode != 0 for consumer in consumers):
        print("sending or consuming failed", file=sys.stderr)
        return 1
    return report(expected, json.loads(sent.stdout), [json.loads(text) for text in outputs], took_s)


def report(
    expected: dict[str, Any], sent: dict[str, Any], parts: list[dict[str, Any]], took_s: float
) -> int:
    """Prints the figures; returns the exit code."""
    print(
        f"sent      {sent['messages']:,} messages in {sent['seconds']:.1f} s: "
        f"{sent['messages_per_second']:,.0f} messages/s, {sent['mb_per_second']:.1f} MB/s"
    )
    for number, part in enumerate(parts, start=1):
        print(
            f"consumer {number} {part['messages']:,} messages in {part['seconds']:.1f} s: "
            f"{part['messages_per_second']:,.0f} messages/s, {part['mb_per_second']:.1f} MB/s"
        )
    print(
        f"through   {expected['count'] / took_s:,.0f} messages/s, "
        f"{expected['bytes'] / MB / took_s:.1f} MB/s from the first send to the last message"
    )
    found = added([part["checksum"] for part in parts])
    print(f"in   {expected['count']:,} events, sha256 sum {expected['sha256_sum']}")
    print(f"out  {found['count']:,} events, sha256 sum {found['sha256_sum']}")
    if found == expected:
        print("equal: nothing lost, nothing twice")
        return 0
    print("NOT equal", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
