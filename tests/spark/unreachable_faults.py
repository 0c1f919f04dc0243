"""Brokers that one of two workers cannot reach: named with its host, or left to the other one.

    python -m tests.spark.unreachable_faults [--messages N]

The brokers listen at 127.0.0.1, which for the second worker is a loopback of its own. With one try
for a task, the job says which host did not reach what, and why. Where Spark may take a task
elsewhere, all rows are read and written, and none is lost. Needs the right to make network
namespaces; without it this says so, and its exit code is 0.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ledgermq.client import Message
from tests.e2e.up_cluster import UpCluster
from tests.spark.apart_hosts import ApartHosts, why_no_apart_hosts
from tests.spark.cluster_faults import DRIVER, expected_bodies, sum_of, topic_sum
from tests.spark.standalone import BLIND_WORKER, SparkCluster, why_no_cluster
from tests.spark.topics import send_all

_STEP_S: Final = 900.0
_TIMEOUT_MS: Final = "3000"
_ONE_TRY: Final = {"spark.task.maxFailures": "1"}
_ELSEWHERE: Final = {"spark.excludeOnFailure.enabled": "true"}


def results_of(
    workers: SparkCluster, folder: Path, steps: list[list[str]], settings: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Runs steps in an application of its own; returns what they told."""
    folder.mkdir()
    (folder / "steps.json").write_text(json.dumps(steps))
    words = ("steps.json", "results.json")
    log = folder / "driver.log"
    with workers.submit(DRIVER, *words, folder=folder, log=log, settings=settings) as driver:
        code = driver.wait(_STEP_S)
        assert code == 0, driver.log_text()[-4000:]
    return [json.loads(line) for line in (folder / "results.json").read_text().splitlines()][1:]


def told(step: str, text: str, holds: bool) -> bool:
    """Prints a line of the table and returns whether it holds."""
    sys.stdout.write(f"{'unreached':9} {step:13} {'holds' if holds else 'BROKEN':7} {text}\n")
    sys.stdout.flush()
    return holds


def run(count: int, folder: Path) -> int:
    """Runs all steps; returns the exit code."""
    bodies = expected_bodies(count)
    with (
        ApartHosts((BLIND_WORKER,)) as hosts,
        UpCluster(folder / "up", node_count=1) as cluster,
        SparkCluster(folder / "spark", hosts=hosts) as workers,
    ):
        server = cluster.name_server
        send_all(server, [Message("Near", body) for body in bodies])
        read = ["read", server, "Near", _TIMEOUT_MS]
        (refused,) = results_of(workers, folder / "one-try", [read], _ONE_TRY)
        error = refused["error"]
        named = f"asked by the worker on {BLIND_WORKER}" if workers.are_apart else "asked by"
        is_named = named in error and server in error and "refused" in error
        held = told("read", f"one try: {error}", refused["code"] is None and is_named)
        steps = [read, ["write", server, "Far", str(count), _TIMEOUT_MS]]
        read_there, written = results_of(workers, folder / "elsewhere", steps, _ELSEWHERE)
        found = json.loads(read_there["out"]) if read_there["code"] == 0 else read_there["error"]
        held &= told("read", f"elsewhere: {found}", found == list(sum_of(bodies)))
        there, repeats = topic_sum(server, "Far") if written["code"] == 0 else (None, 0)
        text = f"elsewhere: {there}, {repeats} again {written['error']}"
        held &= told("write", text, there == sum_of(bodies))
    return 0 if held else 1


def main() -> int:
    """Parses the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=3000)
    options = parser.parse_args()
    missing = why_no_cluster()
    if missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    if why_no_apart_hosts():
        sys.stdout.write(f"unreached: not run: {why_no_apart_hosts()}\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="ledgermq-unreached-") as folder:
        return run(options.messages, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
