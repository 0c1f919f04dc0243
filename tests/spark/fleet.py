"""Stores of three groups with ten planted defects, audited by one, two and three workers.

    python -m tests.spark.fleet [--entries N] [--workers 1,2,3] [--cores 1]
    python -m tests.spark.fleet --shares [--entries N]

    orders    three members of LedgerMQ
    mixed     two members of LedgerMQ and one of Java's, whose entries have no checksums
    light     two members whose messages stand in light queues, too

Exit code 0: without the defects there is none, and with them each is found, by any number of
workers. The times are those of the audit of good stores, from the order to the report, and of the
driver's own processor time in it, which more workers do not make less. With --cores each worker has
less than a core, so that many of them show how an audit scales on a machine of few; --shares counts
in this process, without Spark, which share of an audit is not done by tasks.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.processes import tree_cpu_seconds
from ledgermq.spark.jobs import audit
from tests.cpu_quota import CpuQuotas, why_no_quota
from tests.spark.log_files import flip, make_record, write_ledger
from tests.spark.planted import COUNT, DEFECTS, InThisProcess, diverge, wipe
from tests.spark.standalone import SparkCluster, why_no_cluster
from tests.waiting import wait_until

GROUPS: Final = {
    "orders": ("a0", "a1", "a2"),
    "mixed": ("b0", "b1", "b2-java"),
    "light": ("c0", "c1"),
}
DRIVER: Final = Path(__file__).with_name("cluster_driver.py")
_SMALL: Final = ("--queue-file-bytes", "400", "--index-slots", "10", "--index-entries", "500")
_STEP_S: Final = 900.0
# Small, so that there is work for all to the end: each file is a task.
_SEGMENT_BYTES: Final = 1024 * 1024

# Store -> what is planted there, and what the audit has to say of it.
PLANTED: Final = {
    "a0": [("hole in a queue", "hole at offset 2"), ("flipped bit in a body", "crc")],
    "a1": [("flipped bit in a head", "entry")],
    "a2": [("broken chain", "chain_crc")],
    "b0": [("missing segment", "must follow")],
    "b1": [
        ("wrong unit", "offset 2 says .* the log says"),
        ("other queue without a file", "queue Orders-2 has a hole at offset 0"),
    ],
    "b2-java": [("flipped bit in a record", "crc|CRC")],
    "c0": [("wrong unit of a light queue", "queue %LMQ%a-0 offset 3 says .* the log says")],
    "c1": [("another log", "differs from")],
}


def words_of(root: Path) -> list[str]:
    """The arguments of an audit of all."""
    return [f"{group}={root / group}" for group in GROUPS]


def light_record(number: int) -> bytes:
    """A message that stands in a light queue as well."""
    text = f"TAGS\x01A\x02INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x01{number}"
    return make_record("Orders", number, properties=text)


def make_fleet(root: Path, count: int = COUNT, segment_bytes: int = 4096) -> None:
    """Makes good stores with their queues."""
    for group, names in GROUPS.items():
        make = light_record if group == "light" else lambda number: make_record("Orders", number)
        records = [make(number) for number in range(count)]
        for name in names:
            write_ledger(
                root / group / name / f"dledger-{name}",
                records,
                committed_index=count - 1,
                is_java=name.endswith("java"),
                segment_bytes=segment_bytes,
            )
        made = root / "made" / group
        first = f"dledger-{names[0]}"
        assert run_here(root / group / names[0], "--rebuild", made, *_SMALL) == 0
        for name in names:
            queues = made / first / "consumequeue"
            shutil.copytree(queues, root / group / name / "consumequeue")
    shutil.rmtree(root / "made")


def run_here(*words: object) -> int:
    """Runs an audit in this process."""
    parser = argparse.ArgumentParser()
    audit.add_arguments(parser)
    code: int = audit.run(InThisProcess(), parser.parse_args([*map(str, words)]))
    return code


def plant(root: Path) -> None:
    """Plants all defects."""
    for group, names in GROUPS.items():
        for name in names:
            files = sorted((root / group / name / f"dledger-{name}" / "data").iterdir())
            queues = root / group / name / "consumequeue"
            for defect, _ in PLANTED[name]:
                match defect:
                    case "other queue without a file":
                        sorted((queues / "Orders" / "2").iterdir())[0].unlink()
                    case "flipped bit in a record":
                        flip(files[2], 360)
                    case "wrong unit of a light queue":
                        flip(sorted((queues / "%LMQ%a" / "0").iterdir())[0], 67)
                    case "another log":
                        diverge(files, light_record)
                    case "hole in a queue":
                        wipe(sorted((queues / "Orders" / "1").iterdir())[0], 40, 60)
                    case _:
                        DEFECTS[defect][0](files)


def not_found(report: str) -> list[str]:
    """Which of the planted defects the lines of a report do not tell."""
    found = {
        Path(line["directory"]).name.removeprefix("dledger-"): "\n".join(line["defects"])
        for line in map(json.loads, report.splitlines())
        if line["report"] == "stores"
    }
    return [
        f"{name}: {defect}"
        for name, planted in PLANTED.items()
        for defect, words in planted
        if not re.search(words, found.get(name, ""))
    ]


class Outcome(NamedTuple):
    """What became of a step."""

    told: dict[str, Any]
    # Processor time of driver, master and workers.
    cpu_s: float


class Trial:
    """An application with some workers."""

    def __init__(
        self, cluster: SparkCluster, folder: Path, workers: int, quotas: CpuQuotas | None
    ) -> None:
        self._quotas = quotas
        self._cluster = cluster
        self._folder = folder
        self._workers = workers

    def run(self, steps: list[list[str]]) -> list[Outcome]:
        """Returns what became of each step."""
        (self._folder / "steps.json").write_text(json.dumps(steps))
        results, log = self._folder / "results.json", self._folder / "driver.log"
        results.write_text("")
        settings = {"spark.cores.max": str(self._workers)}
        settings["spark.default.parallelism"] = str(self._workers)
        found, begun_cpu_s = [], 0.0
        with self._cluster.submit(
            DRIVER, "steps.json", "results.json", folder=self._folder, log=log, settings=settings
        ) as driver:
            if self._quotas is not None:
                self._quotas.limit(driver.pid, 1.0)
            for number in range(1, len(steps) + 2):

                def is_told(number: int = number) -> bool:
                    told = results.read_text().count("\n") >= number
                    return told or not driver.is_running

                wait_until(is_told, what=f"step {number}", deadline_s=_STEP_S)
                cpu_s = tree_cpu_seconds(os.getpid())
                lines = results.read_text().splitlines()
                assert len(lines) >= number, driver.log_text()[-4000:]
                if number > 1:
                    told = json.loads(lines[number - 1])
                    found.append(Outcome(told, cpu_s - begun_cpu_s))
                begun_cpu_s = cpu_s
            driver.wait(_STEP_S)
        return found


class Timed(InThisProcess):
    """Runs tasks here and adds up their processor time; 0 at the start of an audit."""

    tasks_s = 0.0

    def map(self, function: Callable[[Any], Any]) -> InThisProcess:
        begun_s = time.process_time()
        found = super().map(function)
        Timed.tasks_s += time.process_time() - begun_s
        return found


def tell_shares(entries: int, folder: Path) -> int:
    """Counts how much of an audit of good stores is not done by tasks; returns the exit code."""
    parser = argparse.ArgumentParser()
    audit.add_arguments(parser)
    codes = []
    for number, count in enumerate((entries // 4, entries)):
        root = folder / str(number)
        with contextlib.redirect_stdout(io.StringIO()):
            make_fleet(root, count // 8, segment_bytes=_SEGMENT_BYTES)
            options = parser.parse_args([*words_of(root), "--json"])
            # What is read is in the page cache then.
            audit.run(InThisProcess(), options)
            Timed.tasks_s, begun_s = 0.0, time.process_time()
            codes.append(audit.run(Timed(), options))
            all_s = time.process_time() - begun_s
        driver_s = all_s - Timed.tasks_s
        sys.stdout.write(
            f"{count} entries of 8 stores: {all_s:.3f} s of processor time, {driver_s:.3f} s of it"
            f" by the driver, {100 * driver_s / all_s:.1f} %\n"
        )
    return max(codes)


def run(entries: int, workers: list[int], cores: float, folder: Path) -> int:
    """Audits by each number of workers; returns the exit code."""
    good, bad, here = folder / "good", folder / "bad", folder / "driver"
    here.mkdir()
    make_fleet(good, entries // 8, segment_bytes=_SEGMENT_BYTES)
    make_fleet(bad)
    plant(bad)
    held = True
    names = [f"worker-{number}" for number in range(1, max(workers) + 1)]
    with CpuQuotas() as quotas, SparkCluster(folder / "spark", names) as cluster:
        is_limited = cores < 1
        for name in names if is_limited else ():
            quotas.limit(cluster.pid_of(name), cores)
        for count in workers:
            # The small stores first: Java and Python of the workers are warm then.
            steps = [
                ["audit", *words_of(bad), "--json", "--html", "report.html"],
                ["audit", *words_of(good), "--json"],
            ]
            planted, whole = Trial(cluster, here, count, quotas if is_limited else None).run(steps)
            missed = not_found(planted.told["out"])
            holds = whole.told["code"] == 0 and planted.told["code"] == 1 and not missed
            held &= holds
            sys.stdout.write(
                f"{count} workers of {cores:g} cores {'hold' if holds else 'BROKEN'}: {entries}"
                f" entries of 8 stores in {whole.told['seconds']:.1f} s, processor time"
                f" {whole.cpu_s:.1f} s, {whole.told['driver_s']:.2f} s of it the driver's Python;"
                f" {10 - len(missed)} of 10 defects {'; '.join(missed)}\n"
            )
            sys.stdout.flush()
    return 0 if held else 1


def main() -> int:
    """Parses the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--entries", type=int, default=2_000_000)
    parser.add_argument("--workers", default="1,2,3")
    parser.add_argument("--cores", type=float, default=1.0)
    parser.add_argument("--shares", action="store_true")
    options = parser.parse_args()
    if options.shares:
        with tempfile.TemporaryDirectory(prefix="ledgermq-fleet-") as folder:
            return tell_shares(options.entries, Path(folder))
    missing = why_no_cluster() or (why_no_quota() if options.cores < 1 else "")
    if missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    workers = [int(word) for word in options.workers.split(",")]
    with tempfile.TemporaryDirectory(prefix="ledgermq-fleet-") as folder:
        return run(options.entries, workers, options.cores, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
