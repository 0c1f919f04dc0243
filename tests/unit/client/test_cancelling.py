"""Programs that cancel what they wait for: nothing spins, nothing hangs, nothing is left behind."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ledgermq.client import (
    ClientConfig,
    ConsumerConfig,
    LitePullConsumer,
    Message,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    TransactionalProducer,
    TransactionState,
)
from tests.unit.client.virtual_net import Net, run, true

NAMES = "127.0.0.1:9876"
BROKER = "127.0.0.1:10911"


def now_s() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("behind", [0, 1])
def test_flush_after_a_cancelled_send_waits_for_its_answer(key: str | None, behind: int) -> None:
    """It may be stored, so it is on its way until then."""

    async def scenario(net: Net) -> None:
        net.cluster(NAMES, BROKER)
        net.round_trip_s = 1.0
        async with Producer(NAMES) as producer:
            await producer.send(Message("T", b"first"))
            future = await producer.submit(Message("T", b"x"), ordering_key=key)
            others = [
                await producer.submit(Message("T", b"y"), ordering_key=key) for _ in range(behind)
            ]
            begun_s = now_s()
            future.cancel()
            await producer.flush()
            assert all(other.result() for other in others)
            assert now_s() - begun_s >= 1.0
            # Again, with nothing on its way.
            await producer.flush()

    run(scenario)


def test_flush_returns_when_a_cancelled_send_will_never_be_answered() -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        async with Producer(NAMES) as producer:
            await producer.send(Message("T", b"first"))
            broker.on_request = lambda link, request: request.body == b"x"
            future = await producer.submit(Message("T", b"x"))
            future.cancel()
            flushes = [asyncio.get_running_loop().create_task(producer.flush()) for _ in range(2)]
            await asyncio.sleep(1)
            # One who no longer waits takes nothing from the other.
            flushes[0].cancel()
            await flushes[1]
            assert flushes[0].cancelled()

    run(scenario)


def test_cancelled_sends_give_all_room_back() -> None:
    """Whether they wait before a lane, in it, for room, or for their answer."""

    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        loop = asyncio.get_running_loop()
        async with Producer(NAMES, config=ProducerConfig(in_flight_max=8)) as producer:
            for round_ in range(5):
                await producer.send(Message("T", b"first"))
                broker.on_request = lambda link, request: request.body == b"x"
                tasks = [
                    loop.create_task(producer.send(Message("T", b"x"), ordering_key=key))
                    for key in ("a", "b", None)
                    for _ in range(20)
                ]
                await asyncio.sleep(round_ / 10)
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                broker.on_request = None
                await producer.flush()
            # All of it is there again.
            broker.on_request = lambda link, request: request.body == b"y"
            for _ in range(8):
                await asyncio.wait_for(producer.submit(Message("T", b"y")), 1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.submit(Message("T", b"y")), 1)
            broker.on_request = None
            await producer.flush()
            assert not producer._opened()._lanes

    run(scenario)


TRACED = ClientConfig(trace=True)
SENDING = ProducerConfig(client=TRACED)
CONSUMING = ConsumerConfig(client=TRACED)


async def listen(message: ReceivedMessage) -> None:
    """Never returns."""
    await asyncio.Event().wait()


async def state_of(message: ReceivedMessage) -> TransactionState:
    return TransactionState.UNKNOWN


CLIENTS: dict[str, Callable[[], Any]] = {
    "producer": lambda: Producer(NAMES, config=SENDING),
    "transactional": lambda: TransactionalProducer(NAMES, "g", state_of, config=SENDING),
    "pull": lambda: PullConsumer(NAMES, "g", config=CONSUMING),
    "lite": lambda: LitePullConsumer(NAMES, "g", config=CONSUMING),
    "concurrent": lambda: PushConsumer(NAMES, "g", "T", listen, start="first", config=CONSUMING),
    "orderly": lambda: PushConsumer(
        NAMES, "g", "T", listen, start="first", mode="orderly", config=CONSUMING
    ),
    "iterating": lambda: PushConsumer(NAMES, "g", "T", start="first", config=CONSUMING),
}


async def put_to_work(client: Any) -> None:
    match client:
        case Producer():
            await client.submit(Message("T", b"x"))
        case TransactionalProducer():
            await client.send_half(Message("T", b"x"))
        case PullConsumer():
            await client.assign(await client.queues("T"), start="last")
            await client.poll(timeout_s=0.1)
        case LitePullConsumer():
            await client.subscribe("T")
            await true(lambda: len(client.assignment()) == 4)
        case PushConsumer():
            await true(lambda: len(client.queues()) == 4)
            await asyncio.sleep(1)


def other_tasks() -> set[asyncio.Task[Any]]:
    """All tasks but the one that asks."""
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.5, 3.5, 11.0])
@pytest.mark.parametrize("kind", CLIENTS)
def test_close_that_is_cancelled_leaves_nothing_behind(kind: str, after_s: float) -> None:
    """Whatever it just waits for: listeners, a last commit, a good-bye that nobody answers."""

    async def scenario(net: Net) -> None:
        net.cluster(NAMES, BROKER)
        async with Producer(NAMES) as producer:
            await producer.send(Message("T", b"x"))
        before = other_tasks()
        client = CLIENTS[kind]()
        await client.__aenter__()
        await put_to_work(client)
        net.silent.add(BROKER)
        closing = asyncio.get_running_loop().create_task(client.close())
        await asyncio.sleep(after_s)
        closing.cancel()
        await asyncio.wait([closing])
        await asyncio.sleep(0.01)
        assert other_tasks() == before
        assert all(wire.is_closing() for wire in net.wires)
        # Once more is no error.
        await client.close()

    run(scenario)


@pytest.mark.parametrize("after_s", [0.0, 0.0015, 0.5])
@pytest.mark.parametrize("kind", CLIENTS)
def test_opening_that_is_cancelled_leaves_nothing_behind(kind: str, after_s: float) -> None:
    async def scenario(net: Net) -> None:
        net.cluster(NAMES, BROKER)
        net.silent.add(BROKER)
        client = CLIENTS[kind]()

        async def use() -> None:
            async with client:
                await asyncio.Event().wait()

        using = asyncio.get_running_loop().create_task(use())
        await asyncio.sleep(after_s)
        using.cancel()
        await asyncio.wait([using])
        await asyncio.sleep(0.01)
        assert not other_tasks()
        assert all(wire.is_closing() for wire in net.wires)

    run(scenario)


def test_leaving_the_block_while_flushing_closes_all_the_same() -> None:
    async def scenario(net: Net) -> None:
        net.cluster(NAMES, BROKER)
        net.silent.add(BROKER)

        async def use() -> None:
            async with Producer(NAMES) as producer:
                await producer.submit(Message("T", b"x"))

        using = asyncio.get_running_loop().create_task(use())
        await asyncio.sleep(1)
        using.cancel()
        await asyncio.wait([using])
        await asyncio.sleep(0.01)
        assert not other_tasks()
        assert all(wire.is_closing() for wire in net.wires)

    run(scenario)


@pytest.mark.parametrize("turns", [1, 3, 8, 20])
def test_close_that_is_cancelled_lets_other_members_have_the_queues(turns: int) -> None:
    """Else they would stand still until the locks of brokers are over, for a minute."""

    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)

        async def nothing(message: ReceivedMessage) -> None: ...

        consumer = PushConsumer(NAMES, "g", "T", nothing, start="first", mode="orderly")
        await consumer.__aenter__()
        await true(lambda: len(consumer.queues()) == 4 and len(broker.disk.locks) > 4)
        closing = asyncio.get_running_loop().create_task(consumer.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        await asyncio.sleep(1)
        assert broker.disk.locks == {}

    run(scenario)
