"""Columns of records equal what the decoder of single records says, whatever the records."""

import random
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from ledgermq.protocol import sysflag
from ledgermq.protocol.compression import compress
from ledgermq.protocol.message_id import encode_offset_id
from ledgermq.protocol.properties import decode_properties, parse_properties
from ledgermq.protocol.record import RECORD_MAGIC_V2, decode_record, encode_record
from ledgermq.spark.batches import arrow_schema, to_batch
from ledgermq.spark.errors import CorruptDataError
from ledgermq.spark.property_columns import PropertyColumns
from ledgermq.spark.record_columns import RecordColumns, record_starts
from ledgermq.spark.schema import message_schema

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAPS = pa.map_(pa.string(), pa.string())
BLOCKS = (
    b"",
    b"TAGS\x01A\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01U\x02",
    b"KEYS\x01k\x02TAGS\x01B",
    b"\x02\x02TAGS\x01\x02=\x01x\x02plain\x02a\x01b\x01c\x02",
    b"TAGS\x01first\x02TAGS\x01last\x02TAGS\x01",
    b"who\x01t\xc3\xa9st\x02xTAGS\x01no\x02",
)


def place(at: int) -> str:
    return f"byte {at}"


def make_records(count: int, seed: int) -> list[bytes]:
    draws = random.Random(seed)
    records = []
    for number in range(count):
        packed = draws.random() < 0.1
        body = b"%d" % number * draws.choice([0, 1, 50])
        flag = draws.choice([0, 0, 0, sysflag.BORN_HOST_V6, sysflag.STORE_HOST_V6])
        if packed:
            body, flag = compress(body, sysflag.COMPRESSION_ZLIB), flag | sysflag.COMPRESSED
        born = (bytes(16) if flag & sysflag.BORN_HOST_V6 else b"\x7f\0\0\1", 1)
        store = (bytes(16) if flag & sysflag.STORE_HOST_V6 else b"\x7f\0\0\1", 2)
        record = encode_record(
            draws.choice([b"T", b"Topic" * 20]), number % 4, 0, number, 1000 + number, flag,
            1_700_000_000_000 + number, born, 1_700_000_000_500 + number, store,
            draws.randint(0, 3), 0, body, draws.choice(BLOCKS),
        )  # fmt: skip
        records.append(_with_long_topic(record) if draws.random() < 0.1 else record)
    return records


def _with_long_topic(record: bytes) -> bytes:
    """The same record as 5.x writes topics of more than 127 bytes."""
    found = decode_record(record)
    at = len(record) - 2 - len(found.properties) - len(found.topic) - 1
    topic = b"L" * 300
    data = bytearray(record[:at] + len(topic).to_bytes(2, "big") + topic)
    data += record[at + 1 + len(found.topic) :]
    data[:8] = len(data).to_bytes(4, "big") + RECORD_MAGIC_V2.to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize("count", [0, 1, 2, 400])
def test_columns_equal_the_decoder(count: int) -> None:
    records = make_records(count, seed=count)
    data = b"".join(records)
    columns = RecordColumns(data, record_starts(data, place), place)
    decoded = [decode_record(record) for record in records]
    properties = [decode_properties(record.properties) for record in decoded]
    assert columns.topics.to_pylist() == [record.topic for record in decoded]
    assert columns.queue_offsets.tolist() == [record.queue_offset for record in decoded]
    assert columns.born_ms.tolist() == [record.born_timestamp for record in decoded]
    assert columns.store_ms.tolist() == [record.store_timestamp for record in decoded]
    times = [record.reconsume_times for record in decoded]
    assert columns.reconsume_times.tolist() == times
    assert [dict(pairs) for pairs in columns.property_maps(MAPS).to_pylist()] == properties
    tags = columns.find_property("TAGS").to_pylist()
    assert tags == [found.get("TAGS") for found in properties]
    assert columns.message_ids.to_pylist() == [
        found.get("UNIQ_KEY") or encode_offset_id(*record.store_host, record.physical_offset)
        for found, record in zip(properties, decoded, strict=True)
    ]
    bodies = columns.bodies.to_pylist()
    for number, body in enumerate(bodies):
        assert body.replace(b"%d" % number, b"") == b""
        assert len(body) in (0, len(str(number)), 50 * len(str(number)))


