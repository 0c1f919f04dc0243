"""The queues of one member, when what happens to them happens at once."""

import asyncio
from collections.abc import Iterable

import pytest

from ledgermq.client import (
    ConsumerConfig,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from ledgermq.client.holding import Holding
from ledgermq.client.queue_locks import QueueLocks
from ledgermq.client.routes import TopicRoute
from ledgermq.client.shares import GroupShare, Share
from ledgermq.client.subscription import EVERYTHING
from ledgermq.protocol.codes import RequestCode
from tests.unit.client.virtual_broker import QUEUES, Broker
from tests.unit.client.virtual_net import Net, run, true

NAMES = "127.0.0.1:9876"
BROKER = "127.0.0.1:10911"


def holding_of(consumer: PushConsumer) -> Holding:
    return consumer._holding


async def nothing(message: ReceivedMessage) -> None:
    """Consumes."""


def test_queue_whose_lock_is_lost_while_it_is_dropped_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The renewal takes it away after the round has chosen it and before its turn has come."""

    async def scenario(net: Net) -> None:
        net.cluster(NAMES, BROKER)
        loop = asyncio.get_running_loop()
        shared: asyncio.Future[Share] = loop.create_future()
        lost: asyncio.Future[list[MessageQueue]] = loop.create_future()

        async def of(self: GroupShare, route: TopicRoute) -> Share:
            return await shared

        async def renew(self: QueueLocks, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
            return await lost

        async with PushConsumer(NAMES, "g", "T", nothing, mode="orderly") as consumer:
            await true(lambda: len(consumer.queues()) == 4)
            holding, queues = holding_of(consumer), consumer.queues()
            monkeypatch.setattr(GroupShare, "of", of)
            monkeypatch.setattr(QueueLocks, "renew", renew)
            round_ = loop.create_task(holding.share_out("T", EVERYTHING))
            renewal = loop.create_task(holding.renew_locks())
            await asyncio.sleep(0)
            # Both go on in one turn of the loop, the round first.
            shared.set_result(Share(frozenset(), is_alone=False))
            lost.set_result(queues)
            assert await round_ and await renewal
            assert not consumer.queues()

    run(scenario)


def test_queue_that_is_let_go_and_lost_at_once_is_no_error() -> None:
    async def scenario(net: Net) -> None:
        net.cluster(NAMES, BROKER)
        async with PushConsumer(NAMES, "g", "T", nothing, config=ConsumerConfig()) as consumer:
            await true(lambda: len(consumer.queues()) == 4)
            holding, queues = holding_of(consumer), consumer.queues()
            await asyncio.gather(holding.let_go(queues), holding.let_go(queues))
            assert not consumer.queues()
            # Nor is one that was never this member's.
            await holding.let_go([MessageQueue("T", "b", 99)])

    run(scenario)


# Sorts behind every address.
OTHER = "~other"
QUICK = ConsumerConfig(rebalance_interval_s=1.0, commit_interval_s=1.0)


class Slow:
    """A listener that keeps messages of one queue until the test lets them go."""

    def __init__(self, queue_id: int) -> None:
        self._queue_id = queue_id
        self.begun: list[bytes] = []
        self.ended: list[bytes] = []
        self.gate = asyncio.Event()

    async def listen(self, message: ReceivedMessage) -> None:
        self.begun.append(message.body)
        if message.queue.queue_id == self._queue_id:
            await self.gate.wait()
        self.ended.append(message.body)


def locks_of(broker: Broker, client_id: str) -> list[int]:
    """The queues of the topic that a client has locked."""
    locks = broker.disk.locks.items()
    return sorted(one.queue_id for one, owner in locks if owner == client_id and one.topic == "T")


async def one_in_each(net: Net) -> Broker:
    broker = net.cluster(NAMES, BROKER)
    async with Producer(NAMES) as producer:
        for number in range(QUEUES):
            await producer.send(Message("T", b"%d" % number))
    assert all(len(queue) == 1 for queue in broker.stored.values())
    return broker


def test_one_slow_message_holds_up_its_own_queue_and_not_the_sharing_of_all_others() -> None:
    async def scenario(net: Net) -> None:
        broker = await one_in_each(net)
        slow = Slow(3)
        async with PushConsumer(
            NAMES, "g", "T", slow.listen, mode="orderly", start="first", config=QUICK
        ) as consumer:
            await true(lambda: len(slow.ended) == 3 and len(slow.begun) == 4)
            # Another member comes, and half of the queues is its.
            broker.members["g"].add(OTHER)
            await true(lambda: locks_of(broker, consumer.client_id) == [0, 1, 3])
            assert [queue.queue_id for queue in consumer.queues()] == [0, 1]
            # It goes: all but the slow one are taken again, whose message is with the listener yet.
            broker.members["g"].discard(OTHER)
            await true(lambda: [queue.queue_id for queue in consumer.queues()] == [0, 1, 2])
            await asyncio.sleep(100)
            # For all that time the slow one stayed locked for the member that works on it.
            assert len(slow.begun) == 4 and locks_of(broker, consumer.client_id) == [0, 1, 2, 3]
            assert len(consumer.queues()) == 3
            slow.gate.set()
            await true(lambda: len(consumer.queues()) == 4)
            # Consumed in time, so it does not come twice.
            await asyncio.sleep(10)
            assert sorted(slow.begun) == sorted(slow.ended) == [b"0", b"1", b"2", b"3"]
        assert locks_of(broker, consumer.client_id) == []
        assert sum(broker.disk.offsets.values()) == 4

    run(scenario)


@pytest.mark.parametrize("code", [RequestCode.LOCK_BATCH_MQ, RequestCode.QUERY_CONSUMER_OFFSET])
def test_close_while_queues_are_being_taken_leaves_no_lock(code: int) -> None:
    """The broker has granted them, and the answer, or that to what comes next, is on its way."""

    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        net.round_trip_s = 1.0
        consumer = PushConsumer(NAMES, "g", "T", nothing, mode="orderly", config=QUICK)
        async with consumer:
            await true(lambda: broker.count(code) > 0)
            assert not consumer.queues() and len(locks_of(broker, consumer.client_id)) == 4
        assert broker.disk.locks == {}

    run(scenario)


def test_close_while_a_dropped_queue_waits_for_its_listener_leaves_no_lock() -> None:
    async def scenario(net: Net) -> None:
        broker = await one_in_each(net)
        slow = Slow(3)
        consumer = PushConsumer(
            NAMES, "g", "T", slow.listen, mode="orderly", start="first", config=QUICK
        )
        async with consumer:
            await true(lambda: len(slow.ended) == 3 and len(slow.begun) == 4)
            broker.members["g"].add(OTHER)
            await true(lambda: len(consumer.queues()) == 2)
            slow.gate.set()
        assert broker.disk.locks == {}
        assert sum(broker.disk.offsets.values()) == 4

    run(scenario)


def test_lock_of_a_queue_whose_beginning_is_not_to_be_had_is_given_back() -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        broker.on_request = lambda link, request: request.code == RequestCode.QUERY_CONSUMER_OFFSET
        async with PushConsumer(NAMES, "g", "T", nothing, mode="orderly", config=QUICK) as consumer:
            await true(lambda: len(locks_of(broker, consumer.client_id)) == 4)
            await true(lambda: broker.count(RequestCode.UNLOCK_BATCH_MQ) >= 4)

    run(scenario)


@pytest.mark.parametrize("held_s", [0.3, 5.0, 17.0, 63.0, 200.0])
def test_queue_that_another_member_has_locked_is_taken_soon_after_it_lets_go(held_s: float) -> None:
    """However long that took: nobody tells, and the queue stands still until then."""

    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        loop = asyncio.get_running_loop()
        queue = MessageQueue("T", "b", 0)
        broker.disk.locks[queue] = OTHER
        async with PushConsumer(NAMES, "g", "T", nothing, mode="orderly") as consumer:
            await true(lambda: len(consumer.queues()) == 3)
            await asyncio.sleep(held_s)
            del broker.disk.locks[queue]
            begun_s = loop.time()
            await true(lambda: len(consumer.queues()) == 4)
            assert loop.time() - begun_s < 1.5

    run(scenario)


def test_messages_of_queues_that_were_dropped_are_not_kept() -> None:
    """A listener hangs while its queues come and go: what was pulled before counts nowhere."""

    async def hang(message: ReceivedMessage) -> None:
        await asyncio.Event().wait()

    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        for number in range(50):
            broker.put("T", 0, b"%d" % number)
        config = ConsumerConfig(concurrency=1, close_timeout_s=0.1)
        async with PushConsumer(NAMES, "g", "T", hang, start="first", config=config) as consumer:
            await true(lambda: consumer.pending_count == 50)
            queue = consumer.queues()[0]
            for _ in range(5):
                await holding_of(consumer).move({queue: 0})
                await true(lambda: consumer.pending_count == 50)
            # One of the first ones is with the listener.
            assert consumer._arrived.qsize() == 50

    run(scenario)
