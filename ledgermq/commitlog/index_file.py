"""IndexFile: one file of the key index, a hash table that only grows.

The newest entry of a chain is named by its slot, each entry names the next older one. Entries are
written in rising number; so from the entries alone the slots can be made again, which is what
happens after an unclean stop: entries up to the checkpoint's number are durable, slots need not be.

So the slots of the file that has room lie in memory, and are written twice at most: when the file
is full, and when the store is closed. Entries are in memory until a flush has brought them into the
file (`derived_files.py`), and the header is written with them.
Source: IndexFile.java of 4.9.3.
"""

import mmap
import sys
from array import array
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from struct import Struct
from typing import Final

from ledgermq.commitlog.derived_files import MAKE, RENEW, WRITE, Bytes, Changes, DerivedFiles
from ledgermq.commitlog.index_loops import enter_keys
from ledgermq.commitlog.layout import (
    INDEX_ENTRY,
    INDEX_ENTRY_BYTES,
    INDEX_HEADER,
    INDEX_HEADER_BYTES,
    INDEX_SLOT,
    INDEX_SLOT_BYTES,
    index_file_bytes,
)

# A key to be entered: unsigned hash of `topic#`, key, physical offset, store timestamp.
KeyRow = tuple[int, bytes, int, int]
# Enters keys: see `enter_keys`.
EnterKeys = Callable[[memoryview, memoryview, Sequence[KeyRow], int, int, int, int], int]
# One entry to be: hash (not negative), physical offset, store timestamp.
IndexRow = tuple[int, int, int]

_SECONDS_MAX: Final = 0x7FFFFFFF
# Entries of a file that are read together: the next one of a chain is often among them.
_BLOCK_COUNT: Final = 200
# Of a chain, that are followed in one piece of work: half a millisecond.
_LINKS_A_PIECE: Final = 400
_READ_BYTES: Final = 1 << 20
# The hash alone of each entry.
_ENTRY_HASH: Final = Struct(">i16x")
assert _ENTRY_HASH.size == INDEX_ENTRY_BYTES


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The first 40 bytes of a file."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    slots_used: int = 0
    # Number of the next entry; entries count from 1.
    next_number: int = 1

    @classmethod
    def read(cls, data: bytes) -> "IndexHeader":
        """Return the header of a file; a next number of 0 in a fresh file is read as 1.

        Raises:
            struct.error: it has not so many bytes.
        """
        header = cls(*INDEX_HEADER.unpack_from(data))
        return replace(header, next_number=max(1, header.next_number))

    def pack(self) -> bytes:
        """Return its bytes."""
        return INDEX_HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_physical_offset,
            self.end_physical_offset,
            self.slots_used,
            self.next_number,
        )


