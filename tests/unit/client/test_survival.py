"""Errors that nobody foresaw, in each of the tasks that live as long as their client."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from ledgermq.client import (
    ClientConfig,
    ConsumerConfig,
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendError,
)
from ledgermq.client.connections import Connections
from ledgermq.client.holding import Holding
from ledgermq.client.instance import ClientInstance
from ledgermq.client.listening import Listening
from ledgermq.client.orderly_work import OrderlyWork
from ledgermq.client.queue_locks import QueueLocks
from ledgermq.client.queue_requests import QueueRequests
from ledgermq.client.rounds import Rounds
from ledgermq.client.routes import RouteCache
from ledgermq.client.tracing import Tracer
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.heartbeat import HeartbeatData
from tests.unit.client.virtual_net import Net, run, true

ADDRESS = "127.0.0.1:9876"
BROKER = "127.0.0.1:10911"
CLIENT = ClientConfig(trace=True)
# So that what is told now and then is told while a test waits.
QUICK = ConsumerConfig(client=CLIENT, commit_interval_s=1.0, rebalance_interval_s=1.0)


class Breaking:
    """Makes a method of a class raise a KeyError, `times` times; counts all its calls."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, times: int = 3
    ) -> None:
        self.calls = 0
        self.times = times
        original = getattr(owner, name)

        def fail(*args: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls <= self.times:
                raise KeyError(f"unforeseen in {name}")
            return original(*args, **named)

        if asyncio.iscoroutinefunction(original):

            async def fail_later(*args: Any, **named: Any) -> Any:
                return await fail(*args, **named)

            monkeypatch.setattr(owner, name, fail_later)
        else:
            monkeypatch.setattr(owner, name, fail)


def told(caplog: pytest.LogCaptureFixture) -> list[BaseException]:
    """The causes that were logged as an error."""
    records = [record for record in caplog.records if record.levelno >= logging.ERROR]
    return [record.exc_info[1] for record in records if record.exc_info and record.exc_info[1]]


async def consume_ten(net: Net, mode: str, break_it: Callable[[], Breaking]) -> None:
    """A push consumer, whose messages all come although something breaks from the start on."""
    broker = net.cluster(ADDRESS, BROKER)
    came: list[bytes] = []

    async def listen(message: ReceivedMessage) -> None:
        came.append(message.body)

    breaking = break_it()
    async with (
        Producer(ADDRESS) as producer,
        PushConsumer(ADDRESS, "g", "T", listen, start="first", mode=mode, config=QUICK) as consumer,
    ):
        for number in range(10):
            await producer.send(Message("T", b"%d" % number))
        await true(lambda: set(came) == {b"%d" % number for number in range(10)})
        await true(lambda: breaking.calls > breaking.times)
        # Everything is committed: no message was lost on the way, and commits go on.
        await true(lambda: sum(broker.disk.offsets.values()) == 10)
        assert len(consumer.queues()) == 4


@pytest.mark.parametrize(
    ("mode", "owner", "name"),
    [
        ("concurrent", Holding, "share_out"),
        ("concurrent", Rounds, "_share_out"),
        ("concurrent", Holding, "commit"),
        ("concurrent", Holding, "_commit"),
        ("concurrent", QueueRequests, "pull"),
        ("concurrent", Holding, "_arrive"),
        ("concurrent", Listening, "consume"),
        ("concurrent", Holding, "made_room"),
        ("orderly", Listening, "consume"),
        ("orderly", QueueLocks, "take"),
        ("orderly", OrderlyWork, "_consume"),
        ("concurrent", Tracer, "_send"),
    ],
)
def test_consumer_goes_on(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    mode: str,
    owner: type,
    name: str,
) -> None:
    run(lambda net: consume_ten(net, mode, lambda: Breaking(monkeypatch, owner, name)))
    assert [type(error) for error in told(caplog)][:3] == [KeyError] * 3


@pytest.mark.parametrize(
    ("owner", "name", "code"),
    [
        (ClientInstance, "send_heartbeats", RequestCode.HEART_BEAT),
        (ClientInstance, "refresh_routes", RequestCode.GET_ROUTEINFO_BY_TOPIC),
        (HeartbeatData, "encode", RequestCode.HEART_BEAT),
    ],
)
def test_heart_beats_and_routes_go_on(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owner: type,
    name: str,
    code: int,
) -> None:
    async def scenario(net: Net) -> None:
        net.cluster(ADDRESS, BROKER)
        async with Producer(ADDRESS) as producer:
            await producer.send(Message("T", b"x"))
            breaking = Breaking(monkeypatch, owner, name)
            await true(lambda: breaking.calls > 3)
            both = net.brokers.values()
            before = sum(one.count(code) for one in both)
            await asyncio.sleep(100)
            assert sum(one.count(code) for one in both) >= before + 3

    run(scenario)
    assert [type(error) for error in told(caplog)][:3] == [KeyError] * 3


def test_lost_connections_are_made_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(net: Net) -> None:
        net.cluster(ADDRESS, BROKER)
        async with LitePullConsumer(ADDRESS, "g", config=QUICK) as consumer:
            await consumer.subscribe("T")
            await true(lambda: len(consumer.assignment()) == 4)
            breaking = Breaking(monkeypatch, Connections, "open")
            net.hang_up(BROKER)
            before = len(net.connected)
            await true(lambda: len(net.connected) > before)
            assert breaking.calls > 3

    run(scenario)
    assert KeyError in {type(error) for error in told(caplog)}


def test_locks_are_renewed_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(ADDRESS, BROKER)
        breaking = Breaking(monkeypatch, QueueLocks, "renew", times=2)

        async def listen(message: ReceivedMessage) -> None: ...

        async with PushConsumer(ADDRESS, "g", "T", listen, mode="orderly") as consumer:
            await true(lambda: len(consumer.queues()) == 4)
            before = broker.count(RequestCode.LOCK_BATCH_MQ)
            await asyncio.sleep(100)
            assert breaking.calls > 2 and broker.count(RequestCode.LOCK_BATCH_MQ) > before

    run(scenario)
    assert [type(error) for error in told(caplog)] == [KeyError] * 2


def test_one_topic_that_breaks_keeps_no_other_from_its_queues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(net: Net) -> None:
        net.cluster(ADDRESS, BROKER)
        original = Holding.share_out

        async def share_out(self: Holding, topic: str, expression: Any) -> bool:
            if topic == "A":
                raise KeyError("unforeseen")
            return await original(self, topic, expression)

        monkeypatch.setattr(Holding, "share_out", share_out)
        async with LitePullConsumer(ADDRESS, "g", config=QUICK) as consumer:
            await consumer.subscribe("A")
            await consumer.subscribe("B")
            await true(lambda: len(consumer.assignment()) == 4)

    run(scenario)


@pytest.mark.parametrize(
    ("owner", "name"), [(RouteCache, "refresh"), (Connections, "open"), (RouteCache, "_ask")]
)
def test_send_whose_try_breaks_has_an_end(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    """Without one its room would be gone for good, and flush would never return."""

    async def scenario(net: Net) -> None:
        net.cluster(ADDRESS, BROKER)
        async with Producer(ADDRESS) as producer:
            Breaking(monkeypatch, owner, name, times=1)
            with pytest.raises(SendError, match="KeyError: 'unforeseen") as caught:
                await producer.send(Message("T", b"x"))
            assert isinstance(caught.value.__cause__, Exception)
            assert isinstance(caught.value.__cause__.__cause__, KeyError)
            await producer.flush()
            await producer.send(Message("T", b"y"))

    run(scenario)


def test_question_that_breaks_costs_nobody_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(ADDRESS, BROKER)
        answers: list[RemotingCommand] = []
        broker.on_answer = answers.append
        async with LitePullConsumer(ADDRESS, "g", config=QUICK) as consumer:
            await consumer.subscribe("T")
            await true(lambda: len(consumer.assignment()) == 4)
            Breaking(monkeypatch, Holding, "held", times=1)
            question = RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO)
            question.ext_fields = {"consumerGroup": "g", "clientId": "x"}
            net.ask(BROKER, question)
            await true(lambda: answers)
            assert net.connected.count(BROKER) == 1
        (answer,) = answers
        assert answer.code == 1 and "KeyError" in (answer.remark or "")

    run(scenario)


def test_what_waits_for_a_connection_learns_that_the_client_was_closed() -> None:
    """The connection that it waits for is cancelled, but itself is not."""

    async def scenario(net: Net) -> None:
        net.listen(ADDRESS)
        net.silent.add(ADDRESS)
        producer = Producer(ADDRESS)
        async with producer:
            task = asyncio.get_running_loop().create_task(producer.send(Message("T", b"x")))
            await asyncio.sleep(1)
            await producer.close()
            with pytest.raises(SendError):
                await task

    run(scenario)
