"""Budget: how many spans may be made a second."""


class Budget:
    """A bucket that fills by so many a second, up to those of one second.

    Attributes:
        missed_count: spans that were not made for want of room.
    """

    def __init__(self, per_second: int) -> None:
        """Begins full."""
        assert per_second > 0
        self._per_ms, self._most = per_second / 1000, float(per_second)
        self._left, self._filled_ms = self._most, 0.0
        self.missed_count = 0

    def take(self, now_ms: float) -> bool:
        """Takes one; False when there is none, at a monotonic time."""
        gained = max(now_ms - self._filled_ms, 0.0) * self._per_ms
        self._left, self._filled_ms = min(self._left + gained, self._most), now_ms
        if self._left < 1.0:
            self.missed_count += 1
            return False
        self._left -= 1.0
        return True
