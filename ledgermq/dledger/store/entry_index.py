"""EntryIndex: where each entry stands, as 32-byte units in a log of their own.

    offset  type  field       (entry i has the unit at byte i * 32; big-endian)
         0  i32   magic       1, as in the entry
         4  i64   position    of the entry's head in the data log
        12  i32   size        head and body
        16  i64   index       i
        24  i64   term

Source: DLedgerIndexEntry of DLedgerMmapFileStore.java. There is no base offset: a log whose first
index is large has files whose names match.
"""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Final, NamedTuple

from ledgermq.dledger.disk_job import DiskJob
from ledgermq.dledger.entry import ENTRY_MAGIC, INDEX_UNIT, INDEX_UNIT_BYTES, EntrySlice
from ledgermq.dledger.store.segment import Segment
from ledgermq.dledger.store.segments import Segments

# Upstream's size of an index segment: 5,242,880 units.
INDEX_SEGMENT_BYTES: Final = 32 * 5 * 1024 * 1024
# Units are read in blocks of this size where many are wanted; first come as many as most reads do.
_BLOCK_BYTES: Final = 1 << 16
_FIRST_BLOCK_BYTES: Final = 1 << 12
assert _BLOCK_BYTES % INDEX_UNIT_BYTES == _FIRST_BLOCK_BYTES % INDEX_UNIT_BYTES == 0


class IndexUnit(NamedTuple):
    """The 32 bytes of one entry."""

    magic: int
    position: int
    size: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls
    term: int


