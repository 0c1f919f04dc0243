"""Segments: a log of bytes in a contiguous run of files of equal size.

    directory/00000000000000000000   bytes [0, n)
    directory/00000000000000000n     bytes [n, 2n)     ...

The directory holds nothing else. The run may begin at any multiple of the size (retention removes
from the front) and it is empty until the first byte is written. `end_position` is the end of what
is valid; bytes after it are zero. The owner sets it after its recovery and its writes, and decides
what bytes mean; gaps at the end of a segment (blanks) are its own affair too.

Files are opened when they are first touched. The reactor writes bytes and changes the tables here;
what waits for the disk is made a job (`begin_...`) for the keeper's thread, which gets file objects
and paths and knows nothing of the tables. Each `begin_...` has a twin that does the job at once,
for openings, tools and tests.
"""

import os
from collections.abc import Callable, Sequence

from ledgermq.dledger.disk_job import DiskJob, do_now
from ledgermq.dledger.store.errors import StoreFormatError
from ledgermq.dledger.store.filesystem import FileSystem
from ledgermq.dledger.store.segment import NAME_DIGITS, ReadMode, Segment, segment_name
from ledgermq.measures.histogram import Histogram


class Segments:
    """The files of one directory. Positions are absolute byte offsets."""

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        segment_bytes: int,
        mode: ReadMode | None = None,
    ) -> None:
        assert segment_bytes > 0
        self._file_system = file_system
        self.directory = directory
        self.segment_bytes = segment_bytes
        # Start offsets of the files there are, ascending, without a gap.
        self._starts: list[int] = []
        # Those of them that are open, by start offset.
        self._open: dict[int, Segment] = {}
        # Files made ahead of their use, by start; not yet part of the log.
        self._ahead: dict[int, Segment] = {}
        # First byte that is kept, and the end of the valid bytes.
        self.first_position = 0
        self.end_position = 0
        # Of each write: the page cache may make a writer wait for the disk, too.
        self.write_seconds = Histogram()
        # Whether reads may wait, and what learns of those that fail.
        self.mode = ReadMode() if mode is None else mode

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
            if start != starts[-1] or found > self.segment_bytes or not self._is_zeros(path, found):
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
        segment = self._open_segment(start)
        self._open[start] = segment
        return segment

    def modified_ms(self, start: int) -> int:
        """Returns when the segment that starts there was last written, on the wall clock."""
        return self._file_system.modified_ms(self._path(start))

    def read(self, position: int, size_bytes: int) -> bytes:
        """Returns a copy of so many bytes of one segment, fewer at its end.

        Raises:
            IndexError: no file holds the position.
            UnreadableError: the disk does not give them.
            ColdDataError: the disk would have to be waited for, and must not.
        """
        offset = position % self.segment_bytes
        segment = self._open.get(position - offset) or self.segment_at(position)
        return segment.read(offset, size_bytes)

    def has_room_at(self, position: int) -> bool:
        """Tells whether a file holds the byte at `position`, or one made ahead does."""
        return self.holds(position) or position - position % self.segment_bytes in self._ahead

    def starts_lacking(self, position: int, end: int) -> list[int]:
        """Returns the starts of the files that bytes from `position` up to `end` need and lack."""
        first = position - position % self.segment_bytes
        starts = range(first, end, self.segment_bytes)
        return [start for start in starts if not self.has_room_at(start)]

    def next_start(self) -> int | None:
        """Returns the start of the file behind the last one; None when it is made, or none is."""
        start = self._starts[-1] + self.segment_bytes if self._starts else None
        return None if start is None or start in self._ahead else start

    def begin_create(self, starts: Sequence[int]) -> DiskJob | None:
        """Begins to make files ahead of their use.

        The run raises DiskFullError when there is no room; what was made before stays for the next
        attempt.
        """
        made: list[Segment] = []

        def run() -> None:
            made.extend(self._create(start) for start in starts)

        def end() -> None:
            self._ahead.update((segment.start_offset, segment) for segment in made)

        return DiskJob(run, end) if starts else None

    def roll(self) -> Segment:
        """Adds the segment after the last one, or the one that holds `end_position` to an empty
        log: one made ahead where there is one.

        Raises:
            DiskFullError: the log is as before.
        """
        if self._starts:
            start = self._starts[-1] + self.segment_bytes
            last = self._open.get(self._starts[-1])
            if last is not None:
                last.end_views()
        else:
            start = self.end_position - self.end_position % self.segment_bytes
        segment = self._ahead.pop(start, None) or self._create(start)
        self._open[segment.start_offset] = segment
        self._starts.append(segment.start_offset)
        return segment

    def reserve(self, size_bytes: int) -> None:
        """Adds the segments that so many bytes at `end_position` need.

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

    def begin_truncate(self, position: int, end: int | None = None) -> DiskJob:
        """Cuts the log at `position`: bytes after it are zero or gone, durably, after the run.

        Nobody reads or writes behind `position` until the job has ended.

        Args:
            position: the new end, not below `first_position`.
            end: position up to which bytes may be other than zero; None when that is not known:
                then the written part of the file is looked through.
        """
        removed = self._take_ahead()
        while len(self._starts) > 1 and self._starts[-1] >= position:
            removed.append(self._take(self._starts[-1]))
        self.end_position = position
        cut = None
        if self._starts and position < self._starts[-1] + self.segment_bytes:
            cut = self.segment_at(position)

        def run() -> None:
            # What a run that raises leaves may be back after a crash.
            self._remove_files(removed)
            if cut is not None:
                self._zero(cut, position, end)

        return DiskJob(run)

    def truncate(self, position: int, end: int | None = None) -> None:
        """Does `begin_truncate` at once."""
        self.begin_truncate(position, end).do()

    def begin_reset(self, position: int) -> DiskJob:
        """Removes all files; the log is empty and begins at `position`. Durable after the run."""
        removed = self._take_ahead()
        while self._starts:
            removed.append(self._take(self._starts[-1]))
        self.first_position = self.end_position = position

        def run() -> None:
            self._remove_files(removed)
            self._file_system.make_directory(self.directory)

        return DiskJob(run)

    def reset(self, position: int) -> None:
        """Does `begin_reset` at once."""
        self.begin_reset(position).do()

    def begin_at(self, position: int) -> None:
        """Has a log without a file begin at `position`, for which one may have been made ahead."""
        assert not self._starts, "a log with files begins where they do"
        self.first_position = self.end_position = position

    def remove_all(self) -> None:
        """Removes every file in the directory, also those that `open` refused; the log is empty."""
        self._starts = []
        self.first_position = self.end_position = 0
        for name in self._file_system.names(self.directory):
            self._file_system.remove(os.path.join(self.directory, name))
        self._file_system.sync_directory(self.directory)

    def begin_drop(self, position: int) -> DiskJob | None:
        """Removes the files wholly below `position`, but never the last one; durable after the run.

        `first_position` is the new one at once.
        """
        removed: list[tuple[str, Segment | None]] = []
        while len(self._starts) > 1 and self._starts[0] + self.segment_bytes <= position:
            removed.append(self._take(self._starts[0]))
            self.first_position = self._starts[0]
        return DiskJob(lambda: self._remove_files(removed)) if removed else None

    def drop_before(self, position: int) -> int:
        """Does `begin_drop` at once; returns the new `first_position`."""
        do_now(self.begin_drop(position))
        return self.first_position

    def begin_sync(self) -> DiskJob | None:
        """Begins to bring all bytes written before this call to the disk.

        What the sync covers is taken down here, in the thread that writes, so that no write is half
        of it. An OSError of the run is final: the bytes must be taken as lost.
        """
        dirty = [file for file in self._open.values() if file.is_dirty]
        taken = [(file, file.written, file.written_bytes) for file in dirty]
        if not taken:
            return None

        def run() -> None:
            for segment, _, _ in taken:
                segment.sync()

        def end() -> None:
            for segment, written, written_bytes in taken:
                segment.covered, segment.covered_bytes = written, written_bytes

        return DiskJob(run, end)

    @property
    def unsynced_bytes(self) -> int:
        """Bytes that were written since this process began, and that no sync has covered."""
        return sum(file.written_bytes - file.covered_bytes for file in self._open.values())

    def sync(self) -> None:
        """Does `begin_sync` at once."""
        do_now(self.begin_sync())

    def distrust(self, position: int) -> None:
        """Lets the next sync cover all that is open now, and rewrite what is behind `position`.

        A process that was killed leaves bytes in the page cache that nobody has synced. After a
        sync that failed, some of them count as written although they are not.
        """
        for start, segment in self._open.items():
            segment.note_write()
            end = min(self.end_position, start + self.segment_bytes)
            if position < end:
                segment.rewrite(max(position - start, 0), end - start)

    def close(self) -> None:
        """Closes the files without a sync, and removes a file made ahead and not used."""
        self._remove_files(self._take_ahead())
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

    def _open_segment(self, start: int) -> Segment:
        path = self._path(start)
        return Segment(self._file_system, path, self.segment_bytes, self.write_seconds, self.mode)

    def _create(self, start: int) -> Segment:
        # At once, while there are no bytes to write: were two new files to wait for their sync, a
        # power cut could keep the second one, and of the first not its name, or not its length.
        segment = self._open_segment(start)
        segment.sync()
        segment.covered = segment.written
        return segment

    def _take(self, start: int) -> tuple[str, Segment | None]:
        """Takes a file out of the tables."""
        self._starts.remove(start)
        return self._path(start), self._open.pop(start, None)

    def _take_ahead(self) -> list[tuple[str, Segment | None]]:
        """Takes out the files made ahead, the last one first."""
        ahead, self._ahead = self._ahead, {}
        return [(ahead[start].path, ahead[start]) for start in sorted(ahead, reverse=True)]

    def _remove_files(self, removed: Sequence[tuple[str, Segment | None]]) -> None:
        """Removes files that no table knows any more, in this order."""
        for path, segment in removed:
            if segment is not None:
                segment.close()
            self._file_system.remove(path)
            # One by one: a power cut must not bring back a file without its neighbor.
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

    def _is_zeros(self, path: str, size_bytes: int) -> bool:
        try:
            content = self._file_system.open(path).read(0, size_bytes)
        except OSError:
            return False
        return content.count(0) == len(content)

    def _path(self, start: int) -> str:
        return os.path.join(self.directory, segment_name(start))
