"""LogTimes: the store times of the log against the clocks of this machine.

Store times do not fall while no majority of the group's clocks says that they are wrong
(`clock_guard.py`). So a leader whose clock is behind the log stores with the log's latest time
until its clock has come so far: for milliseconds after a change of leader, and for years where the
machine of a single broker was years ahead. Nothing is lost, but searches by time see one moment
there, and retention a young log. Each member says when the log is ahead of it, and a leader when it
begins to store far ahead of the log.
"""

from collections.abc import Callable
from typing import Final, Protocol

from twisted.logger import Logger

# More than clocks differ by that are looked after.
_TOLERATED_MS: Final = 60_000
# How long a group may have been stopped before its next start is told, as if its clock were wrong.
_STOPPED_MS: Final = 86_400_000
_TOLD_EVERY_MS: Final = 3_600_000

_log = Logger()


class Log(Protocol):
    """What is needed of the message store."""

    @property
    def dispatched_timestamp(self) -> int:
        """Latest store time, in ms since 1970; 0 when there is none."""


class LogTimes:
    """What time it is by the log of one member; called on the reactor's thread."""

    def __init__(self, log: Log, wall_ms: Callable[[], int], clock_ms: Callable[[], float]) -> None:
        """Looks at nothing yet.

        Args:
            log: need not be open yet.
            wall_ms: ms since 1970.
            clock_ms: monotonic time.
        """
        self._log = log
        self._wall_ms = wall_ms
        self._clock_ms = clock_ms
        # Latest store time that was seen, and how far the times are ahead of the monotonic clock:
        # the most that was seen, that of the record which was seen soonest.
        self._seen_ms = 0
        self._ahead_ms: float | None = None
        # Whether records came while this process looked, so that it knows when they did.
        self._grows = False
        # When it was last told that the log is ahead of the wall clock.
        self._told_ms: float | None = None

    def find_now_ms(self) -> float | None:
        """Returns ms since 1970, as the newest record says and the time since it was seen; None
        while the log is empty.
        """
        latest_ms, clock_ms = self._log.dispatched_timestamp, self._clock_ms()
        if latest_ms > 0:
            self._grows = self._grows or 0 < self._seen_ms < latest_ms
            self._seen_ms = latest_ms
            ahead_ms = latest_ms - clock_ms
            if self._ahead_ms is None or ahead_ms > self._ahead_ms:
                self._ahead_ms = ahead_ms
        return None if self._ahead_ms is None else clock_ms + self._ahead_ms

    def look(self) -> int:
        """Says, once an hour, when the log is ahead of the wall clock.

        Returns:
            By how many ms; 0 when it is not.
        """
        self.find_now_ms()
        ahead_ms = max(0, self._log.dispatched_timestamp - self._wall_ms())
        clock_ms = self._clock_ms()
        is_told = self._told_ms is not None and clock_ms - self._told_ms < _TOLD_EVERY_MS
        if ahead_ms > _TOLERATED_MS and not is_told:
            self._told_ms = clock_ms
            _log.warn(
                "the latest store time in the log is {seconds} s ahead of this machine's clock, so"
                " one clock of the group is wrong, or was: a leader with a clock like this one"
                " stores all with that time until its clock has come so far, unless a majority of"
                " the group's clocks agrees with it",
                seconds=ahead_ms // 1000,
            )
        return ahead_ms

    def begin_to_store(self) -> None:
        """Says when what this member stores from now on is far ahead of the log; called before the
        first record.
        """
        log_now_ms = self.find_now_ms()
        if log_now_ms is None:
            return
        ahead_ms = self._wall_ms() - log_now_ms
        if ahead_ms > (_TOLERATED_MS if self._grows else _STOPPED_MS):
            _log.warn(
                "this broker begins to store, and its clock is {seconds} s ahead of the log:"
                " nothing was stored for so long, or a clock of the group is wrong. If it is this"
                " one, correct it at once, for store times never fall",
                seconds=int(ahead_ms) // 1000,
            )
