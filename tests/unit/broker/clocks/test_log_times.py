"""What a member says of a log whose store times lie apart from its clocks."""

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.logger import globalLogPublisher

from ledgermq.broker.clocks.log_times import LogTimes

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
START_MS = 1_700_000_000_000


class Bench:
    """A log, a wall clock that can be set, and a monotonic one."""

    def __init__(self) -> None:
        self.dispatched_timestamp = 0
        self.passed_ms = 0.0
        self.jump_ms = 0
        self.times = LogTimes(self, self.wall_ms, lambda: 5e6 + self.passed_ms)

    def wall_ms(self) -> int:
        return START_MS + int(self.passed_ms) + self.jump_ms

    def store(self, ahead_ms: int = 0) -> None:
        """A record comes, of a leader whose clock is so far ahead of the right time."""
        self.dispatched_timestamp = START_MS + int(self.passed_ms) + ahead_ms


@pytest.fixture
def log_lines() -> Iterator[list[str]]:
    lines: list[str] = []

    def observe(event: Any) -> None:
        if event["log_namespace"].startswith("ledgermq"):
            lines.append(event["log_format"].format(**event))

    globalLogPublisher.addObserver(observe)
    yield lines
    globalLogPublisher.removeObserver(observe)


def test_clocks_that_go_together_are_not_mentioned(log_lines: list[str]) -> None:
    bench = Bench()
    bench.times.begin_to_store()
    assert bench.times.look() == 0
    for _ in range(100):
        bench.store(ahead_ms=900)
        assert bench.times.look() == 900
        bench.passed_ms += HOUR_MS
        assert bench.times.look() == 0
        bench.times.begin_to_store()
    assert log_lines == []


@pytest.mark.parametrize("ahead_ms", [MINUTE_MS + 1, 10 * 365 * DAY_MS, 1 << 62])
def test_log_that_is_ahead_is_told_once_an_hour(log_lines: list[str], ahead_ms: int) -> None:
    bench = Bench()
    bench.store(ahead_ms)
    for _ in range(60):
        bench.times.look()
        bench.passed_ms += 1000
        bench.store(ahead_ms)
    assert bench.times.look() == ahead_ms
    assert len(log_lines) == 1
    assert f"is {ahead_ms // 1000} s ahead of this machine's clock" in log_lines[0]
    bench.passed_ms += HOUR_MS
    bench.store(ahead_ms)
    bench.times.look()
    assert len(log_lines) == 2


def test_log_that_was_caught_up_with_is_not_mentioned_any_more(log_lines: list[str]) -> None:
    bench = Bench()
    bench.store(HOUR_MS)
    assert bench.times.look() == HOUR_MS
    bench.passed_ms += HOUR_MS - MINUTE_MS
    assert bench.times.look() == MINUTE_MS
    bench.passed_ms += 10 * HOUR_MS
    assert bench.times.look() == 0
    bench.store(HOUR_MS)
    assert bench.times.look() == HOUR_MS
    # The log is begun afresh.
    bench.dispatched_timestamp = 0
    assert bench.times.look() == 0
    assert len(log_lines) == 2


def test_leader_whose_clock_is_ahead_of_the_one_before_is_told(log_lines: list[str]) -> None:
    bench = Bench()
    bench.store()
    bench.times.look()
    bench.passed_ms += 1000
    bench.store()
    bench.times.look()
    # Nothing is stored for a while; that does not count.
    bench.passed_ms += 30 * DAY_MS
    bench.jump_ms = MINUTE_MS
    bench.times.begin_to_store()
    assert log_lines == []
    bench.jump_ms = HOUR_MS
    bench.times.begin_to_store()
    assert len(log_lines) == 1
    assert "its clock is 3600 s ahead of the log" in log_lines[0]


def test_group_that_was_stopped_for_a_day_is_not_suspected(log_lines: list[str]) -> None:
    """Of a log that did not grow since the start nobody knows when its last record came."""
    bench = Bench()
    bench.store(-DAY_MS)
    bench.times.begin_to_store()
    assert log_lines == []
    bench.jump_ms = 1
    bench.times.begin_to_store()
    assert len(log_lines) == 1
    assert "its clock is 86400 s ahead of the log" in log_lines[0]


def test_the_time_by_the_log_goes_on_with_the_monotonic_clock(log_lines: list[str]) -> None:
    bench = Bench()
    assert bench.times.find_now_ms() is None
    bench.store(-HOUR_MS)
    bench.jump_ms = -9 * HOUR_MS
    assert bench.times.find_now_ms() == START_MS - HOUR_MS
    bench.passed_ms += 5000
    assert bench.times.find_now_ms() == START_MS - HOUR_MS + 5000
    # One that waited longer before it was seen.
    bench.store(-2 * HOUR_MS)
    assert bench.times.find_now_ms() == START_MS - HOUR_MS + 5000
    bench.store()
    assert bench.times.find_now_ms() == START_MS + 5000
    assert log_lines == []
