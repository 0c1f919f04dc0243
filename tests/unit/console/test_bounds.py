"""What a request to the console may have, and what a row tells: none of it without end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, ClassVar, cast

import pytest

from ledgermq.client.config import ClientConfig
from ledgermq.console import searches
from ledgermq.console.actions import letters
from ledgermq.console.actions.topics import writers_of
from ledgermq.console.audit import Audit
from ledgermq.console.browsing import read_cursor, write_cursor
from ledgermq.console.cluster import ClusterView
from ledgermq.console.desk import Desk
from ledgermq.console.messages import row_of
from ledgermq.console.remote import Remote
from ledgermq.console.searches import Searches
from ledgermq.console.shapes.actions import DropDeadLetters, ResendDeadLetters
from ledgermq.console.shapes.messages import SearchRequest
from ledgermq.http.replies import RequestError
from ledgermq.http.requests import Request
from ledgermq.protocol import properties as names

NOBODY = cast(Any, None)


def refusal_of(asked: Awaitable[object]) -> RequestError:
    async def ask() -> None:
        await asked

    with pytest.raises(RequestError) as refused:
        asyncio.run(ask())
    return refused.value


class NoSessions:
    """Lets nobody in, and counts who asked."""

    asked_count = 0

    def on_end(self, told: object) -> None: ...

    async def sign_in(self, wanted: object, peer: str) -> object:
        self.asked_count += 1
        raise RequestError(401, "nobody")


def test_who_is_not_known_yet_sends_little() -> None:
    sessions = NoSessions()
    desk = Desk(cast(Any, sessions), Audit(None), NOBODY, NOBODY, lambda: 0)
    text = b'{"access_key": "somebody", "secret_key": "secret-of-somebody"}'
    statuses = []
    for size in (65_536, 65_537):
        headers = {"content-type": "application/json"}
        request = Request(method="POST", headers=headers, body=text.ljust(size))
        statuses.append(refusal_of(desk._own["sign_in"](request)).status)
    assert statuses == [401, 413] and sessions.asked_count == 1


def test_a_cursor_has_so_many_places() -> None:
    places = [("b", number, 7) for number in range(16_384)]
    assert len(read_cursor(write_cursor(places))) == 16_384
    with pytest.raises(RequestError, match="has 16385 queues, 16384 are allowed"):
        read_cursor(write_cursor([*places, ("c", 0, 7)]))


class Told:
    """A message, as far as a row tells it."""

    offset_message_id = "by-its-offset"
    topic, queue_id, queue_offset, body, sys_flag = "%DLQ%g", 3, 4, b"body", 0
    store_timestamp, born_timestamp, reconsume_times = 1, 2, 16
    broker_name = "b"

    def __init__(self, **properties: str) -> None:
        self.record = self.queue = self
        self.properties = properties


def test_a_row_tells_the_beginning_of_what_is_long() -> None:
    long = "x" * 30_000
    keys = (names.UNIQUE_KEY, names.KEYS, names.TAGS, names.RETRY_TOPIC, names.ORIGIN_MESSAGE_ID)
    row = row_of(cast(Any, Told(**dict.fromkeys(keys, long))))
    told = (row.message_id, row.keys, row.tags, row.origin_topic, row.origin_id)
    assert told == (long[:1024],) * 5
    row = row_of(cast(Any, Told()))
    told = (row.message_id, row.keys, row.tags, row.origin_topic, row.origin_id)
    assert told == ("by-its-offset", "", "", None, None)


class View:
    """A cluster of two thousand broker groups."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def brokers(self) -> set[str]:
        return {f"b-{number}" for number in range(2000)}

    async def writers(self, names: list[str]) -> tuple[list[str], list[str]]:
        self.asked.append(names)
        return names, []


def test_a_change_names_so_many_broker_groups_and_each_counts_once() -> None:
    view = View()
    names_told = [f"b-{number}" for number in range(1000)]
    for asked in (names_told, ["b-1", "b-2", "b-1"]):
        asyncio.run(writers_of(cast(Any, view), asked))
    assert view.asked == [names_told, ["b-1", "b-2"]]
    refused = refusal_of(writers_of(cast(Any, view), [*names_told, "b-1000"]))
    assert (refused.status, refused.limit) == (400, 1000)
    assert len(view.asked) == 2


def test_dead_letters_are_not_sent_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def chosen(*_: object) -> list[object]:
        return []

    monkeypatch.setattr(letters, "_chosen", chosen)
    call = cast(Any, type("Call", (), {"cluster": None}))
    asyncio.run(letters.plan_resend(call, ResendDeadLetters(group="g", per_s=0.1)))
    refused = refusal_of(letters.plan_resend(call, ResendDeadLetters(group="g", per_s=0.09)))
    assert (refused.status, refused.field) == (400, "per_s")


def test_one_account_has_dead_letters_read_for_one_change_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading: list[str] = []

    async def read(call: Any, *_: object) -> list[object]:
        reading.append(call.account)
        await asyncio.Event().wait()
        return []

    async def targets_of(*_: object) -> list[object]:
        return []

    class Cluster:
        by_name: ClassVar = {"%DLQ%g": {"b": None}}

        async def topics(self) -> Any:
            return self

    monkeypatch.setattr(letters, "_fitting", read)
    monkeypatch.setattr(letters, "writers_of", targets_of)

    async def plan() -> None:
        all_of_them = Searches()
        wanted = DropDeadLetters(group="g", text="word")
        waiting = []
        for account in [*"aaa", *"bb"]:
            told = {"cluster": Cluster(), "account": account, "searches": all_of_them}
            call = cast(Any, type("Call", (), told))
            waiting.append(asyncio.create_task(letters.plan_drop(call, wanted)))
        for _ in range(10):
            await asyncio.sleep(0)
        for one in waiting:
            one.cancel()

    asyncio.run(plan())
    assert sorted(reading) == ["a", "b"]


@pytest.mark.parametrize("account", ["a", ""])
def test_one_account_has_half_of_all_searches_whatever_its_sessions(
    monkeypatch: pytest.MonkeyPatch, account: str
) -> None:
    async def run_for_ever(self: Searches, view: object, search: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(searches.Searches, "_run", run_for_ever)
    view = ClusterView("c", "c", Remote("127.0.0.1:1", ClientConfig()))
    wanted = SearchRequest(topic="T")

    async def search() -> None:
        all_of_them = Searches()
        for number in range(4):
            session = f"s{number}" if account else "s"
            all_of_them.start(view, session, account, wanted)
        with pytest.raises(RequestError, match="4 searches run already"):
            all_of_them.start(view, "another" if account else "s", account, wanted)
        for _ in range(4):
            all_of_them.start(view, "of-others", "b" if account else "", wanted)
        with pytest.raises(RequestError, match="8 searches run already"):
            all_of_them.start(view, "third", "c" if account else "", wanted)
        all_of_them.stop_all()

    asyncio.run(search())
