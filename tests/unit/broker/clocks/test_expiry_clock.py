"""What time it is for whoever deletes, when clocks are set."""

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.logger import globalLogPublisher

from ledgermq.broker.clocks.expiry_clock import ExpiryClock
from ledgermq.broker.clocks.log_times import LogTimes

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000


class Clocks:
    """A wall clock that can be set, a monotonic one, and a log."""

    def __init__(self) -> None:
        self.passed_ms = 0.0
        self.jump_ms = 0
        self.dispatched_timestamp = 0
        self.log_times = LogTimes(self, self.wall_ms, self.clock_ms)
        self.expiry = ExpiryClock(self.wall_ms, self.clock_ms, self.log_times)

    def wall_ms(self) -> int:
        return START_MS + int(self.passed_ms) + self.jump_ms

    def clock_ms(self) -> float:
        return 5e6 + self.passed_ms

    def log_holds(self, stored_ms: int) -> None:
        self.dispatched_timestamp = stored_ms
        self.log_times.find_now_ms()


@pytest.fixture
def log_lines() -> Iterator[list[str]]:
    lines: list[str] = []

    def observe(event: Any) -> None:
        if event["log_namespace"].startswith("ledgermq"):
            lines.append(event["log_format"].format(**event))

    globalLogPublisher.addObserver(observe)
    yield lines
    globalLogPublisher.removeObserver(observe)


def test_clock_that_nobody_sets_is_the_time(log_lines: list[str]) -> None:
    clocks = Clocks()
    for _ in range(10):
        clocks.passed_ms += HOUR_MS
        # As a time service corrects it.
        clocks.jump_ms -= 1000
        assert clocks.expiry.now_ms() == clocks.wall_ms()
    assert log_lines == []


def test_jump_ahead_is_told_once_and_makes_nothing_older(log_lines: list[str]) -> None:
    clocks = Clocks()
    clocks.jump_ms = 103 * HOUR_MS
    for hours in range(10):
        assert clocks.expiry.now_ms() == START_MS + hours * HOUR_MS
        clocks.passed_ms += HOUR_MS
    assert len(log_lines) == 1
    assert "set ahead by 370800 s" in log_lines[0]
    clocks.jump_ms = 0
    assert clocks.expiry.now_ms() == clocks.wall_ms()
    clocks.jump_ms = -2 * HOUR_MS
    assert clocks.expiry.now_ms() == clocks.wall_ms()
    assert [line.split(" since")[0] for line in log_lines[1:]] == [
        "the wall clock goes with the monotonic one again",
        "the wall clock was set back by 7200 s",
    ]


def test_clock_that_is_wrong_from_the_start_is_held_against_the_log() -> None:
    clocks = Clocks()
    clocks.log_holds(START_MS - 103 * HOUR_MS)
    clocks.passed_ms = HOUR_MS
    assert clocks.expiry.now_ms() == START_MS - 102 * HOUR_MS
    # A leader with a right clock stores a message; nothing older takes that back.
    clocks.log_holds(START_MS - 50 * HOUR_MS)
    clocks.log_holds(START_MS - 60 * HOUR_MS)
    clocks.passed_ms = 3 * HOUR_MS
    assert clocks.expiry.now_ms() == START_MS - 48 * HOUR_MS


def test_store_times_ahead_of_the_own_clocks_make_nothing_older() -> None:
    clocks = Clocks()
    clocks.log_holds(START_MS + 103 * HOUR_MS)
    clocks.passed_ms = HOUR_MS
    assert clocks.expiry.now_ms() == START_MS + HOUR_MS


def test_empty_log_says_nothing() -> None:
    clocks = Clocks()
    clocks.log_holds(0)
    assert clocks.expiry.now_ms() == START_MS


def test_clock_that_is_moved_on_purpose_is_believed(log_lines: list[str]) -> None:
    times = [START_MS, START_MS + 500 * HOUR_MS]
    log = Clocks()
    log.log_holds(START_MS)
    expiry = ExpiryClock(lambda: times.pop(0), None, log.log_times)
    assert [expiry.now_ms(), expiry.now_ms()] == [START_MS, START_MS + 500 * HOUR_MS]
    assert log_lines == []
