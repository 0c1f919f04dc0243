"""An import of definitions: no turn is long, whoever asks, and names are as they are elsewhere."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any

import msgspec
import pytest

from ledgermq.console.actions import definitions
from ledgermq.console.actions.brokers import plan_put_account
from ledgermq.console.actions.groups import plan_create_group
from ledgermq.console.actions.plan import Plan
from ledgermq.console.actions.register import Register
from ledgermq.console.actions.topics import plan_create_topic
from ledgermq.console.audit import Audit
from ledgermq.console.cluster import Target
from ledgermq.console.shapes import actions as shapes
from ledgermq.console.shapes.definitions import Definitions, GroupDefinition, TopicDefinition
from ledgermq.http.replies import RequestError


class _View:
    """A cluster without topics and groups."""

    id = "c"

    def __init__(self, brokers: int) -> None:
        self.names = [f"b{number}" for number in range(brokers)]
        self.by_name: dict[str, Any] = {}

    async def topics(self, wanted: str = "") -> _View:
        return self

    async def groups(self, wanted: str = "") -> _View:
        return self

    async def brokers(self) -> list[str]:
        return self.names

    async def writers(self, names: list[str]) -> tuple[list[Target], list[str]]:
        return [Target(name, "127.0.0.1:1") for name in names or self.names], []


def a_call(*, is_admin: bool = True, brokers: int = 1) -> Any:
    told = {
        "cluster": _View(brokers), "account": "a", "session": "s", "peer": "127.0.0.1",
        "sees_all": is_admin, "path": {}, "asks": lambda self, kind: shapes.ItemsQuery(),
        "sees_account": lambda self, account: True,
    }  # fmt: skip
    return type("Call", (), told)()


def a_document(topics: list[str], groups: list[str]) -> shapes.ImportDefinitions:
    return shapes.ImportDefinitions(
        definitions=Definitions(
            topics=[
                TopicDefinition(
                    topic=name, brokers=[], read_queues=8, write_queues=8, perm=6, order=False,
                    message_type="",
                )
                for name in topics
            ],
            groups=[
                GroupDefinition(
                    group=name, brokers=[], consume_enabled=True, from_min_enabled=False,
                    broadcast_enabled=True, retry_queues=1, retry_max=16, notify_members=True,
                )
                for name in groups
            ],
        )
    )  # fmt: skip


@pytest.fixture(autouse=True)
def no_name_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def own_names(view: object) -> frozenset[str]:
        return frozenset()

    monkeypatch.setattr(definitions, "own_names", own_names)


def test_no_turn_is_long_of_an_import_of_twenty_thousand_names() -> None:
    """In processor time; with the collector off, whose time is that of all objects there are."""
    numbers = range(10_000)
    wanted = a_document([f"t{one}" for one in numbers], [f"g{one}" for one in numbers])
    turns_s: list[float] = []

    async def watch() -> None:
        while True:
            begun_s = time.thread_time()
            await asyncio.sleep(0)
            turns_s.append(time.thread_time() - begun_s)

    async def plan() -> None:
        call = a_call(brokers=3)
        watching = asyncio.create_task(watch())
        plan = await definitions.plan_import(call, wanted)
        await asyncio.sleep(0)
        watching.cancel()
        assert len(plan.steps) == 60_000
        begun_s = time.thread_time()
        register = Register(Audit(None), lambda: 0)
        action = register.preview(call, "import_definitions", plan)
        call.path["action"] = action.id
        assert register.look(call).counts == {"will": 60_000}
        turns_s.append(time.thread_time() - begun_s)

    gc.collect()
    gc.disable()
    try:
        asyncio.run(plan())
    finally:
        gc.enable()
    assert max(turns_s) < 0.015


def test_who_is_no_admin_imports_some_hundred_names() -> None:
    async def plan(count: int) -> Plan:
        wanted = a_document([f"t{one}" for one in range(count - 1)], ["g"])
        return await definitions.plan_import(a_call(is_admin=False), wanted)

    assert len(asyncio.run(plan(500)).steps) == 500
    with pytest.raises(RequestError, match="defines 501; who is no admin imports 500") as refused:
        asyncio.run(plan(501))
    told = (refused.value.status, refused.value.field, refused.value.value, refused.value.limit)
    assert told == (403, "definitions", 501, 500)


def test_a_change_has_so_many_items_and_no_more_are_made() -> None:
    numbers = range(10_000)
    wanted = a_document([f"t{one}" for one in numbers], [])
    with pytest.raises(RequestError, match="more than 100000 items"):
        asyncio.run(definitions.plan_import(a_call(brokers=11), wanted))


@pytest.mark.parametrize("odd", ["\x1b", "\x9b", "\x7f", "\u202e", "\u2066", "\u200b", "\u2028"])
def test_a_new_name_has_nothing_invisible_wherever_it_is_told(odd: str) -> None:
    name = f"a{odd}b"
    call = a_call()
    for asked, field in (
        (plan_create_topic(call, shapes.CreateTopic(topic=name)), "topic"),
        (plan_create_group(call, shapes.CreateGroup(group=name)), "group"),
        (definitions.plan_import(call, a_document([name], [])), "topic"),
        (definitions.plan_import(call, a_document([], [name])), "group"),
        (plan_put_account(call, shapes.PutAccount(access_key=name)), "account"),
        (plan_put_account(call, shapes.PutAccount(access_key="k", topics=[name])), "topic"),
        (plan_put_account(call, shapes.PutAccount(access_key="k", groups=[name])), "group"),
    ):
        with pytest.raises(RequestError) as refused:
            asyncio.run(asked)
        told = (refused.value.status, refused.value.field, refused.value.value)
        assert told == (400, field, name)


def test_rules_of_an_account_are_as_many_as_brokers_take_and_others_have_their_turn() -> None:
    rules = ["\u3000" * 4096] * 10_000
    turns_s: list[float] = []

    async def plan() -> None:
        async def watch() -> None:
            while True:
                begun_s = time.thread_time()
                await asyncio.sleep(0)
                turns_s.append(time.thread_time() - begun_s)

        watching = asyncio.create_task(watch())
        odd = shapes.PutAccount(access_key="k", topics=rules, groups=["\u202e"])
        with pytest.raises(RequestError):
            await plan_put_account(a_call(), odd)
        watching.cancel()

    asyncio.run(plan())
    assert max(turns_s) < 0.015
    for count, is_allowed in ((10_000, True), (10_001, False)):
        body = {"kind": "put_account", "access_key": "k", "groups": ["g=SUB"] * count}
        if is_allowed:
            msgspec.convert(body, shapes.Wanted)
        else:
            with pytest.raises(msgspec.ValidationError, match="length <= 10000"):
                msgspec.convert(body, shapes.Wanted)


def test_a_name_that_is_there_is_imported_as_it_is() -> None:
    call = a_call()
    name = "old\u200b"
    call.cluster.by_name[name] = {}
    plan = asyncio.run(definitions.plan_import(call, a_document([name], [])))
    assert [step.target for step in plan.steps] == [f"b0: topic {name}"]
