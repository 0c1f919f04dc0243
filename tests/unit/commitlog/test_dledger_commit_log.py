"""Appending a turn: offsets, limits, refusals that consume nothing."""

import pytest

from ledgermq.commitlog import (
    LeaderNotReadyError,
    MessageIllegalError,
    check_message,
    opening_record,
)
from ledgermq.dledger.errors import NotLeaderError
from ledgermq.protocol.record import decode_record
from tests.unit.commitlog.single_member import HOST, START_MS, Broker, message


@pytest.fixture
def broker(tmp_path):
    made = Broker(tmp_path).lead()
    yield made
    made.close()


def stored(broker, result):
    return decode_record(broker.ledger_store.data.read(result.physical_offset, result.record_bytes))


def test_messages_of_a_turn_become_one_proposal_with_offsets_in_order(broker):
    sent = [message(b"%d" % n, queue_id=n % 2) for n in range(5)]
    results = broker.send(*sent, commit=False)
    assert [result.queue_offset for result in results] == [0, 0, 1, 1, 2]
    assert [result.index for result in results] == [1, 2, 3, 4, 5]
    for expected, result in zip(sent, results, strict=True):
        record = stored(broker, result)
        assert (record.body, record.queue_id) == (expected.body, expected.queue_id)
        assert record.queue_offset == result.queue_offset
        assert record.physical_offset == result.physical_offset
        assert record.store_timestamp == result.store_timestamp == START_MS
        assert broker.ledger_store.position_at(result.index) + 48 == result.physical_offset


def test_turn_may_cross_into_the_next_segment(tmp_path):
    broker = Broker(tmp_path, segment_bytes=4096).lead()
    results = broker.send(*[message(b"x" * 500) for _ in range(20)])
    assert [result.queue_offset for result in results] == list(range(20))
    assert {result.physical_offset // 4096 for result in results} == {0, 1, 2, 3}
    assert broker.pull().message_count == 20
    broker.close()


def test_prepared_and_rollback_take_no_queue_offset(broker):
    flags = [0, 0x4, 0, 0xC, 0x8]
    results = broker.send(*[message(sys_flag=flag) for flag in flags])
    assert [result.queue_offset for result in results] == [0, 0, 1, 0, 2]
    assert broker.store.max_offset("TopicTest", 0) == 3


def test_store_time_never_falls(broker):
    (first,) = broker.send(message())
    broker.now_ms -= 5000
    (second,) = broker.send(message())
    assert second.store_timestamp == first.store_timestamp


def test_refusal_of_the_ledger_consumes_no_offset(broker):
    broker.send(message())
    broker.ledger.refusal = NotLeaderError(None, 2)
    with pytest.raises(NotLeaderError):
        broker.send(message(), message(queue_id=1))
    broker.ledger.refusal = None
    results = broker.send(message(), message(queue_id=1))
    assert [result.queue_offset for result in results] == [1, 0]


ILLEGAL = {
    "no topic": ({"topic": ""}, "topic"),
    "topic too long": ({"topic": "t" * 128}, "topic"),
    "topic that is a path": ({"topic": "../t"}, "topic"),
    "topic not ascii": ({"topic": "主题"}, "topic"),
    "negative queue": ({"queue_id": -1}, "topic and queue id"),
    "body too large": ({"body": b"x" * 4_194_305}, "body bytes"),
    "record too large": ({"body": b"x" * 4_194_200}, "record bytes"),
    "properties too large": ({"properties": b"p" * 32_768}, "properties bytes"),
}


@pytest.mark.parametrize("case", ILLEGAL)
def test_illegal_message_is_refused_with_its_number_and_nothing_is_appended(broker, case):
    fields, field = ILLEGAL[case]
    before = broker.ledger_store.last_index
    with pytest.raises(MessageIllegalError, match=field) as caught:
        broker.send(message(), message(**fields))
    assert caught.value.position == 1
    assert broker.ledger_store.last_index == before
    assert broker.send(message())[0].queue_offset == 0
    with pytest.raises(MessageIllegalError, match=field):
        check_message(message(**fields), 4_194_304)


def test_number_outside_of_its_field_is_illegal(broker):
    with pytest.raises(MessageIllegalError, match="a field"):
        broker.send(message(flag=1 << 31))


@pytest.mark.parametrize("size", [0, 1, 4_194_304 - 400])
def test_body_up_to_the_limit_is_accepted(tmp_path, size):
    broker = Broker(tmp_path, segment_bytes=8 << 20).lead()
    check_message(message(b"x" * size), 4_194_304)
    broker.send(message(b"x" * size))
    (part,) = broker.pull().parts
    assert decode_record(part).body == b"x" * size
    broker.close()


def test_append_needs_a_leader_that_is_ready(tmp_path):
    broker = Broker(tmp_path)
    with pytest.raises(LeaderNotReadyError):
        broker.send(message())
    broker.lead()
    broker.send(message())
    broker.store.resign()
    with pytest.raises(LeaderNotReadyError):
        broker.send(message())
    broker.close()


def test_leadership_is_not_taken_up_before_everything_is_dispatched(broker):
    broker.send(message(), commit=False)
    broker.store.resign()
    with pytest.raises(LeaderNotReadyError):
        broker.store.become_leader()
    broker.commit()
    broker.store.become_leader()
    assert broker.send(message())[0].queue_offset == 1


def test_opening_record_is_valid_and_in_no_queue(broker):
    record = decode_record(opening_record(3, HOST, START_MS))
    assert (record.topic, record.body) == ("rmq_sys_LEDGERMQ_TERM", b"term=3")
    assert record.sys_flag & 0xC == 0x4
    assert broker.store.topics() in ([], ["rmq_sys_LEDGERMQ_TERM"])
    assert broker.store.max_offset("rmq_sys_LEDGERMQ_TERM", 0) == 0
