"""Two tenants with the same names on one cluster, in every mode and kind of send."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client import (
    ClientConfig,
    ConsumerConfig,
    LitePullConsumer,
    Message,
    MessageQueue,
    NoRouteError,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    TransactionalProducer,
    TransactionState,
)
from tests.scenarios import run

_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    """A topic of a test's own."""
    return f"Tenants{next(_numbers)}"


def consumer_config(namespace: str, **options: Any) -> ConsumerConfig:
    return ConsumerConfig(client=ClientConfig(namespace=namespace), **options)


def producer(name_server: str, namespace: str) -> Producer:
    config = ProducerConfig(client=ClientConfig(namespace=namespace))
    return Producer(name_server, config=config)


async def known(reader: PullConsumer, topic: str) -> list[MessageQueue]:
    """Waits until the name server knows a topic that a send has just made."""
    while True:
        try:
            return await reader.queues(topic)
        except NoRouteError:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("mode", ["concurrent", "orderly", "broadcast"])
def test_consumers_get_what_their_own_tenant_sent(
    name_server: str, topic: str, mode: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        for namespace in ("red", "blue"):
            async with producer(name_server, namespace) as sender:
                await sender.send_batch([Message(topic, namespace.encode()) for _ in range(3)])
                sent = await sender.send(Message(topic, namespace.encode()))
            assert sent.topic == topic
            config = consumer_config(namespace, offsets_directory=tmp_path)
            async with PullConsumer(name_server, config=config) as reader:
                assert sent.queue in await known(reader, topic)
        for namespace in ("red", "blue"):
            config = consumer_config(namespace, offsets_directory=tmp_path)
            seen: list[ReceivedMessage] = []
            async with PushConsumer(
                name_server, "group", topic, seen.append, start="first", mode=mode, config=config
            ) as consumer:
                while len(seen) < 4:
                    await asyncio.sleep(0.01)
                assert set(consumer.queues()) >= {message.queue for message in seen}
            assert {message.body for message in seen} == {namespace.encode()}
            assert {message.topic for message in seen} == {topic}
            assert {message.record.topic for message in seen} == {f"{namespace}%{topic}"}
            assert {message.properties["INSTANCE_ID"] for message in seen} == {namespace}

    run(scenario())


def test_what_fails_comes_again_in_its_own_namespace(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        config = consumer_config("red", reconsume_times_max=0)
        group = f"g{topic}"
        async with producer(name_server, "red") as sender:
            await sender.send(Message(topic, b"bad"))

        def listener(message: ReceivedMessage) -> None:
            raise ValueError("never")

        async with (
            PushConsumer(name_server, group, topic, listener, start="first", config=config),
            PullConsumer(name_server, config=config) as reader,
        ):
            (queue,) = await known(reader, f"%DLQ%{group}")
            while not (found := await reader.pull(queue, 0, suspend_s=1.0)).messages:
                pass
        assert [message.body for message in found.messages] == [b"bad"]
        assert found.messages[0].record.topic == f"%DLQ%red%{group}"

    run(scenario())


def test_lite_pull_moves_and_commits_in_its_own_namespace(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        group = f"g{topic}"
        async with producer(name_server, "red") as sender:
            sent = await sender.send(Message(topic, b"x"))
        red = LitePullConsumer(name_server, group, start="first", config=consumer_config("red"))
        async with red as consumer, PullConsumer(name_server, group) as plain:
            await consumer.subscribe(topic)
            while not await consumer.poll():
                pass
            await consumer.commit()
            assert await consumer.committed(sent.queue) == sent.queue_offset + 1
            wire_queue = MessageQueue(f"red%{topic}", sent.broker_name, sent.queue_id)
            await known(plain, wire_queue.topic)
            # The group of the same name without a namespace is another one.
            assert not await plain.committed(wire_queue)

    run(scenario())


def test_transactions_are_ended_and_asked_for_in_their_own_namespace(
    name_server: str, topic: str
) -> None:
    async def scenario() -> None:
        asked: list[str] = []

        async def check(message: ReceivedMessage) -> TransactionState:
            asked.append(message.topic)
            return TransactionState.COMMIT

        config = ProducerConfig(client=ClientConfig(namespace="red"))
        async with (
            TransactionalProducer(name_server, f"g{topic}", check, config=config) as sender,
            PullConsumer(name_server, config=consumer_config("red")) as reader,
        ):
            async with sender.transaction(Message(topic, b"ended")) as half:
                pass
            await known(reader, topic)
            assert half.topic == topic
            # Never ended: the broker has to ask.
            await sender.send_half(Message(topic, b"asked"))
            bodies: set[bytes] = set()
            while bodies != {b"ended", b"asked"}:
                for queue in await reader.queues(topic):
                    found = await reader.pull(queue, 0)
                    bodies.update(message.body for message in found.messages)
            assert set(asked) == {topic}

    run(scenario())
