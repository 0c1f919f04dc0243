"""One program of the console command whose disk is slow, and whose reactor's turns are timed.

python -m bench.slow_process FILE MS broker ...     as `ledgermq broker ...`

Every sync takes MS milliseconds longer, without the interpreter, as a slow disk does. Each turn of
the reactor is timed, a second thread looks where a long one stands, and every quarter of a second
FILE gets a line, see `bench.turns`. While there is a FILE.full, the disk seems to be 86 % full.
"""

from __future__ import annotations

import importlib
import os
import resource
import select
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from bench.turns import Turn, Written, worth_telling, write_line

LOOK_S = 0.005
WRITE_S = 0.25
# A turn that lasts longer is looked at.
LONG_S = 0.012
FULL_PERCENT = 86
PLACES = 4
# Never set: to wait without the interpreter.
_PAUSE = threading.Event()
# Asked of the operating system by the file layer, besides syncs.
NAMES = ("unlink", "rename", "replace", "link", "posix_fallocate", "truncate", "ftruncate")
# What is counted: jobs at the disk, by class and function.
JOBS = {
    ("ledgermq.dledger.store.file_store", "DLedgerMmapFileStore", "begin_truncate"): "cuts",
    ("ledgermq.dledger.store.segments", "Segments", "roll"): "rolls",
    ("ledgermq.commitlog.store", "MessageStore", "begin_drop"): "drops",
    ("ledgermq.commitlog.store", "MessageStore", "begin_flush"): "flushes",
    ("ledgermq.dledger.store.vote_file", "VoteFile", "save"): "votes",
}
EXEMPT = (
    ("ledgermq.broker.storage.storage", "Storage", "open"),
    ("ledgermq.broker.storage.storage", "Storage", "close"),
    ("ledgermq.broker.storage.storage", "Storage", "abandon"),
)


