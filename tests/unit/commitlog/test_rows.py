"""Rows: the leader's shortcut gives exactly what decoding the log gives."""

import random

import pytest

from ledgermq.commitlog.config import DEFAULT_DELAYS_MS
from ledgermq.commitlog.derived_files import DerivedFiles
from ledgermq.commitlog.layout import QUEUE_UNIT
from ledgermq.commitlog.queues import ConsumeQueues
from ledgermq.commitlog.rows import RowMaker
from ledgermq.dledger.entry import EntryCodec
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.protocol.checksum import crc32c
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.java_hash import java_string_hash
from ledgermq.protocol.record import encode_record

V4 = (bytes((127, 0, 0, 1)), 10911)
V6 = (bytes(range(16)), 10911)
AT_MS = 1_700_000_000_005


@pytest.fixture
def maker(tmp_path):
    files = DerivedFiles(RealFileSystem(), 10)
    queues = ConsumeQueues(RealFileSystem(), str(tmp_path), files, 6_000_000)
    return RowMaker(queues, delays_ms=DEFAULT_DELAYS_MS, index_enabled=True)


def slice_of(*bodies):
    codec = EntryCodec(crc32c, 28)
    return codec.encode(bodies, first_index=7, term=3, position=1000, previous_chain_crc=0)


def record(topic=b"TopicTest", queue_id=2, offset=5, sys_flag=0, properties=b"", **fields):
    return encode_record(
        topic,
        queue_id,
        0,
        offset,
        0,
        sys_flag,
        AT_MS,
        fields.get("born", V4),
        AT_MS,
        fields.get("stored", V4),
        0,
        0,
        fields.get("body", b"Hello 0"),
        properties,
    )


def row_of(maker, data):
    return maker.rows_of(slice_of(data), 7, 8)[0]


def tags_code(row):
    return QUEUE_UNIT.unpack(row.unit)[2]


def keys_of(row):
    return [key for _, key, _, _ in row.keys]


def test_row_has_the_unit_of_java(maker):
    data = record(properties=b"KEYS\x01K0 K1\x02UNIQ_KEY\x01AC1400010001\x02TAGS\x01TagA")
    row = row_of(maker, data)
    assert row.unit.hex() == "000000000000041800000095000000000027a807"
    assert (row.queue.topic, row.queue.queue_id, row.tags_code) == ("TopicTest", 2, 2598919)
    assert keys_of(row) == [b"AC1400010001", b"K0", b"K1"]
    assert (row.queue_offset, row.store_timestamp, row.watched) == (5, AT_MS, None)


@pytest.mark.parametrize(
    ("properties", "keys"),
    [
        (b"KEYS\x01a b a a  b c", [b"a", b"b", b"c"]),
        (b"KEYS\x01a id a\x02UNIQ_KEY\x01id", [b"id", b"a"]),
        (b"UNIQ_KEY\x01id\x02KEYS\x01" + b"id " * 5000, [b"id"]),
        (b"KEYS\x01x x\x02KEYS\x01y y", [b"y"]),
    ],
)
@pytest.mark.parametrize("stored", [V4, V6])
def test_key_that_is_named_again_is_entered_once(maker, properties, keys, stored):
    assert keys_of(row_of(maker, record(properties=properties, stored=stored))) == keys


PROPERTIES = [
    b"",
    b"TAGS\x01TagA",
    b"TAGS\x01TagA\x02",
    b"UNIQ_KEY\x01" + b"A" * 32,
    b"WAIT\x01true\x02UNIQ_KEY\x01id\x02TAGS\x01T\x02CLUSTER\x01c",
    b"TAGS\x01A\x02TAGS\x01B",
    b"TAGS\x01A\x02TAGS\x01",
    b"KEYS\x01  a   b \x02",
    b"KEYS\x01\x02UNIQ_KEY\x01",
    "TAGS\x01标签\x02KEYS\x01键 clé".encode(),
    b"XTAGS\x01no\x02YKEYS\x01no",
    b"TAGS\x01-42\x02DELAY\x013",
]