class EntryIndex:
    """Units over a run of segments. Which indexes the log has is its owner's to know."""

    def __init__(self, segments: Segments) -> None:
        assert segments.segment_bytes % INDEX_UNIT_BYTES == 0
        self.segments = segments
        # The segment that takes the next unit; None when it must be found.
        self._tail: Segment | None = None

    def find(self, index: int) -> IndexUnit | None:
        """Returns the unit of an entry, or None where no file has one."""
        position = index * INDEX_UNIT_BYTES
        if not self.segments.holds(position):
            return None
        segment = self.segments.segment_at(position)
        unit = INDEX_UNIT.unpack(segment.lend(position - segment.start_offset, INDEX_UNIT_BYTES))
        return IndexUnit._make(unit) if unit[0] == ENTRY_MAGIC else None

    def find_first(self) -> IndexUnit | None:
        """Returns the first unit that was written, None when none was."""
        starts = self.segments.starts
        for fields in self.units_from(starts[0] // INDEX_UNIT_BYTES) if starts else ():
            if fields[0] == ENTRY_MAGIC:
                return IndexUnit._make(fields)
        return None

    def units_from(self, index: int) -> Iterator[tuple[int, ...]]:
        """Yields the fields of the units from `index` on, to the end of the files, zeros too."""
        position = index * INDEX_UNIT_BYTES
        while self.segments.holds(position):
            segment = self.segments.segment_at(position)
            block = segment.lend(position - segment.start_offset, _BLOCK_BYTES)
            yield from INDEX_UNIT.iter_unpack(block)
            position += len(block)

    def run_from(self, index: int, count_max: int) -> Iterator[tuple[int, ...]]:
        """Yields the fields of at most so many units, of the segment of `index` only."""
        position = index * INDEX_UNIT_BYTES
        segment = self.segments.segment_at(position)
        offset = position - segment.start_offset
        end = min(offset + count_max * INDEX_UNIT_BYTES, segment.size_bytes)
        block_bytes = _FIRST_BLOCK_BYTES
        while offset < end:
            block = segment.lend(offset, min(block_bytes, end - offset))
            yield from INDEX_UNIT.iter_unpack(block)
            offset += len(block)
            block_bytes = _BLOCK_BYTES

    def starts_lacking(self, first_index: int, end_index: int) -> list[int]:
        """Returns the starts of the files that the units of these entries need and lack."""
        return self.segments.starts_lacking(
            first_index * INDEX_UNIT_BYTES, end_index * INDEX_UNIT_BYTES
        )

    def has_room(self, entries: EntrySlice) -> bool:
        """Tells whether `write` finds all files there, or made ahead."""
        if self._has_room(entries):
            return True
        return not self.starts_lacking(entries.first_index, entries.last_index + 1)

    def reserve(self, entries: EntrySlice) -> None:
        """Makes the files that the units of these entries need.

        Raises:
            DiskFullError: nothing was written.
        """
        if not self._has_room(entries):
            self.segments.end_position = entries.first_index * INDEX_UNIT_BYTES
            self.segments.reserve(entries.count * INDEX_UNIT_BYTES)

    def write(self, entries: EntrySlice) -> None:
        """Writes the units of these entries; their files were reserved."""
        position, tail = entries.first_index * INDEX_UNIT_BYTES, self._tail
        packed = memoryview(bytearray(entries.count * INDEX_UNIT_BYTES))
        pack_units(packed, 0, entries)
        if tail is not None and self._has_room(entries):
            tail.write(position - tail.start_offset, packed)
            return
        self.segments.end_position = position
        self.segments.append(packed)
        self._tail = self.segments.segment_at(self.segments.end_position - 1)

    def written_before(self, index: int) -> tuple[int, int]:
        """Returns where the file of the unit before `index` starts, and its bytes up to there."""
        end, segment_bytes = index * INDEX_UNIT_BYTES, self.segments.segment_bytes
        size_bytes = (end - 1) % segment_bytes + 1
        return end - size_bytes, size_bytes

    def begin_truncate(self, from_index: int, end_index: int | None) -> DiskJob:
        """Wipes the units from `from_index` on, durably; from `end_index` on they are unset."""
        self._tail = None
        end = None if end_index is None else end_index * INDEX_UNIT_BYTES
        return self.segments.begin_truncate(from_index * INDEX_UNIT_BYTES, end)

    def truncate(self, from_index: int, end_index: int | None) -> None:
        """Does `begin_truncate` at once."""
        self.begin_truncate(from_index, end_index).do()

    def begin_reset(self, first_index: int) -> DiskJob:
        """Removes all files; the next unit is that of `first_index`."""
        self._tail = None
        return self.segments.begin_reset(first_index * INDEX_UNIT_BYTES)

    def reset(self, first_index: int) -> None:
        """Does `begin_reset` at once."""
        self.begin_reset(first_index).do()

    def begin_drop(self, first_index: int) -> DiskJob | None:
        """Removes the files that hold only units before `first_index`."""
        return self.segments.begin_drop(first_index * INDEX_UNIT_BYTES)

    def drop_before(self, first_index: int) -> None:
        """Does `begin_drop` at once."""
        self.segments.drop_before(first_index * INDEX_UNIT_BYTES)

    def close(self) -> None:
        """Gives the files back."""
        self._tail = None
        self.segments.close()

    def _has_room(self, entries: EntrySlice) -> bool:
        tail = self._tail
        if tail is None:
            return False
        offset = entries.first_index * INDEX_UNIT_BYTES - tail.start_offset
        return 0 <= offset <= tail.size_bytes - len(entries.starts) * INDEX_UNIT_BYTES


def pack_units(buffer: memoryview, offset: int, entries: EntrySlice) -> None:
    """Writes the units of the entries into `buffer` at `offset`."""
    # A loop of pack_into took 0.14 us an entry; one call for many units with their fields chained
    # 0.21, and slices of the heads joined 1.0.
    pack_into, base, index = INDEX_UNIT.pack_into, entries.position, entries.first_index
    term, one_term = entries.first_term, entries.first_term == entries.last_term
    start = entries.starts[0]
    for end in chain(islice(entries.starts, 1, None), (len(entries.data),)):
        if not one_term:
            term = entries.term_at(index)
        pack_into(buffer, offset, 1, base + start, end - start, index, term)
        offset += 32
        index += 1
        start = end
