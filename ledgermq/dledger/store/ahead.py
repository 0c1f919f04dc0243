"""Ahead: the file behind the last one of a run, made before it is needed.

An append that lacks a file waits for the disk, and so does whoever sends meanwhile. All in the
reactor's thread, but the making.
"""

from typing import Final

from ledgermq.dledger.disk_job import DiskJob
from ledgermq.dledger.store.segments import Segments

# So much of a file is written when the next one is asked for.
_RATIO: Final = 0.75


class Ahead:
    """Asks once behind each file of a run."""

    __slots__ = ("_asked_behind", "_bytes", "_segments", "is_wanted")

    def __init__(self, segments: Segments) -> None:
        """Binds it to a run of files."""
        self._segments = segments
        self._bytes = _RATIO * segments.segment_bytes
        # Start of the file behind which the next one was last asked for.
        self._asked_behind = -1
        # The file behind the last one is wanted: `begin` makes it.
        self.is_wanted = False

    def written(self, start: int, size_bytes: int) -> None:
        """Notes that so many bytes of the file that starts there are written."""
        if size_bytes > self._bytes and self._asked_behind != start:
            self._asked_behind = start
            self.is_wanted = True

    def begin(self) -> DiskJob | None:
        """Begins to make the file; None when it is there or not wanted."""
        if not self.is_wanted:
            return None
        self.is_wanted = False
        start = self._segments.next_start()
        return None if start is None else self._segments.begin_create([start])

    def forget(self) -> None:
        """Notes that the files are no more what they were."""
        self._asked_behind = -1
        self.is_wanted = False