class Watch:
    """The turns of this process; the reactor's thread notes them, another one writes them down."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ended: deque[Turn] = deque()
        self._done: Counter[str] = Counter()
        # Of the turn under way; 0 between two turns. Written by the reactor's thread.
        self._begun_s = 0.0
        self._number = 0
        self._reactor_thread = self._native_id = 0
        self._schedule = -1
        # Of all other threads; a list that only the writing thread replaces.
        self._others: list[int] = []
        # Those of them that are looked at in this turn.
        self._counted: list[int] = []
        self._used_before = (0.0, 0.0, 0.0, 0)
        self._syncs = self._names = 0
        self._is_exempt = False
        self._asked_at = ""
        # Number of a turn, and where it stood. Written by the other thread.
        self._seen = (0, "")

    # The reactor's thread.

    def begin_turn(self) -> None:
        """The reactor has waited for events and goes on."""
        if not self._reactor_thread:
            self._first_turn()
        self._number += 1
        self._syncs = self._names = 0
        self._is_exempt = False
        self._asked_at = ""
        self._counted = self._others
        self._used_before = self._used()
        self._begun_s = time.monotonic()

    def end_turn(self) -> None:
        """The reactor is about to wait."""
        begun_s, self._begun_s = self._begun_s, 0.0
        if not begun_s:
            return
        end_s = time.monotonic()
        waiting_ms, computing_ms, others_ms, faults = (
            now - before for now, before in zip(self._used(), self._used_before, strict=True)
        )
        number, seen = self._seen
        self._ended.append(
            Turn(
                end_s,
                (end_s - begun_s) * 1000,
                waiting_ms,
                computing_ms,
                others_ms,
                int(faults),
                self._asked_at or (seen if number == self._number else ""),
                self._syncs,
                self._names,
                self._is_exempt,
            )
        )

    def _first_turn(self) -> None:
        self._reactor_thread = threading.get_ident()
        self._native_id = threading.get_native_id()
        self._schedule = os.open(f"/proc/self/task/{self._native_id}/schedstat", os.O_RDONLY)
        for place, name in JOBS.items():
            self._wrap(place, lambda name=name: self._done.update((name,)))
        for place in EXEMPT:
            self._wrap(place, self._exempt)
        threading.Thread(target=self._run, daemon=True).start()

    def _wrap(self, place: tuple[str, str, str], before: Callable[[], None]) -> None:
        """Has something done before a function, where this program has loaded it."""
        module, class_name, name = place
        if module not in sys.modules:
            return
        owner = getattr(sys.modules[module], class_name)
        wrapped = getattr(owner, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            before()
            return wrapped(*arguments, **keywords)

        setattr(owner, name, call)

    def _exempt(self) -> None:
        self._is_exempt = True

    def _used(self) -> tuple[float, float, float, int]:
        """Of this thread the ms in which it waited for a processor, and computed; the ms in which
        others waited for one; the page faults that had to read.
        """
        others_ms = sum(map(waited_ms, self._counted))
        faults = resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
        return waited_ms(self._schedule), time.thread_time() * 1000, others_ms, faults

    def asked(self, is_sync: bool) -> None:
        """Notes that the disk is asked for something, in whatever thread."""
        if not self._begun_s or threading.get_ident() != self._reactor_thread:
            return
        if is_sync:
            self._syncs += 1
        else:
            self._names += 1
        if is_sync or not self._asked_at:
            self._asked_at = place_of(sys._getframe(2))

    # The other thread.

    def _run(self) -> None:
        written_s = time.monotonic()
        # This thread, too, may have the interpreter and no processor.
        known: set[int] = set()
        with self._path.open("a", encoding="utf-8") as file:
            while True:
                _PAUSE.wait(LOOK_S)
                now_s, begun_s, number = time.monotonic(), self._begun_s, self._number
                if begun_s and now_s - begun_s > LONG_S and self._seen[0] != number:
                    frame = sys._current_frames().get(self._reactor_thread)
                    self._seen = (number, place_of(frame))
                if now_s - written_s > WRITE_S:
                    written_s = now_s
                    self._look_for_threads(known)
                    file.write(self._take(now_s))
                    file.flush()

    def _look_for_threads(self, known: set[int]) -> None:
        """Begins to look at threads that are new; those that end stay as they were."""
        for name in os.listdir("/proc/self/task"):
            if int(name) not in known and int(name) != self._native_id:
                known.add(int(name))
                self._others = [*self._others, os.open(f"/proc/self/task/{name}/schedstat", 0)]

    def _take(self, now_s: float) -> str:
        turns = [self._ended.popleft() for _ in range(len(self._ended))]
        done, self._done = self._done, Counter()
        return write_line(Written(os.getpid(), now_s, len(turns), worth_telling(turns), dict(done)))


def waited_ms(schedule: int) -> float:
    """How long a thread has waited for a processor; 0 when it has ended."""
    try:
        return int(os.pread(schedule, 100, 0).split()[1]) / 1e6
    except OSError:
        return 0.0


def place_of(frame: FrameType | None) -> str:
    """The innermost functions of the package, the innermost first."""
    places: list[str] = []
    while frame is not None and len(places) < PLACES:
        path = Path(frame.f_code.co_filename)
        if "ledgermq" in path.parts[-4:]:
            places.append(f"{path.stem}.{frame.f_code.co_name}")
        frame = frame.f_back
    return " < ".join(places)


class TimedPoller:
    """An epoll that tells when it is waited for."""

    def __init__(self, watch: Watch, make: Callable[..., Any], *arguments: Any) -> None:
        self._watch = watch
        self._epoll = make(*arguments)

    def poll(self, *arguments: Any) -> Any:
        """Waits for events."""
        self._watch.end_turn()
        try:
            return self._epoll.poll(*arguments)
        finally:
            self._watch.begin_turn()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._epoll, name)


def slow_down(watch: Watch, delay_s: float) -> None:
    """Makes every sync of this process slow, and has every other call of interest told."""

    def wrapped(name: str, is_sync: bool) -> Callable[..., Any]:
        original = getattr(os, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            watch.asked(is_sync)
            result = original(*arguments, **keywords)
            if is_sync:
                _PAUSE.wait(delay_s)
            return result

        return call

    for name in ("fsync", "fdatasync"):
        setattr(os, name, wrapped(name, True))
    for name in NAMES:
        setattr(os, name, wrapped(name, False))


def fill_disk(flag: str) -> None:
    """Makes the disk of a broker look nearly full while there is a file of that name."""
    storage = importlib.import_module("ledgermq.broker.storage.storage").Storage
    real = storage.disk_used_percent
    storage.disk_used_percent = lambda self: (
        FULL_PERCENT if os.path.exists(flag) else min(real(self), FULL_PERCENT - 20)
    )


def main(words: Sequence[str]) -> int:
    """Runs the program; returns its exit code."""
    watch = Watch(Path(words[0]))
    slow_down(watch, float(words[1]) / 1000)
    make = select.epoll
    # Before Twisted is loaded, which takes it from here.
    vars(select)["epoll"] = lambda *arguments: TimedPoller(watch, make, *arguments)
    fill_disk(words[0] + ".full")
    return int(importlib.import_module("ledgermq.cli.main").main(list(words[2:])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
