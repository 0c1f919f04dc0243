"""Clients that nobody closed say so when they go."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from ledgermq.client import (
    Client,
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    TransactionalProducer,
    TransactionState,
    blocking,
)
from tests.unit.client.virtual_net import Net, run

NAMES = "127.0.0.1:9876"
BROKER = "127.0.0.1:10911"


def unknown(message: ReceivedMessage) -> TransactionState:
    return TransactionState.UNKNOWN


KINDS: list[Callable[[], Any]] = [
    lambda: Client(NAMES),
    lambda: Producer(NAMES),
    lambda: TransactionalProducer(NAMES, "g", unknown),
    lambda: PullConsumer(NAMES),
    lambda: LitePullConsumer(NAMES, "g"),
    lambda: PushConsumer(NAMES, "g", "T"),
]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("make", KINDS)
def test_client_that_was_never_closed_says_so(make: Callable[[], Any]) -> None:
    async def scenario(net: Net) -> None:
        net.cluster(NAMES, BROKER)
        client = make()
        await client.__aenter__()
        if isinstance(client, Producer):
            await client.send(Message("T", b"x"))

    with pytest.warns(ResourceWarning, match="was never closed; use it in an async with block"):
        run(scenario)
        gc.collect()


@pytest.mark.parametrize("make", KINDS)
def test_client_that_was_closed_or_never_opened_says_nothing(
    make: Callable[[], Any], recwarn: pytest.WarningsRecorder
) -> None:
    async def scenario(net: Net) -> None:
        net.cluster(NAMES, BROKER)
        async with make():
            await asyncio.sleep(1)
        make()

    # What tests before this one left, they are to be told of.
    gc.collect()
    recwarn.clear()
    run(scenario)
    gc.collect()
    assert [str(one.message) for one in recwarn] == []


def test_blocking_client_that_was_never_closed_says_so() -> None:
    with pytest.warns(ResourceWarning, match="Producer was never closed; use it in a with block"):
        producer: Any = blocking.Producer("127.0.0.1:1")
        producer.__enter__()
        thread = producer._thread
        closing = producer._twin.close
        del producer
        gc.collect()
    thread.call(closing())
    thread.stop()
