"""The record codec against bytes written by hand, and against every kind of bad input."""

import pytest

from ledgermq.protocol.errors import LocalProtocolError, RemoteProtocolError
from ledgermq.protocol.record import (
    RECORD_FIXED_BYTES,
    RECORD_MAGIC,
    RECORD_MAGIC_V2,
    V6_HOSTS_BYTES,
    Record,
    body_is_intact,
    decode_record,
    decode_record_head,
    decode_record_times,
    encode_record,
)

PROPERTIES = b"KEYS\x01K0 K1\x02UNIQ_KEY\x01AC1400010001\x02TAGS\x01TagA"
RECORD_V4 = bytes.fromhex(
    "00000095 daa320a7 6f55306d 00000002 00000000 0000000000000005 0000000000000418 00000000"
    "0000018bcfe56800 c0000201 00009c40 0000018bcfe56805 c000020a 00002a9f 00000000"
    "0000000000000000 00000007 48656c6c6f2030 09 546f70696354657374 002a"
    "4b455953014b30204b3102554e49515f4b45590141433134303030313030303102544147530154616741"
)
RECORD_V6 = bytes.fromhex(
    "000000ad daa320a7 6f55306d 00000002 00000000 0000000000000005 0000000000000418 00000030"
    "0000018bcfe56800 20010db8000000000000000000000001 00009c40"
    "0000018bcfe56805 20010db800000000000000000000000a 00002a9f 00000000 0000000000000000"
    "00000007 48656c6c6f2030 09 546f70696354657374 002a"
    "4b455953014b30204b3102554e49515f4b45590141433134303030313030303102544147530154616741"
)
HOSTS_V4 = ((bytes((192, 0, 2, 1)), 40000), (bytes((192, 0, 2, 10)), 10911))
HOSTS_V6 = (
    (bytes.fromhex("20010db8000000000000000000000001"), 40000),
    (bytes.fromhex("20010db800000000000000000000000a"), 10911),
)


def encoded(hosts=HOSTS_V4, *, sys_flag=0, topic=b"TopicTest", properties=PROPERTIES, port=None):
    born_host, store_host = hosts
    if port is not None:
        born_host = (born_host[0], port)
    return encode_record(
        topic,
        2,
        0,
        5,
        1048,
        sys_flag,
        1700000000000,
        born_host,
        1700000000005,
        store_host,
        0,
        0,
        b"Hello 0",
        properties,
    )


def v2_record(topic: bytes) -> bytes:
    """The same record as 5.x writes it for a long topic."""
    topic_at = RECORD_V4.index(b"\x09TopicTest")
    head, tail = bytearray(RECORD_V4[:topic_at]), RECORD_V4[topic_at + 10 :]
    head[4:8] = RECORD_MAGIC_V2.to_bytes(4, "big")
    head[0:4] = (len(head) + 2 + len(topic) + len(tail)).to_bytes(4, "big")
    return bytes(head) + len(topic).to_bytes(2, "big") + topic + tail


@pytest.mark.parametrize(("hosts", "expected"), [(HOSTS_V4, RECORD_V4), (HOSTS_V6, RECORD_V6)])
def test_record_has_the_bytes_that_java_writes(hosts, expected):
    assert encoded(hosts) == expected


@pytest.mark.parametrize(
    ("data", "hosts", "sys_flag"), [(RECORD_V4, HOSTS_V4, 0), (RECORD_V6, HOSTS_V6, 0x30)]
)
def test_every_field_is_read_from_java_bytes(data, hosts, sys_flag):
    record = decode_record(b"\xff" * 3 + data + b"\xee", 3)
    assert record == Record(
        size_bytes=len(data),
        magic=RECORD_MAGIC,
        body_crc=0x6F55306D,
        queue_id=2,
        flag=0,
        queue_offset=5,
        physical_offset=1048,
        sys_flag=sys_flag,
        born_timestamp=1700000000000,
        born_host=hosts[0],
        store_timestamp=1700000000005,
        store_host=hosts[1],
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"Hello 0",
        topic="TopicTest",
        properties=PROPERTIES,
    )
    assert body_is_intact(record)


