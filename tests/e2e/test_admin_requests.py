"""What operators' tools ask of a broker process: statistics, offsets, consumers behind it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ledgermq.protocol import lenient_json
from ledgermq.protocol.bodies import ConsumeStatsList, MessageQueue, ResetOffsetBody
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand, encode
from tests.e2e.wire_client import WireClient
from tests.processes import LiveProgram, broker

_TOPIC = "Watched"
_GROUP = "watchers"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProgram]:
    folder = tmp_path_factory.mktemp("broker")
    with broker(folder, "flushDiskType=ASYNC_FLUSH") as running:
        serving = running.wait_until_serving()
        with WireClient(serving.address) as client:
            for n in range(10):
                assert client.send(_TOPIC, n % 4, b"m%d" % n).code == 0
            for queue_id in range(4):
                ask(
                    client, RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup=_GROUP, topic=_TOPIC,
                    queueId=queue_id, commitOffset=1,
                )  # fmt: skip
        yield serving


@pytest.fixture
def client(program: LiveProgram) -> Iterator[WireClient]:
    with WireClient(program.address) as connected:
        yield connected


@pytest.fixture
def consumer(program: LiveProgram) -> Iterator[WireClient]:
    with WireClient(program.address) as connected:
        subscription = {"topic": _TOPIC, "subString": "*", "subVersion": 1}
        member = {
            "groupName": _GROUP,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [subscription],
        }
        body = {"clientID": "c1", "consumerDataSet": [member], "producerDataSet": []}
        connected.ask(RequestCode.HEART_BEAT.value, None, json.dumps(body).encode())
        yield connected


def ask(client: WireClient, code: RequestCode, body: bytes = b"", **fields: Any) -> RemotingCommand:
    return client.ask(code.value, {key: str(value) for key, value in fields.items()}, body)


def next_question(consumer: WireClient, code: RequestCode) -> RemotingCommand:
    """The next command of this code; notices about members may come before it."""
    while True:
        command = consumer.read()
        assert command is not None
        if command.code == code:
            return command


def broker_name(client: WireClient) -> str:
    settings = ask(client, RequestCode.GET_BROKER_CONFIG).body.decode()
    return next(line[11:] for line in settings.splitlines() if line.startswith("brokerName="))


def test_puts_and_gets_are_counted(client: WireClient) -> None:
    client.pull(_TOPIC, 0, 0)
    puts = ask(
        client, RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey=_TOPIC
    )
    data = json.loads(puts.body)
    assert data["statsMinute"]["sum"] == 10 and data["statsDay"]["avgpt"] == 1.0
    gets = ask(
        client, RequestCode.VIEW_BROKER_STATS_DATA,
        statsName="GROUP_GET_NUMS", statsKey=f"{_TOPIC}@wire-consumers",
    )  # fmt: skip
    assert json.loads(gets.body)["statsHour"]["sum"] == 3
    unknown = ask(
        client, RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="other"
    )
    assert unknown.code == 1 and unknown.remark == "The stats <TOPIC_PUT_NUMS> <other> not exist"


def test_all_groups_are_told_with_what_they_have_not_consumed(client: WireClient) -> None:
    ask(client, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"watchers"}')
    answer = ask(client, RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false")
    stats = ConsumeStatsList.decode(answer.body)
    assert stats.total_diff == 6
    [ours] = [row[_GROUP] for row in stats.consume_stats_list if _GROUP in row]
    [topic] = ours
    ends = topic.offset_table[MessageQueue(_TOPIC, broker_name(client), 0)]
    assert (ends.broker_offset, ends.consumer_offset) == (3, 1) and ends.last_timestamp > 0
    ordered = ask(client, RequestCode.GET_BROKER_CONSUME_STATS, isOrder="true")
    assert ConsumeStatsList.decode(ordered.body).total_diff == 0


def test_time_span_of_a_group_is_told(client: WireClient) -> None:
    answer = ask(client, RequestCode.QUERY_CONSUME_TIME_SPAN, topic=_TOPIC, group=_GROUP)
    spans = json.loads(answer.body)["consumeTimeSpanSet"]
    assert len(spans) == 4
    for span in spans:
        assert span["minTimeStamp"] == span["consumeTimeStamp"] <= span["maxTimeStamp"]
        assert span["delayTime"] >= 0 and span["minTimeStampStr"].startswith("20")
    missing = ask(client, RequestCode.QUERY_CONSUME_TIME_SPAN, topic="none", group=_GROUP)
    assert missing.code == ResponseCode.TOPIC_NOT_EXIST


def test_offsets_are_cloned_to_another_group(client: WireClient) -> None:
    clone = ask(
        client, RequestCode.CLONE_GROUP_OFFSET,
        srcGroup=_GROUP, destGroup="twins", topic=_TOPIC, offline="true",
    )  # fmt: skip
    assert clone.code == 0
    offset = ask(
        client, RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="twins", topic=_TOPIC, queueId=3
    )
    assert (offset.ext_fields or {})["offset"] == "1"


def test_correction_is_the_least_offset_of_other_groups(client: WireClient) -> None:
    ask(
        client, RequestCode.UPDATE_CONSUMER_OFFSET,
        consumerGroup="ahead", topic=_TOPIC, queueId=0, commitOffset=2,
    )  # fmt: skip
    answer = ask(
        client, RequestCode.QUERY_CORRECTION_OFFSET,
        compareGroup="ahead", topic=_TOPIC, filterGroups="twins",
    )  # fmt: skip
    table = lenient_json.read(answer.body)["correctionOffsets"]
    assert table == {"0": 1, "1": 1, "2": 1, "3": 1}


def test_consume_queue_is_shown(client: WireClient) -> None:
    answer = ask(client, RequestCode.QUERY_CONSUME_QUEUE, topic=_TOPIC, queueId=1, index=1, count=5)
    data = json.loads(answer.body)
    assert (data["minQueueIndex"], data["maxQueueIndex"], len(data["queueData"])) == (0, 3, 2)
    assert all(unit["physicSize"] > 91 and unit["eval"] for unit in data["queueData"])
    missing = ask(client, RequestCode.QUERY_CONSUME_QUEUE, topic="none", queueId=1, index=0)
    assert missing.code == 1 and "1@none is not exist!" in (missing.remark or "")


def test_online_consumers_are_told_to_reset(client: WireClient, consumer: WireClient) -> None:
    answer = ask(
        client, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        topic=_TOPIC, group=_GROUP, timestamp=-1, isForce="true",
    )  # fmt: skip
    assert answer.code == 0
    wanted = {MessageQueue(_TOPIC, broker_name(client), n): 3 - n // 2 for n in range(4)}
    assert ResetOffsetBody.decode(answer.body).offset_table == wanted
    notice = next_question(consumer, RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
    assert notice.is_one_way and (notice.ext_fields or {})["timestamp"] == "-1"
    assert ResetOffsetBody.decode(notice.body).offset_table == wanted
    # Not forward without force.
    kept = ask(
        client, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        topic=_TOPIC, group=_GROUP, timestamp=-1, isForce="false",
    )  # fmt: skip
    assert set(ResetOffsetBody.decode(kept.body).offset_table.values()) == {1}


def test_reset_without_consumers_is_refused_with_its_code(client: WireClient) -> None:
    fields = {"topic": _TOPIC, "timestamp": -1, "isForce": "true"}
    offline = ask(client, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, group="twins", **fields)
    assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
    unknown = ask(client, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, group="nobody", **fields)
    assert unknown.code == 1 and "not exist" in (unknown.remark or "")


def test_running_info_is_asked_of_the_consumer(client: WireClient, consumer: WireClient) -> None:
    opaque = client.ask_later(
        RequestCode.GET_CONSUMER_RUNNING_INFO.value,
        {"consumerGroup": _GROUP, "clientId": "c1", "jstackEnable": "false"},
    )
    question = next_question(consumer, RequestCode.GET_CONSUMER_RUNNING_INFO)
    assert (question.ext_fields or {})["clientId"] == "c1"
    consumer.write(encode(question.response(0, body=b'{"jstack":"mine"}')))
    answer = client.read()
    assert answer is not None
    assert (answer.opaque, answer.code, answer.body) == (opaque, 0, b'{"jstack":"mine"}')
    offline = ask(
        client, RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup=_GROUP, clientId="c2"
    )
    assert offline.code == 1 and "<c2> not online" in (offline.remark or "")


def test_consumer_is_given_the_stored_message(client: WireClient, consumer: WireClient) -> None:
    sent = client.send(_TOPIC, 0, b"try me")
    message_id = (sent.ext_fields or {})["msgId"]
    fields = {"consumerGroup": _GROUP, "clientId": "c1", "msgId": message_id}
    client.ask_later(RequestCode.CONSUME_MESSAGE_DIRECTLY.value, fields)
    question = next_question(consumer, RequestCode.CONSUME_MESSAGE_DIRECTLY)
    assert b"try me" in question.body and (question.ext_fields or {})["brokerName"]
    consumer.write(encode(question.response(0, body=b'{"consumeResult":"CR_SUCCESS"}')))
    answer = client.read()
    assert answer is not None and b"CR_SUCCESS" in answer.body
    wrong = ask(client, RequestCode.CONSUME_MESSAGE_DIRECTLY, **{**fields, "msgId": "0" * 32})
    assert wrong.code == 1


def test_consumers_are_asked_for_their_offsets(client: WireClient, consumer: WireClient) -> None:
    client.ask_later(
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS.value, {"topic": _TOPIC, "group": _GROUP}
    )
    question = next_question(consumer, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
    queue = b'{"brokerName":"b","queueId":0,"topic":"Watched"}'
    consumer.write(encode(question.response(0, body=b'{"messageQueueTable":{%s:7}}' % queue)))
    answer = client.read()
    assert answer is not None and answer.code == 0
    table = lenient_json.read(answer.body)["consumerTable"]
    assert list(table) == ["c1"] and list(table["c1"].values()) == [7]


def test_listed_settings_are_changed_and_others_refused(client: WireClient) -> None:
    refused = ask(
        client, RequestCode.UPDATE_BROKER_CONFIG, b"brokerPermission=4\nstorePathRootDir=/tmp/x\n"
    )
    assert refused.code == 1 and "storePathRootDir cannot be changed" in (refused.remark or "")
    assert ask(client, RequestCode.UPDATE_BROKER_CONFIG, b"brokerPermission=99").code == 1
    assert client.pull(_TOPIC, 0, 0)
    assert ask(client, RequestCode.UPDATE_BROKER_CONFIG, b"brokerPermission=2").code == 0
    assert not client.pull(_TOPIC, 0, 0)
    assert b"brokerPermission=2\n" in ask(client, RequestCode.GET_BROKER_CONFIG).body
    assert ask(client, RequestCode.UPDATE_BROKER_CONFIG, b"brokerPermission=6").code == 0
    assert client.pull(_TOPIC, 0, 0)


def test_levels_of_the_log_are_changed_for_a_while(client: WireClient) -> None:
    def change(body: bytes) -> tuple[int, str]:
        answer = ask(client, RequestCode.UPDATE_BROKER_CONFIG, body)
        return answer.code, answer.remark or ""

    assert change(b"logLevel.ledgermq.broker=debug\n")[0] == 0
    code, said = change(b"brokerPermission=4\nlogLevel.ledgermq=loud\n")
    assert code == 1 and "level is 'loud', allowed are debug, info, warn" in said
    # Nothing of it was done.
    assert b"brokerPermission=6\n" in ask(client, RequestCode.GET_BROKER_CONFIG).body


def test_clean_up_keeps_what_is_used(client: WireClient) -> None:
    assert ask(client, RequestCode.CLEAN_UNUSED_TOPIC).code == 0
    assert ask(client, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE).code == 0
    assert client.pull(_TOPIC, 0, 0)
