# cython: boundscheck=False, wraparound=False
"""The loops over the records of one answer: each is proven where it stands, then all are copied
from there into the answer.

Part of the kernel: `run_loops.pxd` gives the types. Uncompiled they give the same, but read byte by
byte; then the loop of `LogReader` is the quicker one.
"""

from typing import Any, Final

from ledgermq.commitlog.layout import QUEUE_UNIT_BYTES
from ledgermq.commitlog.proof import PROOF
from ledgermq.dledger.entry import HEAD_BYTES
from ledgermq.protocol.checksum import crc32c

# Which of its two forms this module is.
COMPILED: Final = not __file__.endswith(".py")

# Of a queue: 8 physical offset, 4 size, 8 tags code.
_UNIT: Final = QUEUE_UNIT_BYTES
# Of an entry, before its record; and of a record, so that all that proves it is there.
_HEAD: Final = HEAD_BYTES
_PROVEN_MIN: Final = PROOF.size - HEAD_BYTES
_SIGN_32: Final = 1 << 31
_SIGN_64: Final = 1 << 63

# Records of one queue that stand in one segment of the log: how many, their bytes, how far behind
# the end of the log the last unit lies that was looked at; units of the queue, from theirs on;
# queue id and offset of the first; a part of the segment that holds them, and its position.
Run = tuple[int, int, int, bytes, int, int, memoryview, int]


def measure_run(
    units: bytes, begin: int, end: int, lowest: int, bytes_max: int, count_max: int
) -> tuple[int, int, int]:
    """Finds out which records an answer holds.

    Args:
        units: of the queue, those of the records first.
        begin, end: of the segment that holds the records.
        lowest: records below need a closer look.
        bytes_max: of all records, unless it is one alone.
        count_max: of records, 1 at least.

    Returns:
        How many records, their bytes, and the place of the last unit that was looked at, which is
        the one behind them unless they are the last. No records when one needs a closer look.
    """
    u = units
    lowest = max(lowest, begin + _HEAD)
    there = len(units) // _UNIT
    count = found_bytes = at = 0
    while count < there:
        at, size = _unit_place(u, count * _UNIT), _unit_size(u, count * _UNIT)
        if at < lowest:
            return 0, 0, 0
        if count and (count >= count_max or found_bytes + size > bytes_max):
            break
        if size < _PROVEN_MIN or at > end - size:
            return 0, 0, 0
        found_bytes += size
        count += 1
    return count, found_bytes, at


def read_run(head: bytes, run: Run) -> bytes | None:
    """Returns a head and the records behind it in one piece; None unless all of them are proven.

    Args:
        head: what the answer begins with.
        run: as it was measured.
    """
    count, _, _, units, queue_id, queue_offset, segment, begin = run
    checksum = crc32c
    d, u = segment, units
    head_bytes, segment_bytes = len(head), len(segment)
    total = head_bytes
    if not 0 <= count <= len(units) // _UNIT:
        return None
    for i in range(count):
        place, size = _unit_place(u, i * _UNIT) - begin, _unit_size(u, i * _UNIT)
        if place < _HEAD or size < _PROVEN_MIN or place > segment_bytes - size:
            return None
        total += size
    # Nobody else has seen these bytes yet: compiled, they are written in place.
    room: Any = bytes(total) if COMPILED else bytearray(total)
    out = room
    for i in range(head_bytes):
        out[i] = head[i]
    # All are copied first: the memory delivers quicker than the checksum takes.
    at = head_bytes
    for i in range(count):
        place, size = _unit_place(u, i * _UNIT) - begin, _unit_size(u, i * _UNIT)
        _copy(out, at, d, place, size)
        at += size
    view = memoryview(room)
    at = head_bytes
    for i in range(count):
        place, size = _unit_place(u, i * _UNIT) - begin, _unit_size(u, i * _UNIT)
        body_crc = _u32(d, place - 8)
        if (
            _own_u32(out, at + 12) != queue_id
            or _own_i64(out, at + 20) != queue_offset
            or _own_i64(out, at + 28) != place + begin
            or (checksum(view[at : at + size]) != body_crc and (body_crc or _u32(d, place - 12)))
        ):
            return None
        queue_offset += 1
        at += size
    return room if COMPILED else bytes(room)


def _copy(out: bytearray, at: int, d: memoryview, place: int, size: int) -> None:
    for i in range(size):
        out[at + i] = d[place + i]


def _unit_place(u: bytes, at: int) -> int:
    return _own_i64(u, at)


def _unit_size(u: bytes, at: int) -> int:
    return (_own_u32(u, at + 8) ^ _SIGN_32) - _SIGN_32


def _u32(d: memoryview, at: int) -> int:
    value = d[at]
    value = (value << 8) | d[at + 1]
    value = (value << 8) | d[at + 2]
    return (value << 8) | d[at + 3]


def _own_u32(u: bytes | bytearray, at: int) -> int:
    value = u[at]
    value = (value << 8) | u[at + 1]
    value = (value << 8) | u[at + 2]
    return (value << 8) | u[at + 3]


def _own_i64(u: bytes | bytearray, at: int) -> int:
    value = _own_u32(u, at)
    value = (value << 32) | _own_u32(u, at + 4)
    return (value ^ _SIGN_64) - _SIGN_64
