"""What clients and tools of RocketMQ 5.x ask of a broker beyond those of 4.9."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from tests.e2e.live_program import LiveProgram, broker
from tests.e2e.wire_client import WireClient


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProgram]:
    with broker(tmp_path_factory.mktemp("broker"), "flushDiskType=ASYNC_FLUSH") as running:
        yield running.wait_until_serving()


@pytest.fixture
def client(program: LiveProgram) -> Iterator[WireClient]:
    with WireClient(program.address) as connected:
        yield connected


def ask(client: WireClient, code: RequestCode, body: bytes = b"", **fields: Any) -> RemotingCommand:
    return client.ask(code.value, {key: str(value) for key, value in fields.items()}, body)


def put_topic(client: WireClient, topic: str, **changes: Any) -> RemotingCommand:
    """What updateTopic does; `changes` are further fields."""
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2,
        "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false", **changes,
    }  # fmt: skip
    return ask(client, RequestCode.UPDATE_AND_CREATE_TOPIC, **fields)


def attributes_of(client: WireClient, topic: str) -> object:
    """The attributes that 351 tells, which 21 has to tell, too; none as 4.9 writes them."""
    shown = json.loads(ask(client, RequestCode.GET_TOPIC_CONFIG, topic=topic).body)["attributes"]
    table = json.loads(ask(client, RequestCode.GET_ALL_TOPIC_CONFIG).body)["topicConfigTable"]
    assert table[topic].get("attributes", {}) == shown
    return shown


def test_attributes_of_a_topic_are_changed_one_by_one(client: WireClient) -> None:
    text = "+message.type=FIFO,+queue.type=SimpleCQ"
    assert put_topic(client, "Kinds", attributes=text).code == 0
    assert attributes_of(client, "Kinds") == {"message.type": "FIFO", "queue.type": "SimpleCQ"}
    # A tool of 4.9 names none, and takes none away.
    assert put_topic(client, "Kinds", perm=4).code == 0
    assert put_topic(client, "Kinds", attributes="+message.type=DELAY").code == 0
    assert attributes_of(client, "Kinds") == {"message.type": "DELAY", "queue.type": "SimpleCQ"}
    assert put_topic(client, "Kinds", attributes="-message.type").code == 0
    assert attributes_of(client, "Kinds") == {"queue.type": "SimpleCQ"}
    for text, reason in (
        ("+color=red", "unsupported key: color"),
        ("-message.type", "nonexistent"),
    ):
        refused = put_topic(client, "Kinds", attributes=text)
        assert refused.code == 1 and reason in (refused.remark or "")
    mixed = put_topic(client, "Mixed", attributes="+message.type=MIXED")
    assert mixed.code == ResponseCode.INVALID_PARAMETER
    assert ask(client, RequestCode.GET_TOPIC_CONFIG, topic="Mixed").code == 17


def test_topic_with_a_type_takes_no_other_messages(client: WireClient) -> None:
    assert put_topic(client, "Fifo", attributes="+message.type=FIFO").code == 0
    refused = client.send("Fifo", 0, b"normal")
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert "message.type=FIFO" in (refused.remark or "")
    assert client.send("Fifo", 0, b"ordered", properties="__SHARDINGKEY\x01k").code == 0
    assert put_topic(client, "Fifo", attributes="-message.type").code == 0
    assert client.send("Fifo", 0, b"normal").code == 0
    assert [record.body for record in client.read_queue("Fifo", 0)] == [b"ordered", b"normal"]


def test_attributes_survive_a_kill_and_are_in_the_file(tmp_path: Path) -> None:
    with broker(tmp_path) as program:
        with WireClient(program.wait_until_serving().address) as client:
            assert put_topic(client, "Kept", attributes="+message.type=FIFO").code == 0
        program.kill()
    with broker(tmp_path) as program:
        with WireClient(program.wait_until_serving().address) as client:
            assert attributes_of(client, "Kept") == {"message.type": "FIFO"}
            assert client.send("Kept", 0, b"normal").code == ResponseCode.MESSAGE_ILLEGAL
        assert program.stop() == 0
    [file] = tmp_path.rglob("config/topics.json")
    table = json.loads(file.read_text())["topicConfigTable"]
    assert table["Kept"]["attributes"] == {"message.type": "FIFO"}
    assert "attributes" not in table["TBW102"]


GROUP = {
    "brokerId": 0, "consumeBroadcastEnable": True, "consumeEnable": True,
    "consumeFromMinEnable": True, "groupName": "kept", "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 16, "retryQueueNums": 1, "whichBrokerWhenConsumeSlowly": 1,
}  # fmt: skip
OF_5_X = {
    "consumeMessageOrderly": True,
    "consumeTimeoutMinute": 30,
    "groupRetryPolicy": {
        "exponentialRetryPolicy": {"initial": 100, "max": 2000, "multiplier": 3},
        "type": "EXPONENTIAL",
    },
    "groupSysFlag": 4,
    "subscriptionDataSet": [
        {"expression": "*", "expressionType": "TAG", "topic": "T", "version": 7}
    ],
}


def put_group(client: WireClient, **changes: Any) -> RemotingCommand:
    body = json.dumps({**GROUP, **changes}).encode()
    return ask(client, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)


def group_of(client: WireClient, name: str) -> object:
    """What 352 tells of a group."""
    answer = ask(client, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group=name)
    return json.loads(answer.body)


def test_groups_keep_what_5_x_says_of_them_over_a_kill(tmp_path: Path) -> None:
    with broker(tmp_path) as program:
        with WireClient(program.wait_until_serving().address) as client:
            assert put_group(client, **OF_5_X, attributes={}).code == 0
            assert group_of(client, "kept") == {**GROUP, **OF_5_X, "attributes": {}}
            refused = put_group(client, attributes={"+color": "red"})
            assert refused.code == 1 and "unsupported key: +color" in (refused.remark or "")
            policy = {"customizedRetryPolicy": {"next": [2**60] * 4000}}
            refused = put_group(client, groupRetryPolicy=policy)
            assert refused.code == 1 and "allowed are 65536" in (refused.remark or "")
            # As a tool of 4.9 makes one: what holds is shown, and no more than that is written.
            assert put_group(client, groupName="usual").code == 0
            defaults = {
                "attributes": {}, "consumeMessageOrderly": False, "consumeTimeoutMinute": 15,
                "groupRetryPolicy": {"type": "CUSTOMIZED"}, "groupSysFlag": 0,
            }  # fmt: skip
            assert group_of(client, "usual") == {**GROUP, "groupName": "usual", **defaults}
        program.kill()
    with broker(tmp_path) as program:
        with WireClient(program.wait_until_serving().address) as client:
            assert group_of(client, "kept") == {**GROUP, **OF_5_X, "attributes": {}}
            listed = json.loads(ask(client, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)
            table = listed["subscriptionGroupTable"]
            assert table["kept"] == {**GROUP, **OF_5_X}
            assert table["usual"] == {**GROUP, "groupName": "usual"}
        assert program.stop() == 0
    [file] = tmp_path.rglob("config/subscriptionGroup.json")
    assert json.loads(file.read_text())["subscriptionGroupTable"]["kept"] == {**GROUP, **OF_5_X}


def test_message_with_a_timer_is_refused_and_not_delivered_at_once(client: WireClient) -> None:
    assert client.send("Timed", 0, b"before").code == 0
    for name in ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"):
        answer = client.send("Timed", 0, b"body", properties=f"{name}\x0160")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert name in (answer.remark or "") and "no timers" in (answer.remark or "")
    assert [record.body for record in client.read_queue("Timed", 0)] == [b"before"]
