# cython: boundscheck=False, wraparound=False
"""The loops that make columns of a run of records: where the records and their parts lie, and the
parts copied side by side, each in one pass.

Part of the kernel: `column_loops.pxd` gives the types. Only the compiled form is quick; where it is
missing, whoever makes columns takes numpy, which gives the same. What these loops refuse they leave
to that road as well, so each error is raised in one place. No length is trusted: every byte that is
read lies within `data`, and every number that is written within the arrays that are given.

Columns of numbers lie one behind the other in one array: item i of column k at k * count + i.
"""

from typing import Any, Final

from ledgermq.protocol.record import RECORD_FIXED_BYTES, RECORD_MAGIC, RECORD_MAGIC_V2
from ledgermq.protocol.sysflag import BORN_HOST_V6, STORE_HOST_V6

# Which of its two forms this module is.
COMPILED: Final = not __file__.endswith(".py")

# What find_named looks for, in the order of its columns.
NAMED: Final = ("TAGS", "KEYS", "UNIQ_KEY")
# Columns of read_fields: of 64 bits, queue offset, born and store time, where body, topic and
# properties begin and end; of 32 bits, queue id, sys flag, how often it was consumed again.
WIDE_COUNT: Final = 9
NARROW_COUNT: Final = 3

# In C these are numbers, not names to be looked up.
_IS_C: Final = COMPILED
_FIXED_BYTES: Final = RECORD_FIXED_BYTES
_MAGIC: Final = RECORD_MAGIC
_MAGIC_V2: Final = RECORD_MAGIC_V2
_BORN_V6: Final = BORN_HOST_V6
_STORE_V6: Final = STORE_HOST_V6
# What an IPv6 address has more than one of IPv4.
_V6_BYTES: Final = 12
# Pairs of a row that are compared with each other, whether two have one name.
_PAIRS_MAX: Final = 32
# What Arrow's borders of 32 bits reach.
_BYTES_MAX: Final = 0x7FFFFFFF
_SIGN_32: Final = 1 << 31
_SIGN_64: Final = 1 << 63
_EQUALS: Final = 1
_SEPARATOR: Final = 2
_TAGS: Final = b"TAGS\x01"
_KEYS: Final = b"KEYS\x01"
_UNIQUE: Final = b"UNIQ_KEY\x01"

# bytes, or a view of them.
Data = bytes | bytearray | memoryview
# An array of numpy, or what else lends its numbers.
Numbers = Any


def find_records(data: Data, starts: Numbers) -> tuple[int, int]:
    """Finds where the records of a run begin, one behind the other.

    Args:
        data: the run.
        starts: of 64 bits; gets the places.

    Returns:
        How many were found, and where the last ends: before the end of the data where a size leads
        nowhere, or where there was no more room.
    """
    d, out = data, starts
    end, room = len(data), len(starts)
    at = count = 0
    while count < room and end - at >= _FIXED_BYTES:
        size = _i32(d, at)
        if size < _FIXED_BYTES or size > end - at:
            break
        out[count] = at
        count += 1
        at += size
    return count, at


