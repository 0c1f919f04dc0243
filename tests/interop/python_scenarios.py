"""What the Python client must do with any broker: one coroutine for each scenario.

Each takes the address of a name server and a topic of its own, which a first send creates.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

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
    SendResult,
    TransactionalProducer,
    TransactionState,
)

Scenario = Callable[[str, str], Awaitable[None]]
PATIENCE_S: Final = 60.0


async def known(reader: PullConsumer | LitePullConsumer, topic: str) -> list[MessageQueue]:
    """Returns the queues of a topic as soon as the name server knows them."""
    while True:
        try:
            return await reader.queues(topic)
        except NoRouteError:
            await asyncio.sleep(0.05)


async def fill(namesrv: str, topic: str, count: int) -> list[SendResult]:
    """Sends the numbers from 0 on, and waits until consumers can find the topic."""
    # A broker that is slow to answer would else get, and store, the same number again.
    config = ProducerConfig(
        client=ClientConfig(silence_max_s=PATIENCE_S),
        timeout_s=PATIENCE_S,
        attempt_timeout_s=PATIENCE_S,
    )
    async with Producer(namesrv, config=config) as producer, PullConsumer(namesrv) as reader:
        sent = [await producer.send(Message(topic, b"%d" % number)) for number in range(count)]
        await known(reader, topic)
        return sent


async def read_all(namesrv: str, topic: str, count: int) -> list[ReceivedMessage]:
    """Reads all queues of a topic from their begin until there are so many messages."""
    async with PullConsumer(namesrv) as reader:
        while True:
            found: list[ReceivedMessage] = []
            for queue in await known(reader, topic):
                offset = await reader.min_offset(queue)
                while (pulled := await reader.pull(queue, offset)).messages:
                    found += pulled.messages
                    offset = pulled.next_offset
            if len(found) >= count:
                return found
            await asyncio.sleep(0.05)


async def kinds_of_sends(namesrv: str, topic: str) -> None:
    large = b"squeeze me " * 1000
    async with Producer(namesrv) as producer:
        first = Message(topic, large, keys="k1 k2", tags="A", properties={"p": "ж"}, flag=7)
        result = await producer.send(first)
        futures = [await producer.submit(Message(topic, b"async %d" % n)) for n in range(20)]
        await asyncio.gather(*futures)
        batch = await producer.send_batch([Message(topic, b"batch %d" % n) for n in range(5)])
        ordered = [
            await producer.send(Message(topic, b"ordered %d" % n), ordering_key="k")
            for n in range(5)
        ]
        # One-way sends are never answered: the next send on the same connection comes after it.
        await producer.send_one_way(Message(topic, b"one-way"))
        await producer.send(Message(topic, b"last"))
    messages = await read_all(namesrv, topic, 33)
    bodies = {message.body for message in messages}
    assert len(messages) == len(bodies) == 33
    assert {b"one-way", large, *(b"batch %d" % n for n in range(5))} <= bodies
    by_id = {message.message_id: message for message in messages}
    got = by_id[result.message_id]
    assert (got.queue, got.queue_offset) == (result.queue, result.queue_offset)
    assert (got.keys, got.tags, got.properties["p"], got.record.flag) == ("k1 k2", "A", "ж", 7)
    assert got.offset_message_id == result.offset_message_id
    assert len(got.record.body) < len(large)
    assert {one.queue for one in ordered} == {ordered[0].queue}
    assert [one.queue_offset for one in ordered] == sorted(one.queue_offset for one in ordered)
    ids = batch.message_id.split(",")
    offsets = [by_id[id_].queue_offset for id_ in ids]
    assert offsets == list(range(batch.queue_offset, batch.queue_offset + 5))


async def push_and_retries(namesrv: str, topic: str) -> None:
    await fill(namesrv, topic, 40)
    group = f"g{topic}"
    config = ConsumerConfig(reconsume_times_max=0)
    seen: set[int] = set()

    async def listener(message: ReceivedMessage) -> None:
        number = int(message.body)
        seen.add(number)
        if number == 13:
            raise ValueError("to the dead letters")

    def member() -> PushConsumer:
        return PushConsumer(namesrv, group, topic, listener, start="first", config=config)

    async with member() as one, member() as other:
        while len(seen) < 40 or {len(one.queues()), len(other.queues())} != {2}:
            await asyncio.sleep(0.05)
        dead = await read_all(namesrv, f"%DLQ%{group}", 1)
    # A queue that changes hands may bring the message, and so bury it, a second time.
    assert {message.body for message in dead} == {b"13"}


async def orderly(namesrv: str, topic: str) -> None:
    sent = await fill(namesrv, topic, 40)
    config = ConsumerConfig(orderly_pause_s=0.05)
    seen: defaultdict[MessageQueue, list[int]] = defaultdict(list)
    failed: set[int] = set()

    async def listener(message: ReceivedMessage) -> None:
        number = int(message.body)
        if number % 5 == 0 and number not in failed:
            failed.add(number)
            raise ValueError("not yet")
        seen[message.queue].append(number)

    async with PushConsumer(
        namesrv, f"g{topic}", topic, listener, start="first", mode="orderly", config=config
    ):
        while sum(map(len, seen.values())) < 40:
            await asyncio.sleep(0.05)
    expected: defaultdict[MessageQueue, list[int]] = defaultdict(list)
    for number, one in enumerate(sent):
        expected[one.queue].append(number)
    assert seen == expected


async def broadcast(namesrv: str, topic: str) -> None:
    await fill(namesrv, topic, 20)
    seen: dict[str, set[int]] = {"a": set(), "b": set()}

    def member(name: str, directory: Path) -> PushConsumer:
        async def listener(message: ReceivedMessage) -> None:
            seen[name].add(int(message.body))

        client = ClientConfig(instance_name=f"{topic}{name}")
        config = ConsumerConfig(client=client, offsets_directory=directory)
        return PushConsumer(
            namesrv, f"g{topic}", topic, listener, start="first", mode="broadcast", config=config
        )

    with TemporaryDirectory() as folder:
        async with member("a", Path(folder)), member("b", Path(folder)):
            while not all(len(numbers) == 20 for numbers in seen.values()):
                await asyncio.sleep(0.05)


async def lite_pull(namesrv: str, topic: str) -> None:
    sent = await fill(namesrv, topic, 40)
    group = f"g{topic}"
    numbers: set[int] = set()
    async with LitePullConsumer(namesrv, group, start="first") as consumer:
        await consumer.subscribe(topic)
        while len(numbers) < 40:
            numbers.update(int(message.body) for message in await consumer.poll())
        await consumer.commit()
        for queue in consumer.assignment():
            ends = await consumer.committed(queue), await consumer.max_offset(queue)
            assert ends[0] == ends[1] == consumer.position(queue)
    chosen = sent[0].queue
    async with LitePullConsumer(namesrv, f"{group}2", start="last", auto_commit=False) as consumer:
        await consumer.assign([chosen])
        await consumer.seek_to_begin(chosen)
        got: list[ReceivedMessage] = []
        while len(got) < 10:
            got += await consumer.poll()
        assert [message.queue_offset for message in got] == list(range(10))
        await consumer.seek(chosen, 7)
        assert (await consumer.poll(count_max=1, timeout_s=PATIENCE_S))[0].queue_offset == 7
        await consumer.seek_to_time(chosen, got[5].store_timestamp_ms)
        (found,) = await consumer.poll(count_max=1, timeout_s=PATIENCE_S)
        assert found.store_timestamp_ms == got[5].store_timestamp_ms
        await consumer.seek_to_end(chosen)
        assert consumer.position(chosen) == 10
        await consumer.commit({chosen: 4})
        assert await consumer.committed(chosen) == 4


async def transactions(namesrv: str, topic: str) -> None:
    asked: set[bytes] = set()

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.add(message.body)
        is_undone = message.body == b"rolled back"
        return TransactionState.ROLLBACK if is_undone else TransactionState.COMMIT

    async with TransactionalProducer(namesrv, f"p{topic}", check) as producer:
        async with producer.transaction(Message(topic, b"committed")):
            pass
        half = await producer.send_half(Message(topic, b"rolled back"))
        await producer.rollback(half)
        await producer.send_half(Message(topic, b"asked"))
        # 5.x notes ends a moment late, and so may ask about the others, too: what was committed may
        # come a second time.
        bodies: set[bytes] = set()
        while not bodies >= {b"committed", b"asked"}:
            bodies = {message.body for message in await read_all(namesrv, topic, 2)}
            await asyncio.sleep(0.05)
    assert bodies == {b"committed", b"asked"}
    assert b"asked" in asked


async def request_reply(namesrv: str, topic: str) -> None:
    async with Producer(namesrv) as asker, Producer(namesrv, "answerers") as answerer:
        # The reply topic is made as the broker starts; the topic of the questions by a first send.
        await asker.send(Message(topic, b"0"))

        async def listener(message: ReceivedMessage) -> None:
            if message.properties.get("CORRELATION_ID"):
                await answerer.reply(message, b"re: " + message.body)

        async with PushConsumer(namesrv, f"g{topic}", topic, listener, start="first"):
            reply = await asker.request(Message(topic, b"question"), timeout_s=PATIENCE_S)
    assert reply.body == b"re: question"


async def delayed(namesrv: str, topic: str) -> None:
    await fill(namesrv, topic, 1)
    arrived: dict[bytes, float] = {}

    async def listener(message: ReceivedMessage) -> None:
        arrived[message.body] = time.monotonic()

    async with (
        Producer(namesrv) as producer,
        PushConsumer(namesrv, f"g{topic}", topic, listener, start="first"),
    ):
        begun_s = time.monotonic()
        await producer.send(Message(topic, b"later", delay_level=1))
        while b"later" not in arrived:
            await asyncio.sleep(0.05)
    # The broker's clock has ms, and rounds a level of 1 s by less than that.
    assert arrived[b"later"] - begun_s > 0.9


async def tags_and_sql(namesrv: str, topic: str) -> None:
    async with Producer(namesrv) as producer, PullConsumer(namesrv) as reader:
        for number in range(12):
            properties = {"size": str(number)}
            message = Message(topic, b"%d" % number, tags="ABC"[number % 3], properties=properties)
            await producer.send(message)
        await known(reader, topic)

    async def wanted(count: int, **selection: str) -> set[int]:
        name = next(iter(selection))
        numbers: set[int] = set()
        async with LitePullConsumer(namesrv, f"g{topic}{name}", start="first") as consumer:
            await consumer.subscribe(topic, **selection)
            while len(numbers) < count:
                numbers.update(int(message.body) for message in await consumer.poll())
        return numbers

    assert await wanted(8, tags="A || C") == {n for n in range(12) if n % 3 != 1}
    assert await wanted(3, sql="size BETWEEN 4 AND 6") == {4, 5, 6}


async def namespaces_and_traces(namesrv: str, topic: str) -> None:
    client = ClientConfig(namespace="tenant", trace=True, trace_topic=f"Traces{topic}")
    async with Producer(namesrv, config=ProducerConfig(client=client)) as producer:
        sent = await producer.send(Message(topic, b"mine", keys="k"))
    async with LitePullConsumer(
        namesrv, f"g{topic}", start="first", config=ConsumerConfig(client=client)
    ) as consumer:
        await consumer.subscribe(topic)
        while not (got := await consumer.poll()):
            pass
        assert (got[0].topic, got[0].record.topic) == (topic, f"tenant%{topic}")
    kinds: set[str] = set()
    while kinds != {"Pub", "SubBefore", "SubAfter"}:
        for message in await read_all(namesrv, f"tenant%Traces{topic}", 1):
            assert sent.message_id in message.keys.split()
            records = message.body.decode().split("\x02")[:-1]
            kinds.update(record.split("\x01")[0] for record in records)


SCENARIOS: Final[tuple[Scenario, ...]] = (
    kinds_of_sends,
    push_and_retries,
    orderly,
    broadcast,
    lite_pull,
    transactions,
    request_reply,
    delayed,
    tags_and_sql,
    namespaces_and_traces,
)
