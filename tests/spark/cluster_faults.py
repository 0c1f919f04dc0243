"""Every job, source and writer on a cluster of Spark, also while it loses executors and workers.

    python -m tests.spark.cluster_faults [--messages N] [--faults none,executor,worker]

A row of the table is one job under one fault. In the midst of each job an executor is killed, or a
worker with its executor, which another one follows. Exit code 0: no message is lost or changed, and
what is promised once is there once. A task that is run again sends its rows again with the same
ids, so of messages that came back to a topic each row id counts once, and the repeats are told; of
jobs that send each row once there must be none.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq

from ledgermq.client import Message
from ledgermq.spark.jobs.archive_files import batches
from tests.e2e.up_cluster import UpCluster
from tests.processes import ChildProcess
from tests.spark import direct
from tests.spark.log_files import make_record, write_ledger
from tests.spark.standalone import WORKERS, SparkCluster, why_no_cluster
from tests.spark.topics import send_all
from tests.waiting import wait_until

DRIVER: Final = Path(__file__).with_name("cluster_driver.py")
FAULTS: Final = ("none", "executor", "worker")
_STEP_S: Final = 900.0
_LEDGER_COUNT: Final = 100
# What sends each row once, whatever is killed.
_ONCE: Final = ("replay", "dead_letters")


class Sum(NamedTuple):
    """What messages are compared by."""

    count: int
    # Of the bodies, added up.
    checksum: int


def sum_of(bodies: list[bytes]) -> Sum:
    """Returns number and checksum of bodies."""
    return Sum(len(bodies), sum(zlib.crc32(body) for body in bodies))


def expected_bodies(count: int) -> list[bytes]:
    """The bodies of the messages of a topic."""
    return [f"body {number}".encode() for number in range(count)]


def archive_sum(path: Path) -> Sum:
    """Of the files of an archive, without Spark."""
    files = [file for batch in batches(path) for file in batch.path.rglob("*.parquet")]
    columns = [pq.read_table(file, columns=["body"]).column("body") for file in files]
    return sum_of([body for column in columns for body in column.to_pylist()])


def topic_sum(name_server: str, topic: str) -> tuple[Sum, int]:
    """Of a topic's messages, each row id taken once; and how many came again."""
    rows = direct.read_written({"nameServer": name_server, "topic": topic})
    by_id = {dict(row["properties"])["SPARK_ROW_ID"]: bytes(row["body"]) for row in rows}
    return sum_of(list(by_id.values())), len(rows) - len(by_id)


