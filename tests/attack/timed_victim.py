"""A victim whose turns of the reactor are timed, in processor time.

    python -m tests.attack.timed_victim FILE [--without-shares] broker ...     as `ledgermq ...`

A SIGUSR2 has what was noted written to FILE: doubles of this machine, of each turn its end on the
monotonic clock, and the processor seconds of the reactor's thread.

How long a client waits says little on a busy machine: a process stands still while others compute.
What the reactor itself computes between two looks at its sockets does not depend on them.
"""

from __future__ import annotations

import importlib
import select
import signal
import sys
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

# A turn that is shorter is no turn: nothing had to be done.
_TURN_S_MIN: Final = 0.0001


class Turns:
    """What the reactor's thread computed between two waits for events."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Ends and times one after the other: objects that stay would keep memory of a flood.
        self._turns = array("d")
        self._begun_s = 0.0

    def watch(self) -> None:
        """Takes the place of epoll; called before Twisted is imported."""
        turns, epoll = self, select.epoll

        class TimedEpoll:
            def __init__(self, *arguments: Any) -> None:
                self._epoll = epoll(*arguments)

            def __getattr__(self, name: str) -> Any:
                return getattr(self._epoll, name)

            def poll(self, *arguments: Any) -> Any:
                turns.end()
                events = self._epoll.poll(*arguments)
                turns.begin()
                return events

        select.epoll = TimedEpoll  # type: ignore[assignment,misc]
        signal.signal(signal.SIGUSR2, lambda number, frame: self.write())

    def begin(self) -> None:
        self._begun_s = time.thread_time()

    def end(self) -> None:
        used_s = time.thread_time() - self._begun_s
        if used_s >= _TURN_S_MIN:
            self._turns.append(time.monotonic())
            self._turns.append(used_s)

    def write(self) -> None:
        """Replaces the file at once, so that nobody reads half of it."""
        part = self._path.with_suffix(".part")
        part.write_bytes(self._turns.tobytes())
        part.replace(self._path)


def _take_shares_away() -> None:
    """The mistake that the judge of the floods must find: nobody bounds what a turn is used for."""
    turn_shares = importlib.import_module("ledgermq.protocol.transport.turn_shares")
    defaults = turn_shares.TurnShares.__init__.__kwdefaults__
    assert defaults is not None
    defaults.update(share_s=10.0, turn_s=10.0, crowded_s=10.0)


def main(words: Sequence[str]) -> int:
    """Runs the program of the console command."""
    path, *rest = words
    Turns(Path(path)).watch()
    if rest[0] == "--without-shares":
        _take_shares_away()
        rest = rest[1:]
    # Only now: it chooses a reactor.
    code: int = importlib.import_module("ledgermq.cli.main").main(rest)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
