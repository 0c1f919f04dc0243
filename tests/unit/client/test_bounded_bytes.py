"""What a consumer holds of all its queues together stays within its bound."""

import asyncio
from typing import Any

import pytest

from ledgermq.client import ConsumerConfig, LitePullConsumer, PushConsumer, ReceivedMessage
from ledgermq.client.holding import MESSAGE_BYTES, Holding
from tests.unit.client import virtual_broker
from tests.unit.client.virtual_net import Net, run, true

NAMES = "127.0.0.1:9876"
BROKER = "127.0.0.1:10911"
QUEUES = 64
BODY = b"x" * 10_000
IN_EACH = 100
BOUND = 10_000_000
# Of that, what is no overhead of messages.
FULL = 0.85 * BOUND
# An answer has at most so many messages.
PULL = 4
CONFIG = ConsumerConfig(cached_bytes_total_max=BOUND, pull_count_max=PULL, concurrency=1)
# Each of the queues may bring one answer beyond the bound.
HIGHEST = BOUND + QUEUES * PULL * 12_000


@pytest.fixture(autouse=True)
def many_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_broker, "QUEUES", QUEUES)


def filled(net: Net) -> virtual_broker.Broker:
    broker = net.cluster(NAMES, BROKER)
    broker.disk.stored.update({queue: [] for queue in range(QUEUES)})
    for queue in range(QUEUES):
        for _ in range(IN_EACH):
            broker.put("T", queue, BODY)
    return broker


def held_bytes(holding: Holding) -> int:
    """The same sum, taken anew."""
    return sum(one.pending_bytes for one in holding.held())


@pytest.mark.parametrize("mode", ["concurrent", "orderly"])
def test_sixty_four_queues_stay_within_the_bound_and_all_come(mode: Any) -> None:
    async def scenario(net: Net) -> None:
        filled(net)
        gate = asyncio.Event()
        came: list[tuple[int, int]] = []
        highest = 0

        async def listen(message: ReceivedMessage) -> None:
            nonlocal highest
            await gate.wait()
            came.append((message.queue.queue_id, message.queue_offset))
            if len(came) % 50 == 0:
                highest = max(highest, held_bytes(consumer._holding))
                assert consumer.pending_bytes == held_bytes(consumer._holding)

        consumer = PushConsumer(NAMES, "g", "T", listen, start="first", mode=mode, config=CONFIG)
        async with consumer:
            await true(lambda: consumer.pending_bytes >= FULL)
            await asyncio.sleep(60)
            assert consumer.pending_bytes == held_bytes(consumer._holding) <= HIGHEST
            # Nobody is shut out.
            assert all(held.pending_count for held in consumer._holding.held() if held.next_offset)
            gate.set()
            await true(lambda: len(came) == QUEUES * IN_EACH)
            assert BOUND / 2 < highest <= HIGHEST
            await true(lambda: consumer.pending_bytes == 0)
        assert len(set(came)) == QUEUES * IN_EACH

    run(scenario)


def test_queue_that_has_nothing_is_asked_while_others_fill_the_bound() -> None:
    """One slow queue that takes all the room must not stop the others."""

    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        broker.disk.stored.update({queue: [] for queue in range(QUEUES)})
        for _ in range(2000):
            broker.put("T", 0, BODY)
        came: list[int] = []

        async def listen(message: ReceivedMessage) -> None:
            if message.queue.queue_id == 0:
                await asyncio.Event().wait()
            came.append(message.queue.queue_id)

        config = ConsumerConfig(cached_bytes_total_max=BOUND, concurrency=4, close_timeout_s=0)
        async with PushConsumer(
            NAMES, "g", "T", listen, start="first", mode="orderly", config=config
        ) as consumer:
            await true(lambda: consumer.pending_bytes >= FULL)
            for _ in range(100):
                broker.put("T", 7, BODY)
            await true(lambda: len(came) == 100)

    run(scenario)


def test_room_of_queues_that_go_is_given_to_others() -> None:
    async def scenario(net: Net) -> None:
        filled(net)
        async with LitePullConsumer(NAMES, "g", start="first", config=CONFIG) as consumer:
            queues = await consumer.queues("T")
            await consumer.assign(queues)
            holding = consumer._holding
            await true(lambda: holding.pending_bytes >= FULL)
            await asyncio.sleep(10)
            await consumer.assign(queues[:8])
            await true(lambda: all(one.pending_count == IN_EACH for one in holding.held()))
            assert holding.pending_bytes == held_bytes(holding)
            await consumer.seek(queues[0], 50)
            await true(lambda: held_bytes(holding) > 7 * IN_EACH * 10_000 + 490_000)
            assert holding.pending_bytes == held_bytes(holding)

    run(scenario)


@pytest.mark.parametrize("mode", ["concurrent", "orderly"])
def test_small_messages_count_with_what_python_adds(mode: Any) -> None:
    """A message of ten bytes takes more than a thousand: the bound would hold a fraction of it."""

    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        broker.disk.stored.update({queue: [] for queue in range(QUEUES)})
        for queue in range(QUEUES):
            for _ in range(300):
                broker.put("T", queue, b"x" * 10)
        gate = asyncio.Event()
        came = 0

        async def listen(message: ReceivedMessage) -> None:
            nonlocal came
            await gate.wait()
            came += 1

        consumer = PushConsumer(NAMES, "g", "T", listen, start="first", mode=mode, config=CONFIG)
        async with consumer:
            await asyncio.sleep(60)
            most = BOUND / MESSAGE_BYTES
            assert 0.9 * most < consumer.pending_count < most + QUEUES * PULL
            gate.set()
            await true(lambda: came == QUEUES * 300)

    run(scenario)
