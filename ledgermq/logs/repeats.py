"""Repeats: of lines that say the same, a few a minute are written; the rest are counted.

A peer that fails ten times a second must not fill a disk, nor hide what else is said. What was left
out is told with its number, in the minute after, as soon as anything is written. Events that name
the same `repeats_as` count as equal, whatever numbers they tell.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent
from zope.interface import implementer

WINDOW_S: Final = 60.0
# Written of each text in a window.
WRITTEN_MAX: Final = 5
# Texts that are remembered; more are forgotten, the oldest first.
TEXTS_MAX: Final = 1024


class _Seen:
    """One text in its window."""

    __slots__ = ("begin_s", "count", "event")

    def __init__(self, begin_s: float, event: LogEvent) -> None:
        self.begin_s = begin_s
        self.count = 0
        self.event = event


@implementer(ILogObserver)
class Repeats:
    """Stands before an observer. The reactor's thread and those of the disk log through it: one at
    a time looks at the table. What it writes may be logged of itself, by the same thread.
    """

    def __init__(
        self, observer: Callable[[LogEvent], None], seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._observer = observer
        self._seconds = seconds
        self._seen: OrderedDict[tuple[str, str], _Seen] = OrderedDict()
        self._lock = threading.RLock()

    def __call__(self, event: LogEvent) -> None:
        """Passes an event on, or counts it."""
        with self._lock:
            self._take(event)

    def _take(self, event: LogEvent) -> None:
        now_s = self._seconds()
        self._tell(now_s)
        failure = event.get("log_failure")
        text = event.get("repeats_as") or formatEvent(event)
        if failure is not None:
            text += f"\n{failure.type.__name__}: {failure.getErrorMessage()}"
        key = (event.get("log_namespace") or "", text)
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = _Seen(now_s, event)
            if len(self._seen) > TEXTS_MAX:
                self._end(self._seen.popitem(last=False)[1])
        seen.count += 1
        if seen.count <= WRITTEN_MAX:
            self._observer(event)

    def _tell(self, now_s: float) -> None:
        """Ends windows that are over; they stand in the order of their beginnings."""
        seen = self._seen
        while seen:
            first = next(iter(seen.values()))
            if first.begin_s + WINDOW_S > now_s:
                return
            seen.popitem(last=False)
            self._end(first)

    def _end(self, seen: _Seen) -> None:
        left_out = seen.count - WRITTEN_MAX
        if left_out <= 0:
            return
        event = seen.event
        self._observer(
            {
                "log_level": event.get("log_level", LogLevel.info),
                "log_namespace": event.get("log_namespace", "-"),
                "log_time": time.time(),
                "log_format": "{count} times more within a minute: {text}",
                "count": left_out,
                "text": formatEvent(event),
            }
        )
