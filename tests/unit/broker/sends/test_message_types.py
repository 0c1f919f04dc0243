"""Which kinds of messages are taken: none with a timer, and of a topic with a type only that."""

import pytest

from ledgermq.protocol.batch import BatchMessage, encode_batch
from ledgermq.protocol.properties import TIMERS, decode_properties
from ledgermq.state import errors
from ledgermq.state.topics import TopicConfig
from tests.unit.broker.parts import ListConnection, Parts
from tests.unit.broker.sends.test_send import (
    command,
    leader,
    open_topic,
    quick_frames,
    send,
)


@pytest.mark.parametrize("name", TIMERS)
@pytest.mark.parametrize("others", ["", "\x02DELAY\x010", "\x02TRAN_MSG\x01true\x02PGROUP\x01pg"])
def test_timer_is_refused_by_its_name(name: str, others: str) -> None:
    parts = leader()
    with pytest.raises(errors.IllegalMessageError, match=f"{name} is '60'.*no timers"):
        send(parts, command(properties=f"A\x01b\x02{name}\x0160{others}"))
    assert parts.store.messages == []


@pytest.mark.parametrize("name", TIMERS)
def test_timer_in_a_batch_is_refused(name: str) -> None:
    parts = leader()
    texts = (b"", f"{name}\x0160".encode())
    body = encode_batch([BatchMessage(0, b"x", text) for text in texts])
    with pytest.raises(errors.IllegalMessageError, match=name):
        send(parts, command(body, batch="true"))
    assert parts.store.messages == []


def test_delay_level_counts_before_a_timer() -> None:
    stored = send(leader(), command(properties="TIMER_DELAY_SEC\x0160\x02DELAY\x013"))
    assert stored.topic == "SCHEDULE_TOPIC_XXXX"
    assert "TIMER_DELAY_SEC" not in decode_properties(stored.properties)


def test_what_only_looks_like_a_timer_is_taken() -> None:
    for text in ("XTIMER_DELAY_SEC\x0160", "A\x01TIMER_DELAY_SEC", "TIMER_DELAY_SEC\x01"):
        assert send(leader(), command(properties=text)).topic == "T"
    # A copy of what was delivered once does not wait again.
    retry = command(topic="%RETRY%g", queueId="0", properties="TIMER_DELAY_SEC\x0160")
    assert send(leader(), retry).topic == "%RETRY%g"


OF_TYPE = {
    "NORMAL": "A\x01b",
    "FIFO": "__SHARDINGKEY\x01k",
    "DELAY": "DELAY\x013",
    "TRANSACTION": "TRAN_MSG\x01true\x02PGROUP\x01pg",
}


def typed(topic_type: str, **settings: str) -> Parts:
    parts = leader(**settings)
    parts.state.put_topic(TopicConfig("T", 4, 4, attributes={"message.type": topic_type}))
    return parts


@pytest.mark.parametrize("topic_type", OF_TYPE)
@pytest.mark.parametrize("message_type", OF_TYPE)
def test_topic_with_a_type_takes_no_other(topic_type: str, message_type: str) -> None:
    parts = typed(topic_type)
    request = command(properties=OF_TYPE[message_type])
    # The second one as well: that a message passed says nothing of the next.
    for count in (1, 2):
        if topic_type == message_type:
            send(parts, request)
            assert len(parts.store.messages) == count
            continue
        with pytest.raises(errors.IllegalMessageError, match=f"is {topic_type}, .* {message_type}"):
            send(parts, request)
        assert parts.store.messages == []


@pytest.mark.parametrize("message_type", OF_TYPE)
def test_topic_without_a_type_or_of_any_takes_all(message_type: str) -> None:
    unchecked = typed("NORMAL", enableTopicMessageTypeCheck="false")
    for parts in (leader(), typed("MIXED"), typed("UNSPECIFIED"), typed("OF_LATER"), unchecked):
        send(parts, command(properties=OF_TYPE[message_type]))


def test_each_message_of_a_batch_has_the_type_of_its_topic() -> None:
    good, bad = (BatchMessage(0, b"x", OF_TYPE[name].encode()) for name in ("FIFO", "NORMAL"))
    parts = typed("FIFO")
    send(parts, command(encode_batch([good, good]), batch="true"))
    with pytest.raises(errors.IllegalMessageError, match="is FIFO, .* NORMAL"):
        send(parts, command(encode_batch([good, bad]), batch="true"))
    assert len(parts.store.messages) == 2


def test_quick_sends_are_looked_at_where_a_topic_has_a_type() -> None:
    parts = leader()
    connection = ListConnection()
    open_topic(parts)
    assert parts.sends.send_quick(connection, quick_frames(2)) == 2  # type: ignore[arg-type]
    parts.state.put_topic(TopicConfig("T", 4, 4, attributes={"message.type": "NORMAL"}))
    assert parts.sends.send_quick(connection, quick_frames(2)) == 0  # type: ignore[arg-type]
    send(parts, command())
    assert parts.sends.send_quick(connection, quick_frames(2)) == 0  # type: ignore[arg-type]