def read_fields(data: Data, starts: Numbers, wide: Numbers, narrow: Numbers) -> bool:
    """Reads the fields of records that are needed of nearly all of them, and proves their lengths.

    Args:
        data: the records.
        starts: where each begins, of 64 bits.
        wide: WIDE_COUNT columns of 64 bits, which are written.
        narrow: NARROW_COUNT columns of 32 bits, which are written.

    Returns:
        Whether all are records; if not, the columns hold anything.
    """
    d, s, w, n = data, starts, wide, narrow
    total, count = len(data), len(starts)
    if len(wide) < WIDE_COUNT * count or len(narrow) < NARROW_COUNT * count:
        raise ValueError(f"no room for {count} records")
    for i in range(count):
        at = s[i]
        if at < 0 or at > total - _FIXED_BYTES:
            return False
        size = _i32(d, at)
        magic = _u32(d, at + 4)
        if size < _FIXED_BYTES or size > total - at or (magic not in (_MAGIC, _MAGIC_V2)):
            return False
        stop = at + size
        flags = _i32(d, at + 36)
        store_at = at + 56
        if flags & _BORN_V6:
            store_at += _V6_BYTES
        tail_at = store_at + 16
        if flags & _STORE_V6:
            tail_at += _V6_BYTES
        body_at = tail_at + 16
        if body_at + 3 > stop:
            return False
        body_bytes = _i32(d, tail_at + 12)
        topic_at = body_at + body_bytes + 1
        if magic == _MAGIC_V2:
            topic_at += 1
        if body_bytes < 0 or topic_at + 2 > stop:
            return False
        topic_bytes = d[topic_at - 1]
        if magic == _MAGIC_V2:
            topic_bytes += d[topic_at - 2] * 256
        topic_end = topic_at + topic_bytes
        if topic_end + 2 > stop or d[topic_end] * 256 + d[topic_end + 1] != stop - topic_end - 2:
            return False
        if d[topic_end] >= 128:
            # A length below 0.
            return False
        w[i] = _i64(d, at + 20)
        w[count + i] = _i64(d, at + 40)
        w[2 * count + i] = _i64(d, store_at)
        w[3 * count + i] = body_at
        w[4 * count + i] = body_at + body_bytes
        w[5 * count + i] = topic_at
        w[6 * count + i] = topic_end
        w[7 * count + i] = topic_end + 2
        w[8 * count + i] = stop
        n[i] = _i32(d, at + 12)
        n[count + i] = flags
        n[2 * count + i] = _i32(d, tail_at)
    return True


def find_named(data: Data, begins: Numbers, ends: Numbers, places: Numbers) -> bool:
    """Finds the values of NAMED in the properties of messages: of two the later, and none that is
    empty.

    Args:
        data: holds the properties.
        begins, ends: of those of each message, of 64 bits.
        places: gets two columns of 64 bits for each name, where its values begin and where they
            end; -1 for a message that has it not.

    Returns:
        Whether all begins and ends lie within the data; if not, the columns hold anything.
    """
    d, b, e, p = data, begins, ends, places
    total, count = len(data), len(begins)
    if len(ends) < count or len(places) < 6 * count:
        raise ValueError(f"no room for the properties of {count} messages")
    for i in range(count):
        at, stop = b[i], e[i]
        if at < 0 or stop > total:
            return False
        tags_at = tags_end = keys_at = keys_end = unique_at = unique_end = -1
        while at < stop:
            end = _find(d, at, stop, _SEPARATOR)
            first = d[at]
            if first == 84:
                if _has(d, at, end - 1, _TAGS, 5):
                    tags_at, tags_end = at + 5, end
            elif first == 75:
                if _has(d, at, end - 1, _KEYS, 5):
                    keys_at, keys_end = at + 5, end
            elif first == 85 and _has(d, at, end - 1, _UNIQUE, 9):
                unique_at, unique_end = at + 9, end
            at = end + 1
        p[i] = tags_at
        p[count + i] = tags_end
        p[2 * count + i] = keys_at
        p[3 * count + i] = keys_end
        p[4 * count + i] = unique_at
        p[5 * count + i] = unique_end
    return True


