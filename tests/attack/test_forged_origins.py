"""What a sender says of the way that its message has come: of earlier tries, of another topic."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from ledgermq.client import ClientConfig, ConsumerConfig, PushConsumer, ReceivedMessage
from ledgermq.protocol.codes import RequestCode
from tests.attack.closed_broker import SHOP, THIEF, ask, closed_broker
from tests.e2e.wire_client import WireClient, send_fields
from tests.processes import name_server

FORGED = "RETRY_TOPIC\x01secret\x02UNIQ_KEY\x01u1\nCRITICAL of nobody \x1b[31m"
DEADLINE_S = 60


@pytest.mark.parametrize("times", [-100, 1])
def test_worker_of_a_message_that_fails_is_free_for_the_next(
    times: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As many as there are workers held all of them for ever, in each member of the group."""
    calls: list[tuple[bytes, str]] = []

    async def consume(address: str) -> None:
        all_came = asyncio.Event()

        async def listener(message: ReceivedMessage) -> None:
            calls.append((message.body, message.topic))
            if message.body == b"good":
                all_came.set()
                return
            raise ValueError("it fails")

        config = ConsumerConfig(concurrency=2, client=ClientConfig(credentials=SHOP))
        async with PushConsumer(
            address, "order-readers", "stock", listener, start="first", config=config
        ):
            async with asyncio.timeout(DEADLINE_S):
                await all_came.wait()

    with name_server(tmp_path) as names, closed_broker(tmp_path, f"namesrvAddr={names}") as running:
        with WireClient(running.wait_until_serving().address) as client:
            for body, number, properties in (
                *((b"bad", times, FORGED),) * 2,
                (b"good", 0, ""),
            ):
                fields = send_fields("stock", 0, reconsumeTimes=number, properties=properties)
                assert ask(client, THIEF, RequestCode.SEND_MESSAGE, fields, body).code == 0
        with caplog.at_level(logging.WARNING, "ledgermq.client"):
            asyncio.run(consume(names))
    assert sorted(calls) == [(b"bad", "stock")] * 2 + [(b"good", "stock")]
    said = [record.getMessage() for record in caplog.records]
    assert sum("it fails" in str(one.exc_info) for one in caplog.records) == 2
    assert not any("could not give back" in one or "\n" in one or "\x1b" in one for one in said)
