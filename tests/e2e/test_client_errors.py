"""Errors that cannot be missed, with a real name server and a real broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from ledgermq.client import (
    ClientConfig,
    ClientError,
    ConfigError,
    ConsumerConfig,
    LitePullConsumer,
    Message,
    NameServerError,
    NoRouteError,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    RefusedError,
    SendError,
    blocking,
)
from tests.processes import LiveProgram, broker, name_server
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(240)


class Place(NamedTuple):
    """A name server and a broker that filters by no properties, and creates no topics."""

    namesrv: str
    program: LiveProgram


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("errors")
    with (
        name_server(folder) as address,
        broker(folder, "enablePropertyFilter=false", namesrv=address) as program,
    ):
        program.wait_until_serving()

        with blocking.AdminClient(address) as admin:
            wait_until(lambda: admin.brokers(), what="a registered broker")
            wait_until(lambda: admin.brokers()[0].is_leader, what="a leader")
            # It returns when the name server knows the topic.
            admin.create_topic("errors", queue_count=2)
            with blocking.Producer(address) as producer:
                producer.send(Message("errors", b"x"))
        yield Place(address, program)


def warnings(caplog: pytest.LogCaptureFixture, part: str) -> list[str]:
    return [
        one.getMessage()
        for one in caplog.records
        if one.levelno >= logging.WARNING and part in one.getMessage()
    ]


def test_condition_on_a_broker_without_conditions(place: Place) -> None:
    async def go() -> None:
        with pytest.raises(RefusedError, match="enablePropertyFilter is false") as caught:
            async with PushConsumer(place.namesrv, "ce_sql", "errors", sql="n > 3"):
                pass
        assert not caught.value.retriable and caught.value.topic == "errors"
        async with LitePullConsumer(place.namesrv, "ce_sql") as consumer:
            with pytest.raises(RefusedError, match="enablePropertyFilter is false"):
                await consumer.subscribe("errors", sql="n > 3")
        async with PullConsumer(place.namesrv, "ce_sql", sql="n > 3") as reader:
            await reader.assign(await reader.queues("errors"), start="first")
            with pytest.raises(RefusedError, match="enablePropertyFilter is false") as caught:
                async with asyncio.timeout(90):
                    while True:
                        await reader.poll()
            assert not caught.value.retriable

    asyncio.run(go())


def test_members_of_a_group_that_want_different_things(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    config = ConsumerConfig(client=ClientConfig(heartbeat_interval_s=0.2))

    def member(tags: str) -> PushConsumer:
        return PushConsumer(place.namesrv, "ce_divided", "errors", tags=tags, config=config)

    async def go() -> None:
        async with member("TagA") as first, member("TagB") as second:
            async with asyncio.timeout(90):
                while len(warnings(caplog, "different things")) < 2:
                    await asyncio.sleep(0.05)
            said = warnings(caplog, "different things")
            # Each of them is told once, with what it wants itself and who wants something else.
            for text, own, other in (("TagA", first, second), ("TagB", second, first)):
                (line,) = [one for one in said if f"wants errors '{text}'" in one]
                assert own.client_id in line.partition(" wants ")[0]
                assert other.client_id in line.partition(" wants ")[2]
                assert "ce_divided" in line
        # Equal members are no trouble.
        caplog.clear()
        async with member("TagC"), member("TagC"):
            await asyncio.sleep(1)
        assert warnings(caplog, "different things") == []

    asyncio.run(go())
    wait_until(
        lambda: "members of group ce_divided subscribe to different" in place.program.log_text(),
        what="the broker's warning",
    )


def test_broker_in_the_place_of_a_name_server(place: Place) -> None:
    async def go() -> None:
        address = place.program.address
        async with Producer(address) as producer:
            with pytest.raises(SendError, match=f"{address} is no name server") as caught:
                await producer.send(Message("errors", b""))
            assert not caught.value.retriable
        with pytest.raises(NameServerError, match="is no name server"):
            async with PushConsumer(address, "g", "errors"):
                pass

    asyncio.run(go())


def test_topic_that_is_not_there_yet_is_another_matter(place: Place) -> None:
    async def go() -> None:
        async with PullConsumer(place.namesrv) as reader:
            with pytest.raises(NoRouteError) as caught:
                await reader.queues("ce_later")
            # It may come; a name that can never be may not.
            assert caught.value.retriable
            with pytest.raises(ConfigError) as wrong:
                await reader.queues("ce.never")
            assert not wrong.value.retriable

    asyncio.run(go())


def test_nobody_at_the_address_speaks(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        config = ProducerConfig(timeout_s=3)
        async with Producer("127.0.0.1:1", config=config) as producer:
            with pytest.raises(ClientError, match="Connection refused") as caught:
                await producer.send(Message("errors", b""))
            assert caught.value.retriable
        assert len(warnings(caplog, "no connection to 127.0.0.1:1: Connection refused")) == 1

    asyncio.run(go())
