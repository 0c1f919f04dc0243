"""The record of one message, shared by the log on disk, the answer to a pull and the DLedger entry.

    offset  size  field                        (offsets for two IPv4 hosts)
    0       4     size of the whole record
    4       4     magic
    8       4     body CRC-32, masked to 31 bits
    12      4     queue id
    16      4     flag of the client's application
    20      8     queue offset
    28      8     physical offset of byte 0 of this record
    36      4     sysFlag
    40      8     born timestamp, ms, the client's clock
    48      8|20  born host: 4 or 16 address, 4 port
    56      8     store timestamp, ms, the broker's clock
    64      8|20  store host
    72      4     reconsume times
    76      8     prepared transaction offset
    84      4     body length n, then the body
    88+n    1|2   topic length (2 with the second magic of 5.x), then the topic, UTF-8
            2     properties length, then the properties, UTF-8

All integers are big-endian. Encoding always writes the first magic, which is right for every topic
of at most 127 bytes. Decoding gives a value or RemoteProtocolError, whatever the bytes.
`record_layout.py` declares the same layout a second time, for tests and tools.
Source: MessageDecoder.decode and CommitLog.MessageExtEncoder of 4.9.3.
"""

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from ledgermq.protocol.checksum import crc32_masked
from ledgermq.protocol.errors import LocalProtocolError, RemoteProtocolError
from ledgermq.protocol.sysflag import BORN_HOST_V6, HOST_V6_MASK, STORE_HOST_V6

# 5.x writes the second one for topics longer than 127 bytes.
RECORD_MAGIC: Final = 0xDAA320A7
RECORD_MAGIC_V2: Final = 0xDAA320AB
# Java's signed byte holds the topic's length.
TOPIC_BYTES_MAX: Final = 127
# Bytes of a record beside body, topic and properties, with two IPv4 hosts; 12 more for each IPv6.
RECORD_FIXED_BYTES: Final = 91
V6_HOSTS_BYTES: Final = 24
# Where fields stand that are read or written alone.
PHYSICAL_OFFSET_OFFSET: Final = 28
SYS_FLAG_OFFSET: Final = 36

# A network address: 4 or 16 bytes, and the port.
Host = tuple[bytes, int]
# What a record is decoded from; slices of it are taken, so bytes are the quickest.
Buffer = bytes | bytearray | memoryview

# 4 size, 4 magic, 4 crc, 4 queue_id, 4 flag, 8 queue_offset, 8 physical_offset, 4 sys_flag,
# 8 born_timestamp, 4+4 born_host, 8 store_timestamp, 4+4 store_host, 4 reconsume_times,
# 8 prepared_transaction_offset, 4 body_length
_HEAD_V4: Final = Struct(">iIIiiqqiq4sIq4sIiqi")
_HEADS: Final = {
    0: _HEAD_V4,
    BORN_HOST_V6: Struct(">iIIiiqqiq16sIq4sIiqi"),
    STORE_HOST_V6: Struct(">iIIiiqqiq4sIq16sIiqi"),
    HOST_V6_MASK: Struct(">iIIiiqqiq16sIq16sIiqi"),
}
# The fields that dispatch needs, of the same head: 4 size, 4 magic, 4 -, 4 queue_id, 4 -,
# 8 queue_offset, 8 physical_offset, 4 sys_flag, 8 -, born_host -, 8 store_timestamp,
# store_host -, 4 -, 8 prepared_transaction_offset, 4 body_length
_DISPATCH_V4: Final = Struct(">iI4xi4xqqi8x8xq8x4xqi")
_DISPATCH_HEADS: Final = {
    0: _DISPATCH_V4,
    BORN_HOST_V6: Struct(">iI4xi4xqqi8x20xq8x4xqi"),
    STORE_HOST_V6: Struct(">iI4xi4xqqi8x8xq20x4xqi"),
    HOST_V6_MASK: Struct(">iI4xi4xqqi8x20xq20x4xqi"),
}
_INT32: Final = Struct(">i")

assert _HEAD_V4.size == _DISPATCH_V4.size == RECORD_FIXED_BYTES - 3
assert all(_HEADS[v6].size == _DISPATCH_HEADS[v6].size for v6 in _HEADS)
assert _HEADS[HOST_V6_MASK].size == _HEAD_V4.size + 24


