"""Which kinds of messages are taken: none with a timer, and of a topic with a type only that."""

import pytest

from ledgermq.broker import errors
from ledgermq.protocol.batch import BatchMessage, encode_batch
from ledgermq.protocol.properties import TIMERS, decode_properties
from tests.unit.broker.test_send import command, leader, send


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
