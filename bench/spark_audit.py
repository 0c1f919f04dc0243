"""Whether an audit scales: the same segment files, checked by one core and by two.

Two sessions of Spark stay up, with one and with two cores; each round audits the store with both,
one after the other, so that a ratio compares what ran close in time. Each file is a task. "tasks
alone" leaves out what the driver does by itself: merging what was found, and the report. Times are
of the clock, which a machine with other work stretches; processor time tells what was really done,
and "driver" how much of it cannot be shared out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.processes import tree_cpu_seconds
from ledgermq.commitlog.config import DEFAULT_DELAYS_MS
from ledgermq.spark.jobs import audit
from ledgermq.spark.jobs.running import make_session
from ledgermq.spark.queue_files import merged, write_queues
from ledgermq.spark.segment_audit import audit_segment
from ledgermq.spark.segment_plan import find_log, plan_segments
from tests.spark.log_files import make_record, write_ledger

SEGMENT_BYTES = 8 * 1024 * 1024
QUEUE_FILE_BYTES = 6_000_000
BODY_BYTES = 100
MIB = 1024 * 1024
FIGURES = ("tasks alone, s", "whole job, s", "processor time, s", "driver of it, s")


def make_store(folder: Path, mib: int) -> tuple[Path, int, int]:
    """Writes a store of many files; returns its directory, its entries and its files."""
    store = folder / "n0" / "dledger-n0"
    size = 48 + len(make_record("Orders", 0, body_bytes=BODY_BYTES))
    count = mib * MIB // size
    records = [make_record("Orders", number, body_bytes=BODY_BYTES) for number in range(count)]
    files = write_ledger(store, records, committed_index=count - 1, segment_bytes=SEGMENT_BYTES)
    parts = plan_segments(find_log(str(store)), reads_open_segment=True)
    found = (audit_segment(part, DEFAULT_DELAYS_MS, wants_keys=False) for part in parts)
    write_queues(store.parent, merged(found)[0], QUEUE_FILE_BYTES)
    return store, count, len(files)


def serve(cores: int, directory: str) -> None:
    """A session: audits once for each line that comes, and prints the figures."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    session = make_session({"spark.master": f"local[{cores}]"})
    parser = argparse.ArgumentParser()
    audit.add_arguments(parser)
    options = parser.parse_args([directory])
    parts = plan_segments(find_log(directory), reads_open_segment=True)
    for _ in sys.stdin:
        begun_s = time.perf_counter()
        tasks = session.sparkContext.parallelize(parts, len(parts))
        tasks.map(lambda part: audit_segment(part, DEFAULT_DELAYS_MS, wants_keys=False)).count()
        tasks_s = time.perf_counter() - begun_s
        begun_s, all_s, own_s = (
            time.perf_counter(),
            tree_cpu_seconds(os.getpid()),
            time.process_time(),
        )
        assert audit.run(session, options) == 0
        job_s, own_s = time.perf_counter() - begun_s, time.process_time() - own_s
        all_s = tree_cpu_seconds(os.getpid()) - all_s
        print(tasks_s, job_s, all_s, own_s, file=answers, flush=True)
    session.stop()


def start(cores: int, directory: Path) -> subprocess.Popen[str]:
    """Starts a session."""
    words = [sys.executable, "-m", "bench.spark_audit", str(cores), str(directory)]
    return subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def ask(session: subprocess.Popen[str]) -> list[float]:
    """Lets a session audit once; returns FIGURES."""
    assert session.stdin is not None and session.stdout is not None
    session.stdin.write("\n")
    session.stdin.flush()
    return [float(word) for word in session.stdout.readline().split()]


def audit_lines(mib: int, rounds: int) -> list[str]:
    """Audits a store with one core and with two, in pairs; lines of a table."""
    with tempfile.TemporaryDirectory(prefix="ledgermq-bench-") as folder:
        store, count, file_count = make_store(Path(folder), mib)
        sessions = [start(cores, store) for cores in (1, 2)]
        try:
            for session in sessions:
                ask(session)
            pairs = [[ask(session) for session in sessions] for _ in range(rounds)]
        finally:
            for session in sessions:
                session.communicate()
    lines = [
        f"{count} entries, {mib} MiB in {file_count} files; load {os.getloadavg()[0]:.1f}",
        "",
        "| audit | 1 core | 2 cores | two against one |",
        "|---|---|---|---|",
    ]
    for number, name in enumerate(FIGURES):
        one, two = (statistics.median(pair[way][number] for pair in pairs) for way in (0, 1))
        ratios = sorted(pair[1][number] / pair[0][number] for pair in pairs)
        lines.append(
            f"| {name} | {one:.2f} | {two:.2f} | {statistics.median(ratios):.2f}"
            f" ({ratios[0]:.2f} to {ratios[-1]:.2f}) |"
        )
    return lines


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2])
