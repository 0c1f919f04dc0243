"""One broker of the console command whose HTTP port costs nothing while a file is there.

python -m bench.switched_process FILE broker ...     as `ledgermq broker ...`

While there is a FILE, what the port does by itself rests: the samples of the reactor, and the look
each second at what health is judged by. So one process is both sides of a comparison; two
processes of the same program differ by more than what is to be seen. FILE is looked at four times
a second, on both sides.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

_LOOK_S: Final = 0.25


def switch(path: str) -> None:
    """Binds what the port does to a file."""
    # Not before the program chooses how it starts.
    side = importlib.import_module("ledgermq.broker.service.http_side").HttpSide
    beats = importlib.import_module("ledgermq.broker.service.http_pulse").Pulse
    looks_of, begins_of = side._look, beats.start
    pulses: list[Any] = []
    off = False

    def look(owner: Any) -> None:
        if not off:
            looks_of(owner)

    def start(pulse: Any) -> None:
        if not pulses:
            pulses.append(pulse)
            watch()
        if not off:
            begins_of(pulse)

    def watch() -> None:
        nonlocal off
        was, off = off, os.path.exists(path)
        pulse = pulses[0]
        if was != off:
            pulse.stop() if off else begins_of(pulse)
        pulse._reactor.callLater(_LOOK_S, watch)

    side._look, beats.start = look, start


def main(words: Sequence[str]) -> int:
    """Runs the broker; returns its exit code."""
    switch(words[0])
    return int(importlib.import_module("ledgermq.cli.main").main(list(words[1:])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
