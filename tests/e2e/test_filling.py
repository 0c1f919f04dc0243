"""Somebody fills a broker: with groups, topics, offsets and locks, as fast as one address can.

Each attempt ends at a limit that is told with its key, what was made before stays usable, and
who sends and reads meanwhile does not notice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.protocol import lenient_json
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from tests.e2e.bad_frames import topic_fields
from tests.e2e.wire_client import WireClient
from tests.processes import LiveProgram, broker

TOPIC = "Used"
BUSY = int(ResponseCode.SYSTEM_BUSY)
SETTINGS = (
    "maxNewGroupsAtOnce=300", "maxNewGroupsPerAddress=1", "maxNewTopicsAtOnce=50",
    "maxNewTopicsPerAddress=1", "maxHeartbeatGroups=100",
)  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProgram]:
    folder: Path = tmp_path_factory.mktemp("filling")
    with broker(folder, *SETTINGS) as running:
        running.wait_until_serving()
        with WireClient(running.address) as client:
            code = RequestCode.UPDATE_AND_CREATE_TOPIC.value
            assert client.ask(code, topic_fields(TOPIC)).code == 0
        yield running
        assert running.stop() == 0
    assert "Traceback" not in running.log_text()


def ask(client: WireClient, code: RequestCode, body: Any = None, **fields: Any) -> RemotingCommand:
    told = {name: str(value) for name, value in fields.items()} or None
    return client.ask(code.value, told, b"" if body is None else json.dumps(body).encode())


def table(client: WireClient, code: RequestCode, name: str) -> dict[str, Any]:
    found: dict[str, Any] = lenient_json.read(ask(client, code).body)[name]
    return found


def groups(client: WireClient) -> dict[str, Any]:
    code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    return table(client, code, "subscriptionGroupTable")


def topics(client: WireClient) -> dict[str, Any]:
    return table(client, RequestCode.GET_ALL_TOPIC_CONFIG, "topicConfigTable")


def beat(client: WireClient, first: int, count: int) -> RemotingCommand:
    wanted = [{"topic": TOPIC, "subString": "*", "subVersion": 1}]
    consumers = [
        {"groupName": f"flood-{number}", "subscriptionDataSet": wanted}
        for number in range(first, first + count)
    ]
    body = {"clientID": f"flood@{first}", "consumerDataSet": consumers}
    return ask(client, RequestCode.HEART_BEAT, body)


def assert_in_use(program: LiveProgram) -> None:
    """Who is there goes on: sends, reads, commits, and is in the group that it had."""
    with WireClient(program.address) as client:
        assert client.send(TOPIC, 0, b"still here").code == 0
        names = {"consumerGroup": "flood-0", "topic": TOPIC, "queueId": 0}
        assert ask(client, RequestCode.UPDATE_CONSUMER_OFFSET, **names, commitOffset=1).code == 0


def test_groups_of_heart_beats(program: LiveProgram) -> None:
    with WireClient(program.address) as client:
        before, begun_s = len(groups(client)), time.monotonic()
        answer = beat(client, 0, 20_000)
        assert answer.code == 1 and "(key maxHeartbeatBytes)" in (answer.remark or "")
        answer = beat(client, 0, 101)
        assert answer.code == 1 and "names 101 groups" in (answer.remark or "")
        assert len(groups(client)) == before
        assert beat(client, 0, 100).code == 0
        # The same again costs nothing; other groups do not fit into this connection.
        assert beat(client, 0, 100).code == 0
        answer = beat(client, 100, 100)
        assert answer.code == BUSY and "is in 100 groups" in (answer.remark or "")
        # Closed ones make room for their members, and the groups stay.
        remark = ""
        for first in range(200, 2000, 100):
            with WireClient(program.address) as other:
                answer = beat(other, first, 100)
                remark = answer.remark or remark
        assert (
            "127.0.0.1 creates more than 1 groups a second (key maxNewGroupsPerAddress)" in remark
        )
        # One more in each second.
        more = int(time.monotonic() - begun_s) + 1
        assert before + 300 <= len(groups(client)) <= before + 300 + more
    assert_in_use(program)


def test_groups_of_commits(program: LiveProgram) -> None:
    with WireClient(program.address) as client:
        before = len(groups(client))
        codes = []
        for number in range(400):
            names = {"consumerGroup": f"commit-{number}", "topic": TOPIC, "queueId": 0}
            answer = ask(client, RequestCode.UPDATE_CONSUMER_OFFSET, **names, commitOffset=1)
            codes.append(answer.code)
        assert set(codes) == {0, BUSY} or set(codes) == {BUSY}
        assert len(groups(client)) == before + codes.count(0)
    assert_in_use(program)


def test_topics_of_sends_and_tools(program: LiveProgram) -> None:
    with WireClient(program.address) as client:
        before = len(topics(client))
        sent = [client.send(f"flood-{number}", 0, b"x") for number in range(150)]
        made = [
            client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC.value, topic_fields(f"tool-{number}"))
            for number in range(150)
        ]
        assert {answer.code for answer in sent + made} == {0, BUSY}
        assert "topics a second (key maxNewTopicsPerAddress)" in (made[-1].remark or "")
        assert len(topics(client)) == before + sum(answer.code == 0 for answer in sent + made)
        # One that is there is changed, as ever.
        code = RequestCode.UPDATE_AND_CREATE_TOPIC.value
        assert client.ask(code, topic_fields(TOPIC, readQueueNums="3")).code == 0
    assert_in_use(program)


def test_offsets_of_topics_that_nobody_has(program: LiveProgram) -> None:
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    with WireClient(program.address) as client:
        for number in range(200):
            names = {"consumerGroup": "flood-0", "topic": f"gone-{number}", "queueId": 0}
            answer = ask(client, code, **names, commitOffset=1)
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        names = {"consumerGroup": "flood-0", "topic": TOPIC, "queueId": 60_000}
        assert "allowed are smaller ids" in (
            ask(client, code, **names, commitOffset=1).remark or ""
        )
        offsets = table(client, RequestCode.GET_ALL_CONSUMER_OFFSET, "offsetTable")
    assert all(key.startswith(f"{TOPIC}@") for key in offsets)


def test_locks(program: LiveProgram) -> None:
    def lock(client: WireClient, count: int, name: str = "broker-a") -> RemotingCommand:
        queues = [{"topic": TOPIC, "brokerName": name, "queueId": n} for n in range(count)]
        body = {"consumerGroup": "flood-0", "clientId": "c", "mqSet": queues}
        return ask(client, RequestCode.LOCK_BATCH_MQ, body)

    with WireClient(program.address) as client:
        for count, word in ((20_000, "(key maxLockQueues)"), (1001, "has 1001 queues")):
            answer = lock(client, count)
            assert answer.code == 1 and word in (answer.remark or ""), answer.remark
        fields = topic_fields(TOPIC, readQueueNums="900")
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC.value, fields).code == 0
        # Those that are there.
        for name in ("broker-a", "b"):
            assert len(json.loads(lock(client, 1000, name).body)["lockOKMQSet"]) == 900
    assert_in_use(program)
