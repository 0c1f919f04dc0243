"""Refusals: what the log did not take is written again, less and less often, and operators see it.
RejectedRecords: committed records that change nothing, counted and logged.

Pure but for the log lines; time is asked of a clock.
"""

from collections.abc import Callable
from math import inf
from typing import Final

from twisted.logger import Logger

# The first refusal is often that of a busy moment: the next try waits for nothing.
_WAIT_MS: Final = 2000
_WAIT_MS_MAX: Final = 60_000
_DOUBLINGS_MAX: Final = 5
# Least time between two lines about the same thing.
_LOG_MS: Final = 60_000

_log = Logger()


class Refusals:
    """How often one thing was refused in a row, and when to try again."""

    def __init__(self, what: str, clock_ms: Callable[[], float]) -> None:
        """Nothing was refused yet.

        Args:
            what: names the thing to people.
            clock_ms: monotonic time.
        """
        self._what = what
        self._clock_ms = clock_ms
        self._count = 0
        self._again_ms = -inf
        self._logged_ms = -inf
        # Why it is not stored, for operators; None while it is, or while nothing was tried.
        self.alarm: str | None = None

    @property
    def is_waiting(self) -> bool:
        """True while it is too early for another try."""
        return self._clock_ms() < self._again_ms

    def refused(self, error: Exception) -> None:
        """Notes a refusal, and says so unless that was said in the last minute."""
        now_ms = self._clock_ms()
        if now_ms >= self._again_ms:
            doublings = min(self._count - 1, _DOUBLINGS_MAX)
            wait_ms = min(_WAIT_MS << doublings, _WAIT_MS_MAX) if self._count else 0
            self._again_ms = now_ms + wait_ms
            self._count += 1
        self.alarm = f"{self._what} cannot be stored: {error}"
        if now_ms - self._logged_ms >= _LOG_MS:
            self._logged_ms = now_ms
            _log.error(
                "{alarm}; it is kept in memory and tried again ({count} in a row were refused)",
                alarm=self.alarm,
                count=self._count,
            )

    def stored(self) -> None:
        """Notes that it was stored."""
        if self.alarm is not None:
            _log.info("{what} is stored again", what=self._what)
        self.forget()

    def forget(self) -> None:
        """Begins anew: whoever leads writes, and this member does not, or not yet."""
        self._count = 0
        self._again_ms = -inf
        self.alarm = None


class RejectedRecords:
    """Committed records whose content cannot be read: they change nothing, on any member.

    Attributes:
        count: since the start.
    """

    def __init__(self) -> None:
        self.count = 0

    def note(self, index: int, size_bytes: int, reason: str) -> None:
        """Counts one, and logs the first, second, fourth, eighth and so on: a log that is full of
        them is replayed at each start.
        """
        self.count += 1
        if self.count & (self.count - 1) == 0:
            _log.error(
                "cannot apply a record of the broker's state: {reason} (index {index},"
                " {size} bytes, {count} rejected since the start); it changes nothing on any"
                " member",
                reason=reason,
                index=index,
                size=size_bytes,
                count=self.count,
            )
