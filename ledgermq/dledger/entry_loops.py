# cython: boundscheck=False, wraparound=False
"""The loops over the entries of a run: heads written, heads and checksums checked.

Part of the kernel: `entry_loops.pxd` gives the types. `EntryCodec` calls them where they are
compiled; elsewhere its own loops are the quicker ones, and give the same.
"""

from collections.abc import Callable, Sequence
from typing import Final

# Which of its two forms this module is.
COMPILED: Final = not __file__.endswith(".py")

# As in entry.py: bytes of a head, what of it the chain checksum covers, and all that it covers.
_HEAD: Final = 48
_COVERED: Final = 36
_CHAINED: Final = 44
_MAGIC: Final = 1
_STAMP_BYTES: Final = 8
_SIGN_32: Final = 1 << 31
_SIGN_64: Final = 1 << 63

Crc32c = Callable[[bytes | bytearray | memoryview, int], int]


def fill_heads(
    data: bytearray,
    bodies: Sequence[bytes],
    index: int,
    term: int,
    position: int,
    chain_crc: int,
    stamp_offset: int,
    crc32c: Crc32c,
) -> tuple[list[int], int]:
    """Writes the heads of entries whose bodies stand in their places already, and the stamps.

    Args:
        data: 48 bytes for the head before each body, back to back.
        bodies: what these bytes hold.
        index: of the first entry.
        term: of all.
        position: of the first entry.
        chain_crc: of the entry before.
        stamp_offset: where in a body its own position goes; -1 for nowhere.
        crc32c: the checksum.

    Returns:
        Where each entry begins, and the chain checksum of the last one.
    """
    starts: list[int] = []
    d, view = data, memoryview(data)
    chained = bytearray(_CHAINED)
    c = chained
    total = len(data)
    start = 0
    for body in bodies:
        body_bytes = len(body)
        size = body_bytes + _HEAD
        if start + size > total:
            raise ValueError(f"a body ends at {start + size} of {total} bytes")
        at = position + start
        if 0 <= stamp_offset and stamp_offset + _STAMP_BYTES <= body_bytes:
            _put_64(d, start + _HEAD + stamp_offset, at + _HEAD)
        body_crc = crc32c(view[start + _HEAD : start + size], 0)
        _put_32(d, start, _MAGIC)
        _put_32(d, start + 4, size)
        _put_64(d, start + 8, index)
        _put_64(d, start + 16, term)
        _put_64(d, start + 24, at)
        _put_32(d, start + 32, 0)
        _put_32(d, start + 40, body_crc)
        _put_32(d, start + 44, body_bytes)
        _put_32(c, 0, chain_crc)
        for i in range(_COVERED):
            c[4 + i] = d[start + i]
        _put_32(c, 4 + _COVERED, body_crc)
        chain_crc = crc32c(chained, 0)
        _put_32(d, start + _COVERED, chain_crc)
        starts.append(start)
        start += size
        index += 1
    return starts, chain_crc


def walk_entries(
    data: bytes | memoryview,
    index: int,
    term: int,
    position: int,
    chain_crc: int,
    is_chain_known: bool,
    crc32c: Crc32c | None,
) -> tuple[list[int], int, int, int] | None:
    """Checks entries one by one, as `EntryCodec.parse` does.

    Args:
        data: whole entries.
        index: of the first entry, 0 to 2^62.
        term: that of the first entry is not lower.
        position: of the first entry, 0 to 2^62.
        chain_crc: of the entry before.
        is_chain_known: whether the first chain checksum continues that one.
        crc32c: the checksum; None leaves checksums unchecked.

    Returns:
        Where each entry begins, term and chain checksum of the last one, and how many have no
        checksums; None when something is wrong, which `EntryCodec.parse` finds out.
    """
    starts: list[int] = []
    d, view = data, memoryview(data)
    chained = bytearray(_CHAINED)
    c = chained
    total = len(data)
    start = unfilled = 0
    while start < total:
        if start + _HEAD > total:
            return None
        size, at_term = _i32(d, start + 4), _i64(d, start + 16)
        end = start + size
        if (
            _u32(d, start) != _MAGIC
            or _u32(d, start + 32) != 0
            or _i64(d, start + 8) != index
            or _i64(d, start + 24) != position + start
            or at_term < term
            or size < _HEAD
            or _i32(d, start + 44) != size - _HEAD
            or end > total
        ):
            return None
        chain, body_crc = _u32(d, start + _COVERED), _u32(d, start + 40)
        if crc32c is not None:
            if chain == 0 and body_crc == 0:
                unfilled += 1
            else:
                if crc32c(view[start + _HEAD : end], 0) != body_crc:
                    return None
                _put_32(c, 0, chain_crc)
                for i in range(_COVERED):
                    c[4 + i] = d[start + i]
                _put_32(c, 4 + _COVERED, body_crc)
                if is_chain_known and crc32c(chained, 0) != chain:
                    return None
        is_chain_known = True
        chain_crc, term = chain, at_term
        starts.append(start)
        start = end
        index += 1
    return starts, term, chain_crc, unfilled


def _u32(d: bytes | memoryview, at: int) -> int:
    value = d[at]
    value = (value << 8) | d[at + 1]
    value = (value << 8) | d[at + 2]
    return (value << 8) | d[at + 3]


def _i32(d: bytes | memoryview, at: int) -> int:
    return (_u32(d, at) ^ _SIGN_32) - _SIGN_32


def _i64(d: bytes | memoryview, at: int) -> int:
    value = _u32(d, at)
    value = (value << 32) | _u32(d, at + 4)
    return (value ^ _SIGN_64) - _SIGN_64


def _put_32(d: bytearray, at: int, value: int) -> None:
    for i in range(4):
        d[at + i] = (value >> (24 - 8 * i)) & 255


def _put_64(d: bytearray, at: int, value: int) -> None:
    for i in range(8):
        d[at + i] = (value >> (56 - 8 * i)) & 255