@pytest.mark.parametrize("properties", PROPERTIES)
@pytest.mark.parametrize("sys_flag", [0, 0x4, 0x8, 0xC, 0x301])
@pytest.mark.parametrize("hosts", [(V4, V4), (V6, V4), (V4, V6), (V6, V6)])
@pytest.mark.parametrize("topic", [b"TopicTest", b"SCHEDULE_TOPIC_XXXX", b"%RETRY%g"])
def test_leader_and_follower_make_the_same_row(maker, properties, sys_flag, hosts, topic):
    maker.watch("%RETRY%g")
    data = record(topic, sys_flag=sys_flag, properties=properties, born=hosts[0], stored=hosts[1])
    shared = maker.topic_queue(topic, 2)
    made = maker.row(shared, sys_flag, 5, 1048, len(data), AT_MS, properties, b"Hello 0")
    assert row_of(maker, data) == made


def test_long_tags_are_not_remembered(maker):
    """Ten thousand of them were 330 MB, on all members."""
    for tags in (b"a" * 128, b"b" * 129, b"c" * 32_000):
        row = row_of(maker, record(properties=b"TAGS\x01" + tags))
        assert tags_code(row) == java_string_hash(tags.decode())
    assert set(maker.tags_codes) == {b"", b"a" * 128}


@pytest.mark.parametrize(
    ("properties", "tag"),
    [(b"TAGS\x01A\x02TAGS\x01B", 66), (b"TAGS\x01A\x02TAGS\x01", 65), (b"TAGS\x01", 0)],
)
def test_last_tag_with_a_value_counts(maker, properties, tag):
    assert tags_code(row_of(maker, record(properties=properties))) == tag


@pytest.mark.parametrize(
    ("level", "expected"),
    [(b"2", 1700000005005), (b"99", AT_MS + 7_200_000), (b"0", 65), (b"x", 65), (b"-1", 65)],
)
def test_delayed_record_has_its_time_as_tags_code(maker, level, expected):
    data = record(b"SCHEDULE_TOPIC_XXXX", properties=b"TAGS\x01A\x02DELAY\x01" + level)
    assert tags_code(row_of(maker, data)) == expected


def test_prepared_and_rollback_take_no_place_and_rollback_no_key(maker):
    properties = b"UNIQ_KEY\x01id"
    prepared = row_of(maker, record(sys_flag=0x4, properties=properties))
    rollback = row_of(maker, record(sys_flag=0xC, properties=properties))
    assert prepared.queue is None and rollback.queue is None
    assert keys_of(prepared) == [b"id"]
    assert keys_of(rollback) == []


@pytest.mark.parametrize(
    ("topic", "queue_id"), [(b"../evil", 0), (b"a/b", 0), (b"a.b", 0), (b"", 0), (b"T", -1)]
)
def test_name_that_would_be_a_path_is_no_queue(maker, topic, queue_id):
    assert row_of(maker, record(topic, queue_id)).queue is None


def test_body_of_a_watched_topic_is_kept(maker):
    maker.watch("State")
    assert row_of(maker, record(b"State", body=b"x" * 9)).watched == ("State", b"x" * 9)
    assert row_of(maker, record(b"State", body=b"y", born=V6)).watched == ("State", b"y")
    assert row_of(maker, record(b"Other")).watched is None


def test_entry_that_is_no_record_is_refused(maker):
    rng = random.Random(5)
    for body in (b"", b"x" * 200, rng.randbytes(300), record()[:-1], record() + b"x"):
        with pytest.raises(RemoteProtocolError):
            row_of(maker, body)


def test_damaged_records_give_a_row_or_a_protocol_error(maker):
    rng = random.Random(6)
    for _ in range(2000):
        data = bytearray(record(properties=b"UNIQ_KEY\x01id\x02TAGS\x01T"))
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            row_of(maker, bytes(data))
        except RemoteProtocolError:
            pass
