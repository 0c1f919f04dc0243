"""ConsumeQueue: the 20-byte units of one queue, in segments named by their first byte.

Unit n stands at byte 20 * n, for ever. Units are added at the end, in order, by dispatch alone;
putting the same units once more changes nothing; anything else is an error, because it would mean
that one queue offset names two messages. A queue that begins in the middle (its first records are
no longer in the log) fills its first segment up to there with pre-blank units, as upstream does.

    min_offset ... held_offset ... tail_offset ... max_offset
      in files        taken by a flush   to be taken by the next

New units stay in memory until a flush has brought them into the files (`derived_files.py`), where
most readers find them: they are near the end. The queue does not say how much of it is durable: a
checkpoint does (`checkpoint.py`), and after an unclean stop `restore` goes back to it.

Part of the kernel (`ledgermq/kernel.py`): compiled, its numbers stand in the object itself, side by
side, not each somewhere in memory. Where a message goes to one of thousands of queues, what it
costs is how many places of memory it touches that nobody touched lately.
Source: ConsumeQueue.java of 4.9.3.
"""

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ledgermq.commitlog.derived_files import MAKE, WIPE, WRITE, Changes, DerivedFiles, Operation
from ledgermq.commitlog.errors import DamagedFileError, DispatchError
from ledgermq.commitlog.layout import (
    PRE_BLANK,
    QUEUE_UNIT,
    QUEUE_UNIT_BYTES,
)
from ledgermq.dledger.store.segment import NAME_DIGITS, segment_name

if TYPE_CHECKING:
    import cython

# Which of its two forms this module is.
COMPILED: Final = not __file__.endswith(".py")

