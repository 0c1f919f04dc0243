"""Peers that vanish without a word (half-open connections), and name servers that are gone."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from ledgermq.client import (
    ClientConfig,
    ConsumerConfig,
    LitePullConsumer,
    Message,
    MessageQueue,
    NameServerError,
    Producer,
    ProducerConfig,
    SendError,
)
from ledgermq.protocol.codes import RESPONSE_FLAG, RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import QueryConsumerOffsetResponseHeader
from tests.e2e.scripted_broker import BROKER_NAME, Answer, ScriptedBroker
from tests.free_ports import free_ports
from tests.scenarios import run

# A silence lasts a second, and there is a heart beat ten times a second.
WATCHFUL = ClientConfig(heartbeat_interval_s=0.1, silence_max_s=1.0)


async def true(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def hold_pulls(request: RemotingCommand) -> Answer:
    """Answers what a consumer asks, and its pulls with what it does not wait for."""
    if request.code == RequestCode.QUERY_CONSUMER_OFFSET:
        return request.response(0, header=QueryConsumerOffsetResponseHeader(offset=7))
    if request.code == RequestCode.PULL_MESSAGE:
        return RemotingCommand(code=0, flag=RESPONSE_FLAG, opaque=-1)
    return None


@contextlib.asynccontextmanager
async def broker_and_name_server() -> AsyncIterator[tuple[ScriptedBroker, str]]:
    """A broker, and the address of a name server of its own."""
    async with ScriptedBroker() as names, ScriptedBroker() as broker:
        names.routed_address = broker.address
        yield broker, names.address


def test_idle_consumer_finds_out_that_its_broker_has_vanished() -> None:
    """Its pull would be held for 10 min; what is not answered is whether the broker lives."""

    async def scenario() -> None:
        config = ConsumerConfig(client=WATCHFUL, suspend_s=600.0)
        async with broker_and_name_server() as (broker, name_server):
            broker.on_request = hold_pulls
            async with LitePullConsumer(
                name_server, "g", auto_commit=False, config=config
            ) as consumer:
                await consumer.assign([MessageQueue("T", BROKER_NAME, 0)])
                await true(lambda: broker.count(RequestCode.PULL_MESSAGE) > 0)
                connections, pulls = broker.connection_count, broker.count(RequestCode.PULL_MESSAGE)
                broker.mute()
                await true(lambda: broker.count(RequestCode.PULL_MESSAGE) > pulls)
                assert broker.connection_count > connections

    run(scenario())


def test_idle_producer_finds_out_before_it_sends_again() -> None:
    async def scenario() -> None:
        config = ProducerConfig(client=WATCHFUL, attempt_timeout_s=600.0, timeout_s=600.0)
        async with (
            broker_and_name_server() as (broker, name_server),
            Producer(name_server, config=config) as producer,
        ):
            await producer.send(Message("T", b"x"))
            connections = broker.connection_count
            broker.mute()
            await true(lambda: broker.connection_count > connections)
            await producer.send(Message("T", b"y"))

    run(scenario())


def test_name_server_that_never_answers_is_passed_over() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as silent, ScriptedBroker() as broker:
            silent.on_request = lambda request: None
            config = ProducerConfig(client=ClientConfig(request_timeout_s=0.5), timeout_s=60.0)
            addresses = f"{silent.address};{broker.address}"
            async with Producer(addresses, config=config) as producer:
                task = asyncio.create_task(producer.send(Message("T", b"x")))
                await true(lambda: silent.connection_count > 0)
                silent.mute()
                await task

    run(scenario())


def test_without_name_servers_what_is_known_goes_on_and_news_waits() -> None:
    async def scenario() -> None:
        (port,) = free_ports(1)
        address = f"127.0.0.1:{port}"
        patient = ProducerConfig(client=ClientConfig(route_interval_s=0.05), timeout_s=60.0)
        hasty = ProducerConfig(timeout_s=0.2)
        async with ScriptedBroker() as broker, Producer(address, config=patient) as producer:
            name_server = ScriptedBroker(port)
            name_server.routed_address = broker.address
            async with name_server:
                await producer.send(Message("known", b"1"))
            await producer.send(Message("known", b"2"))
            async with Producer(address, config=hasty) as other:
                with pytest.raises(SendError) as caught:
                    await other.send(Message("new", b"3"))
            assert caught.value.retriable
            assert isinstance(caught.value.__cause__, NameServerError)
            waiting = await producer.submit(Message("new", b"4"))
            back = ScriptedBroker(port)
            back.routed_address = broker.address
            async with back:
                await waiting

    run(scenario())
