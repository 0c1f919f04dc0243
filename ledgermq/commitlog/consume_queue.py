"""ConsumeQueue: the 20-byte units of one queue, in segments named by their first byte.

Unit n stands at byte 20 * n, for ever. Units are added at the end, in order, by dispatch alone;
putting the same units once more changes nothing; anything else is an error, because it would mean
that one queue offset names two messages. A queue that begins in the middle (its first records are
no longer in the log) fills its first segment up to there with pre-blank units, as upstream does.

The queue does not say how much of it is durable: a checkpoint does (`checkpoint.py`), and after an
unclean stop `restore` goes back to it.

Part of the kernel (`ledgermq/kernel.py`): compiled, its numbers stand in the object itself, side by
side, not each somewhere in memory. Where a message goes to one of thousands of queues, what it
costs is how many places of memory it touches that nobody touched lately.
Source: ConsumeQueue.java of 4.9.3.
"""

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ledgermq.commitlog.errors import DispatchError
from ledgermq.commitlog.layout import (
    PRE_BLANK,
    QUEUE_UNIT,
    QUEUE_UNIT_BYTES,
)
from ledgermq.commitlog.open_files import OpenFiles
from ledgermq.dledger.store.segment import NAME_DIGITS, segment_name

if TYPE_CHECKING:
    import cython

# Which of its two forms this module is.
COMPILED: Final = not __file__.endswith(".py")

_CHUNK_BYTES: Final = 1 << 16
_NO_BUFFER: Final = memoryview(b"")
_UNIT_BYTES: Final = QUEUE_UNIT_BYTES


class QueueUnit(NamedTuple):
    """One unit, decoded."""

    physical_offset: int
    size_bytes: int
    tags_code: int


