"""MovableClock: the wall clock of a cluster, which a test moves ahead.

Brokers stamp messages with it and compare it with the times at which delayed messages, retries and
checks of transactions are due. It goes on by itself, as fast as the real one. Elections, heart
beats, long polling and the time-outs of connections follow the monotonic clock, as always, and are
not moved: no client is thrown out because a test skips two hours.
"""

import time
from datetime import timedelta


class MovableClock:
    """Real time, and what it was moved by. May be used from every thread."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    @property
    def ahead(self) -> timedelta:
        """How far it is ahead of the real clock."""
        return timedelta(milliseconds=self._ahead_ms)

    def now_ms(self) -> int:
        """Returns ms since 1970."""
        return time.time_ns() // 1_000_000 + self._ahead_ms

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Moves it ahead; what becomes due is done by the leader within a tenth of a second.

        Raises:
            ValueError: the sum is negative. A clock that goes back is no thing of tests here.
        """
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if span < timedelta():
            raise ValueError(f"the clock only moves ahead, not by {span}")
        self._ahead_ms += span // timedelta(milliseconds=1)
