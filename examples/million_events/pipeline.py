"""Sends the generated events through the jobs on Spark and checks that the same ones come out.

    python pipeline.py --namesrv 127.0.0.1:9876 --count 1000000

The events go into a topic, by `ledgermq pipeline archive` into Parquet files, and by
`ledgermq pipeline replay` into another topic, from which they are consumed. Number, bytes and
checksum of the files, and of what came out at the end, must be those of the input. In between
`ledgermq pipeline traffic` prints its tables. Exit code 0 when all are equal.
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
from typing import Any

import pyarrow.parquet as parquet
from run import LEDGERMQ, MB, MODULUS, QUEUES, write_events

# Jobs may be started again after any failure: Spark gives up on workers that a busy machine starts
# too slowly.
STARTS_MAX = 3


def job(name: str, figures: dict[str, Any], words: list[str]) -> None:
    """Runs a job to its end and prints what it printed."""
    print(timed(name, figures, [*LEDGERMQ, "pipeline", name, *words], STARTS_MAX), end="")


def timed(
    name: str, figures: dict[str, Any], words: list[str], starts_max: int = 1, **settings: Any
) -> str:
    """Runs a command, prints how fast it was, and returns what it printed."""
    begun_s = time.monotonic()
    for _ in range(starts_max):
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False, **settings)
        if done.returncode == 0:
            break
        print(f"{name} failed with exit code {done.returncode}", file=sys.stderr)
    else:
        raise SystemExit(1)
    took_s = time.monotonic() - begun_s
    print(
        f"{name:8} {took_s:7.1f} s {figures['count'] / took_s:10,.0f} events/s"
        f" {figures['bytes'] / MB / took_s:7.1f} MB/s",
        flush=True,
    )
    return done.stdout


def make_topic(options: argparse.Namespace, topic: str) -> None:
    """Makes a topic with a few queues."""
    subprocess.run(
        [
            *LEDGERMQ, "admin", "updateTopic", "-n", options.namesrv, "-c", options.cluster,
            "-t", topic, "-r", str(QUEUES), "-w", str(QUEUES),
        ],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip


def archived(folder: Path) -> dict[str, Any]:
    """The figures of the bodies in the Parquet files of an archive, read without Spark."""
    count = size_bytes = total = 0
    for path in sorted(folder.glob("batch=*/*/*/*.parquet")):
        for batch in parquet.ParquetFile(path).iter_batches(columns=["body"]):
            for body in batch.column(0).to_pylist():
                count += 1
                size_bytes += len(body)
                total += int.from_bytes(hashlib.sha256(body).digest(), "big")
    return {"count": count, "bytes": size_bytes, "sha256_sum": f"{total % MODULUS:064x}"}


def main() -> int:
    """Runs all of it; returns the exit code."""
    parser = argparse.ArgumentParser(description="Events through the pipeline, the same ones out.")
    parser.add_argument("-n", "--namesrv", default="127.0.0.1:9876")
    parser.add_argument("--cluster", default="DefaultCluster")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--idle", type=float, default=15.0, help="seconds without a message")
    options = parser.parse_args()
    topic = f"million_events_{int(time.time())}_{os.getpid()}"
    again = f"{topic}_again"
    server = ["-n", options.namesrv]
    make_topic(options, topic)
    make_topic(options, again)
    with tempfile.TemporaryDirectory(prefix="million-events-") as folder:
        events, archive = Path(folder) / "events.jsonl", Path(folder) / "archive"
        figures = {"in": write_events(events, options.count)}
        words = [*server, "-t", topic, "--file", "-", "--key-field", "order", "--json"]
        with open(events, "rb") as file:
            timed("send", figures["in"], [*LEDGERMQ, "send", *words], stdin=file)
        words = [*server, "-t", topic, "--path", str(archive)]
        job("archive", figures["in"], words)
        figures["files"] = archived(archive)
        words = [*server, "-t", topic, "--top", "3"]
        job("traffic", figures["in"], words)
        words = [*server, "--path", str(archive), "-t", again]
        job("replay", figures["in"], words)
        words = [
            *server, "-t", again, "-g", f"{again}-readers", "--from", "first", "--checksum",
            "--json", "--until-idle", str(options.idle),
        ]  # fmt: skip
        text = timed("consume", figures["in"], [*LEDGERMQ, "consume", *words])
        figures["out"] = json.loads(text)["checksum"]
    for name, found in figures.items():
        print(f"{name:5} {found['count']:,} events, sha256 sum {found['sha256_sum']}")
    if figures["in"] == figures["files"] == figures["out"]:
        print("equal: nothing lost, nothing twice")
        return 0
    print("NOT equal", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
