"""Queue ends in the log: a member that never saw a queue's records goes on with its numbers."""

import pytest

from ledgermq.commitlog.queue_ends import (
    BODY_BYTES_MAX,
    QUEUES_TOPIC,
    ToldEnds,
    decode_queue_ends,
    encode_queue_ends,
)
from tests.unit.commitlog.single_member import Broker, message

SEGMENT_BYTES = 8192


def test_table_is_read_back_in_as_many_records_as_it_needs():
    table = {("T", n): n + 1 for n in range(500)} | {("%RETRY%g", 0): 7}
    bodies = encode_queue_ends(table)
    assert len(bodies) == 2
    assert decode_queue_ends(bodies[0]) | decode_queue_ends(bodies[1]) == table
    assert encode_queue_ends({}) == []


def test_no_record_is_larger_than_its_limit_whatever_the_names_and_numbers():
    longest = {(f"{n:0>127}", 2**31 - 1): 2**63 - 1 for n in range(1000)}
    wide = {("T", 2**31 - 1 - n): 2**63 - 1 for n in range(1000)}
    for table in (longest, wide, longest | wide):
        bodies = encode_queue_ends(table)
        # What stands around the ends counts for nothing.
        assert max(map(len, bodies)) <= BODY_BYTES_MAX + 100
        assert sum(map(len, bodies)) > (len(bodies) - 1) * BODY_BYTES_MAX // 2
        found = {}
        for body in bodies:
            found |= decode_queue_ends(body)
        assert found == table


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"7", b"{", b"{}", b"\xff", b'{"T": {"0": 1}}', b'{"ends": 7}']
    + [
        b'{"part": 0, "parts": 1, "ends": %s}' % ends
        for ends in (
            *(b'{"T": 1}', b'{"T": {"x": 1}}', b'{"../T": {"0": 1}}'),
            *(b'{"T": {"-1": 1}}', b'{"T": {"0": -1}}', b'{"T": {"0": "1"}}'),
        )
    ],
)
def test_malformed_table_says_nothing(body):
    assert decode_queue_ends(body) == {}
    ToldEnds().note(body, 1)


def test_ends_are_told_when_all_their_records_are_there():
    """Retention may not drop the first of them."""
    bodies = encode_queue_ends({("T", n): 1 for n in range(1000)})
    assert len(bodies) == 3
    told = ToldEnds()
    for index, expected in ((5, -1), (6, -1), (7, 5)):
        told.note(bodies[index - 5], index)
        assert told.index == expected
    # The leader was lost after the first two of the next ones; another one tells all.
    for body, index, expected in (
        *((bodies[0], 10, 5), (bodies[1], 11, 5), (b"{", 12, 5)),
        *((bodies[0], 20, 5), (bodies[1], 21, 5), (bodies[2], 22, 20), (bodies[2], 23, 20)),
    ):
        told.note(body, index)
        assert told.index == expected


def test_ends_of_many_queues_hold_up_no_send(tmp_path):
    """They take more than a message may have, and more than a segment holds."""
    broker = Broker(tmp_path, segment_bytes=65_536, body_bytes_max=1024).lead()
    for start in range(0, 3000, 500):
        broker.send(*[message(b"x", queue_id=start + n) for n in range(500)])
    again = [broker.send(message(b"y"))[0].queue_offset for _ in range(30)]
    assert again == list(range(1, 31))
    told = 0
    for index in range(broker.ledger_store.last_index + 1):
        entries = broker.ledger_store.read(index, 1)
        told += bytes(entries.data).count(QUEUES_TOPIC.encode())
    # Once for each segment, not for each send.
    segments = broker.ledger_store.end_position // 65_536 + 1
    assert told <= 10 * segments
    broker.store.close()


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


def copy_entries(source, target, first, end):
    """Brings entries of one store into another one."""
    while first < end:
        entries = source.ledger_store.read(first, 1 << 20).take(end - first, 1 << 20)
        target.ledger_store.append(entries)
        first = entries.last_index + 1


def test_a_log_begun_afresh_right_behind_what_was_dispatched_leaves_no_unit_before_it(tmp_path):
    """A follower had all that the leader's retention has removed, and nothing more."""
    old = Broker(tmp_path / "old", segment_bytes=SEGMENT_BYTES).lead()
    old.send(*[message(b"early", topic="Idle") for _ in range(9)])
    while old.ledger_store.end_position < 5 * SEGMENT_BYTES:
        old.send(message(b"x" * 700))
    store = old.ledger_store
    indexes = range(store.last_index + 1)
    begin = next(index for index in indexes if store.position_at(index) >= 2 * SEGMENT_BYTES)
    new = Broker(tmp_path / "new", segment_bytes=SEGMENT_BYTES)
    copy_entries(old, new, 0, begin)
    new.commit()
    assert new.store.dispatched_index == begin - 1
    assert new.pull("Idle").message_count == 9
    old.ledger_store.drop_before(2 * SEGMENT_BYTES)
    assert old.ledger_store.first_index == begin
    new.ledger_store.reset(begin, old.ledger_store.first_position)
    copy_entries(old, new, begin, old.ledger_store.last_index + 1)
    new.commit()
    assert new.store.min_offset("Idle", 0) == new.store.max_offset("Idle", 0) == 9
    low, high = new.store.min_offset("TopicTest", 0), new.store.max_offset("TopicTest", 0)
    assert 0 < low < high == old.store.max_offset("TopicTest", 0)
    assert new.pull(offset=low).message_count > 0
    new.close()
    old.close()
