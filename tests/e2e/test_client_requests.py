"""Requests of a producer, and replies to them, through a real cluster."""

import asyncio
import itertools

import pytest

from ledgermq.client import (
    ClientConfig,
    ConsumerConfig,
    Message,
    MessageError,
    NoReplyError,
    Producer,
    ProducerConfig,
    PushConsumer,
    ReceivedMessage,
    blocking,
    json_serializer,
)
from tests.scenarios import run

_numbers = itertools.count()
PATIENCE_S = 60.0


@pytest.fixture
def topic() -> str:
    """A topic of a test's own."""
    return f"Asked{next(_numbers)}"


@pytest.mark.parametrize("namespace", ["", "red"])
def test_replies_reach_their_requests(name_server: str, topic: str, namespace: str) -> None:
    async def scenario() -> None:
        client = ClientConfig(namespace=namespace)
        config = ProducerConfig(client=client, compress_from_bytes=10)
        async with (
            Producer(name_server, config=config) as asker,
            Producer(name_server, "answerers", config=config) as answerer,
        ):

            async def listener(message: ReceivedMessage) -> None:
                number = int(message.body)
                await answerer.reply(message, b"%d " % (number * 2) * 20, properties={"a": "b"})

            async with PushConsumer(
                name_server, f"g{topic}", topic, listener, start="first",
                config=ConsumerConfig(client=client),
            ):  # fmt: skip
                questions = [Message(topic, b"%d" % number) for number in range(10)]
                replies = await asyncio.gather(
                    *(asker.request(question, timeout_s=PATIENCE_S) for question in questions)
                )
        assert [int(reply.body.split()[0]) for reply in replies] == list(range(0, 20, 2))
        assert {reply.properties["a"] for reply in replies} == {"b"}

    run(scenario())


def test_request_that_nobody_answers_ends_in_time(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        async with Producer(name_server) as asker:
            with pytest.raises(NoReplyError) as caught:
                await asker.request(Message(topic, b"?"), timeout_s=0.1)
            assert (caught.value.topic, caught.value.retriable) == (topic, True)

    run(scenario())


def test_only_a_request_can_be_answered(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        async with Producer(name_server) as producer:
            await producer.send(Message(topic, b"no question"))
            async with PushConsumer(name_server, f"g{topic}", topic, start="first") as consumer:
                message = await anext(consumer)
            with pytest.raises(MessageError, match="is no request"):
                await producer.reply(message, b"x")

    run(scenario())


def test_blocking_twin_asks_and_answers_in_values(name_server: str, topic: str) -> None:
    with (
        blocking.Producer(name_server, serializer=json_serializer) as asker,
        blocking.Producer(name_server, serializer=json_serializer) as answerer,
        blocking.PushConsumer(
            name_server,
            f"g{topic}",
            topic,
            lambda message: answerer.reply(message, {"sum": sum(message.value)}),
            start="first",
            serializer=json_serializer,
        ),
    ):
        reply = asker.request(Message(topic, [1, 2, 3]), timeout_s=PATIENCE_S)
    assert reply.value == {"sum": 6}
