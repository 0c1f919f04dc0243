"""Names and values that can never be are refused at once: field, value, what is allowed."""

from __future__ import annotations

import enum
from typing import Any

import pytest

from ledgermq.client import (
    ClientError,
    ConfigError,
    LitePullConsumer,
    Message,
    MessageError,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    TransactionalProducer,
    TransactionState,
)
from ledgermq.client.checks import check_group, check_topic
from ledgermq.client.config import parse_addresses
from ledgermq.client.send_frame import properties_text
from tests.unit.client.virtual_net import Net, run

ADDRESS = "127.0.0.1:9876"


@pytest.mark.parametrize(
    ("name", "trouble"),
    [
        ("my topic", "topic 'my topic' holds ' '; allowed: letters of ASCII, digits, _ - % and |"),
        ("shop.orders", "holds '.'"),
        ("Ümläut", "holds 'Üä'"),
        ("", "is empty"),
        ("x" * 128, "has 128 characters; allowed: 127"),
        (3, "topic is 3, a int; wanted: a text"),
    ],
)
def test_topic_that_cannot_be(name: Any, trouble: str) -> None:
    with pytest.raises(ConfigError, match=f"{trouble}".replace("|", "\\|")) as caught:
        check_topic(name)
    assert not caught.value.retriable


def test_names_that_can_be() -> None:
    for name in ("orders", "%RETRY%shop%billing", "a-b_c|d", "x" * 127):
        check_topic(name)
    check_group("x" * 255)
    with pytest.raises(ConfigError, match="group 'a b'"):
        check_group("a b")


class _Colour(enum.StrEnum):
    BLUE = "blue"


@pytest.mark.parametrize(
    ("values", "trouble"),
    [
        ({"keys": ["a", "b"]}, r"keys is \['a', 'b'\], a list; allowed: words in one text"),
        ({"tags": 5}, "tags is 5, a int; allowed: one word in a text"),
        ({"properties": {"n": 3}}, "property n is 3, a int; allowed: a text"),
        ({"properties": {3: "n"}}, "the name of a property is 3, a int"),
        ({"delay_level": -1}, "delay_level is -1, a int; allowed: 0 to 18"),
        ({"delay_level": 19}, r"allowed: 0 to 18 \(ProducerConfig\.delay_level_max\)"),
        ({"delay_level": "3"}, "delay_level is '3', a str; allowed: 0 to 18"),
        ({"delay_level": True}, "delay_level is True, a bool"),
        ({"flag": 2**31}, "flag is 2147483648, a int; allowed"),
        ({"flag": "x"}, "flag is 'x', a str"),
    ],
)
def test_values_that_would_be_stored_as_nobody_meant_them(
    values: dict[str, Any], trouble: str
) -> None:
    with pytest.raises(MessageError, match=trouble) as caught:
        properties_text(Message("T", b"", **values), "ID")
    assert not caught.value.retriable and caught.value.topic == "T"


def test_values_that_are_right() -> None:
    message = Message(
        "T", b"", keys="a b", tags="A", properties={"colour": _Colour.BLUE}, delay_level=18, flag=-1
    )
    assert "DELAY\x0118" in properties_text(message, "ID")
    # Brokers may be set up with more delays.
    properties_text(Message("T", b"", delay_level=30), "ID", delay_level_max=40)


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:9876", "user@host:9876", "a b:9876", "host:9876/x", "h:1:2", "host:٣", ":1"],
)
def test_address_that_is_none(address: str) -> None:
    with pytest.raises(ConfigError, match="is not of the form host:port"):
        parse_addresses(address)


def test_addresses_of_all_kinds() -> None:
    text = "10.0.0.1:9876;name-server_1.svc:9876,[::1]:9876;fe80::1%eth0:9876"
    assert len(parse_addresses(text)) == 4


def test_faces_refuse_before_anybody_is_asked() -> None:
    """Nobody listens anywhere: what raises here raised without a word on the wire."""

    async def check(transaction: Any) -> TransactionState:
        return TransactionState.ROLLBACK

    for make in (
        lambda: Producer(ADDRESS, "my group"),
        lambda: TransactionalProducer(ADDRESS, "my group", check),
        lambda: PushConsumer(ADDRESS, "my group", "T"),
        lambda: PullConsumer(ADDRESS, "my group"),
        lambda: LitePullConsumer(ADDRESS, "my group"),
    ):
        with pytest.raises(ConfigError, match="group 'my group' holds ' '"):
            make()

    async def scenario(net: Net) -> None:
        config = ProducerConfig(timeout_s=600)
        async with Producer(ADDRESS, config=config) as producer:
            for send in (producer.send, producer.send_one_way):
                with pytest.raises(MessageError, match="'shop.orders' holds '.'") as caught:
                    await send(Message("shop.orders", b""))
                assert not caught.value.retriable
            with pytest.raises(MessageError, match="delay_level is 19"):
                await producer.send(Message("T", b"", delay_level=19))
            with pytest.raises(MessageError, match="keys is"):
                await producer.send_batch([Message("T", b"", keys=["a"])])  # type: ignore[arg-type]
        with pytest.raises(ClientError, match="'my topic' holds ' '"):
            async with PushConsumer(ADDRESS, "g", "my topic"):
                pass
        async with LitePullConsumer(ADDRESS, "g") as consumer:
            with pytest.raises(ClientError, match="'my topic' holds ' '"):
                await consumer.subscribe("my topic")
        async with PullConsumer(ADDRESS, "g") as reader:
            with pytest.raises(ClientError, match="'my topic' holds ' '"):
                await reader.queues("my topic")
        assert net.connected == []

    run(scenario)
