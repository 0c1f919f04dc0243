"""Answers of brokers, any of which may be a stranger's: none is read without end."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ledgermq.client.selection import queue_of_key
from ledgermq.console.accounts import read_accounts
from ledgermq.console.actions.plan import Plan, Step
from ledgermq.console.answers import read_queues
from ledgermq.console.api.clients import _read_producers
from ledgermq.console.cluster import ClusterView, Target, _read_groups
from ledgermq.console.figures import read_figures
from ledgermq.console.group_members import _read_members
from ledgermq.console.looks import read_settings
from ledgermq.console.messages import decode_at
from ledgermq.console.sending import _Queues
from ledgermq.console.tally import Tally
from ledgermq.console.topic_tables import read_topic_table
from ledgermq.protocol.bodies import MessageQueue, TopicStatsTable
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.record import encode_record


def an_answer(body: bytes) -> RemotingCommand:
    return cast(RemotingCommand, SimpleNamespace(body=body))


def _objects(member: str, count: int, of_each: str = "") -> bytes:
    items = ",".join(f'"{number}":{{{of_each}}}' for number in range(count))
    return f'{{"{member}":{{{items}}}}}'.encode()


READS: dict[str, tuple[Callable[[bytes], Any], Callable[[int], bytes]]] = {
    "topics": (read_topic_table, lambda count: _objects("topicConfigTable", count)),
    "groups": (
        lambda body: _read_groups(an_answer(body)),
        lambda count: _objects("subscriptionGroupTable", count, '"groupName":"g"'),
    ),
    "accounts": (
        read_accounts,
        lambda count: b'{"plainAccessConfigs":[' + b",".join([b"{}"] * count) + b"]}",
    ),
    "producers": (
        lambda body: _read_producers(an_answer(body)),
        lambda count: b'{"data":{"g":[' + b",".join([b"{}"] * count) + b"]}}",
    ),
    "members": (
        lambda body: _read_members(an_answer(body)),
        lambda count: (
            b'{"connectionSet":['
            + b",".join(
                [b'{"clientId":"c","clientAddr":"a","language":"JAVA","version":1}'] * count
            )
            + b"]}"
        ),
    ),
    "queues": (
        lambda body: read_queues(body, TopicStatsTable),
        lambda count: (
            b'{"offsetTable":{'
            + b",".join(
                b'{"brokerName":"b","queueId":%d,"topic":"T"}:{"maxOffset":1,"minOffset":0}' % one
                for one in range(count // 10)
            )
            + b"}}"
        ),
    ),
    "figures": (
        lambda body: read_figures(an_answer(body)),
        lambda count: json.dumps({"table": {"accessAlarm": "x" * 8 * count}}).encode(),
    ),
    "settings": (
        lambda body: read_settings(an_answer(body)),
        lambda count: b"a=b\n" * count,
    ),
}


@pytest.mark.parametrize("kind", READS)
def test_an_answer_with_far_too_much_is_refused_before_its_values_are_made(kind: str) -> None:
    read, make = READS[kind]
    read(make(1000))
    body = make(1_000_000)
    begun_s = time.thread_time()
    tracemalloc.start()
    with pytest.raises(RemoteProtocolError):
        read(body)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 100_000
    assert time.thread_time() - begun_s < 0.2


@pytest.mark.parametrize("kind", ["topics", "accounts", "producers", "figures"])
def test_an_answer_in_fastjsons_dialect_is_small(kind: str) -> None:
    read, make = READS[kind]
    with pytest.raises(RemoteProtocolError, match="4096"):
        # A key without quotation marks is none of the standard.
        read(make(3000).replace(b"{", b"{a:1,", 1))


@pytest.mark.parametrize("count", [-1, 65_537, 2**31 - 1])
@pytest.mark.parametrize("member", ["readQueueNums", "writeQueueNums"])
def test_a_topic_has_so_many_queues(member: str, count: int) -> None:
    def body(count: int) -> bytes:
        return json.dumps({"topicConfigTable": {"A": {member: count}}}).encode()

    assert len(read_topic_table(body(65_536))) == 1
    with pytest.raises(RemoteProtocolError, match="queues of topic A"):
        read_topic_table(body(count))


def test_a_message_goes_where_it_went_among_all_queues() -> None:
    counts = {"a": 3, "b": 1, "c": 7}
    queues = _Queues("T", counts)
    all_of_them = [MessageQueue("T", name, one) for name in counts for one in range(counts[name])]
    assert list(queues) == all_of_them and len(queues) == 11
    for number in range(100):
        assert queue_of_key(queues, str(number)) == queue_of_key(all_of_them, str(number))


@pytest.mark.parametrize(("count", "is_read"), [(1024, True), (1025, False), (180_000, False)])
def test_an_answer_to_a_pull_has_so_many_messages(count: int, is_read: bool) -> None:
    host = (b"\x7f\x00\x00\x01", 1)
    record = encode_record(b"T", 0, 0, 5, 0, 0, 1, host, 1, host, 0, 0, b"", b"")
    begun_s = time.thread_time()
    if is_read:
        assert len(decode_at(record * count, "b")) == count
    else:
        with pytest.raises(RemoteProtocolError, match="messages of an answer"):
            decode_at(record * count, "b")
    assert time.thread_time() - begun_s < 0.1


def test_why_an_item_failed_is_cut_where_it_is_long() -> None:
    step = Step(target="t")
    plan = Plan(summary="s", object="o", steps=[step])
    size = plan.size()
    plan.told(step, "failed", "x" * 1_000_000)
    assert (step.reason, plan.size()) == ("x" * 1024, size + 1024)
    plan.told(step, "done")
    assert (step.reason, plan.size(), dict(+plan.counts)) == ("", size, {"done": 1})


@pytest.mark.parametrize(("size", "is_at_once"), [(8192, True), (8193, False)])
def test_a_large_answer_is_read_in_a_thread(size: int, is_at_once: bool) -> None:
    async def call(*_: object) -> RemotingCommand:
        return an_answer(b"x" * size)

    async def ask() -> int:
        view = ClusterView("c", "c", cast(Any, SimpleNamespace(call=call)))
        targets = [Target("b", "127.0.0.1:1")]
        ((_, reader),) = await view.each(Tally(), targets, 21, read=lambda _: threading.get_ident())
        return reader

    assert (asyncio.run(ask()) == threading.get_ident()) == is_at_once
