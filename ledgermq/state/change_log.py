"""ChangeLog: which names of a table changed since when, for whoever tells others of it. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

# Entries that may be out of date before they are counted.
_SLACK = 64


class ChangeLog:
    """The names of a table in the order of their last changes.

    Each change has a number of its own, and numbers grow. A name stands here once, with its last
    change; one that is gone does not stand here. So the log is never longer than twice the table.
    """

    def __init__(self) -> None:
        # Of all changes, those that were followed by another one of the same name among them.
        self._numbers: list[int] = []
        self._names: list[str] = []
        # Number of the last change of each name.
        self._last: dict[str, int] = {}
        # Of the last change of all, 0 before the first one.
        self.last_number = 0

    def note(self, name: str) -> None:
        """A name was added or changed."""
        self.last_number += 1
        self._last[name] = self.last_number
        self._numbers.append(self.last_number)
        self._names.append(name)
        if len(self._names) > 2 * len(self._last) + _SLACK:
            self._tidy()

    def forget(self, name: str) -> None:
        """A name is gone."""
        self._last.pop(name, None)

    def replace_all(self, names: Iterable[str]) -> None:
        """All may have changed, and there are only these."""
        self._last.clear()
        for name in names:
            self.note(name)

    def behind(self, number: int) -> Iterator[tuple[int, str]]:
        """Yields number and name of the changes behind one, oldest first; nothing may change
        meanwhile.
        """
        for at in range(bisect_right(self._numbers, number), len(self._numbers)):
            if self._last.get(self._names[at]) == self._numbers[at]:
                yield self._numbers[at], self._names[at]

    def _tidy(self) -> None:
        kept = list(self.behind(0))
        self._numbers = [number for number, _ in kept]
        self._names = [name for _, name in kept]
