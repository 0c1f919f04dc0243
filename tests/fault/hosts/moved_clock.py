"""The console command with a wall clock that is moved from outside while it runs.

    python -m tests.fault.hosts.moved_clock FILE broker -c broker.conf

FILE holds by how many ns the clock is ahead; `WallClock` writes it. The functions of `time` that
tell the date are replaced before the program is loaded, which is the real one. Its monotonic clock
goes on, as that of a machine whose clock is set does.
"""

import mmap
import runpy
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_AHEAD = struct.Struct("=q")
_SECOND_NS = 1_000_000_000


class WallClock:
    """The clock of one host, as the test moves it."""

    def __init__(self, path: Path) -> None:
        """Makes the file."""
        self.path = path
        self.set(0)

    def set(self, seconds: float) -> None:
        """Puts the clock so far ahead of the true time; negative: behind it."""
        with open(self.path, "r+b" if self.path.exists() else "wb", buffering=0) as file:
            file.write(_AHEAD.pack(round(seconds * _SECOND_NS)))


def move_clock(path: str) -> None:
    """Has this process tell the date by the clock in a file; comes before all that asks for it."""
    with open(path, "rb") as file:
        ahead = mmap.mmap(file.fileno(), _AHEAD.size, access=mmap.ACCESS_READ)
    true_ns = time.time_ns

    def time_ns() -> int:
        found: int = _AHEAD.unpack_from(ahead)[0]
        return true_ns() + found

    def now() -> float:
        return time_ns() / _SECOND_NS

    def of_now(function: Callable[..., Any]) -> Callable[..., Any]:
        def told(seconds: float | None = None) -> Any:
            return function(now() if seconds is None else seconds)

        return told

    time.time_ns, time.time = time_ns, now
    time.localtime, time.gmtime = of_now(time.localtime), of_now(time.gmtime)


def main(words: list[str]) -> None:
    """Runs the command, which ends the process."""
    move_clock(words[0])
    sys.argv[1:] = words[1:]
    runpy.run_module("ledgermq.cli.main", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
