"""What a member says of a log whose store times lie apart from its clocks."""

import pytest

from tests.unit.broker.clocks.clocks import DAY_MS, HOUR_MS, MINUTE_MS, START_MS, Clocks


def test_clocks_that_go_together_are_not_mentioned(log_lines: list[str]) -> None:
    clocks = Clocks()
    clocks.times.begin_to_store()
    assert clocks.times.look() == 0
    for _ in range(100):
        clocks.store(ahead_ms=900)
        assert clocks.times.look() == 900
        clocks.passed_ms += HOUR_MS
        assert clocks.times.look() == 0
        clocks.times.begin_to_store()
    assert log_lines == []


@pytest.mark.parametrize("ahead_ms", [MINUTE_MS + 1, 10 * 365 * DAY_MS, 1 << 62])
def test_log_that_is_ahead_is_told_once_an_hour(log_lines: list[str], ahead_ms: int) -> None:
    clocks = Clocks()
    clocks.store(ahead_ms)
    for _ in range(60):
        clocks.times.look()
        clocks.passed_ms += 1000
        clocks.store(ahead_ms)
    assert clocks.times.look() == ahead_ms
    assert len(log_lines) == 1
    assert f"is {ahead_ms // 1000} s ahead of this machine's clock" in log_lines[0]
    clocks.passed_ms += HOUR_MS
    clocks.store(ahead_ms)
    clocks.times.look()
    assert len(log_lines) == 2


def test_log_that_was_caught_up_with_is_not_mentioned_any_more(log_lines: list[str]) -> None:
    clocks = Clocks()
    clocks.store(HOUR_MS)
    assert clocks.times.look() == HOUR_MS
    clocks.passed_ms += HOUR_MS - MINUTE_MS
    assert clocks.times.look() == MINUTE_MS
    clocks.passed_ms += 10 * HOUR_MS
    assert clocks.times.look() == 0
    clocks.store(HOUR_MS)
    assert clocks.times.look() == HOUR_MS
    # The log is begun afresh.
    clocks.dispatched_timestamp = 0
    assert clocks.times.look() == 0
    assert len(log_lines) == 2


def test_leader_whose_clock_is_ahead_of_the_one_before_is_told(log_lines: list[str]) -> None:
    clocks = Clocks()
    clocks.store()
    clocks.times.look()
    clocks.passed_ms += 1000
    clocks.store()
    clocks.times.look()
    # Nothing is stored for a while; that does not count.
    clocks.passed_ms += 30 * DAY_MS
    clocks.jump_ms = MINUTE_MS
    clocks.times.begin_to_store()
    assert log_lines == []
    clocks.jump_ms = HOUR_MS
    clocks.times.begin_to_store()
    assert len(log_lines) == 1
    assert "its clock is 3600 s ahead of the log" in log_lines[0]


def test_group_that_was_stopped_for_a_day_is_not_suspected(log_lines: list[str]) -> None:
    """Of a log that did not grow since the start nobody knows when its last record came."""
    clocks = Clocks()
    clocks.store(-DAY_MS)
    clocks.times.begin_to_store()
    assert log_lines == []
    clocks.jump_ms = 1
    clocks.times.begin_to_store()
    assert len(log_lines) == 1
    assert "its clock is 86400 s ahead of the log" in log_lines[0]


def test_the_time_by_the_log_goes_on_with_the_monotonic_clock(log_lines: list[str]) -> None:
    clocks = Clocks()
    assert clocks.times.find_now_ms() is None
    clocks.store(-HOUR_MS)
    clocks.jump_ms = -9 * HOUR_MS
    assert clocks.times.find_now_ms() == START_MS - HOUR_MS
    clocks.passed_ms += 5000
    assert clocks.times.find_now_ms() == START_MS - HOUR_MS + 5000
    # One that waited longer before it was seen.
    clocks.store(-2 * HOUR_MS)
    assert clocks.times.find_now_ms() == START_MS - HOUR_MS + 5000
    clocks.store()
    assert clocks.times.find_now_ms() == START_MS + 5000
    assert log_lines == []
