"""A leader that falls silent, or leads no longer: what consumers do, and how soon."""

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
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
)
from ledgermq.protocol.codes import RequestCode
from tests.unit.client.virtual_broker import Disk
from tests.unit.client.virtual_net import Net, run, true

NAMES = "127.0.0.1:9876"
OLD, NEW = "127.0.0.1:10911", "127.0.0.1:10921"
# What a silence may cost, and some turns.
SOON_S = 3.2


def now_s() -> float:
    return asyncio.get_running_loop().time()


class Group:
    """Two brokers of one group and a name server."""

    def __init__(self, net: Net) -> None:
        disk = Disk()
        self.names = net.listen(NAMES)
        self.old, self.new = net.listen(OLD, disk), net.listen(NEW, disk)
        # Both hear of all members.
        self.new.members = self.old.members
        self.names.leader = OLD

    def store(self, body: bytes) -> None:
        """The new leader takes a message of somebody else."""
        self.new.put("T", 0, body)


class Reader:
    """A consumer of any kind that notes what comes."""

    def __init__(self, kind: str, config: ConsumerConfig) -> None:
        self._kind = kind
        self._config = config
        self.came: list[bytes] = []

    async def _listen(self, message: ReceivedMessage) -> None:
        self.came.append(message.body)

    async def run(self, ready: asyncio.Event) -> None:
        config = self._config
        match self._kind:
            case "push" | "orderly":
                mode = "orderly" if self._kind == "orderly" else "concurrent"
                async with PushConsumer(
                    NAMES, "g", "T", self._listen, start="first", mode=mode, config=config
                ) as push:
                    await true(lambda: len(push.queues()) == 4)
                    ready.set()
                    await asyncio.Event().wait()
            case "lite":
                async with LitePullConsumer(NAMES, "g", start="first", config=config) as lite:
                    await lite.subscribe("T")
                    await true(lambda: len(lite.assignment()) == 4)
                    ready.set()
                    async for message in lite:
                        self.came.append(message.body)
            case "pull":
                async with PullConsumer(NAMES, "g", config=config) as pull:
                    await pull.assign(await pull.queues("T"), start="first")
                    ready.set()
                    while True:
                        for message in await pull.poll(timeout_s=600):
                            self.came.append(message.body)


async def reading(kind: str, config: ConsumerConfig, then: Callable[[Reader], Any]) -> None:
    """Has a consumer that waits for messages while something happens."""
    reader = Reader(kind, config)
    ready = asyncio.Event()
    task = asyncio.get_running_loop().create_task(reader.run(ready))
    await ready.wait()
    await asyncio.sleep(1)
    await then(reader)
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize("suspend_s", [15.0, 600.0])
@pytest.mark.parametrize("is_stopped", [False, True])
@pytest.mark.parametrize("kind", ["push", "orderly", "lite", "pull"])
def test_idle_consumer_reads_on_at_the_new_leader_soon(
    kind: str, is_stopped: bool, suspend_s: float
) -> None:
    """The old one is cut off, or its process is stopped: connecting to that succeeds."""

    async def scenario(net: Net) -> None:
        group = Group(net)

        async def then(reader: Reader) -> None:
            await asyncio.sleep(100)
            (net.stopped if is_stopped else net.silent).add(OLD)
            begun_s = now_s()
            await asyncio.sleep(1.6)
            group.names.leader = NEW
            group.store(b"x")
            await true(lambda: reader.came == [b"x"])
            assert now_s() - begun_s <= 2.3

        await reading(kind, ConsumerConfig(suspend_s=suspend_s), then)

    run(scenario)


