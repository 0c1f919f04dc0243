"""Replay with what sends killed in its midst, on a cluster of Spark, counted by the ids of rows.

    python -m tests.spark.once_faults [--rows N] [--faults writer,executor,worker,leader,zombie,...]

    writer      the Python processes that send
    executor    the Java processes that run them
    worker      a worker and its executor
    leader      the leader of the broker group
    zombie      executors stand still and are taken for dead, while what they run goes on sending
    driver      the driver, which is started again at once

Each begins when a part of the rows is in the topic, and what sends again begins while it may still
be on its way. Exit code 0: each row is there once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from ledgermq.client import ClientError, Message
from ledgermq.client.blocking import PullConsumer
from ledgermq.spark.jobs import archive, replay
from tests.e2e.up_cluster import UpCluster
from tests.processes import ChildProcess
from tests.spark import direct
from tests.spark.standalone import WORKERS, SparkCluster, why_no_cluster
from tests.spark.topics import send_all
from tests.waiting import wait_until

FAULTS: Final = ("writer", "executor", "worker", "leader", "zombie", "driver")
_STEP_S: Final = 900.0
# So many seconds the rows of a replay take, to be hurt in their midst.
_SENDING_S: Final = 15
# A driver takes an executor for dead after this long without a sign of life.
_SILENT: Final = {
    "spark.network.timeout": "20s",
    "spark.executor.heartbeatInterval": "5s",
    "spark.network.timeoutInterval": "5s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "20000",
}


class Found(NamedTuple):
    """What is in a topic."""

    rows: int
    ids: int
    bodies: int


def found_in(name_server: str, topic: str) -> Found:
    """Counts messages, row ids and bodies."""
    rows = direct.read_written({"nameServer": name_server, "topic": topic})
    ids = {dict(row["properties"])["SPARK_ROW_ID"] for row in rows}
    return Found(len(rows), len(ids), len({bytes(row["body"]) for row in rows}))


def processes_below(pid: int) -> list[int]:
    """Returns all processes that one has started, directly or not."""
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            found += [child, *processes_below(child)]
    return found


class Trial:
    """One fault."""

    def __init__(self, workers: SparkCluster, cluster: UpCluster, folder: Path, fault: str) -> None:
        self._workers = workers
        self._cluster = cluster
        self._folder = folder
        self._fault = fault
        self._topic = f"Once-{fault}"
        self._stopped: list[int] = []

    def run(self, count: int) -> bool:
        """Replays under the fault and prints what came of it; tells whether it holds."""
        begun_s = time.monotonic()
        try:
            with self._submit(count, "first") as driver:
                self._wait_for(driver, count // 4)
                before = self._stored()
                self._hurt(driver)
                if self._fault != "driver":
                    code = driver.wait(_STEP_S)
            if self._fault == "driver":
                with self._submit(count, "second") as driver:
                    code = driver.wait(_STEP_S)
        finally:
            for pid in self._stopped:
                os.kill(pid, signal.SIGKILL)
        found = found_in(self._cluster.name_server, self._topic)
        holds = code == 0 and found == Found(count, count, count)
        sys.stdout.write(
            f"{self._fault:9} {'holds' if holds else 'BROKEN':7} hurt after {before} of {count}"
            f" rows: {found.rows} rows, {found.rows - found.ids} again, exit code {code},"
            f" {time.monotonic() - begun_s:.0f} s\n"
        )
        sys.stdout.flush()
        if not holds:
            sys.stdout.write(driver.log_text()[-6000:])
        return holds

    def _submit(self, count: int, name: str) -> ChildProcess:
        words = ["-n", self._cluster.name_server, "--path", str(self._folder / "made")]
        words += ["-t", self._topic, "--rows-per-second", str(count // _SENDING_S)]
        words += ["--state", str(self._folder / f"{self._fault}.json")]
        log = self._folder / f"{self._fault}-{name}.log"
        settings = _SILENT if self._fault == "zombie" else None
        program = Path(replay.__file__)
        return self._workers.submit(
            program, *words, folder=self._folder, log=log, settings=settings
        )

    def _stored(self) -> int:
        with contextlib.suppress(ClientError), PullConsumer(self._cluster.name_server) as consumer:
            queues = consumer.queues(self._topic)
            return sum(consumer.max_offset(queue) for queue in queues)
        # The topic is not there yet, or its leader is gone.
        return 0

    def _wait_for(self, driver: ChildProcess, count: int) -> None:
        def is_there() -> bool:
            return self._stored() >= count or not driver.is_running

        wait_until(is_there, what=f"rows in {self._topic}", deadline_s=_STEP_S)
        assert driver.is_running, driver.log_text()[-4000:]

    def _hurt(self, driver: ChildProcess) -> None:
        hurt: dict[str, Callable[[], object]] = {
            "writer": lambda: self._signal_writers(signal.SIGKILL),
            "executor": lambda: self._workers.kill_executor(WORKERS[0]),
            "worker": self._kill_worker,
            "leader": lambda: self._cluster.kill(self._cluster.wait_for_leader()),
            "zombie": self._stop_executors,
            "driver": driver.kill,
        }
        hurt[self._fault]()

    def _signal_writers(self, number: int) -> None:
        """Of one worker: all Python processes below its executor."""
        for executor in self._workers.executors(WORKERS[0]):
            for pid in reversed(processes_below(executor)):
                os.kill(pid, number)

    def _kill_worker(self) -> None:
        self._workers.kill_worker(WORKERS[0])
        self._workers.start_worker(WORKERS[0])

    def _stop_executors(self) -> None:
        """Its Python goes on with the rows that it has."""
        self._stopped = self._workers.executors(WORKERS[0])
        for pid in self._stopped:
            os.kill(pid, signal.SIGSTOP)


def run(count: int, faults: list[str], folder: Path) -> int:
    """Runs all trials; returns the exit code."""
    held = True
    here = folder / "driver"
    here.mkdir()
    with UpCluster(folder / "up") as cluster, SparkCluster(folder / "spark") as workers:
        cluster.wait_for_all()
        messages = [Message("Once", f"body {number}".encode()) for number in range(count)]
        send_all(cluster.name_server, messages)
        words = ["-n", cluster.name_server, "-t", "Once", "--path", str(here / "made")]
        program, log = Path(archive.__file__), here / "archive.log"
        with workers.submit(program, *words, folder=here, log=log) as driver:
            assert driver.wait(_STEP_S) == 0, driver.log_text()[-4000:]
        for fault in faults:
            held &= Trial(workers, cluster, here, fault).run(count)
            cluster.wait_for_all()
    return 0 if held else 1


def main() -> int:
    """Parses the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--faults", default=",".join(FAULTS))
    options = parser.parse_args()
    missing = why_no_cluster()
    if missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    with tempfile.TemporaryDirectory(prefix="ledgermq-once-") as folder:
        return run(options.rows, options.faults.split(","), Path(folder))


if __name__ == "__main__":
    sys.exit(main())
