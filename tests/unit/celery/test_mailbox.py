"""A mailbox goes on behind mail that nobody can read, and gives what is before it once."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ledgermq.celery.bindings import TOPIC, Binding
from ledgermq.celery.mailbox import Mailbox
from ledgermq.client import MessageQueue, PullResult, PullStatus


class Broker:
    """Mail of one queue."""

    def __init__(self, bodies: list[bytes]) -> None:
        self.bodies = bodies

    async def pull(self, queue: MessageQueue, offset: int, **wanted: Any) -> PullResult:
        if offset >= len(self.bodies):
            await asyncio.sleep(0.01)
        some = [
            cast(Any, SimpleNamespace(queue_offset=at, body=self.bodies[at]))
            for at in range(offset, len(self.bodies))
        ]
        return PullResult(
            status=PullStatus.FOUND if some else PullStatus.NO_NEW_MESSAGE,
            messages=some,
            next_offset=len(self.bodies),
            min_offset=0,
            max_offset=len(self.bodies),
        )


class Taker:
    """One that has room for all."""

    def __init__(self) -> None:
        self.given: list[int] = []

    def room(self) -> int:
        return 100

    def reserve(self, count: int) -> None: ...

    def give(self, message: Any, times: int) -> None:
        self.given.append(message.queue_offset)


def mail(key: object) -> bytes:
    info = {"exchange": "celeryev", "routing_key": key}
    return json.dumps({"properties": {"delivery_info": info}}).encode()


@pytest.mark.parametrize(
    "poison", [b"[" * 100_000, mail(5), mail(["a"]), b"7", b"[]", b'{"properties":7}', b"\xff"]
)
def test_mail_that_nobody_can_read_is_passed_over(poison: bytes) -> None:
    async def run() -> list[int]:
        broker, taker = Broker([mail("a.b"), poison, mail("c.d")]), Taker()
        mailbox = Mailbox(cast(Any, broker), MessageQueue("m", "b", 0), "events", 0)
        mailbox.bind(Binding("celeryev", TOPIC, "#"))
        mailbox.add(cast(Any, taker))
        async with asyncio.timeout(60):
            while len(taker.given) < 2:
                await asyncio.sleep(0.01)
        await mailbox.stop(0)
        return taker.given

    assert asyncio.run(run()) == [0, 2]
