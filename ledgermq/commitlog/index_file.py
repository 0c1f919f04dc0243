"""IndexFile: one file of the key index, a hash table that only grows.

The newest entry of a chain is named by its slot, each entry names the next older one. Entries are
written in rising number; so from the entries alone the slots can be made again, which is what
happens after an unclean stop: entries up to the checkpoint's number are durable, slots need not be.
Source: IndexFile.java of 4.9.3.
"""

import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from struct import Struct
from typing import Final

from ledgermq.commitlog.index_loops import enter_keys
from ledgermq.commitlog.layout import (
    INDEX_ENTRY,
    INDEX_ENTRY_BYTES,
    INDEX_HEADER,
    INDEX_HEADER_BYTES,
    INDEX_SLOT,
    INDEX_SLOT_BYTES,
)

# A key to be entered: unsigned hash of `topic#`, key, physical offset, store timestamp.
KeyRow = tuple[int, bytes, int, int]
# Enters keys into a file: see `enter_keys`.
EnterKeys = Callable[[memoryview, Sequence[KeyRow], int, int, int, int], int]
# One entry to be: hash (not negative), physical offset, store timestamp.
IndexRow = tuple[int, int, int]

# Of a chain, what is followed to prove that a record is in it.
_LINKS_MAX: Final = 64
_SECONDS_MAX: Final = 0x7FFFFFFF
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
    def read(cls, buffer: memoryview) -> "IndexHeader":
        """Return the header of a file; a next number of 0 in a fresh file is read as 1."""
        header = cls(*INDEX_HEADER.unpack_from(buffer))
        return replace(header, next_number=max(1, header.next_number))

    def write(self, buffer: memoryview) -> None:
        """Put the header into a file."""
        INDEX_HEADER.pack_into(
            buffer,
            0,
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_physical_offset,
            self.end_physical_offset,
            self.slots_used,
            self.next_number,
        )


