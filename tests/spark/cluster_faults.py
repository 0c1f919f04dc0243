"""Every job, source and writer on a cluster of Spark that loses parts of it, or of the brokers.

    python -m tests.spark.cluster_faults [--messages N]
        [--faults none,executor,worker,leader,driver,slow]

A master and three workers, each worker with a network of its own where namespaces may be made; the
brokers have another address than the driver. A row of the table is one job under one fault. In the
midst of each job one part is killed, or stays slow:

    executor    the Java process that runs tasks on a worker
    worker      a worker with its executor; another one follows
    leader      the leader of the brokers
    driver      the driver with all its processes; the same job is started again at once
    slow        a worker has little of a core, and Spark runs its tasks elsewhere, too: speculation

Exit code 0: no message is lost or changed, and what is promised once is there once. A task that is
run again sends its rows again with the same ids, so of messages that came back to a topic each row
id counts once, and the repeats are told; of jobs that send each row once there must be none. A
plain write that is started anew has other ids, so there each body counts once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq

from ledgermq.client import Message
from ledgermq.spark.jobs.archive_files import batches
from tests.cpu_quota import CpuQuotas, why_no_quota
from tests.e2e.up_cluster import UpCluster
from tests.processes import ChildProcess
from tests.spark import direct
from tests.spark.apart_hosts import ApartHosts, why_no_apart_hosts
from tests.spark.log_files import make_record, write_ledger
from tests.spark.once_faults import processes_below
from tests.spark.standalone import THREE_WORKERS, SparkCluster, why_no_cluster
from tests.spark.topics import send_all
from tests.waiting import wait_until

DRIVER: Final = Path(__file__).with_name("cluster_driver.py")
FAULTS: Final = ("none", "executor", "worker", "leader", "driver", "slow")
_STEP_S: Final = 900.0
_LEDGER_COUNT: Final = 100
# What sends each row once, whatever is killed.
_ONCE: Final = ("replay", "dead_letters")
# These first have two tasks for each core look whether workers see their files.
_LOOKING: Final = ("archive", "replay", "audit")
_LOOKS: Final = 2 * len(THREE_WORKERS)
_SLOW_CORES: Final = 0.15
# A task is run twice when it takes longer than those of its stage that have ended.
_SPECULATIVE: Final = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
}
_SPECULATED: Final = "as speculatable because"


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


def topic_sum(name_server: str, topic: str, *, by_body: bool = False) -> tuple[Sum, int]:
    """Of a topic's messages, each row id (or body) taken once; and how many came again."""
    rows = direct.read_written({"nameServer": name_server, "topic": topic})
    bodies = {
        row["body"] if by_body else dict(row["properties"])["SPARK_ROW_ID"]: bytes(row["body"])
        for row in rows
    }
    return sum_of(list(bodies.values())), len(rows) - len(bodies)