class Record(NamedTuple):
    """One decoded record, all of it."""

    size_bytes: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: Host
    store_timestamp: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties: bytes


class RecordHead(NamedTuple):
    """What dispatch needs to know about a record."""

    size_bytes: int
    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    store_timestamp: int
    prepared_transaction_offset: int
    # UTF-8, not yet checked to be so.
    topic: bytes
    properties: bytes


def encode_record(
    topic: bytes,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: Host,
    store_timestamp: int,
    store_host: Host,
    reconsume_times: int,
    prepared_transaction_offset: int,
    body: bytes,
    properties: bytes,
) -> bytes:
    """Return the bytes of one record.

    The two address bits of `sys_flag` are set from the lengths of the addresses, the body's CRC is
    computed. Arguments go by position: this runs once for each message.

    Args:
        physical_offset: 0 where the ledger writes it when the entry's position is known.
        topic: UTF-8, at most 127 bytes.
        properties: UTF-8, at most 32767 bytes.

    Raises:
        LocalProtocolError: a field does not fit into its place.
    """
    body_bytes = len(body)
    born_address, born_port = born_host
    store_address, store_port = store_host
    head = _HEAD_V4
    if len(born_address) != 4 or len(store_address) != 4 or sys_flag & HOST_V6_MASK:
        sys_flag = with_host_bits(sys_flag, born_address, store_address)
        head = _HEADS[sys_flag & HOST_V6_MASK]
    try:
        return (
            head.pack(
                head.size + body_bytes + len(topic) + len(properties) + 3,
                RECORD_MAGIC,
                crc32_masked(body),
                queue_id,
                flag,
                queue_offset,
                physical_offset,
                sys_flag,
                born_timestamp,
                born_address,
                born_port,
                store_timestamp,
                store_address,
                store_port,
                reconsume_times,
                prepared_transaction_offset,
                body_bytes,
            )
            + body
            + _TOPIC_LENGTH[len(topic)]
            + topic
            + len(properties).to_bytes(2, "big", signed=True)
            + properties
        )
    except (StructError, OverflowError, IndexError) as error:
        raise LocalProtocolError("record field", str(error)) from error


_TOPIC_LENGTH: Final = [bytes((length,)) for length in range(TOPIC_BYTES_MAX + 1)]


def with_host_bits(sys_flag: int, born_address: bytes, store_address: bytes) -> int:
    """Return `sys_flag` with the bits that tell the address families of the two hosts.

    Raises:
        LocalProtocolError: an address has neither 4 nor 16 bytes.
    """
    for address in (born_address, store_address):
        if len(address) not in (4, 16):
            raise LocalProtocolError("bytes of a host's address", len(address), "4 or 16")
    sys_flag &= ~HOST_V6_MASK
    if len(born_address) == 16:
        sys_flag |= BORN_HOST_V6
    return sys_flag | STORE_HOST_V6 if len(store_address) == 16 else sys_flag


def decode_record(buffer: Buffer, offset: int = 0) -> Record:
    """Return the record that starts at `offset`; bytes behind it are of no concern.

    The body's CRC is not compared (Java does so in recovery only): see `body_is_intact`.

    Raises:
        RemoteProtocolError: no whole, consistent record starts there.
    """
    sys_flag = _checked_sys_flag(buffer, offset)
    head = _HEADS[sys_flag & HOST_V6_MASK]
    if offset + head.size > len(buffer):
        raise RemoteProtocolError("record bytes", len(buffer) - offset, "a whole record")
    (
        size_bytes,
        magic,
        body_crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        born_address,
        born_port,
        store_timestamp,
        store_address,
        store_port,
        reconsume_times,
        prepared_transaction_offset,
        body_bytes,
    ) = head.unpack_from(buffer, offset)
    body_start = offset + head.size
    topic, properties = _tail(buffer, offset, size_bytes, magic, body_start, body_bytes)
    try:
        topic_text = topic.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("record topic", topic[:40], "UTF-8") from error
    return Record(
        size_bytes,
        magic,
        body_crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        (born_address, born_port),
        store_timestamp,
        (store_address, store_port),
        reconsume_times,
        prepared_transaction_offset,
        bytes(buffer[body_start : body_start + body_bytes]),
        topic_text,
        properties,
    )


