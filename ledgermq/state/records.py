"""Bodies of the records that hold the broker's state: JSON, cut by their bytes. Pure.

Tables have no largest size, records do: what the log takes depends on its segments, and a leader
would try a record that is too large again and again. So each table is cut into as many records as
its bytes need, well below what the log takes; an entry that is larger by itself (the offsets of a
topic with very many queues, the locks of a large group) is divided, and whoever reads puts the
pieces together.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from ledgermq.commitlog import RECORD_BYTES_MAX

# Entries and bytes of a table in one record; less, where the log takes little.
_ENTRIES_MAX: Final = 1000
_CUT_BYTES: Final = 256 << 10
_CUT_PART: Final = 4
# Of an item of an entry that may be divided: a queue with its offset takes less; where items take
# more, the parts are divided once more.
_ITEM_BYTES: Final = 32
# Around a body: heads of entry and record, topic, addresses, the blank that ends a segment.
_AROUND_BYTES: Final = 1024
# Around an entry: writer, version and progress, and in a part of a sweep two names.
_AROUND_ENTRY_BYTES: Final = 4096

# With escapes, so that there is no text that cannot be written.
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


def body_bytes_max(segment_bytes: int) -> int:
    """Returns the most bytes of a body that a log with segments of this size takes."""
    return min(RECORD_BYTES_MAX, segment_bytes) - _AROUND_BYTES


def entry_bytes_max(bytes_max: int) -> int:
    """Returns the most bytes of an entry that cannot be divided, in a log that takes bodies of
    `bytes_max`: whatever record it stands in says more around it.
    """
    return bytes_max - _AROUND_ENTRY_BYTES


def cut_bytes(bytes_max: int) -> int:
    """Returns where tables are cut, in a log that takes bodies of `bytes_max`."""
    return min(_CUT_BYTES, bytes_max // _CUT_PART)


def body_of(record: Mapping[str, Any], part: Mapping[str, str] | None = None) -> bytes:
    """Returns the body of a record.

    Args:
        record: its members.
        part: more of them, by name, as `cut` made them.
    """
    body = _encode(record)
    if part:
        tables = ",".join(f'"{table}":{{{text}}}' for table, text in part.items())
        body = f"{body[:-1]},{tables}}}"
    return body.encode("ascii")


def cut(put: Mapping[str, Any], bytes_max: int) -> list[str]:
    """Divides entries among records.

    Args:
        put: in the order in which they are to stand; dicts and lists are divided, where needed.
        bytes_max: of the entries of one record; an entry that cannot be divided may have more.

    Returns:
        For each record its entries, encoded; no record for no entries.
    """
    parts: list[str] = []
    texts: list[str] = []
    size = 0
    for name, value in put.items():
        for number, text in enumerate(encoded(name, value, bytes_max, is_divisible=True)):
            is_full = len(texts) == _ENTRIES_MAX or size + len(text) > bytes_max
            # An object has each name once: two pieces of an entry never share a record.
            if texts and (is_full or number):
                parts.append(",".join(texts))
                texts, size = [], 0
            texts.append(text)
            size += len(text) + 1
    if texts:
        parts.append(",".join(texts))
    return parts


def encoded(name: str, value: Any, bytes_max: int, *, is_divisible: bool) -> Iterator[str]:
    """Yields an entry as a member of a JSON object: several times with a part of its value each,
    where it is larger than `bytes_max`, or may be, and may be divided.
    """
    key = _encode(name) + ":"
    for text in _pieces(value, bytes_max - len(key), is_divisible):
        yield key + text


def is_wide(value: Any, bytes_max: int) -> bool:
    """Whether an entry that may be divided has so many items that it is."""
    return len(value) > _items_max(bytes_max)


def _items_max(bytes_max: int) -> int:
    return max(bytes_max // _ITEM_BYTES, 1)


def _pieces(value: Any, bytes_max: int, is_divisible: bool) -> Iterator[str]:
    if is_divisible and is_wide(value, bytes_max):
        # Encoding the whole to see how long it is would take as long as all of its parts.
        yield from _parts(value, _items_max(bytes_max), bytes_max)
        return
    text = _encode(value)
    if len(text) <= bytes_max or not is_divisible or len(value) < 2:
        yield text
    else:
        yield from _parts(value, -(-len(value) // 2), bytes_max)


def _parts(value: Any, items_max: int, bytes_max: int) -> Iterator[str]:
    """Yields the pieces of a dict or list in parts of so many items, of which each may be divided
    once more.
    """
    if isinstance(value, Mapping):
        items = iter(value.items())
        while part := dict(islice(items, items_max)):
            yield from _pieces(part, bytes_max, is_divisible=True)
    else:
        for begin in range(0, len(value), items_max):
            yield from _pieces(value[begin : begin + items_max], bytes_max, is_divisible=True)
