"""The loop that enters keys into a file of the key index: one call for the keys of a whole turn.

Part of the kernel: `index_loops.pxd` gives the types. Hash, slot and entry of a key are what
`hashes_of` and `IndexFile.add` make of it in Python, which are quicker where this is not compiled.
Nothing is read or written outside of the buffers, whatever the numbers in them say.

Slots lie anywhere in 20 MB, so nearly each of them has to come from memory. All keys are hashed
first and their slots asked for, so that they come together and not one after the other.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ledgermq.commitlog.layout import INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_SLOT_BYTES
from ledgermq.protocol.java_hash import joined_hash

if TYPE_CHECKING:
    import cython

# Which of its two forms this module is.
COMPILED: Final = not __file__.endswith(".py")

_HEADER_BYTES: Final = INDEX_HEADER_BYTES
_SLOT_BYTES: Final = INDEX_SLOT_BYTES
_ENTRY_BYTES: Final = INDEX_ENTRY_BYTES
_SIGN: Final = 1 << 31
_MASK: Final = (1 << 32) - 1
_SECONDS_MAX: Final = 0x7FFFFFFF


def enter_keys(
    front: memoryview,
    entries: memoryview,
    keys: Sequence[tuple[int, bytes, int, int]],
    slot_count: int,
    number: int,
    first_base: int,
    base: int,
) -> int:
    """Enters keys one behind the other.

    Args:
        front: room for the header, and the slots.
        entries: gets one for each key.
        keys: unsigned hash of `topic#`, key, physical offset, store timestamp of each.
        slot_count: of the file, not 0.
        number: of the first entry, 1 or more.
        first_base: the first entry counts its seconds from this time, ms; 0 for none.
        base: from this one the others do.

    Returns:
        How many slots came into use.

    Raises:
        ValueError: slots or entries do not reach so far, or a number has no room in a slot; nothing
            is entered then.
    """
    _check_room(len(front), len(entries), len(keys), slot_count, number)
    f, b, at = front, entries, 0
    for topic_hash, key, _, _ in keys:
        unsigned = _hash(topic_hash, key, len(key))
        if unsigned < 0:
            unsigned = joined_hash(topic_hash, key)
        if unsigned >= _SIGN:
            # Java's abs, and 0 for the one number whose abs is negative.
            unsigned = (_MASK + 1 - unsigned) & (_SIGN - 1)
        for i in range(4):
            b[at + i] = (unsigned >> (24 - 8 * i)) & 255
        at += _ENTRY_BYTES
        if COMPILED:
            slot_at = _HEADER_BYTES + _SLOT_BYTES * (unsigned % slot_count)
            fetch(cython.address(f[slot_at]))  # type: ignore[name-defined]  # noqa: F821
    at = 0
    slots_used = 0
    start = first_base
    for _, _, physical_offset, timestamp in keys:
        unsigned = _u32(b, at)
        slot_at = _HEADER_BYTES + _SLOT_BYTES * (unsigned % slot_count)
        previous = _u32(f, slot_at)
        if previous == 0 or previous >= number:
            # Numbers above the sign are negative ones, and larger than any.
            previous = 0
            slots_used += 1
        seconds = 0
        if 0 < start < timestamp:
            seconds = (timestamp - start) // 1000
            if seconds > _SECONDS_MAX:
                seconds = _SECONDS_MAX
        for i in range(4):
            shift = 24 - 8 * i
            b[at + 4 + i] = (physical_offset >> (32 + shift)) & 255
            b[at + 8 + i] = (physical_offset >> shift) & 255
            b[at + 12 + i] = (seconds >> shift) & 255
            b[at + 16 + i] = (previous >> shift) & 255
            f[slot_at + i] = (number >> shift) & 255
        at += _ENTRY_BYTES
        number += 1
        start = base
    return slots_used


def _check_room(size: int, entries_size: int, count: int, slot_count: int, number: int) -> None:
    """Raises ValueError for buffers of these sizes that do not hold what is to be entered."""
    # The first comparisons keep the sums small.
    if (
        not (0 < slot_count < size and 0 < number < _SIGN and number + count <= _SIGN)
        or _HEADER_BYTES + _SLOT_BYTES * slot_count > size
        or entries_size != _ENTRY_BYTES * count
    ):
        raise ValueError(
            f"entry {number} and {count} in all, {slot_count} slots in {size} bytes,"
            f" {entries_size} bytes for entries"
        )


def _u32(b: memoryview, at: int) -> int:
    """Returns the unsigned number in 4 bytes of a buffer."""
    value = (b[at] << 8) | b[at + 1]
    value = (value << 8) | b[at + 2]
    return (value << 8) | b[at + 3]


def _hash(prefix: int, text: bytes, count: int) -> int:
    """Returns the unsigned hash of a prefix and an ASCII text; -1 when the text is not ASCII."""
    value, t = prefix, text
    for i in range(count):
        if t[i] >= 128:
            return -1
        value = (value * 31 + t[i]) & _MASK
    return value
