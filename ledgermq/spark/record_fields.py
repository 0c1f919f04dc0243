"""Where the parts of records lie, and parts of them as Arrow arrays.

The kernel's loops find and copy them where they were compiled, else numpy and Arrow do. Both give
the same. What the loops refuse goes the other way, which says what is wrong.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ledgermq.protocol import column_loops as loops
from ledgermq.protocol.record import RECORD_MAGIC, RECORD_MAGIC_V2
from ledgermq.protocol.sysflag import BORN_HOST_V6, STORE_HOST_V6
from ledgermq.spark.property_columns import Int64s, gather, slices

Booleans = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]

# The first 48 bytes of a record; what follows moves with the sizes of the two hosts.
HEAD: Final = np.dtype(
    [
        ("size_bytes", ">i4"),
        ("magic", ">u4"),
        ("body_crc", ">u4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
    ]
)
# What stands behind the two hosts.
_TAIL: Final = np.dtype(
    [("reconsume_times", ">i4"), ("prepared_transaction_offset", ">i8"), ("body_bytes", ">i4")]
)
_V6_BYTES: Final = 12
assert (HEAD.itemsize, _TAIL.itemsize) == (48, 16)


class RecordFields(NamedTuple):
    """Fields of records, an array each; places are counted in bytes from the first of the run."""

    queue_ids: Int32s
    sys_flags: Int32s
    reconsume_times: Int32s
    queue_offsets: Int64s
    born_ms: Int64s
    store_ms: Int64s
    body_at: Int64s
    body_end: Int64s
    topic_at: Int64s
    topic_end: Int64s
    properties_at: Int64s
    properties_end: Int64s


def quick_fields(data: bytes | memoryview, starts: Int64s) -> RecordFields | None:
    """Returns the fields of records, read in one pass; None where that is not compiled, or where
    one of them is not consistent in itself.
    """
    if not loops.COMPILED:
        return None
    count = len(starts)
    wide = np.empty(loops.WIDE_COUNT * count, np.int64)
    narrow = np.empty(loops.NARROW_COUNT * count, np.int32)
    if not loops.read_fields(data, starts, wide, narrow):
        return None
    # In the order of the loop's columns.
    columns = [
        *narrow.reshape(loops.NARROW_COUNT, count),
        *wide.reshape(loops.WIDE_COUNT, count),
    ]
    return RecordFields._make(columns)


def checked_fields(
    data: bytes | memoryview, starts: Int64s, check: Callable[[Booleans], None]
) -> RecordFields:
    """Returns the fields of records.

    Args:
        data: the records.
        starts: where each begins; its size is known to end within `data`.
        check: is told which records are as they should be so far, and raises unless all are.
    """
    buffer = np.frombuffer(data, np.uint8)
    head = gather(buffer, starts, HEAD)
    ends = starts + head["size_bytes"]
    sys_flag = head["sys_flag"]
    store_at = starts + 56 + _V6_BYTES * ((sys_flag & BORN_HOST_V6) != 0)
    tail_at = store_at + 16 + _V6_BYTES * ((sys_flag & STORE_HOST_V6) != 0)
    body_at = tail_at + _TAIL.itemsize
    check(body_at + 3 <= ends)
    tail = gather(buffer, tail_at, _TAIL)
    body_end = body_at + tail["body_bytes"]
    magic = head["magic"]
    is_long = magic == RECORD_MAGIC_V2
    topic_at = body_end + 1 + is_long
    check(((magic == RECORD_MAGIC) | is_long) & (tail["body_bytes"] >= 0) & (topic_at + 2 <= ends))
    topic_bytes = buffer[topic_at - 1].astype(np.int64)
    if is_long.any():
        topic_bytes += np.where(is_long, buffer[topic_at - 2], 0).astype(np.int64) * 256
    topic_end = topic_at + topic_bytes
    check(topic_end + 2 <= ends)
    lengths = gather(buffer, topic_end, np.dtype(">i2")).astype(np.int64)
    check(topic_end + 2 + lengths == ends)
    return RecordFields(
        head["queue_id"].astype(np.int32),
        sys_flag.astype(np.int32),
        tail["reconsume_times"].astype(np.int32),
        head["queue_offset"].astype(np.int64),
        head["born_timestamp"].astype(np.int64),
        gather(buffer, store_at, np.dtype(">i8")).astype(np.int64),
        body_at,
        body_end,
        topic_at,
        topic_end,
        topic_end + 2,
        ends,
    )


def parts_of(data: bytes | memoryview, begins: Int64s, ends: Int64s) -> Any:
    """Returns parts of the data as Arrow bytes.

    Args:
        data: holds them.
        begins: ascending.
        ends: none behind the begin that follows.
    """
    if loops.COMPILED:
        borders = np.empty(len(begins) + 1, np.int32)
        found = loops.copy_parts(data, begins, ends, borders)
        if found is not None:
            return _array(pa.binary(), borders, found)
    return slices(pa.py_buffer(data), begins, ends, pa.binary())


def named_places(
    data: bytes | memoryview, begins: Int64s, ends: Int64s
) -> dict[str, tuple[Int64s, Int64s]]:
    """Returns where the values of the properties that most reads want begin and end, by name, -1
    where a message has it not; nothing where that is not compiled.

    Args:
        data: holds the properties.
        begins, ends: of those of each message.
    """
    if not loops.COMPILED:
        return {}
    count = len(begins)
    places = np.empty(2 * len(loops.NAMED) * count, np.int64)
    if not loops.find_named(data, begins, ends, places):
        return {}
    columns = places.reshape(2 * len(loops.NAMED), count)
    return {name: (columns[2 * k], columns[2 * k + 1]) for k, name in enumerate(loops.NAMED)}


def texts_of(data: bytes | memoryview, begins: Int64s, ends: Int64s) -> Any:
    """Returns parts of the data as Arrow text, null where they begin at -1; None where the loops
    refuse them.
    """
    borders = np.empty(len(begins) + 1, np.int32)
    found = loops.copy_parts(data, begins, ends, borders)
    if found is None:
        return None
    is_there = begins >= 0
    if is_there.all():
        return checked_text(borders, found)
    bits = np.packbits(is_there, bitorder="little")
    return checked_text(borders, found, pa.py_buffer(bits))


def pairs_of(
    data: bytes | memoryview, begins: Int64s, ends: Int64s
) -> tuple[Int32s, Any, Any] | None:
    """Returns all properties: the number of the first pair of each message and that of all, names
    and values as Arrow text. None where that is not compiled, or they are not as usual.

    Args:
        data: holds the properties.
        begins, ends: of those of each message.
    """
    if not loops.COMPILED or not len(begins):
        return None
    # A pair has four bytes, the last of a message may have three.
    room = (int((ends - begins).sum()) + len(begins)) // 4
    places = np.empty(4 * room, np.int64)
    borders = np.empty(len(begins) + 1, np.int32)
    count = loops.find_pairs(data, begins, ends, borders, places)
    if count < 0:
        return None
    found = []
    for first in (0, 2):
        at, end = (places[k * room : k * room + count] for k in (first, first + 1))
        of_texts = np.empty(count + 1, np.int32)
        copied = loops.copy_parts(data, at, end, of_texts)
        # Two names that are no UTF-8 may become one.
        if copied is None or not copied.isascii():
            return None
        found.append(_array(pa.string(), of_texts, copied))
    return borders, found[0], found[1]


def checked_text(borders: Int32s, found: bytes, validity: Any = None) -> Any:
    """Returns bytes as Arrow text; where they are no UTF-8, as Java reads them."""
    if found.isascii():
        return _array(pa.string(), borders, found, validity)
    return as_text(_array(pa.binary(), borders, found, validity))


def as_text(found: Any) -> Any:
    """Returns Arrow bytes as text; where they are no UTF-8, as Java reads them."""
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [
                None if value is None else value.decode("utf-8", "replace")
                for value in found.to_pylist()
            ],
            pa.string(),
        )


def _array(kind: Any, borders: Int32s, found: bytes, validity: Any = None) -> Any:
    buffers = [validity, pa.py_buffer(borders), pa.py_buffer(found)]
    return pa.Array.from_buffers(kind, len(borders) - 1, buffers)
