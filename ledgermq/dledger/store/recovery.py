"""Where the good prefix of a log ends: functions over the bytes of its segments.

The data log decides, entry by entry; the index log is the second copy of each entry's identity.
Only the first entry of a log that begins behind 0 is believed when both agree: no checksum covers
its term without the entry before it, and a term that the disk made up would win elections.
A walk starts three segments before the end (DLedgerMmapFileStore.recover), or before the durable
mark when that is farther back, and goes on until something is not the next entry (`walk`):

    found at the end                              meaning
    zeros                                         never written: the end
    blank, and no good entry behind it            the end is before the blank
    anything else, or bytes that cannot be read   torn, or damaged: `is_damage` decides

A torn tail holds entries that were never acknowledged: a power cut kept some of their pages, in any
order. It is cut. Damage is a bad or missing entry that was once on disk for certain: its index is
not above the committed index of the checkpoint, or not above the durable mark. Where no durable
mark is known (Java wrote the store), a good entry behind the bad one makes it damage. A damaged
store is left as it is.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from ledgermq.dledger.entry import (
    BLANK,
    BLANK_BYTES_MIN,
    BLANK_MAGIC,
    CHAINED,
    ENTRY_MAGIC,
    HEAD,
    HEAD_BYTES,
    INDEX_UNIT,
    Crc32c,
    EntryHead,
    read_head,
)
from ledgermq.dledger.store.entry_index import IndexUnit
from ledgermq.dledger.store.errors import UnreadableError
from ledgermq.dledger.store.opening_progress import TOLD_BYTES

# Java looks at this many segments; what lies before them was written and synced long ago.
WALKED_SEGMENTS: Final = 3
_ZERO_HEAD: Final = bytes(HEAD_BYTES)
_NO_BYTES: Final = memoryview(b"")


# Returns the index unit of an entry, or None where the index log has none or zeros.
FindUnit = Callable[[int], IndexUnit | None]
# Told each few MiB up to which position the log was walked.
Reached = Callable[[int], object]


class SegmentBytes(Protocol):
    """The bytes of one segment, read where they are wanted; each read may raise UnreadableError."""

    def __len__(self) -> int:
        """Size of the segment."""

    def __getitem__(self, part: slice, /) -> bytes:
        """Returns a part of it."""

    def block(self, offset: int, size_bytes: int) -> memoryview:
        """Returns the bytes from `offset` on: so many at least, fewer at the end."""


class End(Enum):
    """Why a walk stopped inside a segment."""

    ZEROS = "zeros"
    BLANK = "blank"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """What stands where the next entry should."""

    field: str
    position: int
    expected: object
    found: object


@dataclass(slots=True, kw_only=True)
class Walk:
    """How far a walk has come; `walk_segment` moves it on."""

    # Index of the next entry, and where it would stand.
    next_index: int
    position: int
    # Of the last good entry.
    last_term: int = -1
    last_chain_crc: int = 0
    # False until the first entry was seen: then neither its term nor its chain can be compared.
    continues: bool = False
    # First index, and its position, at which the index log does not agree with the data.
    units_bad_from: tuple[int, int] | None = None
    # Entries without checksums.
    unfilled_count: int = 0
    # What is wrong at `position`; None when the log just ends there.
    flaw: Flaw | None = None


def is_sane_first(buffer: SegmentBytes, position: int, offset: int, find_unit: FindUnit) -> bool:
    """Tells whether an entry stands at `offset` that the index log knows in the same place.

    Source: DLedgerMmapFileStore.recover, the choice of its first file.
    """
    if offset + HEAD_BYTES + BLANK_BYTES_MIN > len(buffer):
        return False
    head = read_head(buffer[offset : offset + HEAD_BYTES])
    if head.magic != ENTRY_MAGIC or head.position != position:
        return False
    if head.body_bytes + HEAD_BYTES != head.size or head.body_bytes < 0 or head.index < 0:
        return False
    return find_unit(head.index) == (head.magic, head.position, head.size, head.index, head.term)


def walk(
    segments: Sequence[tuple[int, SegmentBytes]],
    state: Walk,
    units: Iterator[tuple[int, ...]],
    crc32c_from: int,
    crc32c: Crc32c,
    reached: Reached,
) -> None:
    """Moves `state` to the end of the good entries.

    Args:
        segments: start position and bytes of each segment from the one of `state.position` on.
        state: where to begin; holds the result.
        units: fields of the index units from `state.next_index` on; may end early.
        crc32c_from: segments that end above this position have their checksums verified.
        crc32c: the checksum.
        reached: see above.
    """
    # Where the blank before this segment begins, and the index of the entry that follows it.
    blank: tuple[int, int] | None = None
    for number, (start, buffer) in enumerate(segments):
        verify = crc32c if start + len(buffer) > crc32c_from else None
        end = walk_segment(buffer, start, state, units, verify, reached)
        if blank is not None and state.next_index == blank[1]:
            # No good entry stands behind the blank, so it is not part of the log either: a smaller
            # entry is placed before it, and so it is by the members whose log ends there.
            state.position = blank[0]
            return
        if end is not End.BLANK or number + 1 == len(segments):
            return
        blank = state.position, state.next_index
        state.position = start + len(buffer)


def walk_segment(
    buffer: SegmentBytes,
    start: int,
    state: Walk,
    units: Iterator[tuple[int, ...]],
    crc32c: Crc32c | None,
    reached: Reached | None = None,
) -> End:
    """Moves `state` over the good entries of one segment; `crc32c` None leaves checksums unread."""
    told_at = state.position if reached is not None else start + len(buffer)
    unpack_head, pack_chained, room = HEAD.unpack_from, CHAINED.pack, len(buffer) - 8
    position, index = state.position, state.next_index
    term, chain_crc = state.last_term, state.last_chain_crc
    continues, units_bad_from, flaw = state.continues, state.units_bad_from, None
    unfilled = 0
    offset = position - start
    # The bytes from `base` up to `stop`.
    block, base, stop = _NO_BYTES, offset, offset
    while offset + 48 <= room:
        if offset + 48 > stop:
            block, flaw = _read_block(buffer, offset, 48, position)
            base, stop = offset, offset + len(block)
            if flaw is not None:
                break
        magic, size, at_index, at_term, at, channel, chain, body_crc, body_bytes = unpack_head(
            block, offset - base
        )
        end = offset + size
        is_next = magic == 1 and at_index == index and at == position and at_term >= term
        if not is_next or body_bytes + 48 != size or body_bytes < 0 or end > room or channel:
            break
        if crc32c is not None and chain == 0 and body_crc == 0:
            unfilled += 1
        elif crc32c is not None:
            if end > stop:
                block, flaw = _read_block(buffer, offset, size, position)
                base, stop = offset, offset + len(block)
                if flaw is not None:
                    break
            found = crc32c(block[offset - base + 48 : end - base], 0)
            if found != body_crc:
                flaw = Flaw(field="body_crc", position=at, expected=body_crc, found=found)
                break
            found = crc32c(pack_chained(chain_crc, 1, size, index, at_term, at, 0, body_crc), 0)
            if found != chain and (continues or index == 0):
                flaw = Flaw(field="chain_crc", position=at, expected=chain, found=found)
                break
        if units_bad_from is None:
            unit = next(units, None)
            if unit != (1, at, size, index, at_term):
                if unit is not None and unit[0] == 1 and index and not continues:
                    flaw = Flaw(field="unit", position=at, expected=unit, found=(at_term, size))
                    break
                units_bad_from = index, position
        continues, term, chain_crc = True, at_term, chain
        position += size
        offset = end
        index += 1
        if position >= told_at and reached is not None:
            reached(position)
            told_at = position + TOLD_BYTES
    state.position, state.next_index, state.last_term = position, index, term
    state.last_chain_crc, state.continues = chain_crc, continues
    state.units_bad_from = units_bad_from
    state.unfilled_count += unfilled
    ending = _ending(buffer, offset, state) if flaw is None else flaw
    if isinstance(ending, End):
        return ending
    state.flaw = ending
    return End.BAD


def is_damage(
    state: Walk,
    *,
    committed_index: int,
    durable_index: int | None,
    find_unit: FindUnit,
    is_good: Callable[[IndexUnit], bool],
) -> bool:
    """Tells whether the log ends before its time: see the head of this module.

    Args:
        state: the walk at its end.
        committed_index: from the checkpoint, -1 when unknown.
        durable_index: from the durable mark, None when no mark holds.
        find_unit: looks into the index log as it was found.
        is_good: whether the entry of a unit stands in the data log.
    """
    index = state.next_index
    if durable_index is not None:
        return index <= max(committed_index, durable_index)
    if index <= committed_index:
        return True
    unit, successor = find_unit(index), find_unit(index + 1)
    if unit is None or successor is None or successor.index != index + 1:
        return False
    return unit.position >= state.position and is_good(successor)


def units_of(buffer: SegmentBytes, offset: int, end: int) -> bytes:
    """Returns the index units of the good entries from `offset` to `end` or a blank before it."""
    pack, unpack_head, room = INDEX_UNIT.pack, HEAD.unpack_from, end - HEAD_BYTES
    units = []
    block, base, stop = _NO_BYTES, offset, offset
    while offset <= room:
        if offset + HEAD_BYTES > stop:
            block = buffer.block(offset, HEAD_BYTES)
            base, stop = offset, offset + len(block)
        magic, size, index, term, position, _, _, _, _ = unpack_head(block, offset - base)
        if magic != ENTRY_MAGIC:
            break
        units.append(pack(ENTRY_MAGIC, position, size, index, term))
        offset += size
    return b"".join(units)


def has_good_entry(buffer: SegmentBytes, offset: int, unit: IndexUnit, crc32c: Crc32c) -> bool:
    """Tells whether the entry that `unit` describes stands whole at `offset`."""
    if unit.size < HEAD_BYTES or offset + unit.size > len(buffer):
        return False
    try:
        entry = buffer[offset : offset + unit.size]
    except UnreadableError:
        return False
    head = read_head(entry)
    if unit != (head.magic, head.position, head.size, head.index, head.term):
        return False
    if head.chain_crc == 0 and head.body_crc == 0:
        return True
    return crc32c(memoryview(entry)[HEAD_BYTES:], 0) == head.body_crc


def _read_block(
    buffer: SegmentBytes, offset: int, size_bytes: int, position: int
) -> tuple[memoryview, Flaw | None]:
    """Returns the bytes from `offset` on, and what is wrong with the entry that begins there."""
    try:
        return buffer.block(offset, size_bytes), None
    except UnreadableError as error:
        wanted, found = f"{size_bytes} bytes", error.reason
        return _NO_BYTES, Flaw(field="content", position=position, expected=wanted, found=found)


def _ending(buffer: SegmentBytes, offset: int, state: Walk) -> End | Flaw:
    """Tells what stands at `offset`, which is no good entry."""
    rest = len(buffer) - offset
    if rest < BLANK_BYTES_MIN:
        return End.BLANK if rest == 0 else _flaw("size", state, "room for a blank", rest)
    read, flaw = _read_block(buffer, offset, min(rest, HEAD_BYTES), state.position)
    if flaw is not None:
        return flaw
    magic, blank_bytes = BLANK.unpack_from(read)
    if magic == BLANK_MAGIC:
        return End.BLANK if blank_bytes == rest else _flaw("blank", state, rest, blank_bytes)
    shown = read[:HEAD_BYTES]
    if shown == _ZERO_HEAD[: len(shown)]:
        return End.ZEROS
    if len(shown) < HEAD_BYTES:
        return _flaw("size", state, "a blank", rest)
    return _bad_field(read_head(shown), rest, state)


def _bad_field(head: EntryHead, rest: int, state: Walk) -> Flaw:
    checks = (
        ("magic", ENTRY_MAGIC, head.magic),
        ("index", state.next_index, head.index),
        ("position", state.position, head.position),
        ("channel", 0, head.channel),
        ("body_bytes", head.size - HEAD_BYTES, head.body_bytes),
    )
    for field, expected, found in checks:
        if expected != found:
            return _flaw(field, state, expected, found)
    if head.term < state.last_term:
        return _flaw("term", state, f"at least {state.last_term}", head.term)
    limit = rest - BLANK_BYTES_MIN
    return _flaw("size", state, f"{HEAD_BYTES} to {limit}", head.size)


def _flaw(field: str, state: Walk, expected: object, found: object) -> Flaw:
    return Flaw(field=field, position=state.position, expected=expected, found=found)
