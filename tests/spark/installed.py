"""The package as a wheel on all workers, for jobs of `spark-submit` and programs of Spark Connect.

    python -m tests.spark.installed [--messages N]

The wheel is built of these sources and installed for the workers, with nothing else. Jobs run with
it, and then a server of Spark Connect on the same workers, which a program writes to, and reads as
a table and as a stream. Exit code 0: all rows are there, each once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from ledgermq.client import Message
from tests.e2e.up_cluster import UpCluster
from tests.free_ports import free_ports
from tests.spark.cluster_faults import archive_sum, expected_bodies, sum_of, topic_sum
from tests.spark.standalone import (
    DRIVER_ADDRESS,
    ROOT,
    SparkCluster,
    make_wheel,
    why_no_cluster,
)
from tests.spark.topics import send_all
from tests.spark.unreachable_faults import results_of
from tests.waiting import wait_until

_STEP_S: Final = 600.0
_SERVER: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
_ROWS: Final = {"stored": 20, "table": 20, "stream": 20}


def told(step: str, text: object, holds: bool) -> bool:
    """Prints a line of the table and returns whether it holds."""
    sys.stdout.write(f"{'wheel':9} {step:13} {'holds' if holds else 'BROKEN':7} {text}\n")
    sys.stdout.flush()
    return holds


def run_jobs(workers: SparkCluster, name_server: str, count: int, folder: Path) -> bool:
    """Runs jobs, a source and a writer by `spark-submit`; tells whether all hold."""
    bodies = expected_bodies(count)
    send_all(name_server, [Message("Wheel", body) for body in bodies])
    steps = [
        ["archive", "-n", name_server, "-t", "Wheel", "--path", "made"],
        ["replay", "-n", name_server, "--path", "made", "-t", "WheelAgain"],
        ["read", name_server, "Wheel"],
        ["write", name_server, "WheelWritten", str(count)],
    ]
    results = results_of(workers, folder, steps, {})
    failed = [result["error"] for result in results if result["code"] != 0]
    if failed:
        return told("jobs", failed, holds=False)
    whole, (again, repeats) = sum_of(bodies), topic_sum(name_server, "WheelAgain")
    held = told("archive", whole, archive_sum(folder / "made") == whole)
    held &= told("replay", f"{again}, {repeats} again", again == whole and repeats == 0)
    held &= told("read", results[2]["out"].strip(), json.loads(results[2]["out"]) == list(whole))
    written, _ = topic_sum(name_server, "WheelWritten")
    return told("write", written, written == whole) and held


def run_connect(workers: SparkCluster, name_server: str, folder: Path) -> bool:
    """Runs a program of Spark Connect beside a server on the workers; tells whether it holds."""
    (port,) = free_ports(1)
    settings = {
        "spark.connect.grpc.binding.address": DRIVER_ADDRESS,
        "spark.connect.grpc.binding.port": str(port),
    }
    words = ("--class", _SERVER, "spark-internal")
    folder.mkdir()
    log = folder / "server.log"
    with workers.submit(*words, folder=folder, log=log, settings=settings) as server:

        def is_ready() -> bool:
            assert server.is_running, server.log_text()[-4000:]
            return "Spark Connect server started at" in server.log_text()

        wait_until(is_ready, what=f"a server of Spark Connect, see {log}", deadline_s=_STEP_S)
        url = f"sc://{DRIVER_ADDRESS}:{port}"
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.connect_program", name_server, folder, url],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=_STEP_S,
            check=False,
        )
    if done.returncode:
        return told("connect", f"{done.stderr[-3000:]}\n{log.read_text()[-3000:]}", holds=False)
    found = json.loads(done.stdout.splitlines()[-1])
    return told("connect", found, found == _ROWS)


def run(count: int, folder: Path) -> int:
    """Runs all; returns the exit code."""
    wheel = make_wheel(folder / "wheel")
    with (
        UpCluster(folder / "up", node_count=1) as cluster,
        SparkCluster(folder / "spark", wheel=wheel) as workers,
    ):
        held = run_jobs(workers, cluster.name_server, count, folder / "jobs")
        held &= run_connect(workers, cluster.name_server, folder / "connect")
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
    with tempfile.TemporaryDirectory(prefix="ledgermq-installed-") as folder:
        return run(options.messages, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
