"""What a client program notes, as another process reads it while the program goes on."""

from __future__ import annotations

import bisect
import struct
from pathlib import Path
from typing import NamedTuple

# Number, queue, queue offset, and when, in seconds of the monotonic clock.
NOTE = struct.Struct("=QIQd")


class Note(NamedTuple):
    """One message that was acknowledged, or delivered."""

    number: int
    queue: int
    offset: int
    at_s: float


class Notes:
    """The notes in one file, in the order in which they were made."""

    def __init__(self, path: Path) -> None:
        """Takes a file that somebody adds to."""
        self.path = path
        path.touch()
        self._taken_bytes = 0
        self.all: list[Note] = []
        self._times: list[float] = []

    def look(self) -> None:
        """Takes what came since the last look; the last note may be written in part."""
        with open(self.path, "rb") as file:
            file.seek(self._taken_bytes)
            data = file.read()
        data = data[: len(data) // NOTE.size * NOTE.size]
        self._taken_bytes += len(data)
        fresh = [Note(*fields) for fields in NOTE.iter_unpack(data)]
        self.all += fresh
        self._times += [note.at_s for note in fresh]

    def first_after(self, moment_s: float) -> float | None:
        """When the first one after a moment came."""
        self.look()
        place = bisect.bisect_right(self._times, moment_s)
        return self._times[place] if place < len(self._times) else None

    def longest_gap(self, start_s: float, end_s: float) -> float:
        """The longest time of a span in which none came, in seconds."""
        self.look()
        first, last = self._places(start_s, end_s)
        moments = [start_s, *self._times[first:last], end_s]
        return max(after - before for before, after in zip(moments, moments[1:], strict=False))

    def count(self, start_s: float, end_s: float) -> int:
        """How many came in a span."""
        first, last = self._places(start_s, end_s)
        return last - first

    def ends(self) -> dict[int, int]:
        """By queue, the offset behind the last one."""
        self.look()
        found: dict[int, int] = {}
        for note in self.all:
            found[note.queue] = max(found.get(note.queue, 0), note.offset + 1)
        return found

    def _places(self, start_s: float, end_s: float) -> tuple[int, int]:
        return bisect.bisect_left(self._times, start_s), bisect.bisect_right(self._times, end_s)