class IndexFile:
    """One file; an owner in the words of `derived_files.py`."""

    __slots__ = (
        "_block",
        "_block_number",
        "_entries_at",
        "_files",
        "_flight",
        "_front",
        "_held_number",
        "_is_made",
        "_is_restored",
        "_next_at",
        "_path",
        "_tail",
        "_tail_number",
        "_taken",
        "_taken_front",
        "entry_count",
        "header",
        "name",
        "settles",
        "slot_count",
    )

    def __init__(
        self,
        files: DerivedFiles,
        directory: str,
        name: str,
        slot_count: int,
        entry_count: int,
        header: IndexHeader,
    ) -> None:
        """Begin a file that the next flush makes; or, before `load` or `restore`, one that is
        there.
        """
        # Local time of the file's creation, 17 digits.
        self.name = name
        # Of all entries, also of those in memory.
        self.header = header
        self.slot_count = slot_count
        # Upper bound of entry numbers, itself not used.
        self.entry_count = entry_count
        # Whether the next flush writes the slots although there is room: the store is closed then.
        self.settles = False
        self._files = files
        self._path = f"{directory}/{name}"
        self._is_made = False
        self._entries_at = INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * slot_count
        # Room for the header, and the slots; None where they are read from the file: it is full,
        # and nothing of it changes any more.
        self._front: memoryview | None = _blank(self._entries_at)
        # Whether slots of the file may be other than zero where those in memory are zero.
        self._is_restored = False
        # Entries from `_tail_number` on.
        self._tail = bytearray()
        self._tail_number = header.next_number
        # Entries from `_held_number` to `_tail_number`, the flush that brings them into the file,
        # and whether it writes the slots, too.
        self._flight = bytearray()
        self._held_number = header.next_number
        self._taken: Changes | None = None
        self._taken_front = False
        # Entries of the file from `_block_number` on, as they were read last.
        self._block = b""
        self._block_number = 0
        # Behind the entries that `hashes_at` found last.
        self._next_at = 1

    @property
    def _end_number(self) -> int:
        """Behind the last entry; a header that was damaged names no more than there is room for."""
        return max(1, min(self.header.next_number, self.entry_count))

    @property
    def room(self) -> int:
        """How many more entries the file takes."""
        return self.entry_count - self.header.next_number

    def add(self, rows: Sequence[IndexRow]) -> None:
        """Add entries, at most `room` and at least one."""
        header = self.header
        number = header.next_number
        slots_used = header.slots_used
        begin = rows[0][2] if number <= 1 else header.begin_timestamp
        # Upstream counts the seconds of the very first entry from the header's former begin.
        base = header.begin_timestamp if number <= 1 else begin
        slot_count = self.slot_count
        front = self._slots()
        read_slot, write_slot = INDEX_SLOT.unpack_from, INDEX_SLOT.pack_into
        pack_entry = INDEX_ENTRY.pack
        parts = []
        for key_hash, physical_offset, timestamp in rows:
            slot_at = INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * (key_hash % slot_count)
            previous = read_slot(front, slot_at)[0]
            if previous <= 0 or previous >= number:
                previous = 0
                slots_used += 1
            seconds = (timestamp - base) // 1000 if 0 < base < timestamp else 0
            if seconds > _SECONDS_MAX:
                seconds = _SECONDS_MAX
            parts.append(pack_entry(key_hash, physical_offset, seconds, previous))
            write_slot(front, slot_at, number)
            number += 1
            base = begin
        self._tail += b"".join(parts)
        self._advance(rows[0][1:], rows[-1][1:], slots_used, number)

    def add_keys(self, keys: Sequence[KeyRow], enter: EnterKeys = enter_keys) -> None:
        """Add the entries of keys, at most `room` and at least one, by the kernel's loop."""
        header = self.header
        number, base = header.next_number, header.begin_timestamp
        begin = keys[0][3] if number <= 1 else base
        entries = bytearray(INDEX_ENTRY_BYTES * len(keys))
        room = memoryview(entries)
        slots_used = enter(self._slots(), room, keys, self.slot_count, number, base, begin)
        self._tail += entries
        slots_used += header.slots_used
        self._advance(keys[0][2:], keys[-1][2:], slots_used, number + len(keys))

    def _slots(self) -> memoryview:
        front = self._front
        assert front is not None, "a full file takes no entries"
        return front

    def _advance(
        self, first: tuple[int, int], last: tuple[int, int], slots_used: int, number: int
    ) -> None:
        """Make the header tell of new entries; place and time of the first and the last one."""
        header = self.header
        is_first = header.next_number <= 1
        self.header = IndexHeader(
            first[1] if is_first else header.begin_timestamp,
            last[1],
            first[0] if is_first else header.begin_physical_offset,
            last[0],
            slots_used,
            number,
        )
        self._files.touch(self)

    # Reading.

    def lookup(
        self, key_hash: int, count_max: int, begin_ms: int, end_ms: int, links_max: int
    ) -> Generator[None, None, tuple[list[int], int]]:
        """Look for entries with that hash and time; yields behind each piece of work, and entries
        may be added meanwhile.

        Returns: their physical offsets, the newest first, with how many links of the chain were
        followed; `links_max` when there may be more.
        """
        header = self.header
        number = self._slot(key_hash)
        found: list[int] = []
        below = header.next_number
        links = 0
        if header.end_timestamp < header.begin_timestamp:
            # The file begins with times of a clock that was far ahead, from which no others can be
            # counted: the look-up compares the times of the records themselves.
            begin_ms, end_ms = 0, header.begin_timestamp + _SECONDS_MAX * 1000
        while 0 < number < below and len(found) < count_max and links < links_max:
            links += 1
            entry_hash, physical_offset, seconds, previous = self._entry(number)
            timestamp = header.begin_timestamp + seconds * 1000
            # Times stand in whole seconds: an entry may be up to a second younger than it says.
            if entry_hash == key_hash and begin_ms - 1000 < timestamp <= end_ms:
                found.append(physical_offset)
            if timestamp <= begin_ms - 1000:
                break
            # Chains only lead to older entries; anything else is a damaged slot.
            below, number = number, previous
            if links % _LINKS_A_PIECE == 0:
                yield
                self.forget_read()
        return found, links

    def hashes_at(self, physical_offset: int) -> set[int]:
        """Return the hashes under which a record is entered and can be found.

        Entries stand in the order of the log, so those of a record are found by its place, and
        those of the next record stand behind them: the chain of a key that a million messages bear
        is as long, and is not walked. Of each chain the slot, its newest entry and the link of this
        one are looked at; the links between are those of other records.
        """
        hashes: set[int] = set()
        end = self._end_number
        number = self._first_at(physical_offset)
        while number < end:
            entry_hash, found, _, previous = self._entry(number)
            if found != physical_offset:
                break
            if self._is_chained(number, entry_hash, previous):
                hashes.add(entry_hash)
            number += 1
        self._next_at = number
        return hashes

    def _first_at(self, physical_offset: int) -> int:
        """Return the number of a record's first entry: where the last look ended, or anywhere."""
        number = self._next_at
        if 1 <= number < self._end_number and self.entry_offset(number) == physical_offset:
            if number == 1 or self.entry_offset(number - 1) < physical_offset:
                return number
        return self.count_below(physical_offset)

    def _is_chained(self, number: int, key_hash: int, previous: int) -> bool:
        """Tell whether an entry's slot leads to it or to a newer one, and its link to an older."""
        newest = self._slot(key_hash)
        if newest != number and not (
            number < newest < self._end_number and self._is_of_chain(newest, key_hash)
        ):
            return False
        return previous == 0 or (0 < previous < number and self._is_of_chain(previous, key_hash))

    def _is_of_chain(self, number: int, key_hash: int) -> bool:
        """Tell by its hash whether an entry, anywhere in the file, shares a slot with a key."""
        if number >= self._held_number:
            found = self._entry(number)[0]
        else:
            # By itself: the block that was read last is that of the records that are looked at.
            (found,) = _ENTRY_HASH.unpack(self._read_entries(number, 1))
        return bool(found % self.slot_count == key_hash % self.slot_count)

    def _slot(self, key_hash: int) -> int:
        """Return the number of the newest entry of a chain, 0 for none."""
        slot_at = INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * (key_hash % self.slot_count)
        if self._front is not None:
            return int(INDEX_SLOT.unpack_from(self._front, slot_at)[0])
        slot = self._files.read(self._path, slot_at, INDEX_SLOT_BYTES)
        return int.from_bytes(slot, "big", signed=True)

    def _entry(self, number: int) -> tuple[int, int, int, int]:
        """Return hash, physical offset, seconds and the number of the older one of its chain."""
        data: Bytes
        if number >= self._tail_number:
            data, first = self._tail, self._tail_number
        elif number >= self._held_number:
            data, first = self._flight, self._held_number
        else:
            first = self._block_number
            if not first <= number < first + len(self._block) // INDEX_ENTRY_BYTES:
                first = number - number % _BLOCK_COUNT
                count = min(_BLOCK_COUNT, self.entry_count - first)
                self._block = self._read_entries(first, count)
                self._block_number = first
            data = self._block
        entry: tuple[int, int, int, int] = INDEX_ENTRY.unpack_from(
            data, INDEX_ENTRY_BYTES * (number - first)
        )
        return entry

    def forget_read(self) -> None:
        """Read from the file again what is asked for next: it may not be what it was."""
        self._block = b""

    def _read_entries(self, first: int, count: int) -> bytes:
        at = self._entries_at + INDEX_ENTRY_BYTES * first
        return self._files.read(self._path, at, INDEX_ENTRY_BYTES * count)

    def stored_offset(self, number: int) -> int:
        """Return the physical offset of one entry as it stands in the file, whatever its header.

        Raises:
            DamagedFileError: the file has no such entry, or it cannot be read.
        """
        return int(INDEX_ENTRY.unpack(self._read_entries(number, 1))[1])

    def entry_offset(self, number: int) -> int:
        """Return the physical offset of one entry."""
        return self._entry(number)[1]

    def count_below(self, physical_offset: int) -> int:
        """Return the number of the first entry at `physical_offset` or behind it."""
        low, high = 1, self._end_number
        while low < high:
            middle = (low + high) // 2
            if self.entry_offset(middle) < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def used_bytes(self) -> bytes:
        """Return what the file has, or will have: header, slots, and all entries."""
        front = self._front
        if front is None:
            return self._files.read(
                self._path, 0, self._entries_at + INDEX_ENTRY_BYTES * self.header.next_number
            )
        data = self.header.pack() + bytes(front[INDEX_HEADER_BYTES:])
        # Entry 0 is never used.
        data += bytes(INDEX_ENTRY_BYTES)
        if self._held_number > 1:
            data += self._read_entries(1, self._held_number - 1)
        return data + self._flight + self._tail

    # A file that is there.

    def load(self) -> None:
        """Take up the file as it is: it was closed in order, or it is full."""
        self._forget_held()
        data = self._files.read(self._path, 0, INDEX_HEADER_BYTES)
        self.header = IndexHeader.read(data)
        self._tail_number = self._held_number = self.header.next_number
        self._front = None

    def load_slots(self) -> None:
        """Have the slots of a file with room in memory."""
        front = _blank(self._entries_at)
        for at in range(0, self._entries_at, _READ_BYTES):
            size = min(_READ_BYTES, self._entries_at - at)
            data = self._files.read(self._path, at, size)
            # Memory that nobody writes to is none.
            if data.strip(b"\0"):
                front[at : at + len(data)] = data
        self._front = front

    def restore(self, header: IndexHeader) -> None:
        """Go back to a header that a checkpoint kept: slots are made again from the entries.

        All of them are in the file: this is for a store that opens.
        """
        assert not self._tail and not self._flight, "entries are only in memory"
        self._forget_held()
        slots = array("i", bytes(INDEX_SLOT_BYTES * self.slot_count))
        assert slots.itemsize == INDEX_SLOT_BYTES
        slot_count, first, end = self.slot_count, 1, header.next_number
        read_count = _READ_BYTES // INDEX_ENTRY_BYTES
        while first < end:
            data = self._read_entries(first, min(read_count, end - first))
            for number, (key_hash,) in enumerate(_ENTRY_HASH.iter_unpack(data), first):
                slots[key_hash % slot_count] = number
            first += read_count
        # The count is that of the entries there are, also where some were cut off.
        self.header = replace(header, slots_used=slot_count - slots.count(0))
        if sys.byteorder == "little":
            slots.byteswap()
        front = _blank(self._entries_at)
        front[INDEX_HEADER_BYTES:] = slots.tobytes()
        self._front, self._is_restored = front, True
        self._tail_number = self._held_number = end
        self._files.touch(self)

    def _forget_held(self) -> None:
        """The file is there, and has all that this object knows of."""
        self._is_made = True
        self._tail, self._flight, self._taken = bytearray(), bytearray(), None
        self._block = b""

    def remove(self) -> None:
        """Have the file removed, if it was ever made."""
        self._files.forget(self)
        if self._is_made:
            self._files.remove(self._path)

    # What a flush does: see `derived_files.py`.

    def take(self, changes: Changes) -> None:
        """Hand out what is only in memory, and the slots when they do not change any more."""
        if not self._is_made:
            size_bytes = index_file_bytes(self.slot_count, self.entry_count)
            changes.operations.append((MAKE, self._path, size_bytes, b""))
            self._is_made = True
        tail, self._tail = self._tail, bytearray()
        if tail:
            at = self._entries_at + INDEX_ENTRY_BYTES * self._tail_number
            changes.operations.append((WRITE, self._path, at, tail))
        # For those before there was no room: these changes write them, too.
        self._flight = self._flight + tail if self._flight else tail
        self._tail_number = self.header.next_number
        front = self._front
        self._taken, self._taken_front = changes, False
        if front is not None and (self.settles or not self.room):
            self._taken_front = True
            front[:INDEX_HEADER_BYTES] = self.header.pack()
            changes.operations.append((RENEW, self._path, self._is_restored, front))
        else:
            changes.operations.append((WRITE, self._path, 0, self.header.pack()))
        self.settles = False

    def landed(self, changes: Changes) -> None:
        """Let go of what is in the file now."""
        if self._taken is not changes:
            return
        self._flight, self._taken = bytearray(), None
        self._held_number = self._tail_number
        self._block = b""
        if self._taken_front and not self.room:
            self._front = None


def _blank(size_bytes: int) -> memoryview:
    """Return so many zeros, of which none takes memory before it is written to."""
    return memoryview(mmap.mmap(-1, size_bytes))