class Trial:
    """All steps under one fault: in one application, or one after each kill of a driver."""

    def __init__(
        self,
        workers: SparkCluster,
        cluster: UpCluster,
        name_server: str,
        folder: Path,
        fault: str,
    ) -> None:
        self._workers = workers
        self._cluster = cluster
        self._name_server = name_server
        self._folder = folder
        self._fault = fault
        # Numbers of the steps in which something was killed.
        self._hurt_steps: set[int] = set()
        self._drivers = 0
        self._speculated = 0
        self._is_slow = False
        self._quotas: CpuQuotas | None = None

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
        steps = self._steps(topic, count)
        with CpuQuotas() as quotas:
            self._quotas = quotas
            held = self._judge(steps, sum_of(bodies))
        if self._fault == "slow":
            sys.stdout.write(f"{self._fault:9} {self._speculated} tasks were run elsewhere, too\n")
            return held and self._speculated > 0
        sys.stdout.write(f"{self._fault:9} killed in {len(self._hurt_steps)} of {len(steps)}\n")
        return held and (self._fault == "none" or bool(self._hurt_steps))

    def _judge(self, steps: list[list[str]], whole: Sum) -> bool:
        """Runs the steps and prints what became of each; tells whether all hold."""
        held = True
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
        """Yields what became of each step, which is hurt once."""
        told = 0
        while told < len(steps):
            for result in self._results_of_driver(steps, told):
                told += 1
                yield result

    def _results_of_driver(self, steps: list[list[str]], first: int) -> Iterator[dict[str, Any]]:
        """Runs the steps from one on, until all have told, or the driver was killed."""
        self._drivers += 1
        names = [f"{name}-{self._drivers}" for name in ("steps.json", "results.json", "driver.log")]
        given, results, log = (self._folder / name for name in names)
        given.write_text(json.dumps(steps[first:]))
        results.touch()

        def lines() -> list[str]:
            return results.read_text().splitlines()

        settings = _SPECULATIVE if self._fault == "slow" else None
        with self._workers.submit(
            DRIVER, given.name, results.name, folder=self._folder, log=log, settings=settings
        ) as driver:
            for number in range(first, len(steps) + 1):
                line = number - first
                self._await(driver, lambda line=line: len(lines()) > line, log)
                if number < len(steps):
                    self._hurt(
                        driver, number, steps, log, lambda line=line: len(lines()) > line + 1
                    )
                if number > first:
                    # The next step runs meanwhile.
                    yield json.loads(lines()[line])
                if not driver.is_running:
                    return
            driver.wait(_STEP_S)
        self._speculated += log.read_text(errors="replace").count(_SPECULATED)

    def _await(self, driver: ChildProcess, is_true: Callable[[], bool], log: Path) -> None:
        def is_over() -> bool:
            return is_true() or not driver.is_running

        wait_until(is_over, what=f"a step, see {log}", deadline_s=_STEP_S)
        assert is_true(), driver.log_text()[-4000:]

    def _hurt(
        self,
        driver: ChildProcess,
        number: int,
        steps: list[list[str]],
        log: Path,
        is_over: Callable[[], bool],
    ) -> None:
        """Kills what the fault says in the midst of a step, once; not when it is over."""
        if self._fault == "none" or number in self._hurt_steps:
            return
        if self._fault == "slow":
            self._slow_down()
            return
        name = THREE_WORKERS[number % len(THREE_WORKERS)]
        looks = _LOOKS if steps[number][0] in _LOOKING else 0
        before = log.read_text(errors="replace").count("Starting task")

        def is_at_work() -> bool:
            begun = log.read_text(errors="replace").count("Starting task")
            return bool(begun > before + looks and self._workers.executors(name))

        what = f"a task of {steps[number][0]}, see {log}"
        wait_until(lambda: is_over() or is_at_work(), what=what, deadline_s=_STEP_S)
        if is_over():
            return
        match self._fault:
            case "executor":
                self._workers.kill_executor(name)
            case "worker":
                self._workers.kill_worker(name)
                self._workers.start_worker(name)
            case "leader":
                self._cluster.kill(self._cluster.wait_for_leader())
            case "driver":
                below = processes_below(driver.pid)
                driver.kill()
                for pid in below:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        self._hurt_steps.add(number)

    def _slow_down(self) -> None:
        """Leaves an executor, which has started, little of a core from now on."""
        if self._is_slow:
            return
        self._is_slow = True
        assert self._quotas is not None
        for executor in self._workers.executors(THREE_WORKERS[0]):
            for pid in (executor, *processes_below(executor)):
                self._quotas.limit(pid, _SLOW_CORES)

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
            by_body = (name, self._fault) == ("write", "driver")
            topic = f"{written[name]}-{self._fault}"
            return topic_sum(self._name_server, topic, by_body=by_body)
        if name == "archive":
            return archive_sum(self._folder / "made"), 0
        if name == "audit":
            result["code"] = int(result["out"].count("0 defects") != 2)
        return None, 0


def run(count: int, faults: list[str], folder: Path) -> int:
    """Runs all trials; returns the exit code."""
    held = True
    with contextlib.ExitStack() as running:
        hosts = None
        if why_no_apart_hosts():
            sys.stdout.write(f"all on one network: {why_no_apart_hosts()}\n")
        else:
            hosts = running.enter_context(ApartHosts(THREE_WORKERS))
        cluster = running.enter_context(
            UpCluster(folder / "up", settings=() if hosts is None else reached_at(hosts))
        )
        workers = running.enter_context(SparkCluster(folder / "spark", THREE_WORKERS, hosts))
        name_server = cluster.name_server
        if hosts is not None:
            name_server = name_server.replace("127.0.0.1", hosts.machine_address)
        for fault in faults:
            if fault == "slow" and why_no_quota():
                sys.stdout.write(f"slow: not run: {why_no_quota()}\n")
                continue
            here = folder / f"driver-{fault}"
            here.mkdir()
            cluster.wait_for_all()
            held &= Trial(workers, cluster, name_server, here, fault).run(count)
            shutil.rmtree(here)
    return 0 if held else 1


def reached_at(hosts: ApartHosts) -> tuple[str, ...]:
    """The settings of brokers and a name server that hosts of their own can reach."""
    address = hosts.machine_address
    return (f"brokerIP1={address}", "bindAddress=0.0.0.0", "namesrv.bindAddress=0.0.0.0")


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
