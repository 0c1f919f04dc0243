"""History: figures of the last hour, in memory; one point each ten seconds."""

from collections import deque
from typing import Final, NamedTuple

from ledgermq.console.shapes.brokers import Series

STEP_S: Final = 10.0
_POINTS_MAX: Final = 360
_SERIES_MAX: Final = 1_000
# Name -> unit.
UNITS: Final = {
    "in_per_s": "1/s",
    "out_per_s": "1/s",
    "in_bytes_per_s": "B/s",
    "out_bytes_per_s": "B/s",
    "put_p99_ms": "ms",
    "lag_messages": "1",
    "answer_ms": "ms",
    "disk_used_ratio": "ratio",
    "behind_bytes": "B",
}
_DAY_S: Final = 86_400.0
# A trend takes so many points.
_TREND_POINTS_MIN: Final = 30


class _Point(NamedTuple):
    at_ms: int
    value: float | None


class History:
    """Series by name and member."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str], deque[_Point]] = {}

    def add(self, name: str, member: str, at_ms: int, value: float | None) -> None:
        """Adds a point; beyond a thousand series new ones are left out."""
        assert name in UNITS
        points = self._series.get((name, member))
        if points is None:
            if len(self._series) >= _SERIES_MAX:
                return
            points = self._series[name, member] = deque(maxlen=_POINTS_MAX)
        points.append(_Point(at_ms, value))

    def read(self, names: frozenset[str], since_ms: int, *, members: bool) -> list[Series]:
        """Returns series from a moment on; empty names stand for all, members for theirs, too."""
        return [
            Series(
                name=name,
                member=member,
                unit=UNITS[name],
                at_ms=[point.at_ms for point in points if point.at_ms >= since_ms],
                values=[point.value for point in points if point.at_ms >= since_ms],
            )
            for (name, member), points in sorted(self._series.items())
            if (not names or name in names) and (members or not member)
        ]

    def last(self, name: str, member: str) -> float | None:
        """Returns the newest value."""
        points = self._series.get((name, member))
        return points[-1].value if points else None

    def days_to(self, name: str, member: str, limit: float) -> float | None:
        """Returns in how many days a growing figure reaches a limit, at the pace of the hour."""
        points = [
            point for point in self._series.get((name, member), ()) if point.value is not None
        ]
        if len(points) < _TREND_POINTS_MIN:
            return None
        first, last = points[0], points[-1]
        assert first.value is not None and last.value is not None
        grown, seconds = last.value - first.value, (last.at_ms - first.at_ms) / 1000
        if grown <= 0 or seconds <= 0:
            return None
        return max(limit - last.value, 0.0) / (grown / seconds) / _DAY_S
