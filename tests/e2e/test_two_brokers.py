"""Two brokers of different names at two name servers: both are told, and one may die."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ledgermq.client import Message, Producer, ProducerConfig
from tests.e2e.wire_client import WireClient
from tests.processes import broker, name_server
from tests.waiting import wait_until

TOPIC = "Both"


def route(namesrv: str) -> bytes:
    with WireClient(namesrv) as client:
        return client.ask(105, {"topic": TOPIC}).body


def test_both_name_servers_know_both_brokers_and_sends_outlive_one(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    settings = ("flushDiskType=ASYNC_FLUSH",)
    with name_server(folders[0]) as first, name_server(folders[1]) as second:
        both = f"{first};{second}"
        with (
            broker(tmp_path, *settings, namesrv=both, name="broker-a", log="a.log") as one,
            broker(tmp_path, *settings, namesrv=both, name="broker-b", log="b.log") as other,
        ):
            for running in (one, other):
                with WireClient(running.wait_until_serving().address) as client:
                    assert client.send(TOPIC, 0, b"made").code == 0
            for namesrv in (first, second):
                wait_until(
                    lambda namesrv=namesrv: all(
                        name in route(namesrv) for name in (b"broker-a", b"broker-b")
                    ),
                    what="both brokers in the route",
                )

            async def play() -> set[str]:
                # Both are in the route that the producer keeps.
                config = ProducerConfig(timeout_s=20)
                async with Producer(both, "p", config=config) as producer:
                    before = [await producer.send(Message(TOPIC, b"x")) for _ in range(8)]
                    assert {sent.broker_name for sent in before} == {"broker-a", "broker-b"}
                    one.kill()
                    after = [await producer.send(Message(TOPIC, b"y")) for _ in range(8)]
                    return {sent.broker_name for sent in after}

            assert asyncio.run(play()) == {"broker-b"}
