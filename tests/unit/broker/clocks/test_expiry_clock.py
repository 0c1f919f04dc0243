"""What time it is for whoever deletes, when clocks are set."""

from ledgermq.broker.clocks.expiry_clock import ExpiryClock
from tests.unit.broker.clocks.clocks import HOUR_MS, START_MS, Clocks


def hold(clocks: Clocks, stored_ms: int) -> None:
    """The log's last record was stored then, and the broker sees it."""
    clocks.dispatched_timestamp = stored_ms
    clocks.times.find_now_ms()


def test_clock_that_nobody_sets_is_the_time(log_lines: list[str]) -> None:
    clocks = Clocks()
    expiry = ExpiryClock(clocks.wall_ms, clocks.clock_ms, clocks.times)
    for _ in range(10):
        clocks.passed_ms += HOUR_MS
        # As a time service corrects it.
        clocks.jump_ms -= 1000
        assert expiry.now_ms() == clocks.wall_ms()
    assert log_lines == []


def test_jump_ahead_is_told_once_and_makes_nothing_older(log_lines: list[str]) -> None:
    clocks = Clocks()
    expiry = ExpiryClock(clocks.wall_ms, clocks.clock_ms, clocks.times)
    clocks.jump_ms = 103 * HOUR_MS
    for hours in range(10):
        assert expiry.now_ms() == START_MS + hours * HOUR_MS
        clocks.passed_ms += HOUR_MS
    assert len(log_lines) == 1
    assert "set ahead by 370800 s" in log_lines[0]
    clocks.jump_ms = 0
    assert expiry.now_ms() == clocks.wall_ms()
    clocks.jump_ms = -2 * HOUR_MS
    assert expiry.now_ms() == clocks.wall_ms()
    assert [line.split(" since")[0] for line in log_lines[1:]] == [
        "the wall clock goes with the monotonic one again",
        "the wall clock was set back by 7200 s",
    ]


def test_clock_that_is_wrong_from_the_start_is_held_against_the_log() -> None:
    clocks = Clocks()
    expiry = ExpiryClock(clocks.wall_ms, clocks.clock_ms, clocks.times)
    hold(clocks, START_MS - 103 * HOUR_MS)
    clocks.passed_ms = HOUR_MS
    assert expiry.now_ms() == START_MS - 102 * HOUR_MS
    # A leader with a right clock stores a message; nothing older takes that back.
    hold(clocks, START_MS - 50 * HOUR_MS)
    hold(clocks, START_MS - 60 * HOUR_MS)
    clocks.passed_ms = 3 * HOUR_MS
    assert expiry.now_ms() == START_MS - 48 * HOUR_MS


def test_store_times_ahead_of_the_own_clocks_make_nothing_older() -> None:
    clocks = Clocks()
    expiry = ExpiryClock(clocks.wall_ms, clocks.clock_ms, clocks.times)
    hold(clocks, START_MS + 103 * HOUR_MS)
    clocks.passed_ms = HOUR_MS
    assert expiry.now_ms() == START_MS + HOUR_MS


def test_empty_log_says_nothing() -> None:
    clocks = Clocks()
    expiry = ExpiryClock(clocks.wall_ms, clocks.clock_ms, clocks.times)
    hold(clocks, 0)
    assert expiry.now_ms() == START_MS


def test_clock_that_is_moved_on_purpose_is_believed(log_lines: list[str]) -> None:
    times = [START_MS, START_MS + 500 * HOUR_MS]
    log = Clocks()
    hold(log, START_MS)
    expiry = ExpiryClock(lambda: times.pop(0), None, log.times)
    assert [expiry.now_ms(), expiry.now_ms()] == [START_MS, START_MS + 500 * HOUR_MS]
    assert log_lines == []
