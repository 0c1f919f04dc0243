"""Pulse: how late the reactor is, and how long its turns are; ten samples a second.

The reactor is the one thread that everything of a broker shares: when it comes late, all do.
"""

import time
from typing import Any, Final

from ledgermq.measures.histogram import Histogram

_PERIOD_S: Final = 0.1


class Pulse:
    """Samples of one reactor.

    Attributes:
        lag: seconds by which a timer rang late.
        turns: seconds of a turn: from that timer to the next turn's.
    """

    def __init__(self, reactor: Any) -> None:
        """Nothing is measured before `start`."""
        self._reactor = reactor
        self._call: Any = None
        self._due_s = 0.0
        self.lag, self.turns = Histogram(), Histogram()

    def start(self) -> None:
        """Begins."""
        self._due_s = time.perf_counter() + _PERIOD_S
        self._call = self._reactor.callLater(_PERIOD_S, self._beat)

    def stop(self) -> None:
        """Ends it; may be called again."""
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _beat(self) -> None:
        now_s = time.perf_counter()
        self.lag.observe(max(now_s - self._due_s, 0.0))
        self._call = self._reactor.callLater(0, self._next_turn, now_s)

    def _next_turn(self, begun_s: float) -> None:
        self.turns.observe(time.perf_counter() - begun_s)
        self.start()
