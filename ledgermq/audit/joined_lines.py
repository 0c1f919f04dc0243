"""JoinedLines: lines that anybody may cause as often as they like; equal ones are one. Pure.

The first of its kind is told at once. What follows it within a window is counted, and told in one
line with the number when the window ends. Who draws another name for each request gets a few lines
as well; the rest of what they cause is one line, and so is the rest of all. And all of them
together have a part of the room in the files, which comes back over weeks: while it is used up,
there are sums only, one window of many minutes after the other.
So neither a flood fills the disk, nor does it push what matters out of the files that are kept.
"""

from collections.abc import Mapping
from typing import Any, Final

WINDOW_MS: Final = 10_000
# The same, of one that begins while no room is left.
FULL_WINDOW_MS: Final = 600_000
# Kinds in one window: of one source, and of all together.
KINDS_OF_SOURCE_MAX: Final = 10
KINDS_MAX: Final = 100
# Of the room in the files, at once; and how long it takes until all of that room was given anew.
_ROOM_PART: Final = 100
_ROOM_MS: Final = 30 * 86_400_000
# Stand for what is told together.
_MORE: Final = "*"


class JoinedLines:
    """Those of the present window."""

    def __init__(self, room_bytes: int, *, are_sources_few: bool = False) -> None:
        """
        Args:
            room_bytes: of all files in which the lines and others stand.
            are_sources_few: they are accounts, so that each is told of, however many lines there
                are; anybody has addresses without end.
        """
        self._are_sources_few = are_sources_few
        # Bytes that they may take yet; below zero by the last lines.
        self._left_max = self._left = room_bytes / _ROOM_PART
        self._back_a_ms = room_bytes / _ROOM_MS
        self._grown_ms = 0.0
        # By what makes them equal: the line of the first, and how many followed it.
        self._lines: dict[tuple[str, ...], tuple[dict[str, Any], int]] = {}
        self._kinds_of: dict[str, int] = {}
        self._end_ms = 0.0

    def take(
        self, source: str, kind: tuple[str, ...], line: Mapping[str, Any], now_ms: float
    ) -> list[dict[str, Any]]:
        """
        Args:
            source: who causes them: an address that is refused, an account that changes something.
            kind: what makes lines of one source equal.
            line: what there is to tell.
            now_ms: monotonic time.

        Returns:
            What is to be told now.
        """
        told = self.due(now_ms)
        has_room = self._has_room(now_ms)
        key = (source, *kind)
        is_full = len(self._lines) >= KINDS_MAX or not has_room
        if key not in self._lines and (
            is_full or self._kinds_of.get(source, 0) >= KINDS_OF_SOURCE_MAX
        ):
            key = (source, _MORE)
        if key not in self._lines and is_full and not self._are_sources_few:
            key = (_MORE,)
        if key in self._lines:
            first, count = self._lines[key]
            self._lines[key] = (first, count + 1)
            return told
        if not self._lines:
            self._end_ms = now_ms + (WINDOW_MS if has_room else FULL_WINDOW_MS)
        if len(key) == len(kind) + 1 and key[1:] == kind:
            self._lines[key] = (dict(line), 0)
            self._kinds_of[source] = self._kinds_of.get(source, 0) + 1
            return [*told, dict(line)]
        # The first of many unequal ones is counted only: its window tells of it.
        self._lines[key] = ({**line, **_joined(key, line)}, 1)
        return told

    def _has_room(self, now_ms: float) -> bool:
        back = (now_ms - self._grown_ms) * self._back_a_ms
        self._left, self._grown_ms = min(self._left_max, self._left + back), now_ms
        return self._left > 0

    def spend(self, size_bytes: int) -> None:
        """Counts what a line takes that was to be told."""
        self._left -= size_bytes

    def due(self, now_ms: float) -> list[dict[str, Any]]:
        """Returns what is to be told of a window that has ended."""
        return self.end() if self._lines and now_ms >= self._end_ms else []

    def end(self) -> list[dict[str, Any]]:
        """Returns what is still to be told; a new window begins with the next line."""
        told = [{**line, "repeated": count} for line, count in self._lines.values() if count]
        self._lines.clear()
        self._kinds_of.clear()
        return told


def _joined(key: tuple[str, ...], line: Mapping[str, Any]) -> dict[str, Any]:
    """What a line says of those that are told together."""
    of_one = {"claims", "code", "name", "object", "outcome", "before", "after"}
    of_all = {"account", "address"} if len(key) == 1 else set()
    return {**{name: _MORE for name in line if name in of_one | of_all}, "reason": "unequal ones"}
