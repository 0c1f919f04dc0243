"""Runs pytest; a test that fails runs once more, alone. What passes then is flaky, not a failure.

    python -m tests.suite [--workers N] [--results FILE] (--part PART | PATH...)
    python -m tests.suite --summary FILE

The exit code is 0 when every test passed in its first or its second run. The last line names the
flaky tests. FILE collects the results of several calls; `--summary` prints them together.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.suite.outcomes import OUTCOMES, Outcomes
from tests.suite.parts import arguments_of

# With more failures than this the second run would take as long as the first: it is left out.
RERUN_MAX: Final = 50


@dataclass(slots=True, kw_only=True)
class Result:
    """The verdict over one or several runs."""

    # Tests that passed in their first or second run.
    passed: int = 0
    skipped: int = 0
    # Node ids: passed in the second run; failed for good.
    flaky: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    # Why a run is a failure besides its failed tests.
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_green(self) -> bool:
        """Tells whether tests ran and all of them passed."""
        return self.passed > 0 and not self.failed and not self.errors

    def add(self, other: Result) -> None:
        """Adds the result of another run."""
        self.passed += other.passed
        self.skipped += other.skipped
        self.flaky += other.flaky
        self.failed += other.failed
        self.errors += other.errors
        self.seconds += other.seconds

    def lines(self) -> list[str]:
        """What is printed last, in the form of pytest's closing line."""
        counts = [
            f"{count} {name}"
            for count, name in (
                (len(self.failed), "failed"),
                (self.passed, "passed"),
                (self.skipped, "skipped"),
                (len(self.errors), "error" if len(self.errors) == 1 else "errors"),
            )
            if count or name == "passed"
        ]
        lines = [f"error: {error}" for error in self.errors]
        if self.failed:
            lines.append(f"failed: {', '.join(self.failed)}")
        lines.append(f" {', '.join(counts)} in {self.seconds:.2f}s ".center(80, "="))
        lines.append(f"flaky: {', '.join(self.flaky) or 'none'}")
        return lines


def run_pytest(arguments: list[str]) -> tuple[int, Outcomes | None]:
    """Runs pytest in a process of its own; returns its exit code and what it recorded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "outcomes.json"
        words = [sys.executable, "-m", "pytest", "-p", "tests.suite.outcomes", *arguments]
        environment = {**os.environ, OUTCOMES: str(path)}
        # Without bytecode each process compiles all tests anew, which takes a third of a minute.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        code = subprocess.run(words, env=environment, stdin=subprocess.DEVNULL).returncode
        return code, Outcomes.read(path) if path.is_file() else None


def fault_of_run(code: int, outcomes: Outcomes | None) -> str | None:
    """Why a run of pytest proves nothing, whatever its tests say; None when it is complete."""
    if outcomes is None or code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return f"pytest ended with exit code {code}"
    if outcomes.finished < outcomes.collected:
        return f"pytest ran {outcomes.finished} of {outcomes.collected} tests"
    if not outcomes.passed and not outcomes.failed:
        return "no test was executed"
    if code == pytest.ExitCode.TESTS_FAILED and not outcomes.failed:
        return f"pytest ended with exit code {code} without a failed test"
    return None


def run_failed_again(failed: set[str]) -> tuple[set[str], str | None]:
    """Runs failed tests once more, one after the other in one process.

    Returns:
        The tests that passed, and why the second run proves nothing, if so.
    """
    print(f"{len(failed)} failed; each runs once more, alone", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        names = Path(folder) / "failed.txt"
        names.write_text("".join(f"{name}\n" for name in sorted(failed)), encoding="utf-8")
        code, outcomes = run_pytest(["-n", "0", f"@{names}"])
    fault = fault_of_run(code, outcomes)
    return (set() if fault or outcomes is None else failed & outcomes.passed), fault


def run_suite(arguments: list[str]) -> Result:
    """Runs the tests that pytest's arguments select, and those that fail once more."""
    begun_s = time.monotonic()
    code, outcomes = run_pytest(arguments)
    result = Result()
    if (fault := fault_of_run(code, outcomes)) is not None:
        result.errors.append(fault)
    if outcomes is not None:
        flaky: set[str] = set()
        if outcomes.failed and fault is None and len(outcomes.failed) <= RERUN_MAX:
            flaky, fault = run_failed_again(outcomes.failed)
            if fault is not None:
                result.errors.append(f"second run: {fault}")
        result.passed = len(outcomes.passed | flaky)
        result.skipped = len(outcomes.skipped)
        result.flaky = sorted(flaky)
        result.failed = sorted(outcomes.failed - flaky)
    result.seconds = time.monotonic() - begun_s
    return result


def read_results(path: Path) -> Result:
    """The sum of what several calls have appended to a file."""
    total = Result()
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        total.add(Result(**json.loads(line)))
    return total


def main() -> int:
    """Runs what the command line names; returns the exit code."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m tests.suite", description=__doc__)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--part", choices=["short", "rest"])
    parser.add_argument("--summary", type=Path)
    options, arguments = parser.parse_known_args()
    if options.summary is not None:
        result = read_results(options.summary)
    else:
        spread = ["-n", str(options.workers), "--no-loadscope-reorder"]
        part = arguments_of(options.part) if options.part is not None else []
        result = run_suite([*spread, *part, *arguments])
        if options.results is not None:
            with options.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(result)) + "\n")
    print("\n".join(result.lines()), flush=True)
    return 0 if result.is_green else 1


if __name__ == "__main__":
    sys.exit(main())