# Room for units that a queue takes first; doubled as it needs more.
_UNITS_MIN: Final = 16
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
        "_blank_end",
        "_directory",
        "_flight",
        "_held_offset",
        "_last_path",
        "_lease",
        "_limit",
        "_made_end",
        "_segment_bytes",
        "_starts",
        "_tail",
        "_tail_offset",
        "_taken",
        "_wipe_from",
        "dropped_position",
        "files",
        "max_offset",
        "min_offset",
        "queue_id",
        "topic",
    )

    # Address of `_tail`, in the compiled form only.
    _base: Any

    def __init__(
        self, topic: str, queue_id: int, directory: str, files: DerivedFiles, segment_bytes: int
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        # First offset whose record is still in the log; equals max_offset when there is none.
        self.min_offset = 0
        # Offset that the next unit gets.
        self.max_offset = 0
        # No unit of the queue points below: what did went with the log's head. 0 when not known.
        self.dropped_position = 0
        # Units from `_tail_offset` on, and up to which offset it may be filled without a look at
        # anything else, while `_lease` is that of `files`: then the next flush knows of it. -1 is
        # never theirs.
        self._tail = _NO_BUFFER
        self._tail_offset = 0
        self._limit = 0
        self._lease = -1
        # Units from `_held_offset` to `_tail_offset`, and the flush that brings them into files.
        self._flight = _NO_BUFFER
        self._held_offset = 0
        self._taken: Changes | None = None
        self.files = files
        self._directory = directory
        self._segment_bytes = segment_bytes
        # First bytes of the segments, rising without a gap; empty before the first unit. Those
        # behind `_made_end` have yet to be made by a flush.
        self._starts: list[int] = []
        self._made_end = 0
        # Of the last segment, once it is made.
        self._last_path = ""
        # Below this byte the first segment gets pre-blank units when it is made.
        self._blank_end = 0
        # The next flush wipes what is behind this byte; -1: nothing.
        self._wipe_from = -1

    @property
    def has_files(self) -> bool:
        """Whether there is any segment."""
        return bool(self._starts)

    def add(self, offset: int, unit: bytes, lease: int) -> bool:
        """Add one unit the short way, if it is the next one and there is room for it.

        Args:
            lease: that of `files` now; the next flush takes the unit when it was the same at the
                last `put`.

        Returns: False when nothing was added: that is for `put`.
        """
        if (
            self._lease != lease
            or self.max_offset != offset
            or offset >= self._limit
            or len(unit) != _UNIT_BYTES
        ):
            return False
        at = (offset - self._tail_offset) * _UNIT_BYTES
        if COMPILED:
            _copy_unit(self._base + at, unit)
        else:
            self._tail[at : at + _UNIT_BYTES] = unit
        self.max_offset = offset + 1
        return True

    def fetch_end(self) -> None:
        """Have the place of the next unit come into the processor's caches, if there is one.

        In the compiled form only.
        """
        if COMPILED:
            fetch(  # type: ignore[name-defined]  # noqa: F821
                self._base + (self.max_offset - self._tail_offset) * _UNIT_BYTES
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
        count = len(data) // QUEUE_UNIT_BYTES
        self._begin_segments(first_offset * QUEUE_UNIT_BYTES, count * QUEUE_UNIT_BYTES)
        at = (first_offset - self._tail_offset) * QUEUE_UNIT_BYTES
        self._have_room(at + count * QUEUE_UNIT_BYTES)
        self._tail[at : at + count * QUEUE_UNIT_BYTES] = data
        self.max_offset = first_offset + count
        self._lease = self.files.touch(self)

    def _begin_segments(self, at: int, count: int) -> None:
        """Have segments for so many bytes from a place on."""
        size = self._segment_bytes
        if not self._starts:
            self._starts.append(at - at % size)
            self._blank_end = at
            self._made_end = 0
        while at + count > self._starts[-1] + size:
            self._starts.append(self._starts[-1] + size)

    def _have_room(self, needed: int) -> None:
        """Have a tail of at least so many bytes."""
        held = self._tail
        if needed > len(held):
            room = max(needed, 2 * len(held), _UNITS_MIN * QUEUE_UNIT_BYTES)
            view = buffer = memoryview(bytearray(room))
            buffer[: len(held)] = held
            self._tail = buffer
            if COMPILED:
                self._base = cython.address(view[0])
        self._limit = min(
            self._tail_offset + len(self._tail) // QUEUE_UNIT_BYTES,
            (self._starts[-1] + self._segment_bytes) // QUEUE_UNIT_BYTES,
        )

    def _begun_at(self, first_offset: int, data: bytes, index: int) -> bytes:
        """Start an empty queue elsewhere: its former units are gone everywhere."""
        if self._starts:
            raise DispatchError(
                f"queue {self.topic}-{self.queue_id} would get a gap",
                index=index,
                expected=self.max_offset,
                found=first_offset,
            )
        self.min_offset = first_offset
        self._forget_held(first_offset)
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

    def units(self, first_offset: int, count_max: int) -> bytes:
        """Return up to `count_max` units from `first_offset` on, as bytes.

        Returns: as many as there are; b"" when `first_offset` is outside of [min, max).

        Raises:
            OSError: a file cannot be read.
        """
        if not self.min_offset <= first_offset < self.max_offset:
            return b""
        end_offset = min(self.max_offset, first_offset + count_max)
        tail_offset = self._tail_offset
        # Most readers are near the end.
        if first_offset >= tail_offset:
            start = (first_offset - tail_offset) * QUEUE_UNIT_BYTES
            return bytes(self._tail[start : (end_offset - tail_offset) * QUEUE_UNIT_BYTES])
        parts = self._file_parts(first_offset, min(end_offset, self._held_offset))
        held = max(0, first_offset - self._held_offset)
        stop = min(end_offset, tail_offset) - self._held_offset
        if held < stop:
            flight = self._flight[held * QUEUE_UNIT_BYTES : stop * QUEUE_UNIT_BYTES]
            parts.append(bytes(flight))
        if end_offset > tail_offset:
            parts.append(bytes(self._tail[: (end_offset - tail_offset) * QUEUE_UNIT_BYTES]))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _file_parts(self, first_offset: int, end_offset: int) -> list[bytes]:
        """Return units that are in files, one part from each."""
        at, end = first_offset * QUEUE_UNIT_BYTES, end_offset * QUEUE_UNIT_BYTES
        parts = []
        while at < end:
            start = at - at % self._segment_bytes
            stop = min(end, start + self._segment_bytes)
            # Most of these readers are in the last segment, too.
            path = self._last_path if start == self._starts[-1] else self._path(start)
            parts.append(self.files.read(path, at - start, stop - at))
            at = stop
        return parts

    def _path(self, start: int) -> str:
        return f"{self._directory}/{segment_name(start)}"

    def unit(self, offset: int) -> QueueUnit:
        """Return one unit; `offset` is in [min, max)."""
        return QueueUnit._make(QUEUE_UNIT.unpack(self.units(offset, 1)))

    def first_offset_at(self, physical_offset: int) -> int:
        """Return the first queue offset whose record stands at `physical_offset` or behind it.

        A unit of zeros counts as behind: a cut that was stopped may have wiped it already.

        Raises:
            DamagedFileError: a unit names no place at all; it must not pass for an old one.
        """
        low, high = self.min_offset, self.max_offset
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            if unit.physical_offset < 0:
                where = f"unit {middle} of {self.topic}-{self.queue_id}"
                raise DamagedFileError("consume queue", where, "a place", unit.physical_offset)
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
        self._remove(removed)
        del self._starts[: len(removed)]
        return len(removed)

    def cut_at(self, physical_offset: int) -> None:
        """Drop the units of records at `physical_offset` and behind it: the log lost its end."""
        self.restore(self.min_offset, self.first_offset_at(physical_offset))

    def delete(self) -> None:
        """Remove all files; numbering goes on where it was, so no offset names two messages."""
        self._remove(self._starts)
        self._starts.clear()
        self._wipe_from = -1
        self.min_offset = self.max_offset
        self._forget_held(self.max_offset)

    def _remove(self, starts: list[int]) -> None:
        """Have the segments removed that a flush has made, or is about to make."""
        for start in starts:
            if start < self._made_end:
                self.files.remove(self._path(start))

    def _forget_held(self, max_offset: int) -> None:
        """End at an offset, with nothing in memory."""
        self._flight, self._taken = _NO_BUFFER, None
        self._tail, self._limit, self._lease = _NO_BUFFER, 0, -1
        self._held_offset = self._tail_offset = self.max_offset = max_offset

    def _cut_held(self, max_offset: int) -> None:
        """End at an offset; units that are only in memory stay up to there."""
        if not self._held_offset <= max_offset <= self.max_offset:
            self._forget_held(max_offset)
        elif max_offset <= self._tail_offset:
            self._tail, self._tail_offset = _NO_BUFFER, max_offset
        self._limit, self._lease = 0, -1
        self.max_offset = max_offset

    def load(self, names: list[str]) -> None:
        """Take up the segments with these names; `restore` must follow."""
        self._starts = sorted(int(name) for name in names if _is_segment_name(name))
        if self._starts:
            self._made_end = self._starts[-1] + self._segment_bytes
            self._last_path = self._path(self._starts[-1])

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
        # Segments that end before the first unit, or begin behind the last one.
        size = self._segment_bytes
        gone = [start for start in self._starts if start + size <= first or start >= end]
        self._remove(gone)
        self._starts = [start for start in self._starts if start not in gone]
        self.min_offset = min_offset
        self.dropped_position = 0
        self._cut_held(max_offset)
        self._wipe_from = -1
        if self._starts:
            self._made_end = min(self._made_end, self._starts[-1] + size)
            self._last_path = self._path(self._starts[-1])
            if wipe and self._starts[-1] < self._made_end:
                self._wipe_from = end
                self.files.touch(self)

    # What a flush does: see `derived_files.py`.

    def take(self, changes: Changes) -> None:
        """Hand out what is only in memory, and the segments that have yet to be made."""
        if not self._starts:
            return
        last = self._starts[-1]
        if self._wipe_from >= 0 or last >= self._made_end:
            self._take_segments(changes.operations)
        first, end = self._tail_offset, self.max_offset
        tail = self._tail[: (end - first) * QUEUE_UNIT_BYTES]
        if self._held_offset == first:
            self._flight = tail
        else:
            # There was no room for those before, which these changes write, too.
            held = self._flight[: (first - self._held_offset) * QUEUE_UNIT_BYTES]
            self._flight = memoryview(bytes(held) + bytes(tail))
        self._tail, self._limit, self._lease = _NO_BUFFER, 0, -1
        self._tail_offset = end
        self._taken = changes
        # What stands in segments that were dropped meanwhile is for nobody.
        begin, behind = first * QUEUE_UNIT_BYTES, end * QUEUE_UNIT_BYTES
        at = max(begin, self._starts[0])
        while at < behind:
            start = at - at % self._segment_bytes
            stop = min(behind, start + self._segment_bytes)
            path = self._last_path if start == last else self._path(start)
            part = (WRITE, path, at - start, tail[at - begin : stop - begin])
            changes.operations.append(part)
            at = stop

    def _take_segments(self, operations: list[Operation]) -> None:
        """Have segments made, and one that is there wiped behind the last unit."""
        if self._wipe_from >= self._starts[0]:
            start = self._starts[bisect_right(self._starts, self._wipe_from) - 1]
            operations.append((WIPE, self._path(start), self._wipe_from - start, b""))
        self._wipe_from = -1
        size = self._segment_bytes
        for start in self._starts[bisect_left(self._starts, self._made_end) :]:
            path = self._path(start)
            operations.append((MAKE, path, size, b""))
            blank_bytes = self._blank_end - start
            if blank_bytes > 0:
                blank = PRE_BLANK * (blank_bytes // QUEUE_UNIT_BYTES)
                operations.append((WRITE, path, 0, blank))
        self._made_end = self._starts[-1] + size
        self._blank_end = 0
        self._last_path = self._path(self._starts[-1])

    def landed(self, changes: Changes) -> None:
        """Let go of the units that are in files now."""
        if self._taken is changes:
            self._flight, self._taken = _NO_BUFFER, None
            self._held_offset = self._tail_offset


def _copy_unit(room: Any, unit: bytes) -> None:
    """Copies a unit to an address."""
    for i in range(_UNIT_BYTES):
        room[i] = unit[i]


def _is_segment_name(name: str) -> bool:
    return len(name) == NAME_DIGITS and name.isdecimal()