@pytest.mark.parametrize("is_connected", [False, True])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_send_goes_to_the_new_leader_as_soon_as_the_route_names_it(
    is_connected: bool, is_stopped: bool
) -> None:
    """Not when the whole silence is over: the old one did not answer, and another one leads."""

    async def scenario(net: Net) -> None:
        group = Group(net)
        async with Producer(NAMES) as producer:
            if is_connected:
                await producer.send(Message("T", b"before"))
            (net.stopped if is_stopped else net.silent).add(OLD)
            begun_s = now_s()
            sent = asyncio.create_task(producer.send(Message("T", b"x")))
            await asyncio.sleep(1.6)
            group.names.leader = NEW
            await sent
            # Asked after half of the silence, and doubted after a third of the other half.
            limit_s = 2.3 if is_connected or is_stopped else SOON_S
            assert now_s() - begun_s <= limit_s

    run(scenario)


@pytest.mark.parametrize("is_stopped", [False, True])
@pytest.mark.parametrize("late_s", [18.0, 18.7, 19.4, 20.1, 20.8])
@pytest.mark.parametrize("kind", ["push", "orderly", "lite"])
def test_consumer_hears_of_a_leader_that_is_late_within_a_second(
    kind: str, late_s: float, is_stopped: bool
) -> None:
    """By then its pulls wait for the old one again, or for a connection to it."""

    async def scenario(net: Net) -> None:
        group = Group(net)

        async def then(reader: Reader) -> None:
            (net.stopped if is_stopped else net.silent).add(OLD)
            await asyncio.sleep(late_s)
            group.store(b"x")
            group.names.leader = NEW
            begun_s = now_s()
            await true(lambda: reader.came == [b"x"])
            assert now_s() - begun_s <= 1.6

        await reading(kind, ConsumerConfig(), then)

    run(scenario)


@pytest.mark.parametrize("kind", ["push", "orderly", "lite", "pull"])
def test_new_route_ends_pulls_that_a_former_leader_holds(kind: str) -> None:
    """It lives, answers heart beats, and would hold them for ten minutes."""

    async def scenario(net: Net) -> None:
        group = Group(net)
        config = ConsumerConfig(suspend_s=600.0, client=ClientConfig(route_interval_s=5.0))

        async def then(reader: Reader) -> None:
            group.names.leader = NEW
            begun_s = now_s()
            # A held pull of the old one is not told of what the new one stores.
            group.store(b"x")
            await true(lambda: reader.came == [b"x"])
            assert now_s() - begun_s <= 5.5
            await asyncio.sleep(30)
            assert group.new.count(RequestCode.PULL_MESSAGE) >= 4

        await reading(kind, config, then)

    run(scenario)


def test_route_that_names_the_same_leader_again_ends_no_pull() -> None:
    async def scenario(net: Net) -> None:
        group = Group(net)
        config = ConsumerConfig(suspend_s=600.0, client=ClientConfig(route_interval_s=1.0))

        async def then(reader: Reader) -> None:
            pulls = group.old.count(RequestCode.PULL_MESSAGE)
            await asyncio.sleep(100)
            # Nor does one that knows of no leader.
            group.names.leader = None
            await asyncio.sleep(100)
            assert group.old.count(RequestCode.PULL_MESSAGE) == pulls

        await reading("lite", config, then)

    run(scenario)


def test_idle_consumer_asks_a_silent_broker_now_and_then_and_nothing_else() -> None:
    """A question each second and a half for a connection with held pulls: that is what it costs."""

    async def scenario(net: Net) -> None:
        group = Group(net)

        async def then(reader: Reader) -> None:
            before = len(group.old.codes)
            await asyncio.sleep(150)
            asked = group.old.codes[before:]
            assert 90 <= asked.count(int(RequestCode.HEART_BEAT)) <= 110
            # The group's other broker, which holds nothing, hears of the member only.
            assert group.new.count(RequestCode.HEART_BEAT) <= 10

        await reading("push", ConsumerConfig(suspend_s=600.0), then)

    run(scenario)


def test_producer_that_is_idle_asks_nothing() -> None:
    async def scenario(net: Net) -> None:
        group = Group(net)
        async with Producer(NAMES) as producer:
            await producer.send(Message("T", b"x"))
            before = len(group.old.codes)
            await asyncio.sleep(300)
            assert len(group.old.codes) - before <= 11

    run(scenario)
