"""Segment: one file of fixed size.

A segment of a log is named by the absolute offset of its first byte, in 20 digits. It has its full
size from creation, all zeros, its blocks reserved, so that a write hardly fails for lack of room.
Writes are visible at once to every reader of the file and survive a kill of the process; `sync`
makes them survive a power cut. The owner of the bytes knows how far they are valid; a segment does
not. What the disk does not give is damage: `UnreadableError`.
"""

import os
import time
from collections.abc import Callable, Iterator
from typing import Final

from ledgermq.dledger.errors import ColdDataError
from ledgermq.dledger.store.errors import StoreFormatError, UnreadableError
from ledgermq.dledger.store.filesystem import FileSystem
from ledgermq.measures.histogram import Histogram

NAME_DIGITS: Final = 20
# Zeroing and comparing go in blocks of this size, which begin at multiples of it: so no page is
# written in part, which the kernel would have to read first.
_BLOCK_BYTES: Final = 1 << 18
# Where the page cache cannot be asked, the last bytes written count as cached.
_RECENT_BYTES: Final = 64 << 20
_ZEROS: Final = bytes(_BLOCK_BYTES)
# After so many zeros the rest of a file counts as never written. What a power cut keeps of writes
# that were not synced lies closer together; and were an old entry behind it to be reached one day,
# its term and its chain checksum would not continue the log.
_UNUSED_BYTES: Final = 16 << 20


# Of the last bytes written, so many are read in place.
_VIEWED_BYTES: Final = 256 << 20
# So many writes of so many bytes at most stay in memory.
_SMALL_COUNT: Final = 15
_SMALL_BYTES: Final = 1 << 16
# Of a segment that is read from front to back, so much is read at once; and of one of which a part
# cannot be read, a page.
_FORWARD_BYTES: Final = 1 << 20
_PAGE_BYTES: Final = 4096


def segment_name(start_offset: int) -> str:
    """Returns the name of the segment that begins at this offset."""
    return f"{start_offset:0{NAME_DIGITS}d}"


class ReadMode:
    """Whether the reads of a store may wait for the disk; its owner switches it."""

    __slots__ = ("has_reader", "may_wait", "on_unreadable")

    def __init__(self) -> None:
        # False: a read of bytes that are not in memory raises ColdDataError.
        self.may_wait = True
        # Whether a ColdReader loads what is not in memory; else all reads wait.
        self.has_reader = False
        # Called with the error before a read raises it.
        self.on_unreadable: Callable[[UnreadableError], None] = lambda error: None