class IndexFile:
    """Functions over the buffer of one file; the buffer is an argument, as it may be remapped."""

    __slots__ = ("_entries_at", "entry_count", "header", "name", "slot_count")

    def __init__(self, name: str, header: IndexHeader, slot_count: int, entry_count: int) -> None:
        # Local time of the file's creation, 17 digits.
        self.name = name
        # As it stands in the file.
        self.header = header
        self.slot_count = slot_count
        # Upper bound of entry numbers, itself not used.
        self.entry_count = entry_count
        self._entries_at = INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * slot_count

    @property
    def room(self) -> int:
        """How many more entries the file takes."""
        return self.entry_count - self.header.next_number

    def add(self, buffer: memoryview, rows: Sequence[IndexRow]) -> None:
        """Add entries, at most `room` and at least one."""
        header = self.header
        number = header.next_number
        slots_used = header.slots_used
        begin = rows[0][2] if number <= 1 else header.begin_timestamp
        # Upstream counts the seconds of the very first entry from the header's former begin.
        base = header.begin_timestamp if number <= 1 else begin
        slot_count = self.slot_count
        read_slot, write_slot = INDEX_SLOT.unpack_from, INDEX_SLOT.pack_into
        pack_entry = INDEX_ENTRY.pack
        parts = []
        for key_hash, physical_offset, timestamp in rows:
            slot_at = INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * (key_hash % slot_count)
            previous = read_slot(buffer, slot_at)[0]
            if previous <= 0 or previous >= number:
                previous = 0
                slots_used += 1
            seconds = (timestamp - base) // 1000 if 0 < base < timestamp else 0
            if seconds > _SECONDS_MAX:
                seconds = _SECONDS_MAX
            parts.append(pack_entry(key_hash, physical_offset, seconds, previous))
            write_slot(buffer, slot_at, number)
            number += 1
            base = begin
        at = self._entries_at + INDEX_ENTRY_BYTES * header.next_number
        data = b"".join(parts)
        buffer[at : at + len(data)] = data
        self._advance(buffer, rows[0][1:], rows[-1][1:], slots_used, number)

    def add_keys(
        self, buffer: memoryview, keys: Sequence[KeyRow], enter: EnterKeys = enter_keys
    ) -> None:
        """Add the entries of keys, at most `room` and at least one, by the kernel's loop."""
        header = self.header
        number, base = header.next_number, header.begin_timestamp
        begin = keys[0][3] if number <= 1 else base
        slots_used = enter(buffer, keys, self.slot_count, number, base, begin)
        slots_used += header.slots_used
        self._advance(buffer, keys[0][2:], keys[-1][2:], slots_used, number + len(keys))

    def _advance(
        self,
        buffer: memoryview,
        first: tuple[int, int],
        last: tuple[int, int],
        slots_used: int,
        number: int,
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
        self.header.write(buffer)

    def lookup(
        self,
        buffer: memoryview,
        key_hash: int,
        count_max: int,
        begin_ms: int,
        end_ms: int,
        links_max: int,
    ) -> tuple[list[int], int]:
        """Return physical offsets of entries with that hash and time, the newest first.

        Returns: with how many links of the chain were followed; `links_max` when there may be more.
        """
        header = self.header
        slot_at = INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * (key_hash % self.slot_count)
        number = INDEX_SLOT.unpack_from(buffer, slot_at)[0]
        found: list[int] = []
        below = header.next_number
        links = 0
        while 0 < number < below and len(found) < count_max and links < links_max:
            links += 1
            entry_at = self._entries_at + INDEX_ENTRY_BYTES * number
            entry_hash, physical_offset, seconds, previous = INDEX_ENTRY.unpack_from(
                buffer, entry_at
            )
            timestamp = header.begin_timestamp + seconds * 1000
            # Times stand in whole seconds: an entry may be up to a second younger than it says.
            if entry_hash == key_hash and begin_ms - 1000 < timestamp <= end_ms:
                found.append(physical_offset)
            if timestamp <= begin_ms - 1000:
                break
            # Chains only lead to older entries; anything else is a damaged slot.
            below, number = number, previous
        return found, links

    def holds(self, buffer: memoryview, key_hash: int, physical_offset: int) -> bool | None:
        """Tell whether a record is entered under a hash, by the newest links of the hash's chain.

        Places in the log only grow along the file; times do not, where the wall clock was set back.
        Of a key that a million messages bear the chain is as long.

        Returns: None where those links do not tell: then `hashes_at` does, by the record's place.
        """
        slot_at = INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * (key_hash % self.slot_count)
        number = INDEX_SLOT.unpack_from(buffer, slot_at)[0]
        below = self.header.next_number
        for _ in range(_LINKS_MAX):
            if not 0 < number < below:
                return False
            entry_hash, found, _, previous = self._entry(buffer, number)
            if found < physical_offset:
                return False
            if found == physical_offset and entry_hash == key_hash:
                return True
            below, number = number, previous
        return None

    def hashes_at(self, buffer: memoryview, physical_offset: int) -> set[int]:
        """Return the hashes under which a record is entered, those whose link leads to their chain.

        Once for all keys of a record: a search for each would be as long as there are keys.
        """
        hashes: set[int] = set()
        for number in range(self.count_below(buffer, physical_offset), self.header.next_number):
            entry_hash, found, _, previous = self._entry(buffer, number)
            if found != physical_offset:
                break
            if previous == 0 or (
                0 < previous < number
                and self._entry(buffer, previous)[0] % self.slot_count
                == entry_hash % self.slot_count
            ):
                hashes.add(entry_hash)
        return hashes

    def _entry(self, buffer: memoryview, number: int) -> tuple[int, int, int, int]:
        """Return hash, physical offset, seconds and the number of the older one of its chain."""
        entry: tuple[int, int, int, int] = INDEX_ENTRY.unpack_from(
            buffer, self._entries_at + INDEX_ENTRY_BYTES * number
        )
        return entry

    def entry_offset(self, buffer: memoryview, number: int) -> int:
        """Return the physical offset of one entry."""
        at = self._entries_at + INDEX_ENTRY_BYTES * number
        return int(INDEX_ENTRY.unpack_from(buffer, at)[1])

    def restore(self, buffer: memoryview, header: IndexHeader) -> None:
        """Go back to a header that a checkpoint kept: slots are made again from the entries."""
        slots = array("i", bytes(INDEX_SLOT_BYTES * self.slot_count))
        assert slots.itemsize == INDEX_SLOT_BYTES
        first_at = self._entries_at + INDEX_ENTRY_BYTES
        end_at = self._entries_at + INDEX_ENTRY_BYTES * header.next_number
        slot_count = self.slot_count
        hashes = _ENTRY_HASH.iter_unpack(buffer[first_at:end_at])
        for number, (key_hash,) in enumerate(hashes, 1):
            slots[key_hash % slot_count] = number
        # The count is that of the entries there are, also where some were cut off.
        header = replace(header, slots_used=slot_count - slots.count(0))
        if sys.byteorder == "little":
            slots.byteswap()
        buffer[INDEX_HEADER_BYTES : self._entries_at] = slots.tobytes()
        self.header = header
        header.write(buffer)

    def count_below(self, buffer: memoryview, physical_offset: int) -> int:
        """Return the number of the first entry at `physical_offset` or behind it."""
        low, high = 1, self.header.next_number
        while low < high:
            middle = (low + high) // 2
            if self.entry_offset(buffer, middle) < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low
