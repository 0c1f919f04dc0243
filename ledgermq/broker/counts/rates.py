"""Rates over the last 10, 60 and 600 seconds, from counters that only grow.

Pure: `sample` is called each second with the counters of that moment. Source:
`StoreStatsService.java`.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

# Seconds of the three windows, as tools expect them in one text.
WINDOWS_S: Final = (10, 60, 600)


class Rates:
    """Samples of some counters by name.

    Invariant: at most one sample a second for the longest window and one more.
    """

    def __init__(self) -> None:
        # Time in ms and counters, oldest first.
        self._samples: deque[tuple[float, Mapping[str, int]]] = deque(maxlen=WINDOWS_S[-1] + 1)

    def sample(self, now_ms: float, counters: Mapping[str, int]) -> None:
        """Keeps the counters of this moment."""
        self._samples.append((now_ms, counters))

    def per_second(self, name: str, window_s: int) -> float:
        """Returns the growth of a counter a second, over the window or the time there is."""
        samples = self._samples
        if len(samples) < 2:
            return 0.0
        last_ms, last = samples[-1]
        first_ms, first = samples[max(len(samples) - 1 - window_s, 0)]
        span_ms = last_ms - first_ms
        if span_ms <= 0:
            return 0.0
        return (last.get(name, 0) - first.get(name, 0)) * 1000.0 / span_ms

    def text(self, name: str) -> str:
        """Returns the rates of all windows, joined by blanks."""
        return " ".join(f"{self.per_second(name, window):.4f}" for window in WINDOWS_S)
