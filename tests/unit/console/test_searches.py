"""A search leaves most of the time to others, and ends when nobody looks at it any more."""

import asyncio
from typing import Any, cast

import pytest

from ledgermq.console import searches
from ledgermq.console.bodies import Bodies
from ledgermq.console.cluster import Target
from ledgermq.console.messages import Pulled
from ledgermq.console.searches import Searches, _scan_queue, _Search
from ledgermq.console.shapes.messages import SearchRequest
from ledgermq.protocol.bodies import MessageQueue

PULLED = 32


def scan(
    monkeypatch: pytest.MonkeyPatch, pull_s: float, messages: int
) -> tuple[_Search, str | None, list[float]]:
    """Reads a queue of so many messages with pulls that take so long; returns the pauses, too."""
    loop = asyncio.new_event_loop()
    now_s = 0.0
    pauses: list[float] = []

    async def pull(view: object, address: str, queue: MessageQueue, offset: int, *_: object) -> Any:
        nonlocal now_s
        now_s += pull_s
        return Pulled([], offset + PULLED, 0, messages)

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(loop, "time", lambda: now_s)
    monkeypatch.setattr(searches, "pull", pull)
    monkeypatch.setattr(searches.asyncio, "sleep", sleep)
    search = _Search(
        id="1",
        session="s",
        owner="s",
        cluster="c",
        wanted=SearchRequest(topic="T"),
        begun_s=0.0,
        seen_s=0.0,
    )
    target = cast(Target, type("Leader", (), {"name": "b", "address": "127.0.0.1:1"}))
    queue = MessageQueue("T", "b", 0)
    try:
        reading = _scan_queue(cast(Any, None), Bodies(), search, target, queue, 0, messages)
        return search, loop.run_until_complete(reading), pauses
    finally:
        loop.close()


@pytest.mark.parametrize("pull_s", [0.0001, 0.002, 0.5])
def test_a_pause_follows_each_pull_that_is_much_longer(
    monkeypatch: pytest.MonkeyPatch, pull_s: float
) -> None:
    search, state, pauses = scan(monkeypatch, pull_s, 320)
    assert (search.scanned, state, len(pauses)) == (320, None, 10)
    # A millisecond also lets the other work of the console go on.
    assert min(pauses) >= max(pull_s * 4, 0.001)


def test_a_search_that_nobody_looks_at_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    search, state, _ = scan(monkeypatch, 10.0, 3200)
    assert (search.scanned, state) == (16 * PULLED, "stopped")
    assert "nobody" in search.reason


def test_searches_of_one_account_drive_out_its_own() -> None:
    async def run() -> None:
        found = Searches()
        view = cast(Any, type("View", (), {"id": "c"}))
        # A place without a queue: it ends at once.
        wanted = SearchRequest(offset_id="none")
        first = found.start(view, "s", "admin", wanted)
        for _ in range(60):
            found.start(view, "t", "app", wanted)
            await asyncio.sleep(0.001)
        assert found.look("c", "s", first.id, 0).state != "running"
        assert len(found._searches) <= 51

    asyncio.run(run())
