"""Records back to back, as a plain commit log holds them: where they begin, and where they end.

A segment of a plain log is records one behind the other, without heads. A record is placed only
where 8 bytes stay free behind it; otherwise the rest of the segment is a blank, and the record
opens the next one:

    offset  type  field  value
    0       i32   rest   bytes up to the end of the segment, these 8 included
    4       u32   magic  0xCBD43194
    8             whatever was there before; zeros where LedgerMQ wrote it

Pure functions over bytes. What they promise: no record is told of that does not say itself that it
stands there. They do not tell a torn tail from damage: that takes to know what was on the disk for
certain (`plain_recovery.py`).
Source: CommitLog.checkMessageAndReturnSize, DefaultAppendMessageCallback of 4.9.3.
"""

from struct import Struct
from typing import Final, NamedTuple

from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.record import (
    PHYSICAL_OFFSET_OFFSET,
    RECORD_FIXED_BYTES,
    RECORD_MAGIC,
    RECORD_MAGIC_V2,
    body_is_intact,
    decode_record,
)

PLAIN_BLANK_MAGIC: Final = 0xCBD43194
PLAIN_BLANK: Final = Struct(">iI")
PLAIN_BLANK_BYTES: Final = 8
assert PLAIN_BLANK.size == PLAIN_BLANK_BYTES

# 4 size, 4 magic, up to 4 physical_offset.
_HEAD: Final = Struct(f">iI{PHYSICAL_OFFSET_OFFSET - 8}xq")
# Bytes of a record that show whether one begins at a position.
RECORD_HEAD_BYTES: Final = _HEAD.size
_MAGICS: Final = frozenset({RECORD_MAGIC, RECORD_MAGIC_V2})


class Walk(NamedTuple):
    """What was found in a part of one segment."""

    # Absolute offset of each record.
    starts: list[int]
    # Absolute offset behind the last record.
    end: int
    # Where the segment ends, when a blank stands behind the last record; None when none does.
    blank_end: int | None
    # Why nothing more was found: "" at the end of the bytes and where there are only zeros.
    stopped_because: str
    # Whether bytes behind those that were given may complete what stands at `end`.
    needs_more: bool

    @property
    def stops(self) -> list[int]:
        """Absolute offset behind each record."""
        return [*self.starts[1:], self.end] if self.starts else []

    @property
    def next_offset(self) -> int:
        """Where the record after these begins."""
        return self.end if self.blank_end is None else self.blank_end


def walk_records(
    data: bytes | memoryview, offset: int, segment_bytes: int, *, verify: bool
) -> Walk:
    """Finds the records in bytes of one segment.

    Args:
        data: from a record's first byte on, at most up to the end of the segment.
        offset: absolute offset of data[0].
        segment_bytes: size of a segment.
        verify: whether each record is decoded and its body's CRC compared.
    """
    starts: list[int] = []
    at, total, unpack = 0, len(data), _HEAD.unpack_from
    segment_end = offset - offset % segment_bytes + segment_bytes
    while at + PLAIN_BLANK_BYTES <= total:
        size, magic = PLAIN_BLANK.unpack_from(data, at)
        end = offset + at
        if magic == PLAIN_BLANK_MAGIC:
            if end + size != segment_end:
                return Walk(starts, end, None, f"a blank has {size} bytes", False)
            return Walk(starts, end, segment_end, "", False)
        if magic not in _MAGICS:
            reason = "" if not size and not magic else f"its magic is {magic:#010x}"
            return Walk(starts, end, None, reason, False)
        if size < RECORD_FIXED_BYTES or at + size > total:
            reason = f"it has {size} bytes, there are {total - at}"
            fits = RECORD_FIXED_BYTES <= size <= segment_end - end - PLAIN_BLANK_BYTES
            return Walk(starts, end, None, reason, fits)
        place: int = unpack(data, at)[2]
        if place != end:
            return Walk(starts, end, None, f"it says that it stands at {place}", False)
        if verify and (reason := _what_is_wrong(data, at, size)):
            return Walk(starts, end, None, reason, False)
        starts.append(end)
        at += size
    reason = "it is cut short" if bytes(data[at:]).strip(b"\0") else ""
    return Walk(starts, offset + at, None, reason, True)


def begins_here(data: bytes | memoryview, at: int, offset: int) -> bool:
    """Whether a blank, or a record that says that it stands at `offset`, begins at data[at]."""
    if at + _HEAD.size > len(data):
        # No record fits in so few bytes.
        return at + PLAIN_BLANK_BYTES <= len(data)
    _, magic, place = _HEAD.unpack_from(data, at)
    return magic == PLAIN_BLANK_MAGIC or (magic in _MAGICS and place == offset)


def _what_is_wrong(data: bytes | memoryview, at: int, size: int) -> str:
    try:
        record = decode_record(bytes(data[at : at + size]))
    except RemoteProtocolError as error:
        return str(error)
    if record.size_bytes != size:
        return f"its fields take {record.size_bytes} bytes of {size}"
    return "" if body_is_intact(record) else "its body has another CRC"


def place_records(sizes: list[int], end: int, segment_bytes: int) -> tuple[list[int], int]:
    """Tells where records go that are appended at `end`.

    Returns:
        The absolute offset of each, and the offset behind the last one.
    """
    offsets = []
    for size in sizes:
        rest = segment_bytes - end % segment_bytes
        if size + PLAIN_BLANK_BYTES > rest:
            end += rest
        offsets.append(end)
        end += size
    return offsets, end
