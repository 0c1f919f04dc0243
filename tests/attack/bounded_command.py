"""A command of ours, run to its end with little memory and little time."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from typing import Final, NamedTuple

_ADDRESS_SPACE_BYTES: Final = 3 << 30
_MEMORY_BYTES: Final = 300 << 20
_TIME_S: Final = 60


class Outcome(NamedTuple):
    """What a command did; `errors` is its standard error."""

    code: int
    output: str
    errors: str
    seconds: float


def run_bounded(*words: object) -> Outcome:
    """Runs `ledgermq` with the words; more memory or time than any sane store takes ends it.

    Raises:
        subprocess.TimeoutExpired: it did not end by itself.
    """

    def limit() -> None:
        # Mapped files count here, so it bounds them, too; the heap has a bound of its own.
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE_BYTES, _ADDRESS_SPACE_BYTES))
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (_TIME_S, _TIME_S))

    command = [sys.executable, "-m", "ledgermq.cli.main", *map(str, words)]
    begun = time.monotonic()
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIME_S,
        preexec_fn=limit,
    )
    return Outcome(done.returncode, done.stdout, done.stderr, time.monotonic() - begun)
