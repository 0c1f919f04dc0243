"""The lite pull consumer against a real cluster, and what it does when a broker refuses."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from ledgermq.client import (
    ClosedError,
    ConfigError,
    ConsumerConfig,
    LitePullConsumer,
    Message,
    MessageQueue,
    NoRouteError,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    RefusedError,
    SendResult,
    blocking,
)
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import GetMinOffsetResponseHeader
from tests.e2e.scripted_broker import BROKER_NAME, Answer, ScriptedBroker
from tests.scenarios import run

QUICK = ConsumerConfig(commit_interval_s=0.05)
_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    """A topic of a test's own."""
    return f"LitePull{next(_numbers)}"


def lite(name_server: str, topic: str, **options: Any) -> LitePullConsumer:
    return LitePullConsumer(name_server, f"g{topic}", **{"start": "first", **options})


async def true(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def fill(name_server: str, topic: str, count: int) -> list[SendResult]:
    """Sends the numbers from 0 on, and waits until consumers can find the topic."""
    async with Producer(name_server) as producer, lite(name_server, topic) as reader:
        sent = [await producer.send(Message(topic, b"%d" % number)) for number in range(count)]
        while not await known(reader, topic):
            await asyncio.sleep(0.01)
        return sent


async def known(reader: LitePullConsumer, topic: str) -> bool:
    """Tells whether the name server knows a topic that a send has just made."""
    try:
        return bool(await reader.queues(topic))
    except NoRouteError:
        return False


async def fill_queue(name_server: str, topic: str, count: int) -> MessageQueue:
    """Sends the numbers from 0 on to one queue, and returns it."""
    await fill(name_server, topic, 1)
    async with Producer(name_server) as producer, lite(name_server, topic) as reader:
        for number in range(count):
            sent = await producer.send(Message(topic, b"%d" % number), ordering_key="one")
        # What `fill` sent may lie in front of them.
        oldest = sent.queue_offset + 1 - count
        await reader.commit({sent.queue: oldest})
        return sent.queue


async def take(consumer: LitePullConsumer, count: int) -> list[int]:
    """Polls until so many messages are there, and returns their numbers."""
    taken: list[ReceivedMessage] = []
    while len(taken) < count:
        taken += await consumer.poll(count_max=count - len(taken))
    return [int(message.body) for message in taken]


def test_members_share_the_queues_and_take_over(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        await fill(name_server, topic, 40)
        seen: set[int] = set()
        async with lite(name_server, topic) as first:
            await first.subscribe(topic)
            async with lite(name_server, topic) as second:
                await second.subscribe(topic)
                await true(lambda: (len(first.assignment()), len(second.assignment())) == (2, 2))
                assert not set(first.assignment()) & set(second.assignment())
                while len(seen) < 40:
                    for consumer in (first, second):
                        polled = await consumer.poll(timeout_s=0.05)
                        seen.update(int(message.body) for message in polled)
                        queues = {message.queue for message in polled}
                        assert queues <= set(consumer.assignment())
            await true(lambda: len(first.assignment()) == 4)

    run(scenario())


def test_unsubscribed_topic_is_left_to_the_others(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        await fill(name_server, topic, 1)
        async with lite(name_server, topic) as first, lite(name_server, topic) as second:
            await first.subscribe(topic)
            await second.subscribe(topic)
            await true(lambda: (len(first.assignment()), len(second.assignment())) == (2, 2))
            await first.unsubscribe(topic)
            await true(lambda: (len(first.assignment()), len(second.assignment())) == (0, 4))

    run(scenario())


def test_polled_messages_come_again_unless_they_are_counted(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        queue = await fill_queue(name_server, topic, 30)
        async with lite(name_server, topic) as consumer:
            await consumer.assign([queue])
            assert await take(consumer, 10) == list(range(10))
            # This poll counts the ten before, and the block ends before its own are.
            assert await take(consumer, 5) == list(range(10, 15))
        async with lite(name_server, topic) as consumer:
            await consumer.assign([queue])
            assert await take(consumer, 5) == list(range(10, 15))
            consumer.acknowledge()
        async with lite(name_server, topic) as consumer:
            await consumer.assign([queue])
            assert await take(consumer, 15) == list(range(15, 30))

    run(scenario())


def test_consumed_messages_are_committed_by_themselves(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        queue = await fill_queue(name_server, topic, 10)
        async with lite(name_server, topic, config=QUICK) as consumer:
            begin = await consumer.committed(queue)
            assert begin is not None
            await consumer.assign([queue])
            await take(consumer, 10)
            consumer.acknowledge()
            while await consumer.committed(queue) != begin + 10:
                await asyncio.sleep(0.01)

    run(scenario())


def test_by_hand_only_the_program_commits(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        queue = await fill_queue(name_server, topic, 20)
        async with lite(name_server, topic, auto_commit=False, config=QUICK) as consumer:
            begin = await consumer.committed(queue)
            assert begin is not None
            await consumer.assign([queue])
            await take(consumer, 10)
            await consumer.commit()
            assert await consumer.committed(queue) == begin + 10
            await take(consumer, 10)
        async with lite(name_server, topic, auto_commit=False) as consumer:
            assert await consumer.committed(queue) == begin + 10
            await consumer.commit({queue: begin + 3})
            assert await consumer.committed(queue) == begin + 3

    run(scenario())


def test_seek_goes_to_begin_end_offset_and_time(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        queue = await fill_queue(name_server, topic, 20)
        async with Producer(name_server) as producer, lite(name_server, topic) as consumer:
            await consumer.assign([queue])
            messages = []
            while len(messages) < 20:
                messages += await consumer.poll()
            behind = messages[-1].queue_offset + 1
            assert consumer.position(queue) == behind
            await consumer.seek(queue, messages[7].queue_offset)
            assert await take(consumer, 3) == [7, 8, 9]
            await consumer.seek_to_end(queue)
            assert consumer.position(queue) == behind == await consumer.max_offset(queue)
            await producer.send(Message(topic, b"20"), ordering_key="one")
            assert await take(consumer, 1) == [20]
            await consumer.seek_to_begin(queue)
            assert consumer.position(queue) == await consumer.min_offset(queue)
            wanted = messages[11].store_timestamp_ms
            await consumer.seek_to_time(queue, wanted)
            (found,) = await consumer.poll(count_max=1, timeout_s=30)
            assert found.store_timestamp_ms == wanted
            assert found.queue_offset <= messages[11].queue_offset
            with pytest.raises(ConfigError, match="0 and more"):
                await consumer.seek(queue, -1)

    run(scenario())


def test_paused_queues_give_nothing_until_they_are_resumed(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        sent = await fill(name_server, topic, 40)
        async with lite(name_server, topic) as consumer:
            await consumer.assign(await consumer.queues(topic))
            held_back = sent[0].queue
            consumer.pause([held_back])
            others = sum(one.queue != held_back for one in sent)
            seen: list[ReceivedMessage] = []
            while len(seen) < others:
                seen += await consumer.poll()
            assert await consumer.poll(timeout_s=0.1) == []
            assert held_back not in {message.queue for message in seen}
            assert consumer.paused() == [held_back]
            consumer.resume([held_back])
            assert len(await take(consumer, 40 - others)) == 40 - others

    run(scenario())


def test_other_tags_or_queues_may_be_assigned_in_place(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        queue = await fill_queue(name_server, topic, 4)
        async with Producer(name_server) as producer, lite(name_server, topic) as consumer:
            for number in range(4, 10):
                tags = "even" if number % 2 == 0 else "odd"
                message = Message(topic, b"%d" % number, tags=tags)
                await producer.send(message, ordering_key="one")
            await consumer.assign([queue])
            assert await take(consumer, 4) == [0, 1, 2, 3]
            await consumer.assign([queue], tags="even")
            assert await take(consumer, 3) == [4, 6, 8]
            others = [one for one in await consumer.queues(topic) if one != queue]
            await consumer.assign(others)
            assert consumer.assignment() == sorted(others)

    run(scenario())


def test_sql_conditions_select_for_every_kind_of_consumer(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        wanted = "size BETWEEN 3 AND 5 AND color IS NOT NULL"
        async with Producer(name_server) as producer:
            for number in range(9):
                properties = {"size": str(number)} | ({"color": "red"} if number != 4 else {})
                message = Message(topic, b"%d" % number, properties=properties)
                queue = (await producer.send(message, ordering_key="one")).queue
        async with lite(name_server, topic) as consumer:
            while not await known(consumer, topic):
                await asyncio.sleep(0.01)
            await consumer.assign([queue], sql=wanted)
            assert await take(consumer, 2) == [3, 5]
        async with lite(name_server, topic) as consumer:
            await consumer.subscribe(topic, sql=wanted)
            assert await take(consumer, 2) == [3, 5]
        async with PushConsumer(
            name_server, f"push{topic}", topic, sql=wanted, start="first"
        ) as consumer:
            assert [int((await anext(consumer)).body) for _ in range(2)] == [3, 5]
        async with PullConsumer(name_server, sql=wanted) as consumer:
            found = await consumer.pull(queue, await consumer.min_offset(queue))
            assert [message.body for message in found.messages] == [b"3", b"5"]

    run(scenario())


def test_iterating_counts_the_message_before(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        queue = await fill_queue(name_server, topic, 10)
        seen = []
        async with lite(name_server, topic) as consumer:
            await consumer.assign([queue])
            async for message in consumer:
                seen.append(int(message.body))
                if len(seen) == 6:
                    break
        async with lite(name_server, topic) as consumer:
            await consumer.assign([queue])
            assert await take(consumer, 5) == [5, 6, 7, 8, 9]
        assert seen == [0, 1, 2, 3, 4, 5]

    run(scenario())


def test_iteration_ends_when_the_consumer_is_closed(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        async def iterate() -> list[ReceivedMessage]:
            return [message async for message in consumer]

        async with lite(name_server, topic) as consumer:
            iterating = asyncio.create_task(iterate())
            await asyncio.sleep(0)
        assert await iterating == []
        with pytest.raises(ClosedError):
            await consumer.poll()

    run(scenario())


def test_subscribe_and_assign_exclude_each_other(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        queue = (await fill(name_server, topic, 1))[0].queue
        async with lite(name_server, topic) as consumer:
            await consumer.subscribe(topic)
            with pytest.raises(ConfigError, match="exclude"):
                await consumer.assign([queue])
            await consumer.unsubscribe(topic)
            await consumer.assign([queue])
            with pytest.raises(ConfigError, match="exclude"):
                await consumer.subscribe(topic)
            foreign = MessageQueue(topic, "nobody", 0)
            for refused in (consumer.position, lambda one: consumer.pause([one])):
                with pytest.raises(ConfigError, match="not this consumer's"):
                    refused(foreign)

    run(scenario())


def test_blocking_twin_does_the_same(name_server: str, topic: str) -> None:
    asyncio.run(fill(name_server, topic, 20))
    seen = set()
    with blocking.LitePullConsumer(name_server, f"g{topic}", start="first") as consumer:
        consumer.subscribe(topic)
        for message in consumer:
            seen.add(int(message.body))
            if len(seen) == 20:
                break
        assert len(consumer.assignment()) == 4
        queue = consumer.assignment()[0]
        consumer.pause([queue])
        assert consumer.paused() == [queue]
        consumer.resume([queue])
        consumer.seek_to_begin(queue)
        assert consumer.position(queue) == consumer.min_offset(queue)
        consumer.commit()
        assert consumer.committed(queue) == consumer.position(queue)
    assert seen == set(range(20))


def test_refusal_that_stays_is_raised_by_poll(topic: str) -> None:
    def answer(request: RemotingCommand) -> Answer:
        match request.code:
            case RequestCode.QUERY_CONSUMER_OFFSET:
                return int(ResponseCode.QUERY_NOT_FOUND)
            case RequestCode.GET_MIN_OFFSET:
                return request.response(0, header=GetMinOffsetResponseHeader(offset=0))
            case RequestCode.PULL_MESSAGE:
                return int(ResponseCode.SUBSCRIPTION_PARSE_FAILED)
        return None

    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.on_request = answer
            async with lite(broker.address, topic, auto_commit=False) as consumer:
                await consumer.assign([MessageQueue(topic, BROKER_NAME, 0)])
                with pytest.raises(RefusedError) as caught:
                    await consumer.poll(timeout_s=60)
                assert caught.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
                assert not caught.value.retriable

    run(scenario())
