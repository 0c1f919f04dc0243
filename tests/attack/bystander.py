"""A well-behaved client beside an attack, in its own process: one message, its answer, a pause.

`python -m tests.attack.bystander ADDRESS TOPIC FIRST PID` sends messages whose bodies are numbers
from FIRST on until its standard input ends, and prints what became of them as JSON. PID is the
broker's process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.e2e.wire_client import WireClient

_ROOT: Final = Path(__file__).resolve().parents[2]
_PAUSE_S: Final = 0.005
_PATIENCE_S: Final = 300.0
_BODY_BYTES: Final = 1024


@dataclass(frozen=True)
class Seen:
    """What a bystander saw of a broker."""

    # Milliseconds of each send, in order.
    waits_ms: list[float]
    # The same without what threads of this process and the broker's stood in line for a processor:
    # as on a machine that has nothing else to do, or shorter where several stood at once.
    free_ms: list[float]
    # Numbers of messages that were acknowledged, and how many were refused.
    acknowledged: list[int]
    refused_count: int

    @property
    def p99_ms(self) -> float:
        ordered = sorted(self.waits_ms)
        return ordered[len(ordered) * 99 // 100] if ordered else float("inf")

    @property
    def free_p99_ms(self) -> float:
        """That of a free machine."""
        ordered = sorted(self.free_ms)
        return ordered[len(ordered) * 99 // 100] if ordered else float("inf")

    @property
    def slowest_ms(self) -> float:
        return max(self.waits_ms, default=float("inf"))


class Bystander:
    """The process, from the beginning to the end of a `with` block."""

    def __init__(self, address: str, topic: str, first: int, pid: int) -> None:
        """Starts it; the first body is `first`, the broker's process `pid`."""
        module = "tests.attack.bystander"
        words = [sys.executable, "-m", module, address, topic, str(first), str(pid)]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT
        )
        self._seen: Seen | None = None
        assert self._process.stdout is not None
        # Its first message is answered.
        assert self._process.stdout.readline() == "begun\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        out, _ = self._process.communicate(timeout=_PATIENCE_S)
        self._seen = Seen(**json.loads(out))

    @property
    def seen(self) -> Seen:
        """What it saw, after the block."""
        assert self._seen is not None
        return self._seen


def _stood_s(pid: int) -> float:
    """Returns how long the threads of a process have stood in line for a processor, together: one
    of them may have the interpreter, and the others wait for it.
    """
    # Time on a processor, time in line, turns; in nanoseconds.
    stood_ns = 0
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        # It may have ended meanwhile.
        with suppress(OSError):
            stood_ns += int(thread.read_bytes().split()[1])
    return stood_ns / 1e9


def _send_until_told(address: str, topic: str, first: int, pid: int) -> Seen:
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    waits_ms: list[float] = []
    free_ms: list[float] = []
    own = os.getpid()
    acknowledged: list[int] = []
    number = first
    with WireClient(address, timeout_s=_PATIENCE_S) as client:
        while not ended.is_set():
            stood_s = _stood_s(own) + _stood_s(pid)
            begun_s = time.perf_counter()
            answer = client.send(topic, 0, str(number).encode().ljust(_BODY_BYTES))
            waits_ms.append((time.perf_counter() - begun_s) * 1000)
            stood_s = _stood_s(own) + _stood_s(pid) - stood_s
            free_ms.append(max(waits_ms[-1] - stood_s * 1000, 0.0))
            if answer.code == 0:
                acknowledged.append(number)
            if number == first:
                sys.stdout.write("begun\n")
                sys.stdout.flush()
            number += 1
            ended.wait(_PAUSE_S)
    return Seen(waits_ms, free_ms, acknowledged, number - first - len(acknowledged))


if __name__ == "__main__":
    seen = _send_until_told(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    sys.stdout.write(json.dumps(vars(seen)))
