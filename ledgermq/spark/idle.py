"""IdlePauses: how long a stream that finds nothing new waits before it looks again.

With its default trigger Spark asks a source anew ten milliseconds after each answer, for as long as
the query lives: asking all brokers that often costs them and the driver a tenth of a core. So the
first look after one that found nothing comes at once, as messages that come fast are wanted fast;
the longer nothing comes, the longer the pauses, up to a bound that few will notice beside the time
that a micro-batch takes. A trigger that asks less often than that never waits.

Pure: time is an argument.
"""

from typing import Final

PAUSE_FIRST_S: Final = 0.02
PAUSE_MAX_S: Final = 0.5


class IdlePauses:
    """The looks of one stream."""

    def __init__(self) -> None:
        """Begins with a stream that was never idle."""
        # Of the next look, counted from the last one; 0 while something is found.
        self._pause_s = 0.0
        # Seconds on the caller's clock.
        self._looked_s = float("-inf")

    def left_s(self, now_s: float) -> float:
        """Returns how long to wait before the next look, in seconds; 0 for not at all."""
        return max(self._looked_s + self._pause_s - now_s, 0.0)

    def looked(self, now_s: float, *, has_found: bool) -> None:
        """Takes what a look found."""
        self._looked_s = now_s
        if has_found:
            self._pause_s = 0.0
        else:
            self._pause_s = min(max(self._pause_s * 2, PAUSE_FIRST_S), PAUSE_MAX_S)
