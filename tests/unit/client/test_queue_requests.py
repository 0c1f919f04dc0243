"""Answers to pulls become messages."""

import pytest

from ledgermq.client.errors import RefusedError
from ledgermq.client.failed_tries import described
from ledgermq.client.queue_requests import decode_messages
from ledgermq.client.subscription import tags_of
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.record import encode_record

QUEUE = MessageQueue("T", "b", 2)
HOST = (b"\x0a\x00\x00\x01", 10911)


def record(offset: int, properties: bytes, topic: bytes = b"T", times: int = 0) -> bytes:
    return encode_record(
        topic, 2, 7, offset, 4096, 0, 111, HOST, 222, HOST, times, 0, b"body", properties
    )


def test_messages_stand_in_order_with_what_they_carry() -> None:
    properties = b"KEYS\x01k1 k2\x02TAGS\x01A\x02UNIQ_KEY\x01ID\x02mine\x01\xc3\xa9"
    first, second = decode_messages(record(5, properties) + record(6, b""), QUEUE, 100, frozenset())
    assert (first.queue_offset, second.queue_offset) == (5, 6)
    assert (first.topic, first.keys, first.tags, first.message_id) == ("T", "k1 k2", "A", "ID")
    assert first.properties["mine"] == "é"
    assert (first.body, first.born_timestamp_ms, first.store_timestamp_ms) == (b"body", 111, 222)
    # Without an id of its producer, the place is its id.
    assert second.message_id == "0A00000100002A9F0000000000001000"


def test_message_of_another_tag_with_the_same_hash_is_left_out() -> None:
    """Aa and BB have one hash in Java, and the broker compares hashes."""
    body = record(0, b"TAGS\x01Aa") + record(1, b"TAGS\x01BB")
    (only,) = decode_messages(body, QUEUE, 100, tags_of("BB || C"))
    assert only.queue_offset == 1


def test_message_with_properties_that_are_no_text_is_chosen_by_its_tag_and_can_be_told() -> None:
    """A consumer of one tag asked again and again from its offset on."""
    properties = b"TAGS\x01a\x02RETRY_TOPIC\x01Orders\x02k\x01\xff"
    data = record(0, properties, b"%RETRY%g", times=3) + record(1, b"TAGS\x01b")
    chosen = decode_messages(data, QUEUE, 100, tags_of("a"))
    assert [one.queue_offset for one in chosen] == [0]
    assert chosen[0].topic == "Orders" and "Orders" in repr(chosen[0])


def test_retried_message_shows_the_topic_it_was_sent_to() -> None:
    data = record(0, b"RETRY_TOPIC\x01Orders", topic=b"%RETRY%g", times=2)
    (message,) = decode_messages(data, QUEUE, 100, frozenset())
    assert (message.topic, message.reconsume_times) == ("Orders", 2)


def test_sender_has_no_say_in_the_topic_of_its_message() -> None:
    """It may write the number of tries and every property."""
    for topic, shown in (("T", "T"), ("T%RETRY%g", "T%RETRY%g"), ("%DLQ%g", "secret")):
        data = record(0, b"RETRY_TOPIC\x01secret", topic.encode(), times=1)
        (message,) = decode_messages(data, QUEUE, 100, frozenset())
        assert message.topic == shown
    data = record(0, b"RETRY_TOPIC\x01space%T", b"%RETRY%space%g", times=1)
    (of_space,) = decode_messages(data, QUEUE, 100, frozenset(), "space")
    assert of_space.topic == "T"


def test_message_was_never_delivered_less_often_than_never() -> None:
    """Whatever its sender says: listeners compute with it."""
    for times, shown in ((-(2**31), 0), (-1, 0), (0, 0), (3, 3), (2**31 - 1, 2**31 - 1)):
        (message,) = decode_messages(record(0, b"", times=times), QUEUE, 100, frozenset())
        assert message.reconsume_times == shown


def test_message_is_shown_in_one_line_of_plain_text() -> None:
    """Whoever wrote the id, or sends to a retry topic, could forge lines of logs."""
    words = "RETRY_TOPIC\x01T\nCRITICAL\x02UNIQ_KEY\x01u\n\x1b[31m\u202e\x02KEYS\x01k\n\u2028"
    data = record(0, words.encode(), b"%RETRY%g", times=1)
    (message,) = decode_messages(data, QUEUE, 100, frozenset())
    assert repr(message) == "<ReceivedMessage T\\nCRITICAL b/2@0>"
    assert described(message) == (
        "u\\n\\x1b[31m\\u202e with keys 'k\\n\\u2028' of T\\nCRITICAL at b/2@0"
    )
    # Its own text is as it came.
    assert message.message_id == "u\n\x1b[31m\u202e" and message.topic == "T\nCRITICAL"


def test_remark_of_a_broker_is_shown_in_one_line_of_plain_text() -> None:
    error = RefusedError(1, "no\nCRITICAL\x1b[31m")
    assert str(error) == "refused: no\\nCRITICAL\\x1b[31m (code 1 SYSTEM_ERROR)"
    assert error.remark == "no\nCRITICAL\x1b[31m"


@pytest.mark.parametrize("cut", [1, 50, 95])
def test_half_a_record_is_an_error(cut: int) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_messages(record(0, b"") + record(1, b"")[:cut], QUEUE, 100, frozenset())
