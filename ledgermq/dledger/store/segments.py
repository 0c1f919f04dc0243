"""Segments: a log of bytes in a contiguous run of files of equal size.

    directory/00000000000000000000   bytes [0, n)
    directory/00000000000000000n     bytes [n, 2n)     ...

The directory holds nothing else. The run may begin at any multiple of the size (retention removes
from the front) and it is empty until the first byte is written. `end_position` is the end of what
is valid; bytes after it are zero. The owner sets it after its recovery and its writes, and decides
what bytes mean; gaps at the end of a segment (blanks) are its own affair too.

Files are mapped when they are first touched. `sync` may run in another thread while this one
writes, rolls, truncates or drops.
"""

import os
from collections.abc import Callable

from ledgermq.dledger.store.errors import StoreFormatError
from ledgermq.dledger.store.filesystem import FileSystem
from ledgermq.dledger.store.segment import NAME_DIGITS, Segment, segment_name


class Segments:
    """The files of one directory. Positions are absolute byte offsets."""

    def __init__(self, file_system: FileSystem, directory: str, segment_bytes: int) -> None:
        assert segment_bytes > 0
        self._file_system = file_system
        self.directory = directory
        self.segment_bytes = segment_bytes
        # Start offsets of the files there are, ascending, without a gap.
        self._starts: list[int] = []
        # Those of them that are mapped, by start offset.
        self._open: dict[int, Segment] = {}
        # A file made ahead, whose start follows the last of `_starts`; not yet part of the log.
        self._ahead: Segment | None = None
        # First byte that is kept, and the end of the valid bytes.
        self.first_position = 0
        self.end_position = 0

    def open(self, on_gap: Callable[[StoreFormatError], None] | None = None) -> None:
        """Finds the files, checks them, and takes their full extent as valid.

        Args:
            on_gap: told of a file that is missing in the run, or cut short among good ones, before
                it and all behind it are removed. None: that is an error.

        Raises:
            StoreFormatError: a name is not 20 digits or no multiple of the size, a file has another
                size, or a file is missing in the run. A last file that is short and holds only
                zeros was being made when the machine stopped; it is removed.
        """
        names = self._file_system.names(self.directory)
        starts = [self._start_of(name) for name in names]
        for before, start in zip(starts, starts[1:], strict=False):
            if start != before + self.segment_bytes:
                expected = segment_name(before + self.segment_bytes)
                gap = StoreFormatError(self._path(start), "start", expected, segment_name(start))
                starts = self._without_end(starts, start, gap, on_gap)
                break
        for start in starts:
            path = self._path(start)
            found = self._file_system.size_bytes(path)
            if found == self.segment_bytes:
                continue
            if start != starts[-1] or found > self.segment_bytes or not self._is_zeros(path):
                gap = StoreFormatError(path, "size", self.segment_bytes, found)
                # Where all files have another size, the configuration is to blame, not the disk.
                is_damage = found < self.segment_bytes and self._has_full_file(starts)
                starts = self._without_end(starts, start, gap, on_gap if is_damage else None)
                break
            self._file_system.remove(path)
            starts = starts[:-1]
        if starts:
            # A name that was made just before a kill may not be on disk yet.
            self._file_system.sync_directory(self.directory)
        self._starts = starts
        self.first_position = starts[0] if starts else 0
        self.end_position = starts[-1] + self.segment_bytes if starts else 0

    def _has_full_file(self, starts: list[int]) -> bool:
        size_bytes = self._file_system.size_bytes
        return any(size_bytes(self._path(start)) == self.segment_bytes for start in starts)

    def _without_end(
        self,
        starts: list[int],
        end: int,
        gap: StoreFormatError,
        on_gap: Callable[[StoreFormatError], None] | None,
    ) -> list[int]:
        """Removes the files from `end` on, the last one first; returns the others."""
        if on_gap is None:
            raise gap
        on_gap(gap)
        for start in reversed(starts):
            if start >= end:
                self._file_system.remove(self._path(start))
                self._file_system.sync_directory(self.directory)
        return [start for start in starts if start < end]

    @property
    def starts(self) -> tuple[int, ...]:
        """Start offsets of the files, ascending."""
        return tuple(self._starts)

    def holds(self, position: int) -> bool:
        """Tells whether a file holds the byte at `position`, written or not."""
        starts = self._starts
        return bool(starts) and starts[0] <= position < starts[-1] + self.segment_bytes

    def segment_at(self, position: int) -> Segment:
        """Returns the segment that holds the byte at `position`.

        Raises:
            IndexError: no file holds it.
        """
        start = position - position % self.segment_bytes
        segment = self._open.get(start)
        if segment is not None:
            return segment
        if not self.holds(position):
            raise IndexError(f"{self.directory}: no segment holds position {position}")
        segment = Segment(self._file_system, self._path(start), self.segment_bytes)
        self._open[start] = segment
        return segment

    def modified_ms(self, start: int) -> int:
        """Returns when the segment that starts there was last written, on the wall clock."""
        return self._file_system.modified_ms(self._path(start))

    def read(self, position: int, size_bytes: int) -> bytes:
        """Returns a copy of so many bytes of one segment, fewer at its end."""
        # In one piece: this is done for every message that is pulled.
        offset = position % self.segment_bytes
        segment = self._open.get(position - offset) or self.segment_at(position)
        return bytes(segment.buffer[offset : offset + size_bytes])

    def prepare_next(self) -> None:
        """Makes the segment after the last one ahead of its use, unless that was done.

        Raises:
            DiskFullError: the log is as before.
        """
        if self._ahead is None and self._starts:
            start = self._starts[-1] + self.segment_bytes
            self._ahead = self._create(start)

    def roll(self) -> Segment:
        """Adds the segment after the last one, or the one that holds `end_position` to an empty
        log.

        Raises:
            DiskFullError: the log is as before.
        """
        if self._starts:
            self.prepare_next()
            segment, self._ahead = self._ahead, None
            assert segment is not None
        else:
            start = self.end_position - self.end_position % self.segment_bytes
            segment = self._create(start)
        self._open[segment.start_offset] = segment
        self._starts.append(segment.start_offset)
        return segment

    def reserve(self, size_bytes: int) -> None:
        """Makes the segments that so many bytes at `end_position` need.

        Raises:
            DiskFullError: nothing was written; files made before stay for the next attempt.
        """
        while not self._starts or (
            self._starts[-1] + self.segment_bytes < self.end_position + size_bytes
        ):
            self.roll()

    def append(self, data: bytes | memoryview) -> None:
        """Writes `data` at `end_position`, over the end of a segment where it must.

        Raises:
            DiskFullError: nothing was written.
        """
        self.reserve(len(data))
        position, done = self.end_position, 0
        while done < len(data):
            offset = position % self.segment_bytes
            part = data[done : done + self.segment_bytes - offset]
            self.segment_at(position).write(offset, part)
            position += len(part)
            done += len(part)
        self.end_position = position

    def truncate(self, position: int, end: int | None = None) -> None:
        """Cuts the log at `position`: bytes after it are zero or gone, durably, on return.

        Args:
            position: the new end, not below `first_position`.
            end: position up to which bytes may be other than zero; None when that is not known:
                then the written part of the file is looked through.

        Raises:
            OSError, DiskFullError: what is cut may be back after a crash.
        """
        self._remove_ahead()
        while len(self._starts) > 1 and self._starts[-1] >= position:
            self._remove(self._starts[-1])
        self.end_position = position
        if self._starts and position < self._starts[-1] + self.segment_bytes:
            self._zero(self.segment_at(position), position, end)

    def reset(self, position: int) -> None:
        """Removes all files; the log is empty and begins at `position`. Durable on return."""
        self._remove_ahead()
        while self._starts:
            self._remove(self._starts[-1])
        self._file_system.make_directory(self.directory)
        self.first_position = self.end_position = position

    def remove_all(self) -> None:
        """Removes every file in the directory, also those that `open` refused; the log is empty."""
        self._starts = []
        self.first_position = self.end_position = 0
        for name in self._file_system.names(self.directory):
            self._file_system.remove(os.path.join(self.directory, name))
        self._file_system.sync_directory(self.directory)

    def drop_before(self, position: int) -> int:
        """Removes the files wholly below `position`, but never the last one.

        Returns the new `first_position`; durable on return.
        """
        while len(self._starts) > 1 and self._starts[0] + self.segment_bytes <= position:
            self._remove(self._starts[0])
            self.first_position = self._starts[0]
        return self.first_position

    def sync(self) -> None:
        """Returns when all bytes written before the call are on disk; may run in another thread.

        Raises:
            OSError: final; the bytes must be taken as lost.
        """
        for segment in tuple(self._open.values()):
            # One that another thread is syncing is dirty until that sync has ended.
            if segment.is_dirty:
                segment.sync()

    def distrust(self, position: int) -> None:
        """Lets the next sync cover all that is mapped now, and rewrite what is behind `position`.

        A process that was killed leaves bytes in the page cache that nobody has synced. After a
        sync that failed, some of them count as written although they are not.
        """
        for start, segment in self._open.items():
            segment.note_write()
            end = min(self.end_position, start + self.segment_bytes)
            if position < end:
                segment.rewrite(max(position - start, 0), end - start)

    def close(self) -> None:
        """Closes the mappings without a sync, and removes a file made ahead and not used."""
        self._remove_ahead()
        for segment in self._open.values():
            segment.close()
        self._open.clear()

    def _zero(self, segment: Segment, position: int, end: int | None) -> None:
        start = segment.start_offset
        if end is None:
            for offset, stop in list(segment.written_ranges(position - start)):
                segment.zero(offset, stop)
        else:
            segment.zero(position - start, min(end - start, self.segment_bytes))
        segment.sync()

    def _create(self, start: int) -> Segment:
        # At once, while there are no bytes to write: were two new files to wait for their sync, a
        # power cut could keep the second one, and of the first not its name, or not its length.
        segment = Segment(self._file_system, self._path(start), self.segment_bytes)
        segment.sync()
        return segment

    def _remove(self, start: int) -> None:
        segment = self._open.pop(start, None)
        if segment is not None:
            segment.close()
        self._starts.remove(start)
        self._file_system.remove(self._path(start))
        # One by one: a power cut must not bring back a file without its neighbor.
        self._file_system.sync_directory(self.directory)

    def _remove_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()
            self._file_system.remove(ahead.path)
            self._file_system.sync_directory(self.directory)

    def _start_of(self, name: str) -> int:
        # isdigit alone would take digits of other scripts.
        if len(name) != NAME_DIGITS or not (name.isascii() and name.isdigit()):
            raise StoreFormatError(os.path.join(self.directory, name), "name", "20 digits", name)
        start = int(name)
        if start % self.segment_bytes:
            raise StoreFormatError(
                self._path(start), "start", f"a multiple of {self.segment_bytes}", start
            )
        return start

    def _is_zeros(self, path: str) -> bool:
        content = self._file_system.read(path) or b""
        return content.count(0) == len(content)

    def _path(self, start: int) -> str:
        return os.path.join(self.directory, segment_name(start))
