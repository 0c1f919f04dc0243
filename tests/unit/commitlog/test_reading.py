"""Reading: every status of a pull, limits, time, keys, places."""

import struct

import pytest

from ledgermq.commitlog import GetMessageStatus, look_up
from ledgermq.commitlog.key_index import unsigned_hash_of
from ledgermq.dledger.entry import HEAD_BYTES, read_head
from ledgermq.protocol.record import (
    PHYSICAL_OFFSET_OFFSET,
    RECORD_FIXED_BYTES,
    V6_HOSTS_BYTES,
    decode_record,
)
from tests.unit.commitlog.single_member import START_MS, Broker, message

Status = GetMessageStatus
FOREVER = 1 << 60


@pytest.fixture
def broker(tmp_path):
    made = Broker(tmp_path, segment_bytes=16_384).lead()
    yield made
    made.close()


def bodies(result):
    return [decode_record(part).body for part in result.parts]


def outcome(result):
    return (result.status, result.next_begin_offset, result.min_offset, result.max_offset)


def test_unknown_queue(broker):
    assert outcome(broker.pull(offset=7)) == (Status.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)


def test_queue_without_a_message(broker):
    broker.send(message(), commit=False)
    assert outcome(broker.pull(offset=7)) == (Status.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
    broker.commit()


def test_offsets_around_the_ends(broker):
    broker.send(*[message(b"%d" % n) for n in range(5)])
    assert outcome(broker.pull(offset=5)) == (Status.OFFSET_OVERFLOW_ONE, 5, 0, 5)
    assert outcome(broker.pull(offset=6)) == (Status.OFFSET_OVERFLOW_BADLY, 5, 0, 5)
    assert outcome(broker.pull(offset=-1)) == (Status.OFFSET_TOO_SMALL, 0, 0, 5)
    assert outcome(broker.pull(offset=4)) == (Status.FOUND, 5, 0, 5)


def test_messages_come_in_order_from_their_own_queue(broker):
    broker.send(*[message(b"%d" % n, queue_id=n % 3) for n in range(30)])
    result = broker.pull(queue_id=1, offset=2, count_max=4)
    assert bodies(result) == [b"7", b"10", b"13", b"16"]
    assert (result.message_count, result.next_begin_offset) == (4, 6)
    assert result.bytes == sum(map(len, result.parts))


def test_count_is_bounded_but_one_message_always_passes(broker):
    broker.send(*[message(b"x" * 900) for _ in range(50)])
    assert broker.pull(count_max=100).message_count == 32
    assert broker.pull(count_max=0).message_count == 1


@pytest.mark.parametrize(("spare", "count"), [(0, 3), (-1, 2)])
def test_bytes_are_bounded_but_one_message_always_passes(tmp_path, spare, count):
    size = 1000 + RECORD_FIXED_BYTES + len("TopicTest")
    broker = Broker(tmp_path, memory_bytes_max=3 * size + spare).lead()
    broker.send(*[message(b"x" * 1000) for _ in range(9)])
    assert broker.pull().message_count == count
    broker.send(message(b"x" * 10_000))
    assert broker.pull(offset=9).message_count == 1


@pytest.mark.parametrize("limits", [{}, {"memory_bytes_max": 5000}, {"machine_memory_bytes": 9000}])
def test_the_short_loop_reads_what_the_long_one_reads(tmp_path, limits):
    """A matcher that wants everything sends every record through the long one."""
    broker = Broker(tmp_path, segment_bytes=8192, **limits).lead()
    for n in range(60):
        broker.send(message(bytes(n * 37 % 2500), queue_id=n % 2))
    broker.ledger_store.drop_before(8192)
    for offset in range(-1, 32):
        for count_max in (0, 1, 5, 32):
            short = broker.pull(offset=offset, count_max=count_max)
            assert short == broker.pull(
                offset=offset, count_max=count_max, matcher=lambda code: True
            )
    broker.close()


def test_lent_records_are_views_of_the_log(broker):
    broker.send(*[message(b"%d" % n) for n in range(3)])
    lent = broker.store.lend_message("TopicTest", 0, 0, 32, None)
    assert all(isinstance(part, memoryview) for part in lent.parts)
    assert lent == broker.pull()._replace(parts=lent.parts)
    assert [bytes(part) for part in lent.parts] == broker.pull().parts


def test_records_beyond_the_memory_come_in_smaller_portions(tmp_path):
    broker = Broker(
        tmp_path, machine_memory_bytes=20_000, memory_ratio_percent=50, disk_count_max=3
    ).lead()
    broker.send(*[message(b"x" * 900) for _ in range(50)])
    assert broker.pull(count_max=32).message_count == 3
    assert broker.pull(offset=45, count_max=32).message_count == 5
    assert broker.pull(offset=0, count_max=1).behind_bytes > 10_000
    broker.close()


def test_only_wanted_tags_are_returned(broker):
    broker.send(*[message(b"%d" % n, properties=b"TAGS\x01%d" % (n % 10)) for n in range(40)])
    wanted = ord("3")
    result = broker.pull(matcher=lambda code: code == wanted)
    assert bodies(result) == [b"3", b"13", b"23", b"33"]
    assert result.next_begin_offset == 40
    nothing = broker.pull(matcher=lambda code: False)
    assert outcome(nothing) == (Status.NO_MATCHED_MESSAGE, 40, 0, 40)


def test_scan_for_tags_ends_after_a_bounded_number_of_units(broker):
    for _ in range(20):
        broker.send(*[message(b"") for _ in range(50)])
    nothing = broker.pull(matcher=lambda code: False)
    assert outcome(nothing) == (Status.NO_MATCHED_MESSAGE, 800, 0, 1000)


def test_message_whose_record_was_removed_is_passed_over(broker):
    broker.send(*[message(b"x" * 1000, queue_id=n % 2) for n in range(40)])
    first_units = broker.store._queues.find("TopicTest", 0).units(0, 9)
    assert first_units
    # The log forgets a segment before the queues learn of it.
    broker.ledger_store.drop_before(16_384)
    result = broker.pull()
    assert result.status is Status.FOUND
    assert decode_record(result.parts[0]).physical_offset > 16_384
    removing = broker.pull(count_max=1, matcher=lambda code: code == 0)
    assert removing.status is Status.FOUND


def test_nothing_but_removed_records(tmp_path):
    broker = Broker(tmp_path, segment_bytes=4096).lead()
    broker.send(*[message(b"x" * 1000) for _ in range(3)])
    broker.send(*[message(b"x" * 1000, topic="Other") for _ in range(6)])
    broker.ledger_store.drop_before(8192)
    assert outcome(broker.pull()) == (Status.MESSAGE_WAS_REMOVING, 3, 0, 3)
    broker.close()


def test_place_gives_the_committed_record_or_nothing(broker):
    (first, second) = broker.send(message(b"one"), message(b"two"))
    (third,) = broker.send(message(b"three"), commit=False)
    record_at = broker.store.record_at
    assert decode_record(record_at(first.physical_offset)).body == b"one"
    assert decode_record(record_at(second.physical_offset)).body == b"two"
    assert record_at(third.physical_offset) is None
    for wrong in (-1, 0, 1, 47, first.physical_offset + 1, first.physical_offset - 48, 1 << 40):
        assert record_at(wrong) is None
    broker.commit()
    assert decode_record(record_at(third.physical_offset)).body == b"three"


def test_record_inside_of_a_body_is_no_record(broker):
    """A sender may put a whole record into a body; asking for its place must not return it."""
    (first,) = broker.send(message(b"one"))
    inner = broker.store.record_at(first.physical_offset)
    (outer,) = broker.send(message(b"....." + inner))
    at = broker.store.record_at(outer.physical_offset).index(inner)
    assert broker.store.record_at(outer.physical_offset + at) is None


@pytest.mark.parametrize("index", [0, 1, 2, 3, -1, 1 << 40])
def test_record_made_for_its_place_inside_of_a_body_is_no_record(broker, index):
    """A sender can tell where his next message will stand, and write that into its body: a record
    with the head of an entry before it.
    """
    (first,) = broker.send(message(b"one"))
    read_at = broker.ledger_store.data.read
    inner = bytearray(read_at(first.physical_offset - HEAD_BYTES, HEAD_BYTES + first.record_bytes))
    (probe,) = broker.send(message(b"....." + inner))
    distance = broker.store.record_at(probe.physical_offset).index(inner)
    # The next message is as long.
    place = probe.physical_offset + probe.record_bytes + HEAD_BYTES + distance
    head = read_head(inner)._replace(index=index, position=place)
    struct.pack_into(">qqq", inner, 8, head.index, head.term, head.position)
    assert read_head(inner) == head
    place += HEAD_BYTES
    struct.pack_into(">q", inner, HEAD_BYTES + PHYSICAL_OFFSET_OFFSET, place)
    (made,) = broker.send(message(b"....." + inner))
    assert decode_record(read_at(place, first.record_bytes)).physical_offset == place
    assert broker.store.record_at(place) is None
    assert decode_record(broker.store.record_at(made.physical_offset)).body == b"....." + inner


def test_offset_by_time_is_the_nearest(broker):
    for seconds in (0, 10, 20, 30):
        broker.now_ms = START_MS + 1000 * seconds
        broker.send(message())
    times = {-5: 0, 0: 0, 4: 0, 5: 0, 6: 1, 10: 1, 14: 1, 15: 1, 16: 2, 29: 3, 30: 3, 99: 3}
    found = {s: broker.store.offset_by_time("TopicTest", 0, START_MS + 1000 * s) for s in times}
    assert found == times
    assert broker.store.offset_by_time("Missing", 0, START_MS) == 0


def test_store_times(broker):
    broker.send(message())
    broker.now_ms += 500
    broker.send(message())
    assert broker.store.store_time("TopicTest", 0, 1) == START_MS + 500
    assert broker.store.store_time("TopicTest", 0, 2) is None
    assert broker.store.store_time("Missing", 0, 0) is None
    assert broker.store.earliest_store_time("TopicTest", 0) == START_MS
    assert broker.store.earliest_store_time() == START_MS


def test_the_store_time_of_a_large_message_costs_its_head(broker, monkeypatch):
    broker.send(message(b"x" * 8000))
    reader, sizes = broker.store._look_up, []
    read_at = reader._read_at

    def counted(position, size):
        sizes.append(size)
        return read_at(position, size)

    monkeypatch.setattr(reader, "_read_at", counted)
    assert broker.store.store_time("TopicTest", 0, 0) == START_MS
    assert sizes and max(sizes) <= RECORD_FIXED_BYTES + V6_HOSTS_BYTES


@pytest.mark.parametrize(
    ("at", "value"),
    [(0, struct.pack(">i", 1 << 30)), (0, bytes(4)), (PHYSICAL_OFFSET_OFFSET, bytes(8))],
    ids=["longer than the log", "empty", "of another place"],
)
def test_a_head_that_cannot_be_that_of_the_place_has_no_store_time(broker, monkeypatch, at, value):
    broker.send(message())
    reader = broker.store._look_up
    read_at = reader._read_at

    def forged(position, size):
        data = bytes(read_at(position, size))
        return data[:at] + value + data[at + len(value) :]

    assert broker.store.store_time("TopicTest", 0, 0) == START_MS
    monkeypatch.setattr(reader, "_read_at", forged)
    assert broker.store.store_time("TopicTest", 0, 0) is None


def test_query_tells_the_newest_that_an_answer_has_room_for(broker, monkeypatch):
    monkeypatch.setattr(look_up, "_QUERY_BYTES_MAX", 3000)
    for n in range(5):
        broker.send(message(b"%d" % n * 1000, properties=b"KEYSk"))
    found = broker.store.query("TopicTest", "k", 32, 0, FOREVER)
    assert [decode_record(part).body[:1] for part in found.parts] == [b"3", b"4"]
    monkeypatch.setattr(look_up, "_QUERY_BYTES_MAX", 1)
    found = broker.store.query("TopicTest", "k", 32, 0, FOREVER)
    assert [decode_record(part).body[:1] for part in found.parts] == [b"4"]


def test_query_returns_the_newest_oldest_first(broker):
    for n in range(10):
        broker.now_ms += 1000
        broker.send(message(b"%d" % n, properties=b"KEYS\x01order-%d all" % n))
    store = broker.store
    one = store.query("TopicTest", "order-3", 32, 0, FOREVER)
    assert [decode_record(part).body for part in one.parts] == [b"3"]
    assert one.last_update_timestamp == START_MS + 10_000
    three = store.query("TopicTest", "all", 3, 0, FOREVER)
    assert [decode_record(part).body for part in three.parts] == [b"7", b"8", b"9"]
    span = store.query("TopicTest", "all", 32, START_MS + 3000, START_MS + 5000)
    assert [decode_record(part).body for part in span.parts] == [b"2", b"3", b"4"]
    assert store.query("TopicTest", "none", 32, 0, FOREVER).parts == []
    assert store.query("Other", "all", 32, 0, FOREVER).parts == []


def test_query_gives_no_record_of_another_topic_or_key_with_the_same_hash(broker):
    """Java's hash of "Aa" is that of "BB", and whoever may read the one topic or knows the one key
    need not be who may read the other.
    """
    assert unsigned_hash_of("Aa#k") == unsigned_hash_of("BB#k")
    broker.send(message(b"mine", topic="Aa", properties=b"KEYS\x01k"))
    broker.now_ms += 1000
    broker.send(message(b"foreign", topic="BB", properties=b"KEYS\x01k"))
    broker.send(message(b"other key", topic="Aa", properties=b"UNIQ_KEY\x01AaAa\x02KEYS\x01x AaBB"))

    def found(topic, key):
        parts = broker.store.query(topic, key, 32, 0, FOREVER).parts
        return [decode_record(part).body for part in parts]

    assert found("Aa", "k") == [b"mine"] and found("BB", "k") == [b"foreign"]
    assert found("Aa", "AaAa") == found("Aa", "AaBB") == found("Aa", "x") == [b"other key"]
    for key in ("BBBB", "BBAa", "x AaBB", ""):
        assert found("Aa", key) == []


def test_store_tells_its_queues_and_ends(broker):
    broker.send(message(queue_id=3), message(queue_id=1), message(topic="B"))
    store = broker.store
    assert store.queues("TopicTest") == [1, 3]
    assert store.queues("Missing") == []
    assert {"TopicTest", "B"} <= set(store.topics())
    assert store.min_physical_offset == 0
    assert store.max_physical_offset == broker.ledger_store.end_position
    assert store.dispatch_behind == 0
    broker.send(message(), commit=False)
    assert store.dispatch_behind > 0
    broker.commit()
