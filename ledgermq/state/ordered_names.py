"""Names in order, for tables that are walked piece by piece while they change. Pure."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final

# Of one run. One list of a million names would be moved by each change: half a millisecond.
_RUN_MAX: Final = 1024


class OrderedNames:
    """Distinct names in the order of their code points, in runs; a change moves those of one run.

    Invariant: no run is empty, and `_lasts` has the last name of each.
    """

    __slots__ = ("_lasts", "_runs")

    def __init__(self, names: Iterable[str] = ()) -> None:
        ordered, size = sorted(names), _RUN_MAX // 2
        self._runs = [ordered[first : first + size] for first in range(0, len(ordered), size)]
        # Of each run the last name.
        self._lasts = [run[-1] for run in self._runs]

    def __bool__(self) -> bool:
        return bool(self._runs)

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._runs)

    def add(self, name: str) -> None:
        """Takes a name that is not among them."""
        if not self._runs:
            self._runs, self._lasts = [[name]], [name]
            return
        # Behind all others it belongs to the last run.
        number = min(bisect_left(self._lasts, name), len(self._runs) - 1)
        run = self._runs[number]
        insort(run, name)
        self._lasts[number] = run[-1]
        if len(run) > _RUN_MAX:
            half = len(run) // 2
            self._runs[number : number + 1] = [run[:half], run[half:]]
            self._lasts.insert(number, run[half - 1])

    def remove(self, name: str) -> None:
        """Drops a name that is among them."""
        number = bisect_left(self._lasts, name)
        run = self._runs[number]
        del run[bisect_left(run, name)]
        if run:
            self._lasts[number] = run[-1]
        else:
            del self._runs[number], self._lasts[number]

    def discard(self, name: str) -> None:
        """Drops a name, where it is among them."""
        number = bisect_left(self._lasts, name)
        if number < len(self._runs):
            run = self._runs[number]
            if run[bisect_left(run, name)] == name:
                self.remove(name)

    def cut(self, begin: str, end: str) -> list[list[str]]:
        """Takes out the names from `begin` on that are less than `end`, and returns them in runs.

        It costs what the runs cost, not what the names do.
        """
        first, last = bisect_left(self._lasts, begin), bisect_left(self._lasts, end)
        taken = self._runs[first : last + 1]
        kept: list[list[str]] = []
        if taken:
            start, stop = bisect_left(taken[0], begin), bisect_left(taken[-1], end)
            kept = [run for run in (taken[0][:start], taken[-1][stop:]) if run]
            del taken[-1][stop:]
            del taken[0][:start]
        self._runs[first : last + 1] = kept
        self._lasts[first : last + 1] = [run[-1] for run in kept]
        return [run for run in taken if run]

    def between(self, after: str, upto: str | None) -> list[str]:
        """Returns the names behind `after`, up to `upto` and with it; None: to the end."""
        names: list[str] = []
        for run in self._runs_behind(after):
            names += run
            if upto is not None and names[-1] >= upto:
                del names[bisect_right(names, upto) :]
                break
        return names

    def behind(self, after: str) -> Iterator[str]:
        """Yields the names behind `after`; they must not change meanwhile."""
        return chain.from_iterable(self._runs_behind(after))

    def _runs_behind(self, after: str) -> Iterator[list[str]]:
        """Yields the runs, of the first one that part which is behind `after`."""
        first = bisect_right(self._lasts, after)
        for run in islice(self._runs, first, first + 1):
            yield run[bisect_right(run, after) :]
        yield from islice(self._runs, first + 1, None)
