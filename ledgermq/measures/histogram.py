"""Histogram: how often a value was below which bound."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

# From a write to the page cache to a disk that is about to fail; in seconds.
SECONDS: Final = (
    0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048,
    8.192,
)  # fmt: skip


class Histogram:
    """Counts of values.

    Attributes:
        bounds: upper ends, included, rising.
        counts: values in each interval, not added up; the last is of those above all bounds.
        total: sum of all values.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        """Begins empty."""
        assert list(bounds) == sorted(set(bounds))
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Takes a value that came so often."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def clear(self) -> None:
        """Begins anew."""
        self.counts = [0] * len(self.counts)
        self.total = 0.0

    def quantile(self, share: float) -> float:
        """Returns about the value that a share of all is below; 0 when there are none.

        Of the interval where it lies the upper end is told, of the last one the lower.
        """
        wanted, seen = self.count * share, 0
        if not wanted:
            return 0.0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            seen += count
            if seen >= wanted:
                return bound
        return self.bounds[-1]
