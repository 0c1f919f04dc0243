"""The clocks of a broker in the hand of a test, and the log that it compares them with."""

from ledgermq.broker.clocks.log_times import LogTimes

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
START_MS = 1_700_000_000_000


class Clocks:
    """A wall clock that can be set, a monotonic one, and a log."""

    def __init__(self) -> None:
        self.passed_ms = 0.0
        self.jump_ms = 0
        self.dispatched_timestamp = 0
        self.times = LogTimes(self, self.wall_ms, self.clock_ms)

    def wall_ms(self) -> int:
        return START_MS + int(self.passed_ms) + self.jump_ms

    def clock_ms(self) -> float:
        return 5e6 + self.passed_ms

    def store(self, ahead_ms: int = 0) -> None:
        """A record comes, of a leader whose clock is so far ahead of the right time."""
        self.dispatched_timestamp = START_MS + int(self.passed_ms) + ahead_ms
