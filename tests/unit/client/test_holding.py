"""The queues of one member, when what happens to them happens at once."""

import asyncio
from collections.abc import Iterable

import pytest

from ledgermq.client import ConsumerConfig, MessageQueue, PushConsumer, ReceivedMessage
from ledgermq.client.holding import Holding
from ledgermq.client.queue_locks import QueueLocks
from ledgermq.client.routes import TopicRoute
from ledgermq.client.shares import GroupShare, Share
from ledgermq.client.subscription import EVERYTHING
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
