"""Segment: one mapped file of fixed size; it owns its mapping.

A segment of a log is named by the absolute offset of its first byte, in 20 digits. It has its full
size from creation, all zeros, its blocks reserved, so that a write hardly fails for lack of room.
Where a disk writes each block to a new place it may: then `write` raises, where a store into the
mapping would end the process, so the mapping is for reading only. Writes are visible at once to
every reader of the file and survive a kill of the process; `sync` makes them survive a power cut.
The owner of the bytes knows how far they are valid; a segment does not.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ledgermq.dledger.store.errors import StoreFormatError
from ledgermq.dledger.store.filesystem import FileSystem
from ledgermq.measures.histogram import Histogram

NAME_DIGITS: Final = 20
# Zeroing and comparing go in blocks of this size: small enough for the processor's cache.
_BLOCK_BYTES: Final = 1 << 18
_ZEROS: Final = bytes(_BLOCK_BYTES)
# After so many zeros the rest of a file counts as never written. What a power cut keeps of writes
# that were not synced lies closer together; and were an old entry behind it to be reached one day,
# its term and its chain checksum would not continue the log.
_UNUSED_BYTES: Final = 16 << 20


def segment_name(start_offset: int) -> str:
    """Returns the name of the segment that begins at this offset."""
    return f"{start_offset:0{NAME_DIGITS}d}"


class Segment:
    """One mapped file. All offsets here are inside the file."""

    __slots__ = (
        "_created",
        "_file",
        "_file_system",
        "_write_seconds",
        "buffer",
        "covered",
        "covered_bytes",
        "path",
        "start_offset",
        "written",
        "written_bytes",
    )

    def __init__(
        self,
        file_system: FileSystem,
        path: str,
        segment_bytes: int,
        write_seconds: Histogram | None = None,
    ) -> None:
        """Maps the file, which is made when it is not there.

        Args:
            file_system: the disk.
            path: its last part is the start offset in decimal digits.
            segment_bytes: the size it has or gets.
            write_seconds: gets the time of each write; None: nobody asks.

        Raises:
            StoreFormatError: the file has another size.
            DiskFullError: there is no room to make it; nothing is left behind.
        """
        directory, name = os.path.split(path)
        self.path = path
        self.start_offset = int(name)
        self._file_system = file_system
        found = self._find_size()
        # True until the file's name is known to be on disk.
        self._created = found is None
        if found is None:
            file_system.make_directory(directory)
            self._file = file_system.create(path, segment_bytes)
        elif found == segment_bytes:
            self._file = file_system.map(path)
        else:
            raise StoreFormatError(path, "size", segment_bytes, found)
        # The whole file, to be read.
        self.buffer = self._file.buffer
        # How many writes have ended. The reactor writes, and raises it when the bytes are there: a
        # write lets go of the interpreter, so that a sync may run in the midst of it.
        self.written = int(self._created)
        # What `written` was when the latest completed sync was begun; the reactor sets it when
        # that sync has ended. The keeper's thread knows neither of the two.
        self.covered = 0
        # The same of the bytes that were written.
        self.written_bytes = self.covered_bytes = 0
        self._write_seconds = Histogram() if write_seconds is None else write_seconds

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Copies `data` to `offset`; it must fit.

        Raises:
            OSError: some of it may be there.
        """
        begun_s = time.perf_counter()
        try:
            self._file.write(offset, data)
        finally:
            self.written += 1
            self.written_bytes += len(data)
            self._write_seconds.observe(time.perf_counter() - begun_s)

    def note_write(self) -> None:
        """Takes the news that an earlier process may have written: the next sync covers it."""
        self.written += 1

    @property
    def is_dirty(self) -> bool:
        """Whether a write has ended that no completed sync covers."""
        return self.covered != self.written

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Returns a copy of so many bytes, fewer at the end of the file."""
        return bytes(self.buffer[offset : offset + size_bytes])

    @contextmanager
    def view(self, offset: int, size_bytes: int) -> Iterator[memoryview]:
        """Lends a view of so many bytes for the length of a `with` block."""
        with self.buffer[offset : offset + size_bytes] as lent:
            yield lent

    def written_ranges(self, offset: int) -> Iterator[tuple[int, int]]:
        """Yields the ranges from `offset` on that hold bytes other than zero, roughly cut.

        Ends after a long run of zeros: a file is written from front to back, and reading all of an
        unused gigabyte would take seconds.
        """
        buffer, end = self.buffer, len(self.buffer)
        last = offset
        for at in range(offset, end, _BLOCK_BYTES):
            if at - last > _UNUSED_BYTES:
                return
            stop = min(at + _BLOCK_BYTES, end)
            if buffer[at:stop] != _ZEROS[: stop - at]:
                last = stop
                yield at, stop

    def zero(self, offset: int, end: int) -> None:
        """Writes zeros from `offset` up to `end`; a sync must follow in the same thread."""
        for at in range(offset, end, _BLOCK_BYTES):
            self._file.write(at, _ZEROS[: min(_BLOCK_BYTES, end - at)])

    def rewrite(self, offset: int, end: int) -> None:
        """Has the next sync write these bytes, whether they count as written or not."""
        self._file.rewrite(offset, end)
        self.written += 1

    def sync(self) -> None:
        """Returns when everything written before the call is on disk, the file's name too.

        Runs in the keeper's thread; the segment counts as dirty until its owner says `covered`.

        Raises:
            OSError: what is on disk is unknown.
        """
        self._file.sync()
        self._sync_name()

    def _sync_name(self) -> None:
        if self._created:
            self._file_system.sync_directory(os.path.dirname(self.path))
            self._created = False

    def close(self) -> None:
        """Gives the mapping back without a sync."""
        self._file.close()

    def _find_size(self) -> int | None:
        try:
            return self._file_system.size_bytes(self.path)
        except FileNotFoundError:
            return None
