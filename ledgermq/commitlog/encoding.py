"""The messages of a turn become records, one behind the other, in one pass.

Part of the kernel (`ledgermq/kernel.py`): compiled with the types of `encoding.pxd`, or run as it
stands. `COMPILED` picks how the bytes of a usual record (two IPv4 hosts) are put down; its layout
is drawn in `protocol/record.py`, whose encoder writes all others, and says what does not fit.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ledgermq.commitlog.errors import MessageIllegalError
from ledgermq.commitlog.light_queues import MULTI_MARK
from ledgermq.commitlog.row import TopicQueue
from ledgermq.dledger.entry import HEAD_BYTES
from ledgermq.protocol.checksum import crc32
from ledgermq.protocol.errors import LocalProtocolError
from ledgermq.protocol.properties import PROPERTIES_BYTES_MAX
from ledgermq.protocol.record import RECORD_FIXED_BYTES, TOPIC_BYTES_MAX, Host, encode_record
from ledgermq.protocol.sysflag import HOST_V6_MASK, TRANSACTION_PREPARED

# Whether this is the compiled form: the path is that of a library.
COMPILED: Final = not __file__.endswith(".py")

# DLedger's buffer for one entry is 4 MiB, in every version: a Java member cannot hold more.
ENTRY_BYTES_MAX: Final = 4 << 20
RECORD_BYTES_MAX: Final = ENTRY_BYTES_MAX - HEAD_BYTES
# Topics of the broker's own records, which nobody else writes: they tell its state and the ends of
# its queues, so the limit on messages is none for them.
OWN_TOPIC_PREFIX: Final = "rmq_sys_LEDGERMQ_"
_MAGIC = 0xDAA320A7
_CRC_MASK = 0x7FFFFFFF
_FIXED = RECORD_FIXED_BYTES
_RECORD_MAX = RECORD_BYTES_MAX
_TOPIC_MAX = TOPIC_BYTES_MAX
_PROPERTIES_MAX = PROPERTIES_BYTES_MAX
_V6 = HOST_V6_MASK
_PREPARED = TRANSACTION_PREPARED
_INT32_MAX = 0x7FFFFFFF
_PORT_MAX = 0xFFFFFFFF


class AppendMessage(NamedTuple):
    """One message of a user, as it is to be stored."""

    topic: str
    queue_id: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: Host
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    properties: bytes


def encode_messages(
    messages: Sequence[AppendMessage],
    timestamp: int,
    turn: int,
    queues: dict[tuple[str, int], TopicQueue],
    find_queue: Callable[[AppendMessage, int], TopicQueue],
    give_light_offsets: Callable[[AppendMessage, int], bytes] | None,
    body_bytes_max: int,
) -> tuple[list[bytes], list[tuple[TopicQueue, int]], dict[int, AppendMessage]]:
    """Return records, queue and queue offset of each, and messages that are stored otherwise.

    Args:
        timestamp: store time of all, ms.
        turn: claims the offsets; nothing of it holds when this raises.
        queues: those that are known.
        find_queue: gets the first message of a queue that is not known, and its number.
        give_light_offsets: gets a message that may be for light queues, and its offset; returns
            its properties with offsets. None: there are no light queues.
        body_bytes_max: of a message; a record of the broker's own may fill an entry.

    Raises:
        MessageIllegalError: one of them breaks a limit.
    """
    records: list[bytes] = []
    numbers: list[tuple[TopicQueue, int]] = []
    changed: dict[int, AppendMessage] = {}
    for message in messages:
        (
            topic, queue_id, flag, sys_flag, born, born_host, store_host, times, prepared, body,
            properties,
        ) = message  # fmt: skip
        key = (topic, queue_id)
        queue = queues.get(key)
        if queue is None:
            queue = queues[key] = find_queue(message, len(records))
        queue_offset = 0 if sys_flag & _PREPARED else queue.claim(turn)
        if give_light_offsets is not None and MULTI_MARK in properties:
            properties = give_light_offsets(message, queue_offset)
            changed[len(records)] = message._replace(properties=properties)
        if len(body) > body_bytes_max and not topic.startswith(OWN_TOPIC_PREFIX):
            raise MessageIllegalError("body bytes", len(body), body_bytes_max, len(records))
        try:
            record = None
            if COMPILED and not sys_flag & _V6:
                record = _usual_record(
                    queue.topic_bytes, queue_id, flag, queue_offset, sys_flag, born, born_host[0],
                    born_host[1], timestamp, store_host[0], store_host[1], times, prepared, body,
                    properties,
                )  # fmt: skip
            if record is None:
                record = encode_record(
                    queue.topic_bytes, queue_id, flag, queue_offset, 0, sys_flag, born, born_host,
                    timestamp, store_host, times, prepared, body, properties,
                )  # fmt: skip
        except (LocalProtocolError, OverflowError) as error:
            raise _illegal(len(properties), len(records)) from error
        if len(record) > _RECORD_MAX:
            raise MessageIllegalError("record bytes", len(record), _RECORD_MAX, len(records))
        numbers.append((queue, queue_offset))
        records.append(record)
    return records, numbers, changed


def keep_offsets(numbers: list[tuple[TopicQueue, int]], turn: int) -> None:
    """Count on behind what a turn claimed: its messages were appended."""
    for queue, _ in numbers:
        queue.keep(turn)


def _usual_record(
    topic: bytes,
    queue_id: int,
    flag: int,
    queue_offset: int,
    sys_flag: int,
    born: int,
    born_address: bytes,
    born_port: int,
    timestamp: int,
    store_address: bytes,
    store_port: int,
    times: int,
    prepared: int,
    body: bytes,
    properties: bytes,
) -> bytes | None:
    """Return a record, None when it is none of the usual or something does not fit."""
    topic_bytes, body_bytes, properties_bytes = len(topic), len(body), len(properties)
    if (
        len(born_address) != 4
        or len(store_address) != 4
        or topic_bytes > _TOPIC_MAX
        or properties_bytes > _PROPERTIES_MAX
        or body_bytes > _RECORD_MAX
        or not -_INT32_MAX <= queue_id <= _INT32_MAX
        or not -_INT32_MAX <= flag <= _INT32_MAX
        or not -_INT32_MAX <= sys_flag <= _INT32_MAX
        or not -_INT32_MAX <= times <= _INT32_MAX
        or not 0 <= born_port <= _PORT_MAX
        or not 0 <= store_port <= _PORT_MAX
    ):
        return None
    size = _FIXED + topic_bytes + body_bytes + properties_bytes
    # Nobody else has seen these bytes yet: compiled, they are written in place.
    room: Any = bytes(size) if COMPILED else bytearray(size)
    out = room
    _put32(out, 0, size)
    _put32(out, 4, _MAGIC)
    _put32(out, 8, crc32(body) & _CRC_MASK)
    _put32(out, 12, queue_id)
    _put32(out, 16, flag)
    _put64(out, 20, queue_offset)
    _put32(out, 36, sys_flag)
    _put64(out, 40, born)
    _put_bytes(out, 48, born_address, 4)
    _put32(out, 52, born_port)
    _put64(out, 56, timestamp)
    _put_bytes(out, 64, store_address, 4)
    _put32(out, 68, store_port)
    _put32(out, 72, times)
    _put64(out, 76, prepared)
    _put32(out, 84, body_bytes)
    _put_bytes(out, 88, body, body_bytes)
    at = 88 + body_bytes
    out[at] = topic_bytes
    _put_bytes(out, at + 1, topic, topic_bytes)
    at += 1 + topic_bytes
    out[at] = properties_bytes >> 8
    out[at + 1] = properties_bytes & 0xFF
    _put_bytes(out, at + 2, properties, properties_bytes)
    return bytes(room)


def _put32(out: bytearray, at: int, value: int) -> None:
    out[at] = value >> 24 & 0xFF
    out[at + 1] = value >> 16 & 0xFF
    out[at + 2] = value >> 8 & 0xFF
    out[at + 3] = value & 0xFF


def _put64(out: bytearray, at: int, value: int) -> None:
    _put32(out, at, value >> 32)
    _put32(out, at + 4, value)


def _put_bytes(out: bytearray, at: int, data: bytes, size: int) -> None:
    for i in range(size):
        out[at + i] = data[i]


def _illegal(properties_bytes: int, position: int) -> MessageIllegalError:
    """Return what is wrong with a message that could not be encoded."""
    if properties_bytes > _PROPERTIES_MAX:
        return MessageIllegalError(
            "properties bytes", properties_bytes, PROPERTIES_BYTES_MAX, position
        )
    return MessageIllegalError(
        "a field", "outside of its range", "what its integer holds", position
    )
