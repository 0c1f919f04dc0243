"""``ledgermq simulate``: a broker group with every fault we know, from seeds.

Production code runs on a simulated clock, network and disk; one seed fixes all that happens. Exit
code 0: every statement held. 1: a seed failed; the report names it, the statement, its last events
and the command that repeats it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import sys
import time
from collections.abc import Iterable

from twisted.logger import globalLogBeginner

from ledgermq.testing.simulation.batch import BatchReport, Failure, run_batch
from ledgermq.testing.simulation.plan import Plan
from ledgermq.testing.simulation.shrink import shrink

_SHOWN_MAX = 3
# Fewer seeds meet rare things too unevenly to be compared with floors.
_JUDGED_SEEDS = 5_000
# What a process runs before it reports, and how often the reader of stderr is told.
_SLICE_SEEDS = 20
_TOLD_EVERY_S = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, metavar="COUNT", help="how many seeds")
    parser.add_argument(
        "--minutes", type=float, metavar="M", help="stop after so many minutes of real time"
    )
    parser.add_argument(
        "--days", type=float, metavar="D", help="runs of so many simulated days, with few faults"
    )
    parser.add_argument("--processes", type=int, default=1, metavar="P", help="run in parallel")
    parser.add_argument(
        "--shrink", action="store_true", help="make the first failure as small as it gets"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Runs the seeds and prints the report."""
    report = _run_all(options)
    is_judged = report.seed_count >= _JUDGED_SEEDS and options.days is None
    below = report.below_floors() if is_judged else {}
    if options.json:
        _print_json(report, below)
    else:
        _print_text(report, below)
    if report.failures and options.shrink and options.days is None:
        _print_shrunk(report.failures[0].seed)
    return 1 if report.failures or below else 0


def _run_all(options: argparse.Namespace) -> BatchReport:
    """Runs the seeds in slices; stderr tells of failures at once, and how far the batch is."""
    end = options.seed + options.seeds
    seconds_max = None if options.minutes is None else options.minutes * 60
    began = time.monotonic()
    deadline = None if seconds_max is None else began + seconds_max
    slices = [
        (range(start, min(start + _SLICE_SEEDS, end)), deadline, options.days)
        for start in range(options.seed, end, _SLICE_SEEDS)
    ]
    report = BatchReport()
    told_at = began
    with contextlib.ExitStack() as stack:
        parts: Iterable[BatchReport] = map(_run_slice, slices)
        if options.processes > 1:
            context = multiprocessing.get_context("spawn")
            pool = stack.enter_context(context.Pool(options.processes, initializer=_be_quiet))
            parts = pool.imap_unordered(_run_slice, slices)
        else:
            _be_quiet()
        for part in parts:
            report.add(part)
            for failure in part.failures:
                print(f"FAILED seed {failure.seed}: {_first_line(failure)}", file=sys.stderr)
            now = time.monotonic()
            if now - told_at >= _TOLD_EVERY_S:
                told_at = now
                print(
                    f"{report.seed_count:,} of {options.seeds:,} seeds,"
                    f" {len(report.failures)} violations, {now - began:.0f} s",
                    file=sys.stderr,
                )
    report.elapsed_s = time.monotonic() - began
    return report


def _run_slice(job: tuple[range, float | None, float | None]) -> BatchReport:
    seeds, deadline, days = job
    return run_batch(seeds, deadline=deadline, days=days)


def _be_quiet() -> None:
    """Members that are stopped on purpose would fill the log."""
    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)


def _print_json(report: BatchReport, below: dict[str, tuple[int, int]]) -> None:
    print(
        json.dumps(
            {
                "seeds": report.seed_count,
                "simulated_seconds": round(report.simulated_ms / 1000),
                "events": report.event_count,
                "acknowledged": report.ack_count,
                "seconds": round(report.elapsed_s, 1),
                "hours_per_minute": round(report.hours_per_minute, 2),
                "counts": dict(sorted(report.counts.items())),
                "below_floors": below,
                "failures": [
                    {"seed": failure.seed, "reason": failure.reason} for failure in report.failures
                ],
            }
        )
    )


def _print_text(report: BatchReport, below: dict[str, tuple[int, int]]) -> None:
    for name, count in sorted(report.counts.items()):
        print(f"{count:10,}  {name}")
    for failure in report.failures[:_SHOWN_MAX]:
        print(f"\nFAILED seed {failure.seed}: {failure.reason}\n{failure.details}")
    for failure in report.failures[_SHOWN_MAX:]:
        print(f"FAILED seed {failure.seed}: {_first_line(failure)}")
    for name, (count, floor) in below.items():
        print(f"BELOW FLOOR {name}: {count}, must be {floor}")
    print(
        f"\n{report.seed_count:,} seeds, {report.simulated_ms / 3.6e6:.1f} simulated hours,"
        f" {report.event_count:,} events, {report.ack_count:,} messages acknowledged,"
        f" {len(report.failures)} violations, in {report.elapsed_s:.0f} s:"
        f" {report.hours_per_minute:.1f} simulated hours per minute"
    )


def _first_line(failure: Failure) -> str:
    return failure.reason.splitlines()[0][:150]


def _print_shrunk(seed: int) -> None:
    found = shrink(Plan.draw(seed))
    if found is None:
        return
    print(f"\nsmaller, after {found.run_count} runs: {found.reason.splitlines()[0]}\n{found.plan}")
    for fault in found.schedule:
        print(f"  {fault.at_ms:10.1f} ms  {fault.kind}")