@pytest.mark.parametrize("data", [RECORD_V4, RECORD_V6])
@pytest.mark.parametrize("form", [bytes, bytearray, memoryview])
def test_head_for_dispatch_agrees_with_the_whole_record(data, form):
    head = decode_record_head(form(b"..." + data), 3)
    record = decode_record(data)
    assert (head.topic, head.properties) == (b"TopicTest", PROPERTIES)
    for field in head._fields:
        if field != "topic":
            assert getattr(head, field) == getattr(record, field)


def test_mixed_address_families_set_their_own_bit():
    assert decode_record(encoded((HOSTS_V6[0], HOSTS_V4[1]))).sys_flag == 0x10
    assert decode_record(encoded((HOSTS_V4[0], HOSTS_V6[1]))).sys_flag == 0x20


def test_stale_address_bits_are_cleared_by_the_encoder():
    assert encoded(sys_flag=0x30) == RECORD_V4


def test_second_magic_of_5x_is_accepted():
    topic = b"t" * 300
    record = decode_record(v2_record(topic))
    assert (record.magic, record.topic) == (RECORD_MAGIC_V2, "t" * 300)
    assert decode_record_head(v2_record(topic)).topic == topic


def test_changed_body_is_not_intact():
    assert not body_is_intact(decode_record(RECORD_V4.replace(b"Hello", b"hello")))


@pytest.mark.parametrize("decode", [decode_record, decode_record_head])
@pytest.mark.parametrize("data", [RECORD_V4, RECORD_V6, v2_record(b"t" * 200)])
def test_cut_record_is_refused_at_every_byte(decode, data):
    for size in range(len(data)):
        with pytest.raises(RemoteProtocolError):
            decode(data[:size])


BAD = {
    "size too small": (0, (148).to_bytes(4, "big")),
    "size too large": (0, (150).to_bytes(4, "big")),
    "size zero": (0, bytes(4)),
    "size negative": (0, b"\xff\xff\xff\xff"),
    "blank magic": (4, bytes.fromhex("cbd43194")),
    "body negative": (84, b"\xff\xff\xff\xff"),
    "body huge": (84, b"\x7f\xff\xff\xff"),
    "body longer by one": (84, (8).to_bytes(4, "big")),
    "topic longer": (95, b"\x7f"),
    "properties longer": (105, b"\x00\x2b"),
    "properties negative": (105, b"\xff\xd6"),
}


@pytest.mark.parametrize("decode", [decode_record, decode_record_head])
@pytest.mark.parametrize("bad", BAD)
def test_lying_length_is_refused(decode, bad):
    offset, value = BAD[bad]
    data = bytearray(RECORD_V4 + bytes(40))
    data[offset : offset + len(value)] = value
    with pytest.raises(RemoteProtocolError):
        decode(bytes(data))


@pytest.mark.parametrize("decode", [decode_record, decode_record_head])
def test_offset_outside_of_the_buffer_is_refused(decode):
    for offset in (-1, -149, 149, 1000):
        with pytest.raises(RemoteProtocolError):
            decode(RECORD_V4, offset)


def test_topic_that_is_not_utf8_is_refused():
    with pytest.raises(RemoteProtocolError, match="topic"):
        decode_record(RECORD_V4.replace(b"TopicTest", b"Topic\xff\xff\xff\xff"))


@pytest.mark.parametrize(
    "fault",
    [
        {"topic": b"t" * 128},
        {"properties": b"p" * 32768},
        {"hosts": ((b"\x01", 1), HOSTS_V4[1])},
        {"port": 1 << 32},
        {"port": -1},
        {"sys_flag": 1 << 31},
    ],
)
def test_value_that_does_not_fit_is_not_encoded(fault):
    with pytest.raises(LocalProtocolError):
        encoded(**fault)


@pytest.mark.parametrize("born", [HOSTS_V4[0], HOSTS_V6[0]])
@pytest.mark.parametrize("stored", [HOSTS_V4[1], HOSTS_V6[1]])
def test_times_are_read_from_the_head_whatever_the_addresses_are(born, stored):
    data = encoded((born, stored))
    head = data[: RECORD_FIXED_BYTES + V6_HOSTS_BYTES]
    assert decode_record_times(head) == (len(data), 1048, 1700000000005)
    with pytest.raises(RemoteProtocolError):
        decode_record_times(head[:40])
    with pytest.raises(RemoteProtocolError):
        decode_record_times(b"\0" * len(head))
