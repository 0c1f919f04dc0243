"""ExpiryClock: the time by which stored things are judged to be too old.

Messages carry the wall clock's time of their storing, so their age is a difference of wall times.
But a wall clock can be set, by a person or a broken time service, and what was deleted because it
seemed to be days old does not come back. So nothing is older than all of these say:

    the wall clock                                     set back, it makes everything young
    the wall clock at the start of this process,
    and the monotonic time since then                  not moved by any jump since then
    the newest store time in the log,
    and the monotonic time since it was seen           other brokers' clocks, too: a member that
                                                       starts with a wrong one deletes nothing

A jump ahead that was right all the same (a clock that was wrong when the process started, a machine
that slept) makes things be kept longer, until the next start. A disk that fills up asks for no age.
"""

from collections.abc import Callable
from math import inf
from typing import Final

from twisted.logger import Logger

from ledgermq.broker.clocks.log_times import LogTimes

# What the two clocks may differ by before it is told: more than a time service corrects at a time.
_TOLD_MS: Final = 60_000

_log = Logger()


class ExpiryClock:
    """The clock of one broker's retention and of its open transactions."""

    def __init__(
        self,
        wall_ms: Callable[[], int],
        clock_ms: Callable[[], float] | None,
        log_times: LogTimes,
    ) -> None:
        """Begins with the wall clock as it is.

        Args:
            wall_ms: ms since 1970.
            clock_ms: monotonic time; None: the wall clock is one that is moved on purpose, and is
                believed.
            log_times: what time it is by the log.
        """
        self._wall_ms = wall_ms
        self._clock_ms = clock_ms
        self._log_times = log_times
        # How far the wall clock was ahead of the monotonic one at the start.
        self._wall_ahead_ms = 0.0 if clock_ms is None else wall_ms() - clock_ms()
        # By how much the wall clock had been set when that was told last.
        self._told_ms = 0.0

    def now_ms(self) -> int:
        """Returns ms since 1970; what is not too old by now is kept."""
        wall_ms = self._wall_ms()
        if self._clock_ms is None:
            return wall_ms
        steady_ms = self._clock_ms() + self._wall_ahead_ms
        self._tell(wall_ms - steady_ms)
        log_ms = self._log_times.find_now_ms()
        return int(min(float(wall_ms), steady_ms, inf if log_ms is None else log_ms))

    def _tell(self, jump_ms: float) -> None:
        """Says each jump once, and when it was undone."""
        if abs(jump_ms - self._told_ms) <= _TOLD_MS:
            return
        self._told_ms = jump_ms
        if abs(jump_ms) <= _TOLD_MS:
            _log.info("the wall clock goes with the monotonic one again")
            return
        _log.warn(
            "the wall clock was set {way} by {seconds} s since this process started: nothing is"
            " deleted or given up for it; if it was right, start the broker again",
            way="ahead" if jump_ms > 0 else "back",
            seconds=round(abs(jump_ms) / 1000),
        )
