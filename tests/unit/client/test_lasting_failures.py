"""What may pass, and does not: after a while it is told where everybody sees it, once."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from ledgermq.client import ConsumerConfig, LitePullConsumer, PushConsumer, ReceivedMessage
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from tests.unit.client.virtual_broker import Link
from tests.unit.client.virtual_net import Net, run, true

NAMES = "127.0.0.1:9876"
BROKER = "127.0.0.1:10911"


async def nothing(message: ReceivedMessage) -> None:
    """Consumes."""


def refusing(code: RequestCode, answer: ResponseCode) -> Callable[[Link, RemotingCommand], bool]:
    """Refuses requests of one code, each with words of its own."""
    count = 0

    def refuse(link: Link, request: RemotingCommand) -> bool:
        nonlocal count
        if request.code != code:
            return False
        count += 1
        link.answer(request.response(answer, f"why not, for the {count}th time"))
        return True

    return refuse


def warnings(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    found = [one for one in caplog.records if one.levelno >= logging.WARNING]
    return [one.getMessage() for one in found if words in one.getMessage()]


@pytest.mark.parametrize(
    "answer",
    [
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
    ],
)
def test_pulls_that_fail_for_long_are_told_and_refused_ones_are_rarer(
    answer: ResponseCode, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic that was deleted, an account that has used up its share, a group without a leader."""

    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        broker.on_request = refusing(RequestCode.PULL_MESSAGE, answer)
        async with PushConsumer(NAMES, "g", "T", nothing):
            await asyncio.sleep(9)
            assert not warnings(caplog, "could not pull")
            await asyncio.sleep(40)
            (said,) = warnings(caplog, "could not pull")
            assert said.startswith("g could not pull: ") and answer.name in said
            before = broker.count(RequestCode.PULL_MESSAGE)
            await asyncio.sleep(10)
            if answer is not ResponseCode.SERVICE_NOT_AVAILABLE:
                # Eight queues with those for retries, each asked once in one to two seconds.
                assert broker.count(RequestCode.PULL_MESSAGE) - before <= 90

    run(scenario)


def test_pulls_that_fail_for_a_moment_are_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        async with PushConsumer(NAMES, "g", "T", nothing) as consumer:
            for _ in range(5):
                await true(lambda: len(consumer.queues()) == 4)
                broker.on_request = refusing(RequestCode.PULL_MESSAGE, ResponseCode.SYSTEM_BUSY)
                broker.put("T", 0, b"x")
                await asyncio.sleep(8)
                broker.on_request = None
                await asyncio.sleep(8)

    run(scenario)
    assert not warnings(caplog, "")


def test_commits_that_fail_for_long_are_told(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        broker.put("T", 0, b"x")
        broker.on_request = refusing(RequestCode.UPDATE_CONSUMER_OFFSET, ResponseCode.SYSTEM_BUSY)
        async with PushConsumer(NAMES, "g", "T", nothing, start="first"):
            await asyncio.sleep(50)
        assert len(warnings(caplog, "could not commit all offsets")) == 1
        # The end is no different: who reads the log knows why messages come again.
        assert len(warnings(caplog, "g ends without telling all that it has consumed")) == 1

    run(scenario)


def test_members_that_cannot_be_had_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """Such a consumer gets no queue, and so no message; it said so to nobody."""

    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
        broker.on_request = refusing(code, ResponseCode.NO_PERMISSION)
        async with PushConsumer(NAMES, "g", "T", nothing):
            await asyncio.sleep(60)

    run(scenario)
    assert len(warnings(caplog, "g cannot share queues")) == 1


def test_locks_that_are_not_renewed_are_told(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        async with PushConsumer(NAMES, "g", "T", nothing, mode="orderly") as consumer:
            await true(lambda: len(consumer.queues()) == 4)
            broker.on_request = refusing(RequestCode.LOCK_BATCH_MQ, ResponseCode.SYSTEM_BUSY)
            await asyncio.sleep(60)
            broker.on_request = None

    run(scenario)
    assert len(warnings(caplog, "are not renewed")) == 1


@pytest.mark.parametrize("is_name_server_gone", [False, True])
@pytest.mark.parametrize("kind", ["concurrent", "orderly", "lite"])
def test_close_ends_in_time_when_brokers_are_gone(kind: str, is_name_server_gone: bool) -> None:
    """A program that is asked to end has half a minute, and listeners take their part of it."""

    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        for number in range(8):
            broker.put("T", number % 4, b"%d" % number)
        loop = asyncio.get_running_loop()
        config = ConsumerConfig(commit_interval_s=1000.0)
        consumer: Any
        if kind == "lite":
            consumer = LitePullConsumer(NAMES, "g", start="first", config=config)
        else:
            mode: Any = kind
            consumer = PushConsumer(
                NAMES, "g", "T", nothing, start="first", mode=mode, config=config
            )
        async with consumer:
            if kind == "lite":
                await consumer.subscribe("T")
                await consumer.poll(timeout_s=5)
                consumer.acknowledge()
            await asyncio.sleep(1)
            net.silent.update([BROKER, NAMES] if is_name_server_gone else [BROKER])
            begun_s = loop.time()
        assert loop.time() - begun_s < 10

    run(scenario)