PLAIN = (b"", b"TAGS\x01A\x02", b"KEYS\x01k1 k2\x02who\x01t\xc3\xa9st\x02UNIQ_KEY\x01U\x02")
# As brokers of 5.x and our clients write them: the last pair has no separator behind it.
OPEN = tuple(block.removesuffix(b"\x02") for block in PLAIN)
ODD = (
    b"TAGS\x01A",
    b"\x02TAGS\x01A",
    b"a\x01b\x02\x01",
    b"a\x01",
    b"UNIQ_KEY\x01first\x02UNIQ_KEX\x01no\x02UNIQ_KEY\x01last",
    b"a\x01b\x02c\x01",
    b"\x01b\x02",
    b"a\x01\x02",
    b"a\x01b\x01c\x02",
    b"a\x01b\x02\x02",
    b"a\x02b\x01",
    b"a\x01b\x00c\x02",
    b"TAGS\x01first\x02TAGS\x01last\x02",
    b"alone",
    b"a\x02b\x02",
    b"a\x01b\x01c\x01d\x02",
)
# Together they look like a pair.
ACROSS = (b"left\x01", b"right\x02")


def check_properties(blocks: list[bytes]) -> None:
    """Compares columns with the decoder, also where the array begins in the midst of a buffer."""
    expected = [decode_properties(block) for block in blocks]
    for part in (pa.array(blocks, pa.string()), pa.array([b"x", *blocks], pa.string())[1:]):
        found = PropertyColumns(part)
        assert [dict(pairs) for pairs in found.maps(MAPS).to_pylist()] == expected
        for name in ("TAGS", "KEYS", "UNIQ_KEY", "a", "b", "nowhere"):
            assert found.find(name).to_pylist() == [one.get(name) for one in expected]


@pytest.mark.parametrize("odd", [(), ACROSS, ODD, *[(block,) for block in ODD]])
@pytest.mark.parametrize("usual", [PLAIN, OPEN, PLAIN + OPEN, OPEN[2:], PLAIN[2:]])
def test_properties_of_any_blocks_are_those_of_the_decoder(
    usual: tuple[bytes, ...], odd: tuple[bytes, ...]
) -> None:
    """Blocks as producers write them go another way than a run with one that is odd."""
    draws = random.Random(3)
    for count in (1, 2, 60):
        check_properties([usual[-1], *odd, *draws.choices(usual, k=count)])
        check_properties([*draws.choices(usual, k=count), *odd])


def test_properties_of_blocks_that_are_drawn_are_those_of_the_decoder() -> None:
    """Nearly all of few rows are odd, many of single rows are not."""
    draws = random.Random(11)
    for _ in range(3_000):
        blocks = []
        for _ in range(draws.choice([1, 1, 2, 3])):
            pairs = [
                f"{draws.choice(['a', 'b', 'TAGS'])}\x01{draws.choice(['v', 'tést'])}"
                for _ in range(draws.randint(0, 3))
            ]
            letters = list("\x02".join(pairs) + draws.choice(["", "\x02"]))
            for _ in range(draws.choice([0, 0, 0, 1, 2])):
                letters.insert(draws.randint(0, len(letters)), draws.choice("\x00\x01\x02a"))
            blocks.append("".join(letters).encode())
        check_properties(blocks)


@pytest.mark.parametrize("seed", range(4))
def test_records_of_one_size_are_found_like_all_others(seed: int) -> None:
    draws = random.Random(seed)
    sizes = []
    while len(sizes) < 3_000:
        count = draws.choice([1, 2, 7, 8, 9, 10, 70, 900]) if draws.random() < 0.5 else 1
        sizes += [draws.randint(0, 3)] * count
    sizes += [1] * draws.choice([0, 1, 9, 5_000])
    records = [record_with(b"x" * size) for size in sizes]
    data = b"".join(records)
    expected = np.cumsum([0, *map(len, records[:-1])])
    assert np.array_equal(record_starts(data, place), expected)
    with pytest.raises(CorruptDataError, match=f"byte {expected[-1]}: "):
        record_starts(data[:-1], place)
    # A size that is wrong in the midst of many that are equal.
    wrong = int(expected[-2])
    cut = data[:wrong] + (5).to_bytes(4, "big") + data[wrong + 4 :]
    with pytest.raises(CorruptDataError, match=f"byte {wrong}: a record of 5 bytes"):
        record_starts(cut, place)


