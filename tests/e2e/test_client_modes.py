"""Orderly and broadcast consumers, transactions, questions of tools: against a real cluster."""

import asyncio
import itertools
from collections import Counter
from pathlib import Path

import pytest

from ledgermq.cli.remote import Remote
from ledgermq.client import (
    ClientConfig,
    ConsumerConfig,
    Message,
    NoRouteError,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SendResult,
    TransactionalProducer,
    TransactionState,
    blocking,
)
from ledgermq.protocol.bodies import ConsumeMessageDirectlyResult, MessageQueue
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from ledgermq.protocol.running_info import ConsumerRunningInfo
from tests.scenarios import run

QUICK = ConsumerConfig(orderly_pause_s=0.01, commit_interval_s=0.05)
_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    """A topic of a test's own."""
    return f"Modes{next(_numbers)}"


async def fill(name_server: str, topic: str, count: int) -> list[SendResult]:
    """Sends the numbers from 0 on, and waits until consumers can find the topic."""
    async with Producer(name_server) as producer, PullConsumer(name_server) as reader:
        sent = [await producer.send(Message(topic, b"%d" % number)) for number in range(count)]
        while True:
            try:
                await reader.queues(topic)
                return sent
            except NoRouteError:
                await asyncio.sleep(0.01)


def test_orderly_queues_wait_for_the_message_that_fails(name_server: str, topic: str) -> None:
    """Every third message fails twice; none of its queue may reach the listener before it."""

    async def scenario() -> None:
        sent = await fill(name_server, topic, 40)
        in_work: Counter[MessageQueue] = Counter()
        most_in_work = 0
        seen: dict[MessageQueue, list[int]] = {}
        tries: Counter[int] = Counter()

        async def listener(message: ReceivedMessage) -> None:
            nonlocal most_in_work
            number = int(message.body)
            in_work[message.queue] += 1
            most_in_work = max(most_in_work, in_work[message.queue])
            try:
                await asyncio.sleep(0.001)
                tries[number] += 1
                if number % 3 == 0 and tries[number] <= 2:
                    raise ValueError("not yet")
                seen.setdefault(message.queue, []).append(number)
            finally:
                in_work[message.queue] -= 1

        def member() -> PushConsumer:
            return PushConsumer(
                name_server, f"g{topic}", topic, listener, start="first", mode="orderly",
                config=QUICK,
            )  # fmt: skip

        async with member() as first, member() as second:
            while len({number for numbers in seen.values() for number in numbers}) < 40:
                await asyncio.sleep(0.01)
            while (len(first.queues()), len(second.queues())) != (2, 2):
                await asyncio.sleep(0.01)
        assert most_in_work == 1
        expected: dict[MessageQueue, list[int]] = {}
        for number, one in enumerate(sent):
            expected.setdefault(one.queue, []).append(number)
        # A queue that changed hands may bring a message again, but never one before its time.
        assert {queue: list(dict.fromkeys(numbers)) for queue, numbers in seen.items()} == expected
        assert all(tries[number] >= 3 for number in range(0, 40, 3))

    run(scenario())


