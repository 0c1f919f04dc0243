"""What a tracer has gathered is sent before it is closed, also what is on its way."""

import asyncio
from typing import Any

import pytest

from ledgermq.client import tracing
from ledgermq.client.config import ClientConfig
from ledgermq.client.tracing import Tracer
from ledgermq.protocol.message_id import UniqueIds
from tests.unit.client.parts import messages, run


class Instance:
    """A client instance as far as a tracer looks."""

    def __init__(self) -> None:
        self.unique_ids = UniqueIds(b"\x7f\x00\x00\x01", 1, 1)


class SlowRoad:
    """Takes what is sent, and acknowledges it when it is told to."""

    roads: list["SlowRoad"] = []

    def __init__(self, *parts: Any) -> None:
        self.sent: list[asyncio.Future[None]] = []
        self.is_closed = False
        SlowRoad.roads.append(self)

    async def submit(self, *parts: Any) -> asyncio.Future[None]:
        assert not self.is_closed
        self.sent.append(asyncio.get_running_loop().create_future())
        return self.sent[-1]

    async def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


def test_close_waits_for_the_trace_that_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "SendRoad", SlowRoad)

    async def scenario() -> None:
        tracer = Tracer(Instance(), "g", ClientConfig(trace=True))  # type: ignore[arg-type]
        tracer.start()
        road = SlowRoad.roads[-1]
        tracer.end(tracer.begin(messages(0, 1)[0]))
        while not road.sent:
            await asyncio.sleep(0.01)
        closing = asyncio.create_task(tracer.close())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not road.is_closed and not road.sent[0].cancelled()
        road.sent[0].set_result(None)
        await closing
        assert road.is_closed and not road.sent[0].cancelled()

    run(scenario())


def test_close_sends_what_was_gathered_just_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "SendRoad", SlowRoad)

    async def scenario() -> None:
        tracer = Tracer(Instance(), "g", ClientConfig(trace=True))  # type: ignore[arg-type]
        tracer.start()
        road = SlowRoad.roads[-1]
        tracer.end(tracer.begin(messages(0, 1)[0]))
        closing = asyncio.create_task(tracer.close())
        while not road.sent:
            await asyncio.sleep(0)
        road.sent[0].set_result(None)
        await closing
        assert len(road.sent) == 1

    run(scenario())