def test_a_part_of_the_records_has_the_same_columns() -> None:
    data = b"".join(make_records(100, seed=5))
    columns = RecordColumns(data, record_starts(data, place), place)
    mask = columns.queue_offsets % 7 == 3
    part = columns.select(mask)
    assert part.queue_offsets.tolist() == list(range(3, 100, 7))
    assert part.bodies.to_pylist() == [
        body for body, chosen in zip(columns.bodies.to_pylist(), mask, strict=True) if chosen
    ]


def test_properties_that_are_no_utf8_are_read_as_java_reads_them() -> None:
    data = encode_record(
        b"T", 0, 0, 0, 0, 0, 0, (b"\0\0\0\0", 0), 0, (b"\0\0\0\0", 0), 0, 0, b"", b"a\x01\xff\x02"
    )
    columns = RecordColumns(data, record_starts(data, place), place)
    assert columns.find_property("a").to_pylist() == ["�"]


def test_named_properties_are_read_as_java_reads_them() -> None:
    """They are found without looking at all others."""
    blocks = [
        b"TAGS\x01t\xc3\xa9st\x02UNIQ_KEY\x01\xff\x02a\x01\xfe\x02",
        b"",
        b"TAGS\x01\x02TAGS\x01\xe4\x02\xff\x01b",
        b"KEYS\x01k\x02TAGS\x01first\x02TAGS\x01last",
    ]
    records = [record_with(b"", properties=block) for block in blocks]
    for count in range(1, len(blocks) + 1):
        data = b"".join(records[:count])
        columns = RecordColumns(data, record_starts(data, place), place)
        assert columns.find_property("TAGS").to_pylist() == ["tést", None, "\ufffd", "last"][:count]
        assert columns.find_property("KEYS").to_pylist() == [None, None, None, "k"][:count]
        ids = columns.find_property("UNIQ_KEY").to_pylist()
        assert ids == ["\ufffd", None, None, None][:count]
        maps = [dict(pairs) for pairs in columns.property_maps(MAPS).to_pylist()]
        texts = [block.decode("utf-8", "replace") for block in blocks[:count]]
        assert maps == [parse_properties(text) for text in texts]


def test_flipped_bytes_raise_or_give_columns_but_nothing_else() -> None:
    good = b"".join(make_records(20, seed=9))
    draws = random.Random(2)
    refused = 0
    for _ in range(400):
        data = bytearray(good)
        for _ in range(draws.randint(1, 3)):
            data[draws.randrange(len(data))] = draws.randrange(256)
        try:
            columns = RecordColumns(bytes(data), record_starts(bytes(data), place), place)
            columns.bodies, columns.find_property("TAGS"), columns.topics
        except CorruptDataError as error:
            refused += 1
            assert "byte " in str(error)
    assert refused > 20


def test_a_cut_record_is_named() -> None:
    data = b"".join(make_records(3, seed=1))
    with pytest.raises(CorruptDataError, match="bytes"):
        record_starts(data[:-1], place)


@pytest.mark.parametrize("bytes_max", [1, 5_000, 100_000, 10**9])
def test_compressed_bodies_are_handed_out_in_parts(bytes_max: int) -> None:
    """A run of 100 kB may be 100 MB when it is decompressed."""
    records = make_records(60, 5)
    starts = [sum(map(len, records[:i])) for i in range(len(records))]
    whole = RecordColumns(b"".join(records), np.array(starts), place)
    parts = list(whole.parts(bytes_max))
    assert sum((part.bodies.to_pylist() for part in parts), []) == whole.bodies.to_pylist()
    assert np.array_equal(
        np.concatenate([part.queue_offsets for part in parts]), whole.queue_offsets
    )
    sizes = [sum(map(len, part.bodies.to_pylist())) for part in parts]
    pairs = zip(sizes, parts, strict=True)
    assert all(size <= bytes_max or len(part) == 1 for size, part in pairs)
    assert len(parts) == 1 or sum(sizes) > bytes_max
    # Rows that are chosen keep their bodies, which are not decompressed again.
    mask = np.arange(len(parts[0])) % 2 == 0
    chosen = parts[0].select(mask)
    assert chosen.bodies.to_pylist() == parts[0].bodies.to_pylist()[::2]


