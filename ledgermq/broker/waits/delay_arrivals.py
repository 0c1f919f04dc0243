"""Arrivals: since when messages wait at least, by a clock that nobody sets.

A delayed message is due so long after its store time, by the wall clock of whoever stored it. Where
that was ahead of this member's clock, by a second or by years, it seems to be due later than
possible. Then it counts from when it was first known to be there: of each queue it is noted now and
then where it ends, and when that was. A note too few makes a message wait longer, never shorter.
"""

from bisect import bisect_right
from typing import Final

# Time between two notes of a queue, and the most notes of one that are kept.
NOTES_APART_MS: Final = 1000.0
_NOTES_MAX: Final = 256


class Arrivals:
    """Of some queues, by number: their ends over time."""

    def __init__(self) -> None:
        # Ends, rising, and the time of each.
        self._notes: dict[int, tuple[list[int], list[float]]] = {}

    def note(self, queue: int, end_offset: int, clock_ms: float) -> None:
        """Notes that a queue ends there now.

        Args:
            queue: its number.
            end_offset: behind its last message.
            clock_ms: monotonic time.
        """
        ends, times = self._notes.setdefault(queue, ([], []))
        if ends and end_offset <= ends[-1]:
            return
        ends.append(end_offset)
        times.append(clock_ms)
        if len(ends) > _NOTES_MAX:
            # Every other one, and never the last.
            del ends[-2::-2], times[-2::-2]

    def forget_before(self, queue: int, offset: int) -> None:
        """Forgets notes about messages below an offset only: they were delivered."""
        ends, times = self._notes.get(queue, ([], []))
        count = bisect_right(ends, offset)
        del ends[:count], times[:count]

    def find_time(self, queue: int, offset: int) -> float | None:
        """Returns when a message was first known to be there; None before it was noted."""
        ends, times = self._notes.get(queue, ([], []))
        at = bisect_right(ends, offset)
        return times[at] if at < len(ends) else None

    def clear(self) -> None:
        """Forgets all."""
        self._notes.clear()
