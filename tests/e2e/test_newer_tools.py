"""What clients and tools of RocketMQ 5.x ask of a broker beyond those of 4.9."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.protocol.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    MessageQueue,
    ResetOffsetBody,
)
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from tests.e2e.wire_client import WireClient
from tests.processes import LiveProgram, broker


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


def stand_of(client: WireClient, group: str, topic: str) -> dict[int, tuple[int, int]]:
    """What 208 tells: committed offset, and offset behind the last pull, by queue."""
    answer = ask(client, RequestCode.GET_CONSUME_STATS, consumerGroup=group, topic=topic)
    table = ConsumeStats.decode(answer.body).offset_table
    assert all(one.pull_offset is not None for one in table.values())
    return {
        queue.queue_id: (one.consumer_offset, one.pull_offset or 0) for queue, one in table.items()
    }


def commit(client: WireClient, group: str, topic: str, queue_id: int, offset: int) -> None:
    answer = ask(
        client, RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup=group, topic=topic,
        queueId=queue_id, commitOffset=offset,
    )  # fmt: skip
    assert answer.code == 0


def test_messages_in_flight_are_those_behind_the_last_pull(client: WireClient) -> None:
    assert put_topic(client, "Flight").code == 0
    for number in range(6):
        assert client.send("Flight", 0, b"%d" % number).code == 0
    group = "wire-consumers"
    commit(client, group, "Flight", 0, 2)
    assert stand_of(client, group, "Flight") == {0: (2, 2), 1: (0, 0)}
    assert len(client.read_queue("Flight", 0)) == 6
    assert stand_of(client, group, "Flight") == {0: (2, 6), 1: (0, 0)}
    commit(client, group, "Flight", 0, 6)
    assert stand_of(client, group, "Flight") == {0: (6, 6), 1: (0, 0)}
    listed = ask(client, RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false")
    [[stats]] = [
        entry[group]
        for entry in ConsumeStatsList.decode(listed.body).consume_stats_list
        if entry.get(group)
    ]
    assert {one.pull_offset for one in stats.offset_table.values()} == {0, 6}


def reset(client: WireClient, group: str, **fields: Any) -> RemotingCommand:
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    return ask(client, code, topic="Reset", group=group, isForce="true", **fields)


def test_one_queue_is_reset_and_the_others_stay(client: WireClient, program: LiveProgram) -> None:
    assert put_topic(client, "Reset").code == 0
    for number in range(6):
        assert client.send("Reset", number % 2, b"%d" % number).code == 0
    for queue_id in range(2):
        commit(client, "resetters", "Reset", queue_id, 3)
    # With nobody online it is stored; with a member it is told as well, that queue alone.
    answer = reset(client, "resetters", timestamp=0, queueId=1, offset=2)
    assert (answer.code, answer.remark) == (0, None)
    assert stand_of(client, "resetters", "Reset") == {0: (3, 3), 1: (2, 2)}
    with WireClient(program.address) as consumer:
        member = {
            "groupName": "resetters", "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [{"topic": "Reset", "subString": "*", "subVersion": 1}],
        }  # fmt: skip
        heart_beat = {"clientID": "c1", "consumerDataSet": [member], "producerDataSet": []}
        consumer.ask(RequestCode.HEART_BEAT.value, None, json.dumps(heart_beat).encode())
        answer = reset(client, "resetters", timestamp=0, queueId=1, offset=1)
        wanted = {MessageQueue("Reset", "broker-a", 1): 1}
        assert ResetOffsetBody.decode(answer.body).offset_table == wanted
        notice = consumer.read()
        while notice is not None and notice.code != RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            notice = consumer.read()
        assert notice is not None
        assert ResetOffsetBody.decode(notice.body).offset_table == wanted
    assert stand_of(client, "resetters", "Reset") == {0: (3, 3), 1: (1, 1)}
    # Without an offset the time counts: the beginning, or the end.
    for timestamp, offset in ((0, 0), (-1, 3)):
        assert reset(client, "resetters", timestamp=timestamp, queueId=0).code == 0
        assert stand_of(client, "resetters", "Reset") == {0: (offset, offset), 1: (1, 1)}


def test_reset_of_one_queue_is_refused_with_its_reason(client: WireClient) -> None:
    assert put_topic(client, "Reset").code == 0
    assert put_group(client, groupName="resetters").code == 0
    end = len(client.read_queue("Reset", 0))
    for group, fields, code, reason in (
        ("resetters", {"queueId": 0, "offset": end + 1}, 1, f"{end + 1} not in .*\\[0-{end}\\]"),
        ("resetters", {"queueId": 2, "offset": 0}, 1, "queueId is 2, .* 2 queues"),
        ("nobody", {"queueId": 0, "offset": 0}, 26, "nobody does not exist"),
    ):
        answer = reset(client, group, timestamp=0, **fields)
        assert answer.code == code and re.search(reason, answer.remark or ""), answer.remark


def test_message_with_a_timer_is_refused_and_not_delivered_at_once(client: WireClient) -> None:
    assert client.send("Timed", 0, b"before").code == 0
    for name in ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"):
        answer = client.send("Timed", 0, b"body", properties=f"{name}\x0160")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert name in (answer.remark or "") and "no timers" in (answer.remark or "")
    assert [record.body for record in client.read_queue("Timed", 0)] == [b"before"]
