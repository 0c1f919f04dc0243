"""The body of a batch send: several messages of one topic and queue, back to back.

    4 size, 4 magic, 4 crc, 4 flag, 4 body length n, n body, 2 properties length m, m properties

Clients write magic and CRC as zero and nobody reads them; each element becomes a record of its own.
Source: MessageDecoder.encodeMessage and decodeMessages of 4.9.3.
"""

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from ledgermq.protocol.errors import LocalProtocolError, RemoteProtocolError

# 4 size, 4 magic, 4 crc, 4 flag, 4 body_length
_BATCH_HEAD: Final = Struct(">iiiii")
_BATCH_FIXED_BYTES: Final = _BATCH_HEAD.size + 2
# Messages that a broker takes of one batch.
BATCH_COUNT_MAX: Final = 10_000


class BatchMessage(NamedTuple):
    """One element of the body of a batch send."""

    flag: int
    body: bytes
    properties: bytes


def encode_batch(messages: list[BatchMessage]) -> bytes:
    """Return the body of a batch send: magic and CRC are zero, as clients write them.

    Raises:
        LocalProtocolError: properties are longer than 32767 bytes, or a flag is no i32.
    """
    parts: list[bytes] = []
    try:
        for flag, body, properties in messages:
            size_bytes = _BATCH_FIXED_BYTES + len(body) + len(properties)
            parts.append(_BATCH_HEAD.pack(size_bytes, 0, 0, flag, len(body)))
            parts.append(body)
            parts.append(len(properties).to_bytes(2, "big", signed=True))
            parts.append(properties)
    except (StructError, OverflowError) as error:
        raise LocalProtocolError("batch element", str(error)) from error
    return b"".join(parts)


def decode_batch(body: bytes) -> list[BatchMessage]:
    """Return the elements of the body of a batch send; magic and CRC in it are ignored.

    Source: MessageDecoder.decodeMessages and the batch encoders of 4.9.3, which read flag, body and
    properties only.

    Raises:
        RemoteProtocolError: the lengths do not add up to the bytes there are.
    """
    messages: list[BatchMessage] = []
    offset = 0
    while offset < len(body):
        if offset + _BATCH_FIXED_BYTES > len(body):
            raise RemoteProtocolError("batch element bytes", len(body) - offset, "a whole element")
        size_bytes, _, _, flag, body_bytes = _BATCH_HEAD.unpack_from(body, offset)
        body_start = offset + _BATCH_HEAD.size
        end = offset + size_bytes
        properties_start = body_start + body_bytes + 2
        if body_bytes < 0 or end > len(body) or properties_start > end:
            raise RemoteProtocolError("batch element sizes", (size_bytes, body_bytes), len(body))
        properties_bytes = int.from_bytes(body[properties_start - 2 : properties_start], "big")
        if properties_start + properties_bytes != end or properties_bytes > 0x7FFF:
            raise RemoteProtocolError("batch element properties size", properties_bytes)
        inner = body[body_start : body_start + body_bytes]
        messages.append(BatchMessage(flag, inner, body[properties_start:end]))
        offset = end
    return messages