def test_orderly_message_that_fails_too_often_is_buried(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        sent = await fill(name_server, topic, 1)
        group = f"g{topic}"
        config = ConsumerConfig(orderly_pause_s=0.01, reconsume_times_max=2)
        tries: list[int] = []

        def listener(message: ReceivedMessage) -> None:
            tries.append(message.queue_offset)
            raise ValueError("never")

        async with (
            PushConsumer(
                name_server, group, topic, listener, start="first", mode="orderly", config=config
            ),
            PullConsumer(name_server) as reader,
        ):
            queue = MessageQueue(f"%DLQ%{group}", sent[0].broker_name, 0)
            while True:
                try:
                    found = await reader.pull(queue, 0, suspend_s=1.0)
                    if found.messages:
                        break
                except NoRouteError:
                    await asyncio.sleep(0.01)
        assert [message.body for message in found.messages] == [b"0"]
        assert len(tries) == 3

    run(scenario())


def test_broadcast_members_get_everything_and_go_on(
    name_server: str, topic: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        await fill(name_server, topic, 12)
        seen: dict[str, list[int]] = {"a": [], "b": []}

        def member(name: str) -> PushConsumer:
            async def listener(message: ReceivedMessage) -> None:
                seen[name].append(int(message.body))
                if seen[name].count(5) == 1 and int(message.body) == 5:
                    raise ValueError("is dropped")

            return PushConsumer(
                name_server, f"g{topic}", topic, listener, start="first", mode="broadcast",
                config=ConsumerConfig(
                    client=ClientConfig(instance_name=name), offsets_directory=tmp_path
                ),
            )  # fmt: skip

        async with member("a"), member("b"):
            while min(map(len, seen.values())) < 12:
                await asyncio.sleep(0.01)
        assert sorted(seen["a"]) == sorted(seen["b"]) == list(range(12))
        assert sorted(path.parent.name for path in tmp_path.glob("*/*.json")) == ["a", "b"]
        async with Producer(name_server) as producer:
            await producer.send(Message(topic, b"12"))
        async with member("a"):
            while len(seen["a"]) < 13:
                await asyncio.sleep(0.01)
        assert seen["a"][-1] == 12

    run(scenario())


def test_transaction_is_seen_when_its_block_ends_well(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        await fill(name_server, topic, 1)
        async with (
            TransactionalProducer(name_server, f"p{topic}", never_asked) as producer,
            PushConsumer(name_server, f"g{topic}", topic, start="first") as consumer,
        ):
            with pytest.raises(ValueError, match="the work failed"):
                async with producer.transaction(Message(topic, b"rolled back")):
                    raise ValueError("the work failed")
            async with producer.transaction(Message(topic, b"committed", keys="k")) as half:
                pass
            got = [await anext(consumer), await anext(consumer)]
        bodies = {message.body: message for message in got}
        assert bodies.keys() == {b"0", b"committed"}
        assert bodies[b"committed"].message_id == half.message_id

    run(scenario())


def never_asked(message: ReceivedMessage) -> TransactionState:
    """For transactions that end in time; one that is asked about all the same goes on waiting."""
    return TransactionState.UNKNOWN


def test_broker_asks_what_became_of_a_transaction(name_server: str, topic: str) -> None:
    def check(message: ReceivedMessage) -> TransactionState:
        assert message.topic == topic
        if message.body == b"fails once" and message.body not in asked:
            asked.append(message.body)
            raise ValueError("the database is away")
        asked.append(message.body)
        states = {b"no": TransactionState.ROLLBACK}
        return states.get(message.body, TransactionState.COMMIT)

    asked: list[bytes] = []
    with (
        blocking.TransactionalProducer(name_server, f"p{topic}", check) as producer,
        blocking.PushConsumer(name_server, f"g{topic}", topic, start="first") as consumer,
    ):
        producer.send_half(Message(topic, b"no"))
        producer.send_half(Message(topic, b"yes"))
        producer.send_half(Message(topic, b"fails once"))
        with producer.transaction(Message(topic, b"at once")):
            pass
        assert sorted(next(consumer).body for _ in range(3)) == [b"at once", b"fails once", b"yes"]
    assert b"no" in asked and asked.count(b"fails once") >= 2


def test_tools_ask_and_move_a_consumer(name_server: str, topic: str) -> None:
    group = f"g{topic}"

    async def scenario() -> None:
        sent = await fill(name_server, topic, 8)
        seen: list[int] = []

        async def listener(message: ReceivedMessage) -> None:
            if int(message.body) == 7 and 7 in seen:
                raise ValueError("once is enough")
            seen.append(int(message.body))

        async with PushConsumer(
            name_server, group, topic, listener, start="first", config=QUICK
        ) as consumer:
            while len(seen) < 8:
                await asyncio.sleep(0.01)
            await consumer.commit()
            await asyncio.to_thread(ask, consumer, sent)
            # All were moved back to the begin, and the last one fails from now on.
            while seen.count(0) < 2:
                await asyncio.sleep(0.01)

    def ask(consumer: PushConsumer, sent: list[SendResult]) -> None:
        with Remote(name_server) as remote:
            (address,) = remote.masters("DefaultCluster")
            listed = GetConsumerConnectionListRequestHeader(consumer_group=group)
            body = remote.call(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, listed).body
            client_id = consumer.client_id
            assert client_id.encode() in body
            about = GetConsumerRunningInfoRequestHeader(consumer_group=group, client_id=client_id)
            answer = remote.call(address, RequestCode.GET_CONSUMER_RUNNING_INFO, about)
            info = ConsumerRunningInfo.decode(answer.body)
            assert sum(one.commit_offset for one in info.mq_table.values()) == 8
            assert info.status_table[topic].consume_failed_msgs == 0
            assert {one.topic for one in info.subscription_set} == {topic, f"%RETRY%{group}"}
            status = GetConsumerStatusRequestHeader(topic=topic, group=group)
            told = remote.call(address, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, status)
            assert client_id.encode() in told.body
            for number, result in ((6, b"CR_SUCCESS"), (7, b"CR_THROW_EXCEPTION")):
                trial = ConsumeMessageDirectlyResultRequestHeader(
                    consumer_group=group, client_id=client_id,
                    msg_id=sent[number].offset_message_id,
                )  # fmt: skip
                answer = remote.call(address, RequestCode.CONSUME_MESSAGE_DIRECTLY, trial)
                told_result = ConsumeMessageDirectlyResult.decode(answer.body)
                assert told_result.consume_result.encode() == result
            reset = ResetOffsetRequestHeader(topic=topic, group=group, timestamp=0, is_force=True)
            remote.call(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)

    run(scenario())
