"""One broker of the console command whose HTTP port can be told to do nothing by itself.

python -m bench.switched_process broker ...     as `ledgermq broker ...`

At the signal RESTS what the port does by itself rests: the samples of the reactor, and the look
each second at what health is judged by; at the signal WORKS it goes on. So one process is both
sides of a comparison; two processes of the same program differ by more than what is to be seen.
"""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Sequence
from typing import Any, Final

WORKS: Final = signal.SIGRTMIN
RESTS: Final = signal.SIGRTMIN + 1


def bind_signals() -> None:
    """Binds what the port does to the signals."""
    # Not before the program chooses how it starts.
    side = importlib.import_module("ledgermq.broker.service.http_side").HttpSide
    beats = importlib.import_module("ledgermq.broker.service.http_pulse").Pulse
    looks_of, begins_of = side._look, beats.start
    pulses: list[Any] = []
    rests = False

    def look(owner: Any) -> None:
        if not rests:
            looks_of(owner)

    def start(pulse: Any) -> None:
        if pulse not in pulses:
            pulses.append(pulse)
        if not rests:
            begins_of(pulse)

    def switch(number: int, _: object) -> None:
        nonlocal rests
        rests = number == RESTS
        for pulse in pulses:
            pulse.stop()
            start(pulse)

    side._look, beats.start = look, start
    for number in (WORKS, RESTS):
        signal.signal(number, switch)


def main(words: Sequence[str]) -> int:
    """Runs the broker; returns its exit code."""
    bind_signals()
    return int(importlib.import_module("ledgermq.cli.main").main(list(words)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
