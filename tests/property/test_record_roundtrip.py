"""Records drawn at random: both ways, against the declared layout, and damaged in every way."""

import random

import pytest

from ledgermq.protocol.batch import BatchMessage, decode_batch, encode_batch
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.record import Record, decode_record, decode_record_head, encode_record
from ledgermq.protocol.record_layout import BATCH_ELEMENT_LAYOUT, RECORD_LAYOUT

SEEDS = range(20)


def drawn_host(rng: random.Random) -> tuple[bytes, int]:
    return rng.randbytes(rng.choice((4, 16))), rng.randrange(1 << 32)


def drawn_arguments(rng: random.Random) -> tuple:
    topic = "".join(rng.choices("aZ09_-%|é中", k=rng.randrange(43))).encode()
    return (
        topic,
        rng.randrange(-(1 << 31), 1 << 31),
        rng.randrange(-(1 << 31), 1 << 31),
        rng.randrange(1 << 63),
        rng.randrange(1 << 63),
        rng.randrange(1 << 12),
        rng.randrange(1 << 63),
        drawn_host(rng),
        rng.randrange(1 << 63),
        drawn_host(rng),
        rng.randrange(1 << 31),
        rng.randrange(-1, 1 << 63),
        rng.randbytes(rng.choice((0, 1, 7, 1024, 5000))),
        rng.randbytes(rng.choice((0, 1, 100, 32767))),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_decoded_record_encodes_to_the_same_bytes(seed):
    rng = random.Random(seed)
    for _ in range(30):
        data = encode_record(*drawn_arguments(rng))
        record = decode_record(b"#" + data + b"#", 1)
        again = encode_record(
            record.topic.encode(),
            record.queue_id,
            record.flag,
            record.queue_offset,
            record.physical_offset,
            record.sys_flag,
            record.born_timestamp,
            record.born_host,
            record.store_timestamp,
            record.store_host,
            record.reconsume_times,
            record.prepared_transaction_offset,
            record.body,
            record.properties,
        )
        assert again == data


@pytest.mark.parametrize("seed", SEEDS)
def test_declared_layout_reads_the_same_fields(seed):
    rng = random.Random(seed)
    for _ in range(10):
        data = encode_record(*drawn_arguments(rng))
        record = decode_record(data)
        declared = RECORD_LAYOUT.parse(data)
        for field in Record._fields:
            expected = getattr(record, field)
            found = getattr(declared, field)
            if field.endswith("_host"):
                found = (found.address, found.port)
            assert found == (expected.encode() if field == "topic" else expected), field
        head = decode_record_head(data)
        assert all(getattr(head, f) == getattr(declared, f) for f in head._fields)
        assert RECORD_LAYOUT.build(declared) == data


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_record_is_a_value_or_a_remote_error(seed):
    rng = random.Random(seed)
    for _ in range(100):
        data = bytearray(encode_record(*drawn_arguments(rng)))
        for _ in range(rng.randrange(4)):
            data[rng.randrange(min(len(data), 120))] = rng.randrange(256)
        damaged = bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.5 else data)
        for decode in (decode_record, decode_record_head):
            try:
                decode(damaged, rng.choice((0, 0, 0, 1, 5, -1)))
            except RemoteProtocolError:
                pass


@pytest.mark.parametrize("seed", SEEDS)
def test_random_bytes_are_a_value_or_a_remote_error(seed):
    rng = random.Random(seed)
    for _ in range(200):
        data = rng.randbytes(rng.randrange(200))
        for decode in (decode_record, decode_record_head, decode_batch):
            try:
                decode(data)
            except RemoteProtocolError:
                pass


@pytest.mark.parametrize("seed", SEEDS)
def test_batch_is_read_back_and_agrees_with_the_declared_layout(seed):
    rng = random.Random(seed)
    messages = [
        BatchMessage(rng.randrange(1 << 31), rng.randbytes(rng.randrange(50)), rng.randbytes(9))
        for _ in range(rng.randrange(1, 9))
    ]
    data = encode_batch(messages)
    assert decode_batch(data) == messages
    declared = BATCH_ELEMENT_LAYOUT.parse(encode_batch(messages[:1]))
    assert BatchMessage(declared.flag, declared.body, declared.properties) == messages[0]