class Trial:
    """All steps under one fault, in one application."""

    def __init__(self, workers: SparkCluster, name_server: str, folder: Path, fault: str) -> None:
        self._workers = workers
        self._name_server = name_server
        self._folder = folder
        self._fault = fault
        self._kills = 0

    def run(self, count: int) -> bool:
        """Runs the steps and prints a line for each; tells whether all hold.

        Args:
            count: messages of the topic that is read.
        """
        topic, letters = f"In-{self._fault}", f"%DLQ%group-{self._fault}"
        bodies = expected_bodies(count)
        send_all(self._name_server, [Message(topic, body) for body in bodies])
        origin = {"RETRY_TOPIC": f"Origin-{self._fault}"}
        send_all(self._name_server, [Message(letters, b, properties=origin) for b in bodies])
        ledger = [make_record("Orders", number) for number in range(_LEDGER_COUNT)]
        for name in ("n0", "n1"):
            store = self._folder / name / f"dledger-{name}"
            write_ledger(store, ledger, committed_index=_LEDGER_COUNT - 1)
        whole = sum_of(bodies)
        held = True
        steps = self._steps(topic, count)
        for (name, *_), result in zip(steps, self._results(steps), strict=True):
            told, repeats = self._found(name, result)
            if told is None:
                is_right = result["code"] == 0
            elif name == "segments":
                is_right = told.count == _LEDGER_COUNT
            else:
                is_right = told == whole
            is_right &= name not in _ONCE or repeats == 0
            held &= is_right and result["code"] == 0
            sys.stdout.write(
                f"{self._fault:9} {name:13} {'holds' if is_right else 'BROKEN':7}"
                f" {told.count if told else '-':>7} rows, {repeats} again {result['error']}\n"
            )
            sys.stdout.flush()
        sys.stdout.write(f"{self._fault:9} killed {self._kills}\n")
        return held

    def _steps(self, topic: str, count: int) -> list[list[str]]:
        fault, server = self._fault, self._name_server
        to = ["-n", server]
        return [
            ["archive", *to, "-t", topic, "--path", "made", "--rows-per-batch", str(count // 2)],
            ["replay", *to, "--path", "made", "-t", f"Replayed-{fault}"],
            ["read", server, topic],
            ["write", server, f"Written-{fault}", str(count)],
            ["audit", "n0", "./n1"],
            ["dead_letters", *to, "-g", f"group-{fault}", "--resend", "--state", "sent.json"],
            ["segments", "n0"],
            ["stream", server, topic, f"Streamed-{fault}", str(self._folder / "checkpoint")],
            ["traffic", *to, "-t", topic, "--json"],
            ["trace", *to, "-t", topic, "--json"],
        ]

    def _results(self, steps: list[list[str]]) -> Iterator[dict[str, Any]]:
        """Runs a driver, hurts the cluster once in each step, and yields what the steps told."""
        (self._folder / "steps.json").write_text(json.dumps(steps))
        results, log = self._folder / "results.json", self._folder / "driver.log"
        results.touch()

        def lines() -> list[str]:
            return results.read_text().splitlines()

        with self._workers.submit(
            DRIVER, "steps.json", "results.json", folder=self._folder, log=log
        ) as driver:
            for number in range(1, len(steps) + 2):
                self._await(driver, lambda number=number: len(lines()) >= number, log)
                if number <= len(steps):
                    self._hurt(log, lambda number=number: len(lines()) > number)
                if number > 1:
                    # The next step runs meanwhile.
                    yield json.loads(lines()[number - 1])
            driver.wait(_STEP_S)

    def _await(self, driver: ChildProcess, is_true: Callable[[], bool], log: Path) -> None:
        def is_over() -> bool:
            return is_true() or not driver.is_running

        wait_until(is_over, what=f"a step, see {log}", deadline_s=_STEP_S)
        assert is_true(), driver.log_text()[-4000:]

    def _hurt(self, log: Path, is_over: Callable[[], bool]) -> None:
        """Kills what the fault says as soon as a task of the step starts; not when it is over."""
        if self._fault == "none":
            return
        name = WORKERS[self._kills % len(WORKERS)]
        before = log.read_text(errors="replace").count("Starting task")

        def is_at_work() -> bool:
            begun = log.read_text(errors="replace").count("Starting task")
            return bool(begun > before and self._workers.executors(name))

        what = f"a task of the next step, see {log}"
        wait_until(lambda: is_over() or is_at_work(), what=what, deadline_s=_STEP_S)
        if is_over():
            return
        if self._fault == "executor":
            self._workers.kill_executor(name)
        else:
            self._workers.kill_worker(name)
            self._workers.start_worker(name)
        self._kills += 1

    def _found(self, name: str, result: dict[str, Any]) -> tuple[Sum | None, int]:
        """What a step left behind, None where that is nothing, and how much is there again."""
        written = {
            "write": "Written",
            "stream": "Streamed",
            "replay": "Replayed",
            "dead_letters": "Origin",
        }
        if result["code"] != 0:
            return Sum(0, 0), 0
        if name in ("read", "segments"):
            return Sum(*json.loads(result["out"])), 0
        if name in written:
            return topic_sum(self._name_server, f"{written[name]}-{self._fault}")
        if name == "archive":
            return archive_sum(self._folder / "made"), 0
        if name == "audit":
            result["code"] = int(result["out"].count("0 defects") != 2)
        return None, 0


def run(count: int, faults: list[str], folder: Path) -> int:
    """Runs all trials; returns the exit code."""
    held = True
    with UpCluster(folder / "up") as cluster, SparkCluster(folder / "spark") as workers:
        for fault in faults:
            here = folder / f"driver-{fault}"
            here.mkdir()
            held &= Trial(workers, cluster.name_server, here, fault).run(count)
            shutil.rmtree(here)
    return 0 if held else 1


def main() -> int:
    """Parses the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=3000)
    parser.add_argument("--faults", default=",".join(FAULTS))
    options = parser.parse_args()
    missing = why_no_cluster()
    if missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        return run(options.messages, options.faults.split(","), Path(folder))


if __name__ == "__main__":
    sys.exit(main())