class ConsumeQueue:
    """One queue of one topic."""

    __slots__ = (
        "_base",
        "_buffer",
        "_buffer_start",
        "_directory",
        "_last_path",
        "_lease",
        "_segment_bytes",
        "_starts",
        "dropped_position",
        "files",
        "max_offset",
        "min_offset",
        "queue_id",
        "topic",
    )

    # Address of `_buffer`, in the compiled form only.
    _base: Any

    def __init__(
        self, topic: str, queue_id: int, directory: str, files: OpenFiles, segment_bytes: int
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        # First offset whose record is still in the log; equals max_offset when there is none.
        self.min_offset = 0
        # Offset that the next unit gets.
        self.max_offset = 0
        # No unit of the queue points below: what did went with the log's head. 0 when not known.
        self.dropped_position = 0
        # Where the next unit goes: mapping of the last segment, and its first byte. To be written
        # without asking `files` while `_lease` is theirs; -1 is never theirs.
        self._buffer = _NO_BUFFER
        self._buffer_start = 0
        self._lease = -1
        self.files = files
        self._directory = directory
        self._segment_bytes = segment_bytes
        # First bytes of the segments, rising without a gap; empty before the first unit.
        self._starts: list[int] = []
        self._last_path = ""

    @property
    def has_files(self) -> bool:
        """Whether there is any segment."""
        return bool(self._starts)

    def add(self, offset: int, unit: bytes, lease: int) -> bool:
        """Add one unit the short way, if it is the next one and the last segment has room.

        Args:
            lease: that of `files` now; theirs is the segment, open and dirty, when it was the same
                at the last `put`.

        Returns: False when nothing was added: that is for `put`.
        """
        at = offset * _UNIT_BYTES - self._buffer_start
        if (
            self._lease != lease
            or self.max_offset != offset
            or not 0 <= at < self._segment_bytes
            or len(unit) != _UNIT_BYTES
        ):
            return False
        if COMPILED:
            _copy_unit(self._base + at, unit)
        else:
            self._buffer[at : at + _UNIT_BYTES] = unit
        self.max_offset = offset + 1
        return True

    def fetch_end(self) -> None:
        """Have the place of the next unit come into the processor's caches, if there is one.

        In the compiled form only.
        """
        if COMPILED:
            fetch(  # type: ignore[name-defined]  # noqa: F821
                self._base + self.max_offset * _UNIT_BYTES - self._buffer_start
            )

    def put(self, first_offset: int, data: bytes, index: int) -> None:
        """Add units, the first of which has the offset `first_offset`.

        Args:
            first_offset: where they belong.
            data: whole units.
            index: ledger index for the error.

        Raises:
            DispatchError: they leave a gap, or differ from units that are there; nothing is put.
        """
        if first_offset != self.max_offset:
            if first_offset > self.max_offset or (first_offset == 0 and not self._starts):
                data = self._begun_at(first_offset, data, index)
            else:
                data = self._without_known(first_offset, data, index)
                first_offset = self.max_offset
            if not data:
                return
        at = first_offset * QUEUE_UNIT_BYTES
        written = 0
        while written < len(data):
            start = at - at % self._segment_bytes
            if not self._starts or start > self._starts[-1]:
                self._add_segment(start, at - start)
            count = min(len(data) - written, start + self._segment_bytes - at)
            view = buffer = self.files.writable(self._last_path)
            buffer[at - start : at - start + count] = data[written : written + count]
            self._buffer, self._buffer_start, self._lease = buffer, start, self.files.lease
            if COMPILED:
                self._base = cython.address(view[0])
            written += count
            at += count
        self.max_offset = at // QUEUE_UNIT_BYTES

    def _begun_at(self, first_offset: int, data: bytes, index: int) -> bytes:
        """Start an empty queue elsewhere: its former units are gone everywhere."""
        if self._starts:
            raise DispatchError(
                f"queue {self.topic}-{self.queue_id} would get a gap",
                index=index,
                expected=self.max_offset,
                found=first_offset,
            )
        self.min_offset = self.max_offset = first_offset
        return data

    def _without_known(self, first_offset: int, data: bytes, index: int) -> bytes:
        """Compare with the units that are there, and return those that are not."""
        known_end = min(self.max_offset, first_offset + len(data) // QUEUE_UNIT_BYTES)
        for offset in range(max(first_offset, self.min_offset), known_end):
            start = (offset - first_offset) * QUEUE_UNIT_BYTES
            found = QueueUnit._make(QUEUE_UNIT.unpack_from(data, start))
            if found != self.unit(offset):
                raise DispatchError(
                    f"unit {offset} of queue {self.topic}-{self.queue_id} would change",
                    index=index,
                    expected=self.unit(offset),
                    found=found,
                )
        return data[(known_end - first_offset) * QUEUE_UNIT_BYTES :]

    def _add_segment(self, start: int, blank_bytes: int) -> None:
        name = segment_name(start)
        buffer = self.files.create(self._directory, name, self._segment_bytes)
        if not self._starts:
            buffer[:blank_bytes] = PRE_BLANK * (blank_bytes // QUEUE_UNIT_BYTES)
        self._starts.append(start)
        self._last_path = f"{self._directory}/{name}"

    def units(self, first_offset: int, count_max: int) -> bytes:
        """Return up to `count_max` units from `first_offset` on, as bytes.

        Returns: as many as there are; b"" when `first_offset` is outside of [min, max).
        """
        if not self.min_offset <= first_offset < self.max_offset:
            return b""
        at = first_offset * QUEUE_UNIT_BYTES
        end = min(self.max_offset, first_offset + count_max) * QUEUE_UNIT_BYTES
        parts = []
        while at < end:
            start = at - at % self._segment_bytes
            stop = min(end, start + self._segment_bytes)
            # Most readers are near the end.
            is_last = start == self._starts[-1]
            path = self._last_path if is_last else f"{self._directory}/{segment_name(start)}"
            parts.append(bytes(self.files.buffer(path)[at - start : stop - start]))
            at = stop
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def unit(self, offset: int) -> QueueUnit:
        """Return one unit; `offset` is in [min, max)."""
        return QueueUnit._make(QUEUE_UNIT.unpack(self.units(offset, 1)))

    def first_offset_at(self, physical_offset: int) -> int:
        """Return the first queue offset whose record stands at `physical_offset` or behind it.

        A unit of zeros counts as behind: a cut that was stopped may have wiped it already.
        """
        low, high = self.min_offset, self.max_offset
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            if unit.physical_offset < physical_offset and unit.size_bytes > 0:
                low = middle + 1
            else:
                high = middle
        return low

    def drop_before(self, physical_offset: int) -> int:
        """Forget units whose records were removed from the log; the last segment always stays.

        Returns: how many segments were removed.
        """
        self.min_offset = self.first_offset_at(physical_offset)
        self.dropped_position = physical_offset
        keep = bisect_right(self._starts, self.min_offset * QUEUE_UNIT_BYTES) - 1
        removed = self._starts[: max(0, min(keep, len(self._starts) - 1))]
        for start in removed:
            self.files.remove(self._directory, segment_name(start))
        del self._starts[: len(removed)]
        return len(removed)

    def cut_at(self, physical_offset: int) -> None:
        """Drop the units of records at `physical_offset` and behind it: the log lost its end."""
        self.restore(self.min_offset, self.first_offset_at(physical_offset))

    def delete(self) -> None:
        """Remove all files; numbering goes on where it was, so no offset names two messages."""
        for start in self._starts:
            self.files.remove(self._directory, segment_name(start))
        self._starts.clear()
        self._buffer, self._lease = _NO_BUFFER, -1
        self.min_offset = self.max_offset

    def load(self, names: list[str]) -> None:
        """Take up the segments with these names; `restore` must follow."""
        self._starts = sorted(int(name) for name in names if _is_segment_name(name))

    def covers(self, min_offset: int, max_offset: int) -> bool:
        """Tell whether the segments that were loaded hold this range without a hole."""
        if min_offset >= max_offset:
            return True
        first = min_offset * QUEUE_UNIT_BYTES // self._segment_bytes * self._segment_bytes
        last = (max_offset * QUEUE_UNIT_BYTES - 1) // self._segment_bytes * self._segment_bytes
        needed = range(first, last + 1, self._segment_bytes)
        return set(needed) <= set(self._starts)

    def restore(self, min_offset: int, max_offset: int, *, wipe: bool = True) -> None:
        """Make the queue end at `max_offset`, as a checkpoint says.

        Args:
            min_offset: first offset of the queue.
            max_offset: offset behind its last unit.
            wipe: whether bytes behind that may be other than zero (after an unclean stop).
        """
        end = max_offset * QUEUE_UNIT_BYTES
        first = min_offset * QUEUE_UNIT_BYTES
        self._buffer, self._lease = _NO_BUFFER, -1
        for start in list(self._starts):
            # A segment that ends before the first unit, or begins behind the last one.
            if start + self._segment_bytes <= first or start >= end:
                self.files.remove(self._directory, segment_name(start))
                self._starts.remove(start)
        self.min_offset, self.max_offset = min_offset, max_offset
        self.dropped_position = 0
        if self._starts:
            self._last_path = f"{self._directory}/{segment_name(self._starts[-1])}"
            if wipe:
                self._wipe(end - self._starts[-1])

    def _wipe(self, from_byte: int) -> None:
        file = self.files.file(self._last_path)
        for range_start, range_end in list(file.written_ranges(from_byte)):
            for start in range(max(range_start, from_byte), range_end, _CHUNK_BYTES):
                stop = min(range_end, start + _CHUNK_BYTES)
                if bytes(file.buffer[start:stop]).strip(b"\0"):
                    self.files.writable(self._last_path)[start:stop] = bytes(stop - start)


def _copy_unit(room: Any, unit: bytes) -> None:
    """Copies a unit to an address."""
    for i in range(_UNIT_BYTES):
        room[i] = unit[i]


def _is_segment_name(name: str) -> bool:
    return len(name) == NAME_DIGITS and name.isdecimal()
