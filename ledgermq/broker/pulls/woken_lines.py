"""WokenLines: pulls that were woken stand in the line of whoever they are for, until they are run.

One message may wake a hundred thousand pulls, and a condition may take two milliseconds for each of
them: minutes, at the part of a turn that there is for all. So that nobody else's pulls wait for all
of that, each account has a line of its own, or each address where there are no accounts. It is
the turn of the line that has used the least time so far; one that begins counts as having used what
the others have.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from heapq import heappop, heappush
from itertools import chain, count
from typing import Final

from ledgermq.broker.pulls.long_polling import WokenPulls
from ledgermq.broker.pulls.parked_rows import ParkedPull, ParkedRows
from ledgermq.protocol.transport import payer_of

# What one line uses before another one's time is compared again, in milliseconds.
_SLICE_MS: Final = 0.25
# Pulls of one block that are for more than so many share a line.
_PAYERS_MAX: Final = 8


class _Line:
    """The pulls of one payer, first come first served."""

    __slots__ = ("_pieces", "payer")

    def __init__(self, payer: str) -> None:
        self.payer = payer
        self._pieces: deque[Iterator[ParkedPull]] = deque()

    def add(self, pulls: Collection[ParkedPull]) -> None:
        self._pieces.append(iter(pulls))

    def take(self) -> ParkedPull | None:
        """Returns the next pull, None when that was the last."""
        while self._pieces:
            pull = next(self._pieces[0], None)
            if pull is not None:
                return pull
            self._pieces.popleft()
        return None

    def take_all(self) -> Iterator[ParkedPull]:
        return chain.from_iterable(self._pieces)


class WokenLines:
    """The lines of one broker.

    Invariant: each line that is there stands in the heap once, but the one that is being run.
    """

    def __init__(self, clock_ms: Callable[[], float]) -> None:
        """Begins empty; `clock_ms` is monotonic."""
        self._clock_ms = clock_ms
        self._lines: dict[str, _Line] = {}
        # Time that each has used, and a number that decides among equals.
        self._heap: list[tuple[float, int, _Line]] = []
        self._numbers = count()
        # What the line had used that was run last.
        self._used_ms = 0.0

    def __bool__(self) -> bool:
        return bool(self._lines)

    def add(self, pulls: WokenPulls) -> None:
        """Puts pulls into their lines."""
        for piece in pulls.pieces:
            for payer, part in _parts_of(piece):
                line = self._lines.get(payer)
                if line is None:
                    line = self._lines[payer] = _Line(payer)
                    self._push(self._used_ms, line)
                line.add(part)

    def take_all(self) -> Iterator[ParkedPull]:
        """Returns all of them and leaves none."""
        lines = list(self._lines.values())
        self._lines.clear()
        self._heap.clear()
        return chain.from_iterable(line.take_all() for line in lines)

    def run(self, run_one: Callable[[ParkedPull], None], end_ms: float) -> None:
        """Has pulls run until a time on the clock, or until there are none; one at least."""
        clock_ms = self._clock_ms
        now_ms = clock_ms()
        while self._heap:
            self._used_ms, _, line = heappop(self._heap)
            begun_ms = now_ms
            try:
                while (pull := line.take()) is not None:
                    run_one(pull)
                    now_ms = clock_ms()
                    if now_ms - begun_ms >= _SLICE_MS or now_ms >= end_ms:
                        break
            finally:
                if pull is None:
                    del self._lines[line.payer]
                else:
                    self._push(self._used_ms + now_ms - begun_ms, line)
            if pull is not None and now_ms >= end_ms:
                return

    def _push(self, used_ms: float, line: _Line) -> None:
        heappush(self._heap, (used_ms, next(self._numbers), line))


def _parts_of(piece: Collection[ParkedPull]) -> list[tuple[str, Collection[ParkedPull]]]:
    """Returns pulls of one queue by payer."""
    if isinstance(piece, ParkedRows):
        payers = {asked: payer_of(asked.connection) for asked in set(piece.asked)}
        names = set(payers.values())
        if len(names) == 1:
            return [(names.pop(), piece)]
        if len(names) > _PAYERS_MAX:
            return [("", piece)]
        return [
            (name, piece.some([payers[asked] == name for asked in piece.asked])) for name in names
        ]
    parts: dict[str, list[ParkedPull]] = {}
    for pull in piece:
        parts.setdefault(payer_of(pull.connection), []).append(pull)
    return list(parts.items())
