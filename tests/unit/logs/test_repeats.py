"""Lines that say the same: the first ones are written, the rest counted."""

from __future__ import annotations

import sys
import threading
from typing import Any

from twisted.logger import Logger, LogLevel, formatEvent

from ledgermq.logs.repeats import TEXTS_MAX, WINDOW_S, WRITTEN_MAX, Repeats


class Log:
    """A log behind the filter, with a clock of its own."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.events: list[dict[str, Any]] = []
        self.repeats = Repeats(self.events.append, lambda: self.now_s)
        self._log = Logger(namespace="ledgermq.test", observer=self.repeats)

    def say(self, text: str, times: int = 1) -> None:
        for _ in range(times):
            self._log.warn("{text}", text=text)

    @property
    def lines(self) -> list[str]:
        return [formatEvent(event) for event in self.events]


def test_the_first_of_a_text_are_written_and_the_rest_told_as_a_number() -> None:
    log = Log()
    log.say("peer n1 is gone", 100)
    log.say("another thing")
    assert log.lines == ["peer n1 is gone"] * WRITTEN_MAX + ["another thing"]
    log.now_s = WINDOW_S
    log.say("another thing")
    told = f"{100 - WRITTEN_MAX} times more within a minute: peer n1 is gone"
    assert log.lines[WRITTEN_MAX + 1 :] == [told, "another thing"]
    assert log.events[-2]["log_level"] is LogLevel.warn
    assert log.events[-2]["log_namespace"] == "ledgermq.test"


def test_a_new_minute_begins_anew() -> None:
    log = Log()
    for minute in range(3):
        log.now_s = minute * WINDOW_S
        log.say("x", WRITTEN_MAX)
    assert log.lines == ["x"] * (3 * WRITTEN_MAX)


def test_failures_differ_by_what_they_say() -> None:
    log = Log()
    for number in range(2 * WRITTEN_MAX):
        try:
            raise ValueError(number)
        except ValueError:
            log._log.failure("failed")
    assert log.lines == ["failed"] * (2 * WRITTEN_MAX)


def test_texts_that_are_remembered_are_bounded() -> None:
    log = Log()
    log.say("first", 2 * WRITTEN_MAX)
    for number in range(3 * TEXTS_MAX):
        log.say(f"text {number}")
    assert len(log.repeats._seen) == TEXTS_MAX
    assert f"{WRITTEN_MAX} times more within a minute: first" in log.lines


def test_all_threads_log_and_nothing_is_miscounted() -> None:
    """The table changed under the eyes of another thread, whose event was lost."""
    before_s = sys.getswitchinterval()
    written: list[Any] = []
    failed: list[Exception] = []
    now = iter(range(10**9))
    # Each look at the clock is half a second later: windows end all the time.
    repeats = Repeats(written.append, lambda: next(now) / 2)

    def log(first: int) -> None:
        for i in range(3000):
            try:
                repeats({"log_format": f"text {(7 * i + first) % 1500}", "log_namespace": "x"})
            except Exception as error:
                failed.append(error)

    threads = [threading.Thread(target=log, args=(first,)) for first in range(6)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before_s)
    assert failed == []
    told = sum(event.get("count", 1) for event in written)
    waiting = sum(max(seen.count - WRITTEN_MAX, 0) for seen in repeats._seen.values())
    assert told + waiting == 6 * 3000
