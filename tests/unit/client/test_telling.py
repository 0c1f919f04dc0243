"""Programs that are told of their queues, and take long, or never return."""

import asyncio
import threading
import time
from typing import Any

import pytest

from ledgermq.client import ConsumerConfig, LitePullConsumer, PushConsumer, ReceivedMessage
from ledgermq.client.config import Mode
from ledgermq.client.queue_locks import QueueLocks
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.codes import RequestCode
from tests.unit.client.virtual_broker import Link
from tests.unit.client.virtual_net import Net, run, true

NAMES = "127.0.0.1:9876"
BROKER = "127.0.0.1:10911"
# Sorts behind every address.
OTHER = "~other"
MODES: tuple[Mode, ...] = ("concurrent", "orderly")
QUICK = ConsumerConfig(rebalance_interval_s=1.0, commit_interval_s=1.0, callback_timeout_s=20.0)


async def nothing(message: ReceivedMessage) -> None:
    """Consumes."""


async def never(queues: list[MessageQueue]) -> None:
    """Hangs, and does not mind being cancelled."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not asyncio.get_running_loop().is_closed():
                raise


def shown(queues: list[MessageQueue]) -> list[str]:
    return [f"{queue.topic}{queue.queue_id}" for queue in queues]


@pytest.mark.parametrize("mode", MODES)
def test_on_assigned_that_never_returns_holds_up_no_round(
    mode: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own queues wait for it up to a bound, and are given to others all the same."""

    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        loop = asyncio.get_running_loop()
        came: dict[bytes, float] = {}

        async def assigned(queues: list[MessageQueue]) -> None:
            if queues[0].topic == "A":
                await never(queues)

        async def listen(message: ReceivedMessage) -> None:
            came[message.body] = loop.time()

        for queue in range(4):
            broker.put("A", queue, b"a%d" % queue)
            broker.put("B", queue, b"b%d" % queue)
        begun_s = loop.time()
        async with PushConsumer(
            NAMES, "g", ["A", "B"], listen, start="first", mode=mode, on_assigned=assigned,
            config=QUICK,
        ) as consumer:  # fmt: skip
            await true(lambda: {b"b0", b"b1", b"b2", b"b3"} <= set(came))
            assert loop.time() - begun_s < 2
            # Another member comes: half of the queues of both go to it soon.
            broker.members["g"].add(OTHER)
            await true(lambda: len(consumer.queues()) == 4)
            assert loop.time() - begun_s < 5 and not any(body[:1] == b"a" for body in came)
            broker.members["g"].discard(OTHER)
            await true(lambda: {b"a0", b"a1", b"a2", b"a3"} <= set(came))
            # Those that never left waited as long as was said.
            assert 20 <= came[b"a0"] - begun_s < 21
        assert not broker.disk.locks

    run(scenario)
    assert "g: on_assigned has not returned for 20 s" in caplog.text


def test_on_revoked_that_never_returns_is_waited_for_in_vain_and_not_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        loop = asyncio.get_running_loop()
        async with PushConsumer(
            NAMES, "g", "T", nothing, mode="orderly", on_revoked=never, config=QUICK
        ) as consumer:
            await true(lambda: len(consumer.queues()) == 4)
            broker.members["g"].add(OTHER)
            await true(lambda: len(consumer.queues()) == 2)
            left_s = loop.time()
            # No other member has them before; then it may.
            topic = [queue for queue in broker.disk.locks if queue.topic == "T"]
            assert len(topic) == 4
            await true(lambda: sum(queue.topic == "T" for queue in broker.disk.locks) == 2)
            assert 19 < loop.time() - left_s < 21
            begun_s = loop.time()
        assert loop.time() - begun_s < 12
        assert not broker.disk.locks

    run(scenario)
    assert "g: on_revoked has not returned for 20 s" in caplog.text


@pytest.mark.parametrize("mode", MODES)
def test_close_does_not_wait_for_ever_for_a_program_that_is_being_told(mode: Mode) -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        loop = asyncio.get_running_loop()
        consumer = PushConsumer(
            NAMES, "g", "T", nothing, mode=mode, on_assigned=never, on_revoked=never
        )
        async with consumer:
            await true(lambda: len(consumer.queues()) == 4)
            begun_s = loop.time()
        assert loop.time() - begun_s < 25
        assert not broker.disk.locks
        await asyncio.sleep(0.01)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(scenario)


def test_queues_are_told_of_as_coming_before_they_are_told_of_as_going() -> None:
    """Also those that go while the program still hears that they have come."""

    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        told: list[str] = []

        async def assigned(queues: list[MessageQueue]) -> None:
            told.append(f"come {shown(queues)}")
            await asyncio.sleep(5)
            told.append("heard")

        async def revoked(queues: list[MessageQueue]) -> None:
            told.append(f"go {shown(queues)}")

        async with PushConsumer(
            NAMES, "g", "T", nothing, on_assigned=assigned, on_revoked=revoked, config=QUICK
        ) as consumer:
            await true(lambda: len(consumer.queues()) == 4)
            broker.members["g"].add(OTHER)
            await true(lambda: len(consumer.queues()) == 2)
            assert told == ["come ['T0', 'T1', 'T2', 'T3']"]
            await true(lambda: len(told) == 4)
            assert told[1:] == ["heard", "go ['T2']", "go ['T3']"]
        assert told[4:] == ["go ['T0', 'T1']"]

    run(scenario)