def test_bodies_as_they_were_sent_are_one_part() -> None:
    record = encode_record(
        b"T", 0, 0, 0, 0, 0, 0, (b"\x7f\0\0\1", 1), 0, (b"\x7f\0\0\1", 1), 0, 0, b"x" * 100, b""
    )
    whole = RecordColumns(record * 3, np.arange(3) * len(record), place)
    assert list(whole.parts(1)) == [whole]


def record_with(body: bytes, sys_flag: int = 0, born_ms: int = 0, properties: bytes = b"") -> bytes:
    host = (b"\x7f\0\0\1", 1)
    return encode_record(b"T", 0, 0, 0, 0, sys_flag, born_ms, host, 0, host, 0, 0, body, properties)


def test_a_message_that_only_says_that_it_holds_several_stands_as_it_is_stored() -> None:
    """Whoever may send could end every read of a topic."""
    flags = [0, sysflag.NEED_UNWRAP, sysflag.INNER_BATCH, sysflag.INNER_BATCH_MASK]
    records = [record_with(b"body", flag) for flag in flags]
    data = b"".join(records)
    columns = RecordColumns(data, record_starts(data, place), place)
    assert columns.bodies.to_pylist() == [b"body"] * 4
    columns.refuse_inner_batches()
    inner = record_with(b"...", sysflag.INNER_BATCH_MASK, properties=b"INNER_NUM\x013")
    data += inner
    columns = RecordColumns(data, record_starts(data, place), place)
    with pytest.raises(CorruptDataError, match=f"byte {len(data) - len(inner)}: .* batch queue"):
        columns.refuse_inner_batches()


def test_a_body_that_only_says_that_it_is_compressed_stands_as_it_is_stored() -> None:
    """Whoever may send could end every read of a topic."""
    packed = compress(b"good", sysflag.COMPRESSION_ZLIB)
    bodies = [packed, b"not packed", packed[:-1], packed]
    records = [record_with(body, sysflag.COMPRESSED) for body in bodies]
    columns = RecordColumns(b"".join(records), np.cumsum([0, *map(len, records[:-1])]), place)
    assert columns.bodies.to_pylist() == [b"good", b"not packed", packed[:-1], b"good"]
    assert [part.bodies.to_pylist() for part in columns.parts(10**9)] == [
        columns.bodies.to_pylist()
    ]


def test_a_compressed_body_that_is_not_the_one_that_was_stored_is_refused() -> None:
    packed = compress(b"good", sysflag.COMPRESSION_ZLIB)
    record = record_with(packed, sysflag.COMPRESSED)
    damaged = record.replace(packed, packed[:-1] + bytes([packed[-1] ^ 1]))
    assert damaged != record
    columns = RecordColumns(damaged, np.array([0]), place)
    with pytest.raises(CorruptDataError, match="byte 0: compressed body"):
        columns.bodies  # noqa: B018


def test_a_time_that_no_calendar_has_is_a_null() -> None:
    """The clock is the producer's, and so is what it says."""
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    good = [(moment - EPOCH) // timedelta(milliseconds=1) for moment in (first, EPOCH, last)]
    told = [2**62, good[0], -(2**62), good[1], 10**15, good[2], -(10**14)]
    records = [record_with(b"", born_ms=ms) for ms in told]
    columns = RecordColumns(b"".join(records), np.arange(len(told)) * len(records[0]), place)
    schema = arrow_schema(message_schema(("bornTimestamp",)))
    batch = to_batch(columns, schema, {})
    assert batch.column(0).to_pylist() == [None, first, None, EPOCH, None, last, None]
