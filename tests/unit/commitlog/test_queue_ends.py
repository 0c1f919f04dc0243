"""Queue ends in the log: a member that never saw a queue's records goes on with its numbers."""

import pytest

from ledgermq.commitlog.queue_ends import (
    QUEUES_IN_RECORD_MAX,
    decode_queue_ends,
    encode_queue_ends,
)
from tests.unit.commitlog.single_member import Broker, message

SEGMENT_BYTES = 8192


def test_table_is_read_back_in_as_many_records_as_it_needs():
    table = {("T", n): n + 1 for n in range(QUEUES_IN_RECORD_MAX + 5)} | {("%RETRY%g", 0): 7}
    bodies = encode_queue_ends(table)
    assert len(bodies) == 2
    assert decode_queue_ends(bodies[0]) | decode_queue_ends(bodies[1]) == table
    assert encode_queue_ends({}) == []


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"7", b"{", b'{"T": 1}', b'{"T": {"x": 1}}', b'{"../T": {"0": 1}}', b"\xff"]
    + [b'{"T": {"-1": 1}}', b'{"T": {"0": -1}}', b'{"T": {"0": "1"}}'],
)
def test_malformed_table_says_nothing(body):
    assert decode_queue_ends(body) == {}


def test_ends_are_told_once_in_each_segment_and_in_no_answer(tmp_path):
    broker = Broker(tmp_path, segment_bytes=SEGMENT_BYTES).lead()
    indexes = []
    for n in range(40):
        results = broker.send(message(b"x" * 700), message(b"x" * 700, queue_id=1))
        assert [result.queue_offset for result in results] == [n, n]
        indexes += [result.index for result in results]
    told = broker.ledger_store.last_index + 1 - len(indexes) - 1
    segments = broker.ledger_store.end_position // SEGMENT_BYTES
    assert segments - 1 <= told <= segments + 1
    broker.close()


def test_member_filled_from_a_later_entry_goes_on_with_the_numbers(tmp_path):
    old = Broker(tmp_path / "old", segment_bytes=SEGMENT_BYTES).lead()
    old.send(*[message(b"early", topic="Idle") for _ in range(9)])
    while old.ledger_store.end_position < 5 * SEGMENT_BYTES:
        old.send(message(b"x" * 700))
    old.ledger_store.drop_before(2 * SEGMENT_BYTES)
    first = old.ledger_store.first_index
    new = Broker(tmp_path / "new", segment_bytes=SEGMENT_BYTES)
    new.ledger_store.reset(first, old.ledger_store.first_position)
    new.store.reset()
    new.ledger.commit_index = first - 1
    while first <= old.ledger_store.last_index:
        entries = old.ledger_store.read(first, 1 << 20)
        new.ledger_store.append(entries)
        first = entries.last_index + 1
    new.commit()
    assert new.store.min_offset("Idle", 0) == new.store.max_offset("Idle", 0) == 9
    assert new.store.max_offset("TopicTest", 0) == old.store.max_offset("TopicTest", 0)
    new.lead()
    (result,) = new.send(message(topic="Idle"))
    assert result.queue_offset == 9
    for index in range(old.ledger_store.last_index + 1, new.ledger_store.last_index + 1):
        old.ledger_store.append(new.ledger_store.read(index, 1))
    old.commit()
    assert old.store.max_offset("Idle", 0) == 10
    new.close()
    old.close()
