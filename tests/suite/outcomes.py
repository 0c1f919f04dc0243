"""A pytest plugin that writes the outcome of each test of a run to a file.

It is loaded with `-p tests.suite.outcomes` and writes to the path in the variable OUTCOMES. A run
that crashes, or is killed, leaves no file.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Self

import pytest

OUTCOMES: Final = "OUTCOMES"


@dataclass(slots=True)
class Outcomes:
    """The tests of one run of pytest by their node ids."""

    # Set at the end: how many tests the run was to execute.
    collected: int = 0
    passed: set[str] = field(default_factory=set)
    # A test is also failed when its set-up or its teardown fails.
    failed: set[str] = field(default_factory=set)
    # Skipped, or expected to fail.
    skipped: set[str] = field(default_factory=set)

    def add(self, report: pytest.TestReport) -> None:
        """Counts one phase of a test: set-up, call or teardown."""
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.skipped:
            self.skipped.add(report.nodeid)
        elif report.when == "call":
            self.passed.add(report.nodeid)

    def write(self, path: Path) -> None:
        """Writes the final outcomes: a test with a failed or skipped phase has not passed."""
        self.skipped -= self.failed
        self.passed -= self.failed | self.skipped
        values = {
            name: sorted(value) if isinstance(value, set) else value
            for name, value in asdict(self).items()
        }
        path.write_text(json.dumps(values), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads what `write` has written."""
        values = json.loads(path.read_text(encoding="utf-8"))
        names = {name: set(values[name]) for name in ("passed", "failed", "skipped")}
        return cls(collected=values["collected"], **names)

    @property
    def finished(self) -> int:
        """How many tests have an outcome."""
        return len(self.passed | self.failed | self.skipped)


class _Recorder:
    def __init__(self, path: Path) -> None:
        self._outcomes = Outcomes()
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._outcomes.add(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._outcomes.collected = session.testscollected
        self._outcomes.write(self._path)


def pytest_configure(config: pytest.Config) -> None:
    """Records in the process that sees all reports: not in a worker of xdist."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(Path(os.environ[OUTCOMES])), "suite-outcomes")
