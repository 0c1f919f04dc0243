"""StoreTimes: the time with which the next record is stored.

Store times follow the wall clock and do not fall: a clock behind the log's last record stores with
the time of that one. Where the clock and the last record are further apart than the clocks of a
group may be, one of them is wrong, or nothing was stored for so long. Then a judge decides, which
knows the clocks of the group; without one the rule stays.
"""

from collections.abc import Callable
from typing import Final

# Less is what a Java leader's clock was set back by, of whose records the latest time counts.
_FALL_MS: Final = 60_000

# Returns the store time of a record, from the wall clock and the last record's store time.
Judge = Callable[[int, int], int]


def latest_of(known_ms: int, next_ms: int) -> int:
    """Returns the latest store time of a log that goes on with a record.

    Args:
        known_ms: the latest time before it.
        next_ms: of the record; 0 for one without a time. Far below the other it is the time with
            which the log goes on behind those of a clock that was ahead.
    """
    return next_ms if next_ms > known_ms or 0 < next_ms < known_ms - _FALL_MS else known_ms


class StoreTimes:
    """The rule of one message store."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        """Follows the clock.

        Args:
            clock_ms: wall clock, ms since 1970.
        """
        self.clock_ms = clock_ms
        self._limit_ms: int | None = None
        self._judge: Judge = max

    def set_judge(self, judge: Judge, limit_ms: int) -> None:
        """Has a judge asked where clock and log are further apart than the limit; 0: never."""
        self._judge, self._limit_ms = judge, limit_ms or None

    def next_ms(self, last_ms: int) -> int:
        """Returns the store time of the next record.

        Args:
            last_ms: of the record before it; 0 for none.
        """
        now_ms, limit_ms = self.clock_ms(), self._limit_ms
        if limit_ms is not None and not -limit_ms <= now_ms - last_ms <= limit_ms:
            return self._judge(now_ms, last_ms)
        return now_ms if now_ms > last_ms else last_ms
