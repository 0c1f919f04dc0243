"""LagHistory: how far each consumer group was behind in the last hour, in memory."""

from array import array
from collections.abc import Iterable
from typing import Final

from ledgermq.console.history import STEP_S
from ledgermq.console.shapes.brokers import Series

_HOUR_MS: Final = 3_600_000
_GROUPS_MAX: Final = 5_000
_UNKNOWN: Final = -1
# A little early counts: those who ask each ten seconds are not exact.
_STEP_MS: Final = int(STEP_S * 1000) - 1000


class _Points:
    """The points of one group; three numbers each."""

    __slots__ = ("ages_ms", "at_ms", "messages")

    def __init__(self) -> None:
        self.at_ms, self.messages, self.ages_ms = array("q"), array("q"), array("q")

    def add(self, at_ms: int, messages: int, age_ms: int) -> None:
        """Adds a point; of equal ones in a row the first and the last are kept."""
        columns = (self.messages, self.ages_ms)
        if len(self.at_ms) >= 2 and all(
            column[-2] == column[-1] == value
            for column, value in zip(columns, (messages, age_ms), strict=True)
        ):
            self.at_ms[-1] = at_ms
            return
        if self.at_ms and at_ms - self.at_ms[-1] < _STEP_MS:
            return
        old = next((i for i, one in enumerate(self.at_ms) if one > at_ms - _HOUR_MS), None)
        old = len(self.at_ms) if old is None else old
        for column, value in ((self.at_ms, at_ms), *zip(columns, (messages, age_ms), strict=True)):
            # One before the hour tells how it began.
            del column[: max(old - 1, 0)]
            column.append(value)


class LagHistory:
    """Messages and time that groups were behind, by group."""

    def __init__(self) -> None:
        self._groups: dict[str, _Points] = {}

    def add(self, group: str, at_ms: int, messages: int, age_ms: int | None) -> None:
        """Adds a point, unless the last one is younger than a step; beyond 5,000 groups new ones
        are left out.
        """
        points = self._groups.get(group)
        if points is None:
            if len(self._groups) >= _GROUPS_MAX:
                return
            points = self._groups[group] = _Points()
        # Who is not behind is behind by no time.
        age = _UNKNOWN if age_ms is None else age_ms
        points.add(at_ms, messages, age if messages else 0)

    def keep(self, groups: Iterable[str]) -> None:
        """Forgets all groups but these."""
        for gone in self._groups.keys() - set(groups):
            del self._groups[gone]

    def read(self, group: str, since_ms: int) -> list[Series]:
        """Returns the series of a group from a moment on; none of a group that was not seen."""
        points = self._groups.get(group)
        if points is None:
            return []
        moments = points.at_ms
        begin = next((i for i, one in enumerate(moments) if one >= since_ms), len(moments))
        # The point before says how it began.
        begin = max(begin - 1, 0)
        times = [max(one, since_ms) for one in moments[begin:]]
        return [
            Series(
                name=name,
                member="",
                unit=unit,
                at_ms=times,
                values=[None if one == _UNKNOWN else float(one) for one in column[begin:]],
            )
            for name, unit, column in (
                ("lag_messages", "1", points.messages),
                ("lag_ms", "ms", points.ages_ms),
            )
        ]
