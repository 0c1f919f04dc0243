"""The head that bodies have whose schema is in a registry, as Confluent's serializers write it.

1 magic, 0
4 id of the schema, big-endian
Protobuf only: indexes of the message, as zigzag varints: their number, then each;
               one byte 0 stands for the first message, [0]
the datum
"""

import struct
from typing import Final

from ledgermq.spark.values.limits import BadValueError

_HEAD: Final = struct.Struct(">bi")
_MAGIC: Final = 0
# Messages in messages.
_INDEXES_MAX: Final = 16
_VARINT_BYTES_MAX: Final = 5
_FIRST: Final = (0,)


def split_head(body: bytes) -> tuple[int, int]:
    """Returns the id of the schema, and where the rest of a body begins.

    Raises:
        BadValueError: there is no such head.
    """
    if len(body) < _HEAD.size:
        raise BadValueError(f"{len(body)} bytes are too short for a head of {_HEAD.size}")
    magic, schema_id = _HEAD.unpack_from(body)
    if magic != _MAGIC:
        raise BadValueError(f"it begins with {body[0]:#04x}, not with 0 and the id of a schema")
    if schema_id < 0:
        raise BadValueError(f"the id of its schema is {schema_id}")
    return schema_id, _HEAD.size


def split_indexes(body: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Returns the indexes of a message, and where the datum begins.

    Raises:
        BadValueError: there are none.
    """
    count, at = _varint(body, at)
    if count == 0:
        return _FIRST, at
    if not 0 < count <= _INDEXES_MAX:
        raise BadValueError(f"{count} indexes of its message, limit {_INDEXES_MAX}")
    indexes = []
    for _ in range(count):
        index, at = _varint(body, at)
        if index < 0:
            raise BadValueError(f"an index of its message is {index}")
        indexes.append(index)
    return tuple(indexes), at


def head_of(schema_id: int, indexes: tuple[int, ...] | None) -> bytes:
    """Returns the head of a body.

    Args:
        schema_id: in the registry.
        indexes: of the Protobuf message; None for other formats.
    """
    head = _HEAD.pack(_MAGIC, schema_id)
    if indexes is None:
        return head
    if indexes == _FIRST:
        return head + b"\0"
    return head + b"".join(_packed(number) for number in (len(indexes), *indexes))


def _varint(body: bytes, at: int) -> tuple[int, int]:
    number = 0
    for i in range(_VARINT_BYTES_MAX):
        if at + i >= len(body):
            raise BadValueError("it ends within the indexes of its message")
        byte = body[at + i]
        number |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at + i + 1
    raise BadValueError("an index of its message has more than 5 bytes")


def _packed(number: int) -> bytes:
    left, out = number << 1, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