class Segment:
    """One file. All offsets here are inside the file."""

    __slots__ = (
        "_created",
        "_file",
        "_file_system",
        "_last_writes",
        "_mode",
        "_recent_from",
        "_written_from",
        "_write_seconds",
        "covered",
        "covered_bytes",
        "path",
        "size_bytes",
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
        mode: ReadMode | None = None,
    ) -> None:
        """Opens the file, which is made when it is not there.

        Args:
            file_system: the disk.
            path: its last part is the start offset in decimal digits.
            segment_bytes: the size it has or gets.
            write_seconds: gets the time of each write; None: it is not measured.
            mode: of the store; None: all reads may wait.

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
            self._file = file_system.reserve(path, segment_bytes)
        elif found == segment_bytes:
            self._file = file_system.open(path)
        else:
            raise StoreFormatError(path, "size", segment_bytes, found)
        self.size_bytes = segment_bytes
        self._mode = ReadMode() if mode is None else mode
        # The last writes that are small: where they begin and end, ascending, and their bytes. Most
        # reads are of what was just written. Replaced as a whole: the keeper's thread forgets them.
        self._last_writes: tuple[tuple[int, int, bytes | bytearray | memoryview], ...] = ()
        # This process has written all that is valid from here on, and not long ago.
        self._written_from = segment_bytes
        # From here on bytes were written a short while ago, by this process.
        self._recent_from = segment_bytes
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
        end, last = offset + len(data), self._last_writes
        if last and offset < last[-1][1]:
            last = self._last_writes = ()
        try:
            self._file.write(offset, data)
            held = data.obj if isinstance(data, memoryview) else data
            if isinstance(held, bytes | bytearray) and len(held) <= _SMALL_BYTES:
                self._last_writes = (*last[-_SMALL_COUNT:], (offset, end, data))
        finally:
            self.written += 1
            self.written_bytes += len(data)
            self._written_from = max(min(self._written_from, offset), end - _VIEWED_BYTES)
            self._recent_from = max(min(self._recent_from, offset), end - _RECENT_BYTES)
            self._write_seconds.observe(time.perf_counter() - begun_s)

    def note_write(self) -> None:
        """Takes the news that an earlier process may have written: the next sync covers it."""
        self.written += 1

    @property
    def is_dirty(self) -> bool:
        """Whether a write has ended that no completed sync covers."""
        return self.covered != self.written

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Returns a copy of so many bytes, fewer at the end of the file.

        Raises:
            UnreadableError: the disk does not give them.
            ColdDataError: the disk would have to be waited for, and must not.
        """
        return bytes(self.lend(offset, size_bytes))

    def lend(self, offset: int, size_bytes: int) -> bytes | bytearray:
        """Returns the same, for who does not keep it."""
        size_bytes = min(size_bytes, self.size_bytes - offset)
        last = self._last_writes
        if last and offset >= last[0][0]:
            for begin, end, written in reversed(last):
                if begin <= offset and offset + size_bytes <= end:
                    return bytes(written[offset - begin : offset - begin + size_bytes])
        if not self._mode.may_wait:
            buffer = bytearray(size_bytes)
            if self.read_cached(offset, buffer):
                return buffer
            if self._file.knows_cache or offset < self._recent_from:
                raise ColdDataError([(self, offset, size_bytes)])
        try:
            data = self._file.read(offset, size_bytes)
        except OSError as error:
            raise self._unreadable(offset, size_bytes, error.strerror or str(error)) from error
        if len(data) != size_bytes:
            raise self._unreadable(offset, size_bytes, f"the file ends after {len(data)} of them")
        return data

    def read_cached(self, offset: int, buffer: bytearray | memoryview) -> bool:
        """Fills a buffer with bytes that are in memory; False where some are not, or are not told.

        Raises:
            UnreadableError: the disk does not give them.
        """
        try:
            return self._file.read_cached(offset, buffer)
        except OSError as error:
            reason = error.strerror or str(error)
            raise self._unreadable(offset, len(buffer), reason) from error

    def view(self, offset: int, size_bytes: int) -> memoryview | None:
        """Returns bytes in place, if this process wrote them lately; None for all others.

        They are in the page cache since they were written, and did not come from the disk.
        """
        return self._file.view(offset, size_bytes) if offset >= self._written_from else None

    def end_views(self) -> None:
        """Notes that this is the last segment no more: all reads are of the file from now on."""
        self._written_from, self._last_writes = self.size_bytes, ()
        self._file.end_views()

    def load(self, offset: int, size_bytes: int) -> None:
        """Brings bytes into the page cache; for a thread that may wait for the disk.

        Raises:
            UnreadableError: the disk does not give them; `on_unreadable` is not called.
        """
        try:
            self._file.read(offset, min(size_bytes, self.size_bytes - offset))
        except OSError as error:
            reason = error.strerror or str(error)
            raise UnreadableError(self.path, offset, size_bytes, reason) from error

    def __len__(self) -> int:
        return self.size_bytes

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(self.size_bytes)
        return self.read(start, stop - start)

    def block(self, offset: int, size_bytes: int) -> memoryview:
        """Returns the bytes from `offset` on, read ahead: so many at least, fewer at the end.

        Raises:
            UnreadableError: the disk does not give that many.
        """
        ahead = self._read_or_none(offset, max(_FORWARD_BYTES, size_bytes))
        if ahead is None or len(ahead) < min(size_bytes, self.size_bytes - offset):
            ahead = self.read(offset, size_bytes)
        return memoryview(ahead)

    def read_readable(self, offset: int, size_bytes: int) -> bytes:
        """Returns a copy of so many bytes, with zeros for the pages that the disk does not give."""
        parts, end = [], min(offset + size_bytes, self.size_bytes)
        while offset < end:
            stop = min(offset - offset % _PAGE_BYTES + _PAGE_BYTES, end)
            page = self._read_or_none(offset, stop - offset) or b""
            parts.append(page.ljust(stop - offset, b"\0"))
            offset = stop
        return b"".join(parts)

    def _unreadable(self, offset: int, size_bytes: int, reason: str) -> UnreadableError:
        damage = UnreadableError(self.path, offset, size_bytes, reason)
        self._mode.on_unreadable(damage)
        return damage

    def written_ranges(self, offset: int) -> Iterator[tuple[int, int]]:
        """Yields the ranges from `offset` on that hold bytes other than zero, roughly cut.

        Ends after a long run of zeros: a file is written from front to back, and reading all of an
        unused gigabyte would take seconds. What cannot be read counts as written.
        """
        end = self.size_bytes
        last = at = offset
        while at < end and at - last <= _UNUSED_BYTES:
            stop = min(at - at % _BLOCK_BYTES + _BLOCK_BYTES, end)
            if self._read_or_none(at, stop - at) != _ZEROS[: stop - at]:
                last = stop
                yield at, stop
            at = stop

    def _read_or_none(self, offset: int, size_bytes: int) -> bytes | None:
        try:
            return self._file.read(offset, size_bytes)
        except OSError:
            return None

    def zero(self, offset: int, end: int) -> None:
        """Writes zeros from `offset` up to `end`; a sync must follow in the same thread."""
        self._last_writes = ()
        while offset < end:
            stop = min(offset - offset % _BLOCK_BYTES + _BLOCK_BYTES, end)
            self._file.write(offset, _ZEROS[: stop - offset])
            offset = stop

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
        """Gives the file back without a sync."""
        self._file.close()

    def _find_size(self) -> int | None:
        try:
            return self._file_system.size_bytes(self.path)
        except FileNotFoundError:
            return None
