"""Traces of a producer and of consumers, as they lie in a trace topic."""

import asyncio
import itertools

import pytest

from ledgermq.client import (
    ClientConfig,
    ConsumerConfig,
    LitePullConsumer,
    Message,
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
    return f"Traced{next(_numbers)}"


def traced(topic: str) -> ClientConfig:
    return ClientConfig(trace=True, trace_topic=f"Traces{topic}")


async def traces(name_server: str, topic: str, count: int) -> list[list[str]]:
    """Waits for so many records, and returns the fields of each, in no order.

    Called while the traced client is open: one that closes waits for its traces for a while only.
    """
    trace_topic = traced(topic).trace_topic
    async with PullConsumer(name_server) as reader:
        while True:
            records: list[list[str]] = []
            try:
                for queue in await reader.queues(trace_topic):
                    found = await reader.pull(queue, 0, count_max=1000)
                    for message in found.messages:
                        texts = message.body.decode().split("\x02")[:-1]
                        split = [text.split("\x01") for text in texts]
                        # Each can be found by the id of what it tells of.
                        ids = {fields[2 if fields[0] == "SubAfter" else 5] for fields in split}
                        assert ids <= set(message.keys.split())
                        records += split
            except NoRouteError:
                pass
            if len(records) >= count:
                return records
            await asyncio.sleep(0.02)


def test_sends_are_traced(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        plain = Message(topic, b"12345", keys="k1 k2", tags="A")
        config = ProducerConfig(client=traced(topic))
        async with Producer(name_server, "senders", config=config) as producer:
            sent = await producer.send(plain)
            delayed = await producer.send(Message(topic, b"later", delay_level=1))
            records = {fields[5]: fields for fields in await traces(name_server, topic, 2)}
        assert set(records) == {sent.message_id, delayed.message_id}
        fields = records[sent.message_id]
        assert [*fields[:1], *fields[2:8]] == [
            "Pub", "DefaultRegion", "senders", topic, sent.message_id, "A", "k1 k2",
        ]  # fmt: skip
        assert [*fields[9:10], *fields[11:]] == ["5", "0", sent.offset_message_id, "true"]
        assert fields[8].startswith("127.0.0.1:")
        assert records[delayed.message_id][11] == "3"

    run(scenario())


def test_deliveries_are_traced_with_their_outcome(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        async with Producer(name_server) as producer:
            messages = [Message(topic, b"good", keys="k"), Message(topic, b"bad")]
            good, bad = [await producer.send(message) for message in messages]
        done = asyncio.Event()
        seen: set[bytes] = set()

        async def listener(message: ReceivedMessage) -> None:
            seen.add(message.body)
            if len(seen) == 2:
                done.set()
            if message.body == b"bad":
                raise ValueError("no")

        config = ConsumerConfig(client=traced(topic))
        async with PushConsumer(
            name_server, f"g{topic}", topic, listener, start="first", config=config
        ):
            await done.wait()
            # What failed may be delivered again meanwhile, which is traced as well.
            outcomes: dict[str, tuple[str, str]] = {}
            while set(outcomes) != {good.message_id, bad.message_id}:
                records = await traces(name_server, topic, 4)
                begun = {fields[4]: fields for fields in records if fields[0] == "SubBefore"}
                ended = {fields[1]: fields for fields in records if fields[0] == "SubAfter"}
                outcomes = {fields[2]: (fields[4], fields[6]) for fields in ended.values()}
        assert outcomes[good.message_id] == ("true", "0")
        assert outcomes[bad.message_id] == ("false", "2")
        assert set(ended) <= set(begun)
        for request_id, fields in ended.items():
            assert begun[request_id][3] == f"g{topic}" == fields[8]
            assert begun[request_id][5] == fields[2]
            assert begun[request_id][7] == ("k" if fields[2] == good.message_id else "null")

    run(scenario())


def test_polled_messages_are_traced(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        async with Producer(name_server) as producer:
            sent = await producer.send(Message(topic, b"x"))
        config = ConsumerConfig(client=traced(topic))
        async with LitePullConsumer(
            name_server, f"g{topic}", start="first", config=config
        ) as consumer:
            await consumer.subscribe(topic)
            while not await consumer.poll():
                pass
            records = await traces(name_server, topic, 2)
        assert {fields[0] for fields in records} == {"SubBefore", "SubAfter"}
        assert {fields[5] for fields in records if fields[0] == "SubBefore"} == {sent.message_id}

    run(scenario())


def test_transactions_are_traced(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        async def check(message: ReceivedMessage) -> TransactionState:
            return TransactionState.UNKNOWN

        config = ProducerConfig(client=traced(topic))
        async with TransactionalProducer(name_server, "shop", check, config=config) as producer:
            half = await producer.send_half(Message(topic, b"x"))
            await producer.rollback(half)
            records: list[list[str]] = []
            while not any("ROLLBACK_MESSAGE" in fields for fields in records):
                records = await traces(name_server, topic, 2)
        [sent] = [fields for fields in records if fields[0] == "Pub"]
        assert sent[5] == half.message_id
        assert sent[11] == "1"
        # The broker may have asked for its state before.
        ends = [fields for fields in records if fields[0] == "EndTransaction"]
        assert all(end[5] == end[10] == half.message_id for end in ends)
        assert ["ROLLBACK_MESSAGE", "false"] in [end[11:] for end in ends]

    run(scenario())


def test_without_the_switch_nothing_is_traced(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        async with Producer(name_server) as producer, PullConsumer(name_server) as reader:
            assert (await producer.send(Message(topic, b"x"))).region_id == ""
            with pytest.raises(NoRouteError):
                await reader.queues(f"Traces{topic}")

    run(scenario())
