"""Rounds: what a member says while its topic is not there."""

import asyncio
import logging

import pytest

from ledgermq.client import PushConsumer, ReceivedMessage
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import GetRouteInfoRequestHeader
from tests.unit.client.virtual_broker import Link
from tests.unit.client.virtual_net import Net, run, true

NAMES = "127.0.0.1:9876"
BROKER = "127.0.0.1:10911"


async def nothing(message: ReceivedMessage) -> None:
    """Consumes."""


@pytest.mark.parametrize(("made_after_s", "count"), [(0.6, 0), (10.0, 1)])
def test_topic_that_comes_in_a_moment_is_no_trouble_and_one_that_does_not_is(
    made_after_s: float, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A program that sends to a new topic and consumes it at once must not be warned."""

    async def scenario(net: Net) -> None:
        net.cluster(NAMES, BROKER)
        loop = asyncio.get_running_loop()
        made_s = loop.time() + made_after_s

        def unknown(link: Link, request: RemotingCommand) -> bool:
            if request.code != RequestCode.GET_ROUTEINFO_BY_TOPIC or loop.time() >= made_s:
                return False
            if request.header(GetRouteInfoRequestHeader).topic != "T":
                return False
            link.answer(request.response(ResponseCode.TOPIC_NOT_EXIST, "no such topic"))
            return True

        net.brokers[NAMES].on_request = unknown
        async with PushConsumer(NAMES, "g", "T", nothing) as consumer:
            await true(lambda: len(consumer.queues()) == 4)

    with caplog.at_level(logging.WARNING, logger="ledgermq.client"):
        run(scenario)
    told = [one for one in caplog.messages if "no name server knows the topic" in one]
    assert len(told) == count
