"""The stock clients as programs: how each is built, started, listened to and judged.

A program speaks JSON lines on standard output (README.md lists them). `run` starts one, hands each
line to a listener as it comes, and stops it at a deadline.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .builds import cpp_program, go_program, java_program, node_program

Report = dict[str, Any]

# A consumer that hears of nothing for so long has got all. Its heart beats come each 30 s; a stock
# one whose subscription changed while it sent one says so with the next, and until then brokers
# refuse its pulls (SUBSCRIPTION_NOT_LATEST).
IDLE_SECONDS: Final = 75
_STDERR_BYTES_SHOWN: Final = 2000


@dataclass(slots=True, frozen=True, kw_only=True)
class StockProgram:
    """One stock client."""

    # Short name: column of the table, user property `client`, part of group names.
    name: str
    # Registry and release, for the table.
    package: str
    # Builds it when needed and returns its command line.
    build: Callable[[], list[str]]
    # Consume queue by queue (locks, one thread for each queue) instead of concurrently.
    orderly: bool


PROGRAMS: Final = (
    StockProgram(
        name="java-4.9.3",
        package="Maven rocketmq-client 4.9.3",
        build=lambda: java_program("4.9.3"),
        orderly=True,
    ),
    StockProgram(
        name="java-5.3.3",
        package="Maven rocketmq-client 5.3.3",
        build=lambda: java_program("5.3.3"),
        orderly=False,
    ),
    StockProgram(name="cpp", package="PyPI rocketmq 0.4.4", build=cpp_program, orderly=False),
    StockProgram(name="go", package="Go rocketmq-client-go 2.1.2", build=go_program, orderly=False),
    StockProgram(name="node", package="npm ali-ons 3.12.0", build=node_program, orderly=False),
)


class ProgramError(AssertionError):
    """A stock program failed or did not end in time; the text ends with its last words."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """How a program ended."""

    # The last report, `done`: count, failed, seconds.
    done: Report
    # Lines that are no report, and standard error.
    noise: list[str]


def run(
    command: Sequence[str],
    listener: Callable[[Report], None],
    *,
    log_path: Path,
    deadline_seconds: float,
) -> Outcome:
    """Run a program to its end, giving each report to `listener`.

    Raises:
        ProgramError: it failed, said nothing like `done`, or was stopped at the deadline.
    """
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    overdue = threading.Event()

    def end_it() -> None:
        overdue.set()
        _kill_group(process.pid)

    timer = threading.Timer(deadline_seconds, end_it)
    timer.start()
    done: Report | None = None
    noise: list[str] = []
    try:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                if not line.startswith(b"{"):
                    noise.append(line.decode(errors="replace").rstrip())
                    continue
                report: Report = json.loads(line)
                if report["event"] == "done":
                    done = report
                else:
                    listener(report)
        code = process.wait()
    finally:
        timer.cancel()
        _kill_group(process.pid)
        process.wait()
    if overdue.is_set() or code != 0 or done is None:
        why = (
            f"was stopped after {deadline_seconds:g} s"
            if overdue.is_set()
            else f"ended with {code}"
        )
        words = log_path.read_text(errors="replace")[-_STDERR_BYTES_SHOWN:]
        raise ProgramError(f"{' '.join(command[-12:])} {why}\n{words}\n" + "\n".join(noise[-20:]))
    return Outcome(done=done, noise=noise)


def send_command(
    program: StockProgram, *, namesrv: str, topic: str, corpus: Path, queues: int
) -> list[str]:
    """Return the command that sends a corpus file."""
    return [
        *program.build(), "send", "--namesrv", namesrv, "--topic", topic,
        "--group", f"send_{_safe(program.name)}", "--corpus", str(corpus), "--queues", str(queues),
    ]  # fmt: skip


def consume_command(
    program: StockProgram,
    *,
    namesrv: str,
    topic: str,
    expect: int,
    idle_seconds: int = IDLE_SECONDS,
) -> list[str]:
    """Return the command that consumes a topic from its beginning in a group of its own."""
    command = [
        *program.build(), "consume", "--namesrv", namesrv, "--topic", topic,
        "--group", f"{topic}_{_safe(program.name)}", "--expect", str(expect),
        "--idle", str(idle_seconds),
    ]  # fmt: skip
    return [*command, "--orderly", "1"] if program.orderly else command


def _safe(name: str) -> str:
    return name.replace(".", "_").replace("-", "_")


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