def find_pairs(
    data: Data, begins: Numbers, ends: Numbers, borders: Numbers, places: Numbers
) -> int:
    """Finds all properties of messages, where they stand as every producer writes them.

    Args:
        data: holds the properties.
        begins, ends: of those of each message, of 64 bits.
        borders: of 32 bits; gets the number of the first pair of each message, and that of all.
        places: gets four columns of 64 bits, each as long as a fourth of it: where names begin and
            end, where values begin and end.

    Returns:
        How many; -1 where there are more than have room, or a message has an empty name or value,
        something without a value, one name twice, or more than a few.
    """
    d, b, e, n, p = data, begins, ends, borders, places
    total, count, room = len(data), len(begins), len(places) // 4
    if len(ends) < count or len(borders) < count + 1:
        raise ValueError(f"no room for the properties of {count} messages")
    k = 0
    for i in range(count):
        at, stop = b[i], e[i]
        if at < 0 or stop > total:
            return -1
        n[i] = k
        row_first = k
        while at < stop:
            end = _find(d, at, stop, _SEPARATOR)
            if end == at:
                return -1
            equals = _find(d, at, end, _EQUALS)
            if equals == at or equals + 1 >= end or k >= room or k - row_first >= _PAIRS_MAX:
                return -1
            for other in range(row_first, k):
                if p[room + other] - p[other] == equals - at and _are_equal(
                    d, at, equals, p[other]
                ):
                    return -1
            p[k] = at
            p[room + k] = equals
            p[2 * room + k] = equals + 1
            p[3 * room + k] = end
            k += 1
            at = end + 1
    n[count] = k
    return k


def copy_parts(data: Data, begins: Numbers, ends: Numbers, borders: Numbers) -> bytes | None:
    """Returns parts of the data, one behind the other.

    Args:
        data: holds them.
        begins, ends: of the parts, of 64 bits; one that begins at -1 is none, and takes no bytes.
        borders: of 32 bits; gets where each begins in the result, and where the last ends.

    Returns:
        None where a part does not lie within the data, or where they are too large for an array.
    """
    d, b, e, n = data, begins, ends, borders
    total, count = len(data), len(begins)
    if len(ends) < count or len(borders) < count + 1:
        raise ValueError(f"no room for {count} parts")
    size = 0
    for i in range(count):
        n[i] = size
        if b[i] != -1:
            if b[i] < 0 or b[i] > e[i] or e[i] > total or e[i] - b[i] > _BYTES_MAX - size:
                return None
            size += e[i] - b[i]
    n[count] = size
    # Nobody else has seen these bytes yet: compiled, they are written in place.
    room: Any = bytes(size) if COMPILED else bytearray(size)
    out = room
    for i in range(count):
        at = n[i]
        if n[i + 1] > at:
            if _IS_C:
                copy_bytes(out, at, d, b[i], e[i])  # type: ignore[name-defined]  # noqa: F821
            else:
                out[at : n[i + 1]] = d[b[i] : e[i]]
    return room if COMPILED else bytes(room)


def _has(d: Data, at: int, stop: int, text: bytes, count: int) -> bool:
    """Tells whether a text of so many bytes stands at d[at], with its end not behind `stop`."""
    if at + count > stop:
        return False
    t = text
    for i in range(count):
        if d[at + i] != t[i]:
            return False
    return True


def _are_equal(d: Data, at: int, stop: int, other: int) -> bool:
    """Tells whether what stands at d[at:stop] stands at d[other] as well."""
    for i in range(stop - at):
        if d[at + i] != d[other + i]:
            return False
    return True


def _find(d: Data, at: int, stop: int, byte: int) -> int:
    """Returns where a byte stands in d[at:stop], which is not empty; `stop` where it does not."""
    if _IS_C:
        found: int = find_byte(d, at, stop, byte)  # type: ignore[name-defined]  # noqa: F821
        return found
    for place in range(at, stop):
        if d[place] == byte:
            return place
    return stop


def _u32(d: Data, at: int) -> int:
    value = d[at]
    value = (value << 8) | d[at + 1]
    value = (value << 8) | d[at + 2]
    return (value << 8) | d[at + 3]


def _i32(d: Data, at: int) -> int:
    return (_u32(d, at) ^ _SIGN_32) - _SIGN_32


def _i64(d: Data, at: int) -> int:
    value = _u32(d, at)
    value = (value << 32) | _u32(d, at + 4)
    return (value ^ _SIGN_64) - _SIGN_64
