"""A search leaves most of the time to others, however long its pulls take."""

import asyncio
from typing import Any, cast

import pytest

from ledgermq.console import searches
from ledgermq.console.cluster import Target
from ledgermq.console.messages import Pulled
from ledgermq.console.searches import _scan_queue, _Search
from ledgermq.console.shapes.messages import SearchRequest
from ledgermq.protocol.bodies import MessageQueue


@pytest.mark.parametrize("pull_s", [0.0001, 0.002, 0.5])
def test_a_pause_follows_each_pull_that_is_much_longer(
    monkeypatch: pytest.MonkeyPatch, pull_s: float
) -> None:
    loop = asyncio.new_event_loop()
    now_s, pauses = 0.0, []

    async def pull(view: object, address: str, queue: MessageQueue, offset: int, *_: object) -> Any:
        nonlocal now_s
        now_s += pull_s
        return Pulled([], offset + 32, 0, 320)

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(loop, "time", lambda: now_s)
    monkeypatch.setattr(searches, "pull", pull)
    monkeypatch.setattr(searches.asyncio, "sleep", sleep)
    search = _Search(id="1", session="s", cluster="c", wanted=SearchRequest(topic="T"), begun_s=0.0)
    target = cast(Target, type("Leader", (), {"name": "b", "address": "127.0.0.1:1"}))
    queue = MessageQueue("T", "b", 0)
    try:
        scan = _scan_queue(cast(Any, None), search, target, queue, 0, 320)
        assert loop.run_until_complete(scan) is None
    finally:
        loop.close()
    assert search.scanned == 320
    assert len(pauses) == 10
    # A millisecond also lets the other work of the console go on.
    assert min(pauses) >= max(pull_s * 4, 0.001)
