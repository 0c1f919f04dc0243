"""Java's hash of a string, on which tags codes and the key index rest.

Over the UTF-16 code units u: h = 31 * h + u, modulo 2^32; a character outside the BMP counts as two
units. Written as a polynomial, the hash of a joined text follows from the hashes of its parts:
hash(a + b) = hash(a) * 31^len(b) + hash(b).

Many keys of 32 ASCII bytes (the unique ids that clients make) are hashed at once by arithmetic on
one large integer, in which each key has its own lane: five rounds fold neighbouring lanes, as
x0 * 31^n + x1, until 32 lanes of 8 bits have become one of 32 bits. That is eight times faster than
one key after the other (bench/bench_record.py).
"""

from collections.abc import Sequence
from operator import mul
from struct import Struct
from typing import Final

UINT32_MASK: Final = 0xFFFFFFFF
# Length of the keys that hash_unique_ids takes: an id with an IPv4 address.
UNIQUE_ID_CHARS: Final = 32

# _WEIGHTS[n] is 31^n; _POWERS[n] holds 31^(n-1) .. 31^0, for texts of n units. Longer texts are cut
# into pieces.
_PIECE_UNITS: Final = 256
_WEIGHTS: Final[list[int]] = [int(pow(31, n, 1 << 32)) for n in range(_PIECE_UNITS + 1)]
_POWERS: Final[list[list[int]]] = [_WEIGHTS[:n][::-1] for n in range(_PIECE_UNITS + 1)]
# Keys that are folded together; more is not faster, and every lane beyond the keys costs the same.
_LANES_MAX: Final = 64


def unsigned_hash(units: Sequence[int]) -> int:
    """Return Java's hash of a text given as UTF-16 code units (bytes, when it is ASCII), unsigned.

    Returns: 0..2^32-1; 0 for the empty text.
    """
    count = len(units)
    if count <= _PIECE_UNITS:
        total: int = sum(map(mul, units, _POWERS[count]))
        return total & UINT32_MASK
    total = 0
    for start in range(0, count, _PIECE_UNITS):
        piece = units[start : start + _PIECE_UNITS]
        total = (total * _WEIGHTS[len(piece)] + unsigned_hash(piece)) & UINT32_MASK
    return total


def code_units(text: bytes) -> Sequence[int]:
    """Return the UTF-16 code units of UTF-8 `text`; bytes that are not UTF-8 count as U+FFFD."""
    if text.isascii():
        return text
    wide = text.decode("utf-8", "replace").encode("utf-16-be", "surrogatepass")
    return _pairs(wide)


def java_string_hash(text: str) -> int:
    """Return what String.hashCode gives in Java: a signed 32-bit number."""
    if text.isascii():
        value = unsigned_hash(text.encode("ascii"))
    else:
        value = unsigned_hash(_pairs(text.encode("utf-16-be", "surrogatepass")))
    return value - (1 << 32) if value >> 31 else value


def joined_hash(prefix_hash: int, text: bytes) -> int:
    """Return the unsigned hash of prefix + `text` from the hash of the prefix."""
    units = code_units(text)
    return (prefix_hash * weight_of(len(units)) + unsigned_hash(units)) & UINT32_MASK


def weight_of(count: int) -> int:
    """Return 31^`count` modulo 2^32: what a prefix's hash is multiplied with."""
    return _WEIGHTS[count] if count <= _PIECE_UNITS else int(pow(31, count, 1 << 32))


def _pairs(wide: bytes) -> tuple[int, ...]:
    return Struct(f">{len(wide) // 2}H").unpack(wide)


class _Lanes:
    """Masks and output layout for a number of keys."""

    def __init__(self, key_count: int) -> None:
        self.byte_count = key_count * UNIQUE_ID_CHARS
        # (mask of the lanes that stay, distance of the neighbour in bits, its weight).
        self.rounds = [
            (self._mask(lane_bytes), 8 * lane_bytes, pow(31, lane_bytes, 1 << 32))
            for lane_bytes in (1, 2, 4)
        ] + [
            (self._mask(lane_bytes, kept_bytes=4), 8 * lane_bytes, pow(31, lane_bytes, 1 << 32))
            for lane_bytes in (8, 16)
        ]
        self.last_mask = self._mask(UNIQUE_ID_CHARS // 2, kept_bytes=4)
        self.results = Struct(">" + "28xI" * key_count)

    def _mask(self, lane_bytes: int, kept_bytes: int | None = None) -> int:
        kept = lane_bytes if kept_bytes is None else kept_bytes
        unit = bytes(2 * lane_bytes - kept) + b"\xff" * kept
        return int.from_bytes(unit * (self.byte_count // len(unit)), "big")


_LANES: dict[int, _Lanes] = {}


def hash_unique_ids(keys: Sequence[bytes]) -> list[int]:
    """Return the unsigned hashes of `keys`, each of exactly 32 ASCII bytes, in their order."""
    hashes: list[int] = []
    for start in range(0, len(keys), _LANES_MAX):
        part = keys[start : start + _LANES_MAX]
        lanes = _LANES.get(len(part))
        if lanes is None:
            lanes = _LANES[len(part)] = _Lanes(len(part))
        folded = int.from_bytes(b"".join(part), "big")
        for mask, distance, weight in lanes.rounds:
            folded = (folded & mask) + weight * ((folded >> distance) & mask)
        folded &= lanes.last_mask
        hashes.extend(lanes.results.unpack(folded.to_bytes(lanes.byte_count, "big")))
    return hashes
