"""Names in order, for tables that are walked piece by piece while they change. Pure."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator


class OrderedNames:
    """Distinct names in the order of their code points; a change moves those behind it."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = sorted(names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def add(self, name: str) -> None:
        """Takes a name that is not among them."""
        insort(self._names, name)

    def remove(self, name: str) -> None:
        """Drops a name that is among them."""
        del self._names[bisect_left(self._names, name)]

    def between(self, after: str, upto: str | None) -> list[str]:
        """Returns the names behind `after`, up to `upto` and with it; None: to the end."""
        end = len(self._names) if upto is None else bisect_right(self._names, upto)
        return self._names[bisect_right(self._names, after) : end]

    def behind(self, after: str) -> Iterator[str]:
        """Yields the names behind `after`; they must not change meanwhile."""
        for position in range(bisect_right(self._names, after), len(self._names)):
            yield self._names[position]