def test_lost_lock_whose_program_never_hears_it_holds_up_no_renewal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without renewals all queues stand still after half a minute."""

    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        async with PushConsumer(
            NAMES, "g", "T", nothing, mode="orderly", on_revoked=never,
            config=ConsumerConfig(callback_timeout_s=1000.0, close_timeout_s=0.0),
        ) as consumer:  # fmt: skip
            await true(lambda: len(consumer.queues()) == 4)
            queue = consumer.queues()[0]
            broker.disk.locks[queue] = OTHER
            await true(lambda: len(consumer.queues()) == 3)
            await asyncio.sleep(100)
            locks = consumer._locks
            assert isinstance(locks, QueueLocks)
            assert all(locks.is_valid(one) for one in consumer.queues())

    run(scenario)


def test_slow_listener_of_a_topic_that_goes_holds_up_no_other_topic() -> None:
    """The sharing of all topics waited for the listener of the one that was given up."""

    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        gate = asyncio.Event()

        async def listen(message: ReceivedMessage) -> None:
            await gate.wait()

        broker.put("A", 0, b"a")
        async with PushConsumer(
            NAMES, "g", ["A", "B"], listen, start="first", mode="orderly", config=QUICK
        ) as consumer:
            await true(lambda: len(consumer.queues()) == 8)
            await asyncio.sleep(1)
            del consumer._wanted.by_name["A"]
            changing = asyncio.get_running_loop().create_task(consumer._topics_changed())
            await asyncio.sleep(5)
            broker.members["g"].add(OTHER)
            await true(lambda: len(consumer.queues()) == 2)
            assert changing.done()
            gate.set()

    run(scenario)


@pytest.mark.parametrize("is_unsubscribed", [True, False])
def test_round_that_waits_while_queues_are_given_up_goes_by_what_is_wanted_now(
    is_unsubscribed: bool,
) -> None:
    """One that went by what was wanted before took queues back that nobody gave up any more."""

    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        asked: list[str] = []

        def slow_commit(link: Link, request: Any) -> bool:
            if request.code == RequestCode.PULL_MESSAGE:
                asked.append(request.ext_fields["subscription"])
            if request.code != RequestCode.UPDATE_CONSUMER_OFFSET:
                return False
            loop = asyncio.get_running_loop()
            loop.call_later(1.0, link.answer, request.response(0))
            return True

        broker.on_request = slow_commit
        loop = asyncio.get_running_loop()
        config = ConsumerConfig(commit_interval_s=1000.0)
        async with LitePullConsumer(NAMES, "g", start="first", config=config) as consumer:
            await consumer.subscribe("T", tags="a")
            await true(lambda: len(consumer.assignment()) == 4)
            if is_unsubscribed:
                work = loop.create_task(consumer.unsubscribe("T"))
            else:
                work = loop.create_task(consumer.subscribe("T", tags="b"))
            await asyncio.sleep(0.1)
            # A member has come or gone.
            consumer._rounds.wake()
            await work
            await asyncio.sleep(60)
            if is_unsubscribed:
                assert not consumer.assignment()
            else:
                assert len(consumer.assignment()) == 4
                assert {held.expression.text for held in consumer._holding._held.values()} == {"b"}
                assert asked[-1] == "b"

    run(scenario)


def test_members_are_asked_for_once_a_round_however_many_topics_there_are() -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        topics = [f"T{number}" for number in range(50)]
        config = ConsumerConfig(rebalance_interval_s=10.0)
        async with PushConsumer(NAMES, "g", topics, nothing, config=config) as consumer:
            await true(lambda: len(consumer.queues()) == 200)
            await asyncio.sleep(1)
            before = broker.count(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
            await asyncio.sleep(100)
            assert broker.count(RequestCode.GET_CONSUMER_LIST_BY_GROUP) - before <= 11

    run(scenario)


def test_routes_of_many_topics_are_asked_for_together() -> None:
    async def scenario(net: Net) -> None:
        net.cluster(NAMES, BROKER)
        net.round_trip_s = 0.1
        loop = asyncio.get_running_loop()
        topics = [f"T{number}" for number in range(500)]
        begun_s = loop.time()
        async with PushConsumer(NAMES, "g", topics, nothing):
            assert loop.time() - begun_s < 2

    run(scenario)


def test_plain_function_that_never_returns_does_not_keep_the_program() -> None:
    """Threads of a pool are joined at the end of a program; these are not."""
    gate = threading.Event()
    begun = threading.Event()

    def block(message: ReceivedMessage) -> None:
        begun.set()
        gate.wait()

    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        broker.put("T", 0, b"x")
        async with PushConsumer(
            NAMES, "g", "T", block, start="first", config=ConsumerConfig(close_timeout_s=0.1)
        ):
            end_s = time.monotonic() + 30
            while not begun.is_set():
                assert time.monotonic() < end_s
                await asyncio.sleep(0.1)

    run(scenario)
    left = [one for one in threading.enumerate() if one.name.startswith("ledgermq-user")]
    assert left and all(one.daemon for one in left)
    gate.set()
    for one in left:
        one.join()