def decode_record_head(buffer: Buffer, offset: int = 0) -> RecordHead:
    """Return what dispatch needs of the record that starts at `offset`; the body is skipped.

    Raises:
        RemoteProtocolError: no whole, consistent record starts there.
    """
    try:
        (
            size_bytes,
            magic,
            queue_id,
            queue_offset,
            physical_offset,
            sys_flag,
            store_timestamp,
            prepared_transaction_offset,
            body_bytes,
        ) = _DISPATCH_V4.unpack_from(buffer, offset)
    except StructError as error:
        raise RemoteProtocolError("record bytes", len(buffer) - offset, "a whole record") from error
    body_start = offset + _DISPATCH_V4.size
    if sys_flag & HOST_V6_MASK:
        head = _DISPATCH_HEADS[sys_flag & HOST_V6_MASK]
        if offset + head.size > len(buffer):
            raise RemoteProtocolError("record bytes", len(buffer) - offset, "a whole record")
        fields = head.unpack_from(buffer, offset)
        store_timestamp, prepared_transaction_offset, body_bytes = fields[6:]
        body_start = offset + head.size
    topic, properties = _tail(buffer, offset, size_bytes, magic, body_start, body_bytes)
    return _new_tuple(
        RecordHead,
        (
            size_bytes,
            queue_id,
            queue_offset,
            physical_offset,
            sys_flag,
            store_timestamp,
            prepared_transaction_offset,
            topic,
            properties,
        ),
    )


# Half the price of calling the class.
_new_tuple = tuple.__new__


def _checked_sys_flag(buffer: Buffer, offset: int) -> int:
    if offset < 0 or offset + RECORD_FIXED_BYTES > len(buffer):
        raise RemoteProtocolError("record bytes", len(buffer) - offset, "a whole record")
    return int(_INT32.unpack_from(buffer, offset + SYS_FLAG_OFFSET)[0])


def decode_record_times(buffer: Buffer) -> tuple[int, int, int]:
    """Return size, physical offset and store time of a record of which its first
    `RECORD_FIXED_BYTES` + `V6_HOSTS_BYTES` are there, or all of it.

    Raises:
        RemoteProtocolError: no record begins so.
    """
    try:
        fields = _DISPATCH_V4.unpack_from(buffer)
        if fields[5] & HOST_V6_MASK:
            fields = _DISPATCH_HEADS[fields[5] & HOST_V6_MASK].unpack_from(buffer)
    except StructError as error:
        raise RemoteProtocolError("record bytes", len(buffer), "the head of a record") from error
    if fields[1] not in (RECORD_MAGIC, RECORD_MAGIC_V2):
        raise RemoteProtocolError("record magic", fields[1], RECORD_MAGIC)
    return fields[0], fields[4], fields[6]


def _tail(
    buffer: Buffer, offset: int, size_bytes: int, magic: int, body_start: int, body_bytes: int
) -> tuple[bytes, bytes]:
    """Return topic and properties, after the checks that make every slice safe."""
    end = offset + size_bytes
    topic_start = body_start + body_bytes + 1
    if offset < 0 or end > len(buffer) or body_bytes < 0 or topic_start >= end:
        raise RemoteProtocolError("record size and body size", (size_bytes, body_bytes))
    topic_end = topic_start + buffer[topic_start - 1]
    if magic != RECORD_MAGIC:
        if magic != RECORD_MAGIC_V2:
            raise RemoteProtocolError("record magic", magic, RECORD_MAGIC)
        topic_start += 1
        topic_end = topic_start + buffer[topic_start - 2] * 256 + buffer[topic_start - 1]
    properties_start = topic_end + 2
    if properties_start > end:
        raise RemoteProtocolError("record topic size", topic_end - topic_start)
    properties_bytes = buffer[topic_end] * 256 + buffer[topic_end + 1]
    # Lengths of 0x8000 and more are negative in Java, and cannot reach the end exactly here either.
    if properties_start + properties_bytes != end or properties_bytes > 0x7FFF:
        raise RemoteProtocolError(
            "record properties size", properties_bytes, end - properties_start
        )
    return bytes(buffer[topic_start:topic_end]), bytes(buffer[properties_start:end])


def body_is_intact(record: Record) -> bool:
    """Tell whether the body has the CRC that the record gives for it."""
    return crc32_masked(record.body) == record.body_crc
