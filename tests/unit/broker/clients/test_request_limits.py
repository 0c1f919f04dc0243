"""Heart beats and requests for locks that are too large: refused before anything of them counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from ledgermq.broker.clients.heartbeat import ClientProcessor
from ledgermq.broker.clients.request_limits import with_limits
from ledgermq.broker.dispatch import SEND_CODES
from ledgermq.protocol.bodies import LockBatchResponseBody
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.group_settings import GroupSettings
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state.errors import (
    AccessDeniedError,
    IllegalMessageError,
    InvalidRequestError,
    SystemBusyError,
    TopicNotFoundError,
)
from ledgermq.state.topics import TopicConfig
from tests.unit.broker.guarded import guarded_table
from tests.unit.broker.parts import ListConnection, Parts
from tests.unit.protocol.wires import Recorder

_CODE = RequestCode


class Bench:
    """A leader that clients tell of themselves."""

    def __init__(self, **settings: str) -> None:
        parts = self.parts = Parts(**settings).lead()
        parts.state.put_topic(TopicConfig("T", 4, 4))
        processor = ClientProcessor(
            parts.config, parts.leadership, parts.state, parts.clients,
            lambda: parts.now_ms, lambda: float(parts.now_ms), parts.turn.soon,
        )  # fmt: skip
        table = {
            int(_CODE.HEART_BEAT): processor.heart_beat,
            int(_CODE.LOCK_BATCH_MQ): processor.lock,
            int(_CODE.UNLOCK_BATCH_MQ): processor.unlock,
        }
        self._processors = with_limits(table, parts.config)
        self.connection = CommandProtocol(Clock(), Recorder())
        self.connection.context = (b"\x0a\x00\x00\x09", 5555)
        self.connection.makeConnection(StringTransport())

    def ask(self, code: int, body: Any) -> Any:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._processors[code](self.connection, RemotingCommand(code=code, body=content))

    def beat(self, *groups: str, expression: str = "*", producers: int = 0) -> Any:
        wanted = {"topic": "T", "subString": expression, "subVersion": 1}
        consumers = [{"groupName": group, "subscriptionDataSet": [wanted]} for group in groups]
        named = [{"groupName": f"p{number}"} for number in range(producers)]
        body = {"clientID": "c", "consumerDataSet": consumers, "producerDataSet": named}
        return self.ask(_CODE.HEART_BEAT, body)

    def lock(self, *queues: tuple[str, int], code: int = _CODE.LOCK_BATCH_MQ) -> list[int]:
        rows = [{"topic": topic, "brokerName": "b", "queueId": n} for topic, n in queues]
        body = {"consumerGroup": "g", "clientId": "c", "mqSet": rows}
        answers: list[Any] = []
        self.ask(code, body).addBoth(answers.append)
        self.parts.turn.end()
        if not answers[0].body:
            return []
        held = LockBatchResponseBody.decode(answers[0].body).lock_ok_mq_set
        return sorted(queue.queue_id for queue in held)


def test_a_heart_beat_of_many_groups_makes_none_of_them() -> None:
    bench = Bench(maxHeartbeatGroups="3")
    before = len(bench.parts.state.topics), len(bench.parts.state.groups)
    with pytest.raises(InvalidRequestError, match=r"names 4 groups, allowed are 3 .*key max"):
        bench.beat("a", "b", "c", producers=1)
    assert (len(bench.parts.state.topics), len(bench.parts.state.groups)) == before
    assert bench.parts.clients.memberships_count == 0
    bench.beat("a", "b", producers=1)
    assert bench.parts.clients.memberships_count == 3


def test_a_heart_beat_with_one_bad_name_makes_none_of_its_groups() -> None:
    bench = Bench()
    with pytest.raises(InvalidRequestError, match="illegal characters"):
        bench.beat("a", "no name")
    assert bench.parts.state.groups.find("a") is None


def test_a_large_body_is_not_read() -> None:
    bench = Bench(maxHeartbeatBytes="2000", maxLockQueues="2")
    for code, allowed in (
        (_CODE.HEART_BEAT, r"2000 \(key maxHeartbeatBytes\)"),
        (_CODE.LOCK_BATCH_MQ, r"2048 \(key maxLockQueues\)"),
        (_CODE.UNLOCK_BATCH_MQ, r"2048 \(key maxLockQueues\)"),
    ):
        # No JSON at all: whoever reads it says so.
        with pytest.raises(InvalidRequestError, match=f"has 3000 bytes, allowed are {allowed}"):
            bench.ask(code, b"{" * 3000)


def test_a_send_is_not_looked_into_that_is_larger_than_a_message_may_be() -> None:
    taken: list[RemotingCommand] = []

    def take(connection: Any, command: RemotingCommand) -> None:
        taken.append(command)

    config = Parts(maxMessageSize="1024").config
    processors = with_limits(dict.fromkeys(map(int, SEND_CODES), take), config)
    assert len(processors) == 5
    for code, processor in processors.items():
        processor(Any, RemotingCommand(code=code, body=bytes(1024)))  # type: ignore[arg-type]
        with pytest.raises(IllegalMessageError, match=r"1025 bytes, allowed are 1024 \(key max"):
            processor(Any, RemotingCommand(code=code, body=bytes(1025)))  # type: ignore[arg-type]
    assert len(taken) == 5


# Who asks for something says it in the header; these say it in the body.
_WITH_BODY = {
    _CODE.HEART_BEAT, _CODE.CHECK_CLIENT_CONFIG, _CODE.LOCK_BATCH_MQ, _CODE.UNLOCK_BATCH_MQ,
    _CODE.UPDATE_BROKER_CONFIG, _CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
}  # fmt: skip


@pytest.mark.parametrize("code", sorted(set(map(int, _CODE)) - SEND_CODES - _WITH_BODY))
def test_a_request_without_a_body_brings_none(code: int) -> None:
    """Megabytes of them waited for a member that did not answer, or for a new message."""
    taken: list[RemotingCommand] = []

    def take(connection: Any, command: RemotingCommand) -> None:
        taken.append(command)

    processors = with_limits({code: take}, Parts().config)
    nobody: Any = None
    processors[code](nobody, RemotingCommand(code=code, body=b"{}"))
    with pytest.raises(InvalidRequestError, match="has 16777216 bytes, allowed are 4096$"):
        processors[code](nobody, RemotingCommand(code=code, body=bytes(16 << 20)))
    assert len(taken) == 1


@pytest.mark.parametrize("code", sorted(_WITH_BODY))
def test_every_body_has_a_limit(code: int) -> None:
    processors = with_limits({code: lambda *_: None}, Parts().config)
    nobody: Any = None
    processors[code](nobody, RemotingCommand(code=code, body=bytes(60_000)))
    with pytest.raises(InvalidRequestError, match="has 16777216 bytes, allowed are"):
        processors[code](nobody, RemotingCommand(code=code, body=bytes(16 << 20)))


def test_group_with_the_longest_settings_of_5x_is_not_too_large(tmp_path: Path) -> None:
    wanted = [
        {"topic": f"T{number:020}", "expressionType": None, "expression": None, "version": 1}
        for number in range(1424)
    ]
    body = json.dumps({"groupName": "g", "subscriptionDataSet": wanted}).encode()
    # Without what is null they are as long as they may be.
    assert len(body) > 2 * 65_000 and GroupSettings.decode(body).json_bytes > 65_500
    guarded = guarded_table(tmp_path, {"globalWhiteRemoteAddresses": ["*"], "accounts": []})
    connection: Any = ListConnection()
    code = int(_CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    # It waits for those who have to store it.
    assert guarded.table[code](connection, RemotingCommand(code=code, body=body)) is not None


def test_a_body_is_too_large_before_its_signature_is_looked_at(tmp_path: Path) -> None:
    """Of all requests that there are."""
    table = guarded_table(tmp_path, {"accounts": []}).table
    assert len(table) > 60
    connection: Any = ListConnection()
    for code, processor in table.items():
        with pytest.raises(AccessDeniedError, match="No accessKey"):
            processor(connection, RemotingCommand(code=code, body=b"{}"))
        reason = f"the body of a request {code} has 16777216 bytes, allowed are "
        with pytest.raises((InvalidRequestError, IllegalMessageError), match=reason):
            processor(connection, RemotingCommand(code=code, body=bytes(16 << 20)))
    code = int(_CODE.QUERY_MESSAGE)
    reason = "the body of a request 12 has 1048576 bytes, allowed are 4096$"
    with pytest.raises(InvalidRequestError, match=reason):
        table[code](connection, RemotingCommand(code=code, body=bytes(1 << 20)))


def test_an_expression_has_the_limits_that_it_has_in_a_pull() -> None:
    bench = Bench()
    for text, reason in (
        ("A" * 16_385, "has 16385 characters, allowed are 16384"),
        ("||".join(map(str, range(1001))), "has 1001 tags, allowed are 1000"),
    ):
        with pytest.raises(InvalidRequestError, match=reason):
            bench.beat("a", expression=text)
    assert bench.parts.state.groups.find("a") is None
    bench.beat("a", expression="A" * 16_384)
    assert bench.parts.state.groups.find("a") is not None


def subscriptions(count: int, **members: Any) -> list[dict[str, Any]]:
    return [{"topic": f"T{number}", "subVersion": 1, **members} for number in range(count)]


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ([subscriptions(1001)], "group g0 subscribes to 1001 topics, allowed are 1000"),
        (
            [subscriptions(1000)] * 5 + [subscriptions(1)],
            "has 5001 subscriptions, allowed",
        ),
        ([subscriptions(1, tagsSet=list(map(str, range(1001))))], "1001 entries in tagsSet"),
        ([subscriptions(1, codeSet=list(range(1001)))], "1001 entries in codeSet"),
    ],
)
def test_a_heart_beat_with_too_many_wishes_makes_none_of_its_groups(
    wanted: list[list[dict[str, Any]]], reason: str
) -> None:
    bench = Bench(maxHeartbeatBytes="1000000")
    consumers = [
        {"groupName": f"g{number}", "subscriptionDataSet": one} for number, one in enumerate(wanted)
    ]
    with pytest.raises(InvalidRequestError, match=reason):
        bench.ask(_CODE.HEART_BEAT, {"clientID": "c", "consumerDataSet": consumers})
    assert bench.parts.clients.memberships_count == 0


def test_a_request_locks_so_many_queues_and_none_when_there_are_more() -> None:
    bench = Bench(maxLockQueues="2")
    for code in (_CODE.LOCK_BATCH_MQ, _CODE.UNLOCK_BATCH_MQ):
        with pytest.raises(InvalidRequestError, match=r"has 3 queues, allowed are 2 .*key maxLo"):
            bench.lock(("T", 0), ("T", 1), ("T", 2), code=code)
        with pytest.raises(InvalidRequestError, match="queueId is 65536, allowed are 0 to 65535"):
            bench.lock(("T", 65_536), code=code)
    assert len(bench.parts.state.locks) == 0
    assert bench.lock(("T", 0), ("T", 1)) == [0, 1]
    bench.lock(("T", 0), code=_CODE.UNLOCK_BATCH_MQ)
    assert len(bench.parts.state.locks) == 1


def test_nobody_gets_the_lock_of_a_topic_that_is_not_there() -> None:
    bench = Bench()
    assert bench.lock(("T", 1), ("gone", 2)) == [1]
    assert len(bench.parts.state.locks) == 1
    with pytest.raises(TopicNotFoundError, match=r"no lock: topic\[gone\] not exist"):
        bench.lock(("gone", 2))


def test_groups_that_may_be_made_are_made_when_another_one_may_not() -> None:
    bench = Bench(maxNewGroupsPerAddress="1", maxNewGroupsAtOnce="2")
    with pytest.raises(SystemBusyError, match=r"group\[c\] not created: .* \(key maxNewGroupsPer"):
        bench.beat("a", "b", "c", "d", producers=1)
    state, clients = bench.parts.state, bench.parts.clients
    assert state.groups.find("a") is not None and state.topics.find("%RETRY%b") is not None
    assert state.groups.find("c") is None and clients.memberships_count == 3
    # A second later there is room for one; those that are there cost nothing.
    bench.parts.now_ms += 1000
    with pytest.raises(SystemBusyError, match=r"group\[d\]"):
        bench.beat("a", "b", "c", "d")
    assert state.groups.find("c") is not None
