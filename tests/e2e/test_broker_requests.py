"""One broker process, asked everything that clients and tools ask, over loopback."""

import json
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ledgermq.protocol.batch import BatchMessage, encode_batch
from ledgermq.protocol.bodies import ConsumeStats, MessageQueue, TopicStatsTable
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.message_id import decode_offset_id
from ledgermq.protocol.properties import decode_properties
from ledgermq.protocol.record import decode_record
from tests.e2e.wire_client import WireClient, pull_fields, request, send_fields
from tests.processes import LiveProgram, broker

_numbers = count()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProgram]:
    folder = tmp_path_factory.mktemp("broker")
    settings = ("offsetReplicationIntervalMs=100", "flushDiskType=ASYNC_FLUSH")
    with broker(folder, *settings) as running:
        yield running.wait_until_serving()


@pytest.fixture
def client(program: LiveProgram) -> Iterator[WireClient]:
    with WireClient(program.address) as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    return f"Topic-{next(_numbers)}"


def heart_beat(
    client: WireClient, group: str, topic: str, expression: str = "*", *, client_id: str = "c1"
) -> RemotingCommand:
    body = {
        "clientID": client_id,
        "consumerDataSet": [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [{"topic": topic, "subString": expression, "subVersion": 1}],
            }
        ],
        "producerDataSet": [{"groupName": "pg"}],
    }
    return client.ask(RequestCode.HEART_BEAT.value, None, json.dumps(body).encode())


def ask(client: WireClient, code: RequestCode, **fields: Any) -> RemotingCommand:
    return client.ask(code.value, {key: str(value) for key, value in fields.items()})


# Sending.


def test_send_creates_topic_and_answers_with_place(
    client: WireClient, topic: str, program: LiveProgram
) -> None:
    first = client.send(topic, 1, b"a", properties="TAGS\x01A\x02WAIT\x01true\x02K\x01v")
    second = client.send(topic, 1, b"b")
    assert (first.code, second.code) == (0, 0)
    assert first.ext_fields is not None and second.ext_fields is not None
    assert first.ext_fields["queueOffset"] == "0" and second.ext_fields["queueOffset"] == "1"
    assert first.ext_fields["MSG_REGION"] == "DefaultRegion"
    assert first.ext_fields["TRACE_ON"] == "true"
    place = decode_offset_id(first.ext_fields["msgId"])
    assert f"127.0.0.1:{place.port}" == program.address
    records = client.read_queue(topic, 1)
    assert [record.body for record in records] == [b"a", b"b"]
    assert records[0].physical_offset == place.physical_offset
    properties = decode_properties(records[0].properties)
    assert properties == {"TAGS": "A", "K": "v", "CLUSTER": "DefaultCluster"}
    config = ask(client, RequestCode.GET_TOPIC_CONFIG, topic=topic)
    assert json.loads(config.body)["writeQueueNums"] == 4


def test_negative_queue_id_takes_any_queue(client: WireClient, topic: str) -> None:
    answers = [client.send(topic, -1, b"x") for _ in range(40)]
    chosen = {(answer.ext_fields or {})["queueId"] for answer in answers}
    assert chosen <= {"0", "1", "2", "3"} and len(chosen) > 1


def test_one_way_send_is_stored_and_not_answered(client: WireClient, topic: str) -> None:
    client.write(request(10, send_fields(topic), b"quiet", flag=2, opaque=7))
    answer = client.send(topic, 0, b"loud")
    assert answer.opaque != 7
    assert [record.body for record in client.read_queue(topic, 0)] == [b"quiet", b"loud"]


def test_batch_is_stored_message_by_message_with_one_answer(client: WireClient, topic: str) -> None:
    body = encode_batch([BatchMessage(0, b"m%d" % n, b"UNIQ_KEY\x01u%d" % n) for n in range(3)])
    compact = dict(zip("abcdefghijkm", _compact(topic), strict=True))
    answer = client.ask(RequestCode.SEND_BATCH_MESSAGE.value, compact, body)
    assert answer.code == 0 and answer.ext_fields is not None
    ids = answer.ext_fields["msgId"].split(",")
    assert len(ids) == 3 and answer.ext_fields["queueOffset"] == "0"
    records = client.read_queue(topic, 0)
    assert [record.body for record in records] == [b"m0", b"m1", b"m2"]
    places = [decode_offset_id(text).physical_offset for text in ids]
    assert [record.physical_offset for record in records] == places


def _compact(topic: str) -> tuple[str, ...]:
    return ("pg", topic, "TBW102", "4", "0", "0", "1", "0", "", "0", "false", "true")


@pytest.mark.parametrize(
    ("changes", "body", "code", "remark"),
    [
        ({"topic": "a b"}, b"", 1, "illegal characters"),
        ({"topic": "x" * 128}, b"", 1, "max length 127"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, b"", 16, "forbidden"),
        ({"topic": "rmq_sys_LEDGERMQ_STATE"}, b"", 16, "forbidden"),
        ({"defaultTopic": "SELF_TEST_TOPIC"}, b"", 17, "inherit bit"),
        ({"defaultTopic": "Nowhere"}, b"", 17, "autoCreateTopicEnable"),
        ({"queueId": "9"}, b"", 1, "queueId[9] is illegal"),
        ({"sysFlag": "4"}, b"", 1, "its property TRAN_MSG does not"),
        ({"properties": "K\x01" + "v" * 32_766}, b"", 13, "allowed are 32767"),
        ({}, b"x" * 4_194_304, 13, "maxMessageSize"),
        ({"queueId": "four"}, b"", 1, "queueId"),
        ({"topic": None}, b"", 1, "topic is missing"),
    ],
)
def test_refused_send_says_why(
    client: WireClient, topic: str, changes: dict[str, Any], body: bytes, code: int, remark: str
) -> None:
    answer = client.ask(RequestCode.SEND_MESSAGE.value, send_fields(topic, 0, **changes), body)
    assert answer.code == code
    assert answer.remark is not None and remark in answer.remark
    # Java reads these fields without looking.
    assert answer.ext_fields is not None and answer.ext_fields["TRACE_ON"] == "true"
    assert client.send(topic, 0, b"still here").code == 0


def test_broken_batch_stores_nothing(client: WireClient, topic: str) -> None:
    client.send(topic, 0, b"before")
    good = encode_batch([BatchMessage(0, b"m", b"")])
    compact = dict(zip("abcdefghijkm", _compact(topic), strict=True))
    for body in (
        b"",
        good + b"\x00",
        good[:-1],
        encode_batch([BatchMessage(0, b"", b"DELAY\x011")]),
    ):
        assert client.ask(RequestCode.SEND_BATCH_MESSAGE.value, compact, body).code in (1, 13)
    assert len(client.read_queue(topic, 0)) == 1


# Pulling.


def test_pull_answers_each_status(client: WireClient, topic: str) -> None:
    client.send(topic, 0, b"one", properties="TAGS\x01A")

    def pull(queue_id: int, offset: int, **changes: Any) -> RemotingCommand:
        return client.ask(
            RequestCode.PULL_MESSAGE.value, pull_fields(topic, queue_id, offset, **changes)
        )

    def told(answer: RemotingCommand) -> tuple[int, str | None, str]:
        assert answer.ext_fields is not None
        assert {"minOffset", "maxOffset", "suggestWhichBrokerId"} <= set(answer.ext_fields)
        return answer.code, answer.remark, answer.ext_fields["nextBeginOffset"]

    assert told(pull(0, 0)) == (0, "FOUND", "1")
    assert told(pull(0, 0, subscription="B || C")) == (20, "NO_MATCHED_MESSAGE", "1")
    assert told(pull(0, 0, subscription="B || A")) == (0, "FOUND", "1")
    assert told(pull(0, 1)) == (19, "OFFSET_OVERFLOW_ONE", "1")
    assert told(pull(0, 5)) == (21, "OFFSET_OVERFLOW_BADLY", "1")
    assert told(pull(0, -1)) == (21, "OFFSET_TOO_SMALL", "0")
    assert told(pull(1, 0)) == (19, "NO_MATCHED_LOGIC_QUEUE", "0")
    assert told(pull(1, 3)) == (21, "NO_MATCHED_LOGIC_QUEUE", "0")
    lite = client.ask(RequestCode.LITE_PULL_MESSAGE.value, pull_fields(topic, 0, 0))
    assert told(lite) == (0, "FOUND", "1")


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        ({"topic": "Unknown"}, 17, "not exist"),
        ({"queueId": "8"}, 1, "readQueueNums:[4]"),
        ({"queueId": "-1"}, 1, "is illegal"),
        ({"sysFlag": "0"}, 24, "group info not exist"),
        ({"consumerGroup": "a/b"}, 1, "illegal characters"),
        ({"subscription": " || "}, 23, "parse"),
        ({"expressionType": "SQL92", "subscription": "a > 1"}, 1, "does not support"),
        ({"queueOffset": None}, 1, "queueOffset is missing"),
    ],
)
def test_refused_pull_says_why(
    client: WireClient, topic: str, changes: dict[str, Any], code: int, remark: str
) -> None:
    client.send(topic, 0, b"x")
    answer = client.ask(RequestCode.PULL_MESSAGE.value, pull_fields(topic, 0, 0, **changes))
    assert answer.code == code
    assert answer.remark is not None and remark in answer.remark


def test_registered_subscription_filters(client: WireClient, topic: str) -> None:
    group = f"g-{topic}"
    for tag in ("A", "B", "A"):
        client.send(topic, 0, tag.encode(), properties=f"TAGS\x01{tag}")
    assert heart_beat(client, group, topic, "A").code == 0
    fields = pull_fields(topic, 0, 0, consumerGroup=group, sysFlag="0", subscription=None)
    answer = client.ask(RequestCode.PULL_MESSAGE.value, fields)
    assert answer.code == 0 and answer.ext_fields is not None
    assert answer.ext_fields["nextBeginOffset"] == "3"
    assert decode_record(answer.body).body == b"A"
    outdated = {**fields, "subVersion": "2"}
    assert client.ask(RequestCode.PULL_MESSAGE.value, outdated).code == 25
    other = {**fields, "topic": "SELF_TEST_TOPIC"}
    assert client.ask(RequestCode.PULL_MESSAGE.value, other).code == 24


def test_parked_pull_wakes_when_a_message_comes(
    client: WireClient, topic: str, program: LiveProgram
) -> None:
    client.send(topic, 0, b"old", properties="TAGS\x01A")
    fields = pull_fields(topic, 0, 1, sysFlag="6", suspendTimeoutMillis="20000", subscription="A")
    client.write(request(11, fields, opaque=77))
    with WireClient(program.address) as sender:
        sender.send(topic, 0, b"not for it", properties="TAGS\x01B")
        sender.send(topic, 0, b"for it", properties="TAGS\x01A")
    begun = time.monotonic()
    answer = client.read()
    assert answer is not None and (answer.opaque, answer.code) == (77, 0)
    assert decode_record(answer.body).body == b"for it"
    # Well before the scan of 5 s would have found it.
    assert time.monotonic() - begun < 4


def test_parked_pull_is_answered_when_its_time_is_over(client: WireClient, topic: str) -> None:
    client.send(topic, 0, b"x")
    fields = pull_fields(topic, 0, 1, sysFlag="6", suspendTimeoutMillis="200")
    answer = client.ask(RequestCode.PULL_MESSAGE.value, fields)
    assert (answer.code, answer.remark) == (19, "OFFSET_OVERFLOW_ONE")


# Offsets.


def test_committed_offset_comes_back(client: WireClient, topic: str) -> None:
    client.send(topic, 0, b"x")
    names = {"consumerGroup": "offsets", "topic": topic, "queueId": 0}
    fresh = ask(client, RequestCode.QUERY_CONSUMER_OFFSET, **names)
    assert (fresh.code, fresh.ext_fields) == (0, {"offset": "0"})
    missing = ask(client, RequestCode.QUERY_CONSUMER_OFFSET, **names, setZeroIfNotFound="false")
    assert missing.code == ResponseCode.QUERY_NOT_FOUND
    assert ask(client, RequestCode.UPDATE_CONSUMER_OFFSET, **names, commitOffset=5).code == 0
    assert ask(client, RequestCode.UPDATE_CONSUMER_OFFSET, **names, commitOffset=3).code == 0
    stored = ask(client, RequestCode.QUERY_CONSUMER_OFFSET, **names)
    assert stored.ext_fields == {"offset": "3"}
    assert ask(client, RequestCode.UPDATE_CONSUMER_OFFSET, **names, commitOffset=-1).code == 1


def test_pull_commits_an_offset(client: WireClient, topic: str) -> None:
    client.send(topic, 0, b"x")
    fields = pull_fields(topic, 0, 0, consumerGroup="by-pull", sysFlag="5", commitOffset="1")
    client.ask(RequestCode.PULL_MESSAGE.value, fields)
    stored = ask(
        client, RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="by-pull", topic=topic, queueId=0
    )
    assert stored.ext_fields == {"offset": "1"}


def test_queue_ends_and_times(client: WireClient, topic: str) -> None:
    for number in range(3):
        client.send(topic, 0, b"%d" % number)

    def offset(code: RequestCode, **fields: Any) -> int:
        answer = ask(client, code, topic=topic, **fields)
        assert answer.code == 0 and answer.ext_fields is not None
        return int(next(iter(answer.ext_fields.values())))

    assert offset(RequestCode.GET_MAX_OFFSET, queueId=0) == 3
    assert offset(RequestCode.GET_MIN_OFFSET, queueId=0) == 0
    assert offset(RequestCode.GET_MAX_OFFSET, queueId=3) == 0
    assert offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queueId=0, timestamp=0) == 0
    assert offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queueId=0, timestamp=2**62) == 2
    assert offset(RequestCode.GET_EARLIEST_MSG_STORETIME, queueId=0) > 1_600_000_000_000
    assert offset(RequestCode.GET_EARLIEST_MSG_STORETIME, queueId=2) == -1


# Clients.


def test_heart_beat_makes_group_retry_topic_and_membership(client: WireClient, topic: str) -> None:
    group = f"g-{topic}"
    nobody = ask(client, RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group)
    assert nobody.code == 1 and nobody.remark == f"no consumer for this group, {group}"
    assert heart_beat(client, group, topic).code == 0
    retry = ask(client, RequestCode.GET_TOPIC_CONFIG, topic=f"%RETRY%{group}")
    assert json.loads(retry.body)["readQueueNums"] == 1
    members = ask(client, RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group)
    assert json.loads(members.body) == {"consumerIdList": ["c1"]}
    shown = ask(client, RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup=group)
    assert json.loads(shown.body)["connectionSet"][0]["clientId"] == "c1"
    producers = ask(client, RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="pg")
    assert json.loads(producers.body)["connectionSet"][0]["language"] == "JAVA"
    assert ask(client, RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="no").code == 206
    assert ask(client, RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="no").code == 1
    who = ask(client, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic=topic)
    assert json.loads(who.body) == {"groupList": [group]}


def test_members_are_told_of_every_change(
    client: WireClient, topic: str, program: LiveProgram
) -> None:
    group = f"g-{topic}"

    def next_notice() -> RemotingCommand:
        notice = client.read()
        assert notice is not None and notice.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        assert notice.is_one_way and notice.ext_fields == {"consumerGroup": group}
        return notice

    heart_beat(client, group, topic)
    with WireClient(program.address) as other:
        heart_beat(other, group, topic, client_id="c2")
        next_notice()
        answer = ask(other, RequestCode.UNREGISTER_CLIENT, clientID="c2", consumerGroup=group)
        assert answer.code == 0
        next_notice()
        heart_beat(other, group, topic, client_id="c2")
        next_notice()
    # The closed connection is the last word of a Go client.
    next_notice()


def test_queue_locks_go_to_one_client(client: WireClient, topic: str) -> None:
    queue = {"brokerName": "broker-a", "queueId": 0, "topic": topic}

    def lock(code: RequestCode, client_id: str) -> Any:
        body = {"consumerGroup": "orderly", "clientId": client_id, "mqSet": [queue]}
        answer = client.ask(code.value, None, json.dumps(body).encode())
        assert answer.code == 0
        return json.loads(answer.body)["lockOKMQSet"] if answer.body else None

    assert create_topic(client, topic).code == 0
    assert lock(RequestCode.LOCK_BATCH_MQ, "one") == [queue]
    assert lock(RequestCode.LOCK_BATCH_MQ, "two") == []
    lock(RequestCode.UNLOCK_BATCH_MQ, "one")
    assert lock(RequestCode.LOCK_BATCH_MQ, "two") == [queue]


def test_only_tag_subscriptions_pass_the_check(client: WireClient, topic: str) -> None:
    def check(kind: str) -> RemotingCommand:
        data = {"topic": topic, "subString": "A", "expressionType": kind}
        body = {"clientId": "c", "group": "g", "subscriptionData": data}
        return client.ask(RequestCode.CHECK_CLIENT_CONFIG.value, None, json.dumps(body).encode())

    assert check("TAG").code == 0
    assert check("SQL92").code == 1


# Topics, groups, questions.


def create_topic(client: WireClient, name: str, **changes: Any) -> RemotingCommand:
    fields = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": 3,
        "writeQueueNums": 2,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
        **changes,
    }
    return ask(client, RequestCode.UPDATE_AND_CREATE_TOPIC, **fields)


def test_topic_is_created_listed_and_deleted(client: WireClient, topic: str) -> None:
    assert create_topic(client, topic).code == 0
    table = json.loads(client.ask(RequestCode.GET_ALL_TOPIC_CONFIG.value).body)
    assert table["topicConfigTable"][topic]["readQueueNums"] == 3
    client.send(topic, 0, b"x")
    stats = TopicStatsTable.decode(ask(client, RequestCode.GET_TOPIC_STATS_INFO, topic=topic).body)
    ends = stats.offset_table[MessageQueue(topic, "broker-a", 0)]
    assert (len(stats.offset_table), ends.min_offset, ends.max_offset) == (2, 0, 1)
    assert ends.last_update_timestamp > 0
    assert ask(client, RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic).code == 0
    assert ask(client, RequestCode.GET_TOPIC_STATS_INFO, topic=topic).code == 17


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"topic": "TBW102"}, "conflict with system topic"),
        ({"topic": "broker-a"}, "conflict with system topic"),
        ({"topic": "../../etc"}, "illegal characters"),
        ({"readQueueNums": -1}, "readQueueNums is -1"),
        ({"perm": 9}, "perm is 9"),
        ({"topicFilterType": "NO_TAG"}, "topicFilterType"),
    ],
)
def test_refused_topic_says_why(client: WireClient, changes: dict[str, Any], remark: str) -> None:
    answer = create_topic(client, "Wrong", **changes)
    assert answer.code == 1
    assert answer.remark is not None and remark in answer.remark


def test_group_is_created_and_deleted_with_its_offsets(client: WireClient, topic: str) -> None:
    group = f"g-{topic}"
    client.send(topic, 0, b"x")
    body = json.dumps({"groupName": group, "retryMaxTimes": 3}).encode()
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert client.ask(code.value, None, body).code == 0
    table = json.loads(client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG.value).body)
    assert table["subscriptionGroupTable"][group]["retryMaxTimes"] == 3
    names = {"consumerGroup": group, "topic": topic, "queueId": 0}
    ask(client, RequestCode.UPDATE_CONSUMER_OFFSET, **names, commitOffset=1)
    stats = ConsumeStats.decode(
        ask(client, RequestCode.GET_CONSUME_STATS, consumerGroup=group).body
    )
    place = stats.offset_table[MessageQueue(topic, "broker-a", 0)]
    assert (place.broker_offset, place.consumer_offset) == (1, 1) and place.last_timestamp > 0
    deleted = ask(client, RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=group, cleanOffset="true")
    assert deleted.code == 0
    offsets = client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET.value).body.decode()
    assert f"{topic}@{group}" not in offsets
    assert ask(client, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group=group).code == 26


def test_closed_group_may_not_pull(client: WireClient, topic: str) -> None:
    client.send(topic, 0, b"x")
    body = json.dumps({"groupName": "closed", "consumeEnable": False}).encode()
    client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP.value, None, body)
    fields = pull_fields(topic, 0, 0, consumerGroup="closed")
    assert client.ask(RequestCode.PULL_MESSAGE.value, fields).code == ResponseCode.NO_PERMISSION


def test_message_is_found_by_key_and_by_place(client: WireClient, topic: str) -> None:
    sent = client.send(topic, 0, b"wanted", properties="KEYS\x01order-7 other\x02UNIQ_KEY\x01U7")
    assert sent.ext_fields is not None
    place = decode_offset_id(sent.ext_fields["msgId"]).physical_offset
    seen = ask(client, RequestCode.VIEW_MESSAGE_BY_ID, offset=place)
    assert decode_record(seen.body).body == b"wanted"
    assert ask(client, RequestCode.VIEW_MESSAGE_BY_ID, offset=place + 1).code == 1
    span = {"topic": topic, "maxNum": 8, "beginTimestamp": 0, "endTimestamp": 2**62}
    for key, unique in (("order-7", "false"), ("other", "false"), ("U7", "true")):
        fields = {**span, "key": key, "_UNIQUE_KEY_QUERY": unique}
        found = ask(client, RequestCode.QUERY_MESSAGE, **fields)
        assert found.code == 0 and decode_record(found.body).body == b"wanted"
    assert ask(client, RequestCode.QUERY_MESSAGE, **span, key="nothing").code == 22


def test_broker_tells_about_itself(client: WireClient) -> None:
    table = json.loads(client.ask(RequestCode.GET_BROKER_RUNTIME_INFO.value).body)["table"]
    assert table["brokerVersionDesc"] == "V4_9_3" and table["ledgerRole"] == "LEADER"
    assert table["stateAlarm"] == table["accessAlarm"] == table["ledgerRepair"] == ""
    for key in ("putTps", "getTotalTps"):
        assert len([float(part) for part in table[key].split(" ")]) == 3
    config = client.ask(RequestCode.GET_BROKER_CONFIG.value)
    assert b"brokerName=broker-a\n" in config.body and b"brokerId=0\n" in config.body
    assert config.ext_fields is not None and "counter" in config.ext_fields["version"]
    topics = json.loads(client.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER.value).body)
    assert "TBW102" in topics["topicList"] and "broker-a" in topics["topicList"]


@pytest.mark.parametrize("code", [0, 999, 13, 65_535])
def test_unknown_code_is_answered(client: WireClient, code: int) -> None:
    answer = client.ask(code)
    assert (answer.code, answer.remark) == (3, f" request type {code} not supported")


def test_broken_bodies_are_answered(client: WireClient) -> None:
    for code in (
        RequestCode.HEART_BEAT,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.CHECK_CLIENT_CONFIG,
    ):
        for body in (b"", b"{", b"[]", b"\xff", b'{"clientID":7}'):
            answer = client.ask(code.value, None, body)
            assert answer.code == 1 and answer.remark


def test_restart_keeps_topics_groups_offsets_and_messages(tmp_path: Path) -> None:
    """Also after kill -9, although the files of the state are written later than the answers."""
    names = {"consumerGroup": "kept", "topic": "Kept", "queueId": 0}
    with broker(tmp_path, "offsetReplicationIntervalMs=50") as running:
        running.wait_until_serving()
        with WireClient(running.address) as client:
            assert create_topic(client, "Kept").code == 0
            assert client.send("Kept", 0, b"kept").code == 0
            assert (
                ask(client, RequestCode.UPDATE_CONSUMER_OFFSET, **names, commitOffset=1).code == 0
            )
            ends = ask(client, RequestCode.GET_MAX_OFFSET, topic="Kept", queueId=0)
            assert ends.ext_fields == {"offset": "1"}
            deadline = time.monotonic() + 10
            while not _is_offset_replicated(client) and time.monotonic() < deadline:
                client.send("Kept", 1, b"tick")
        running.kill()
    with broker(tmp_path, log="again.log") as running:
        running.wait_until_serving()
        with WireClient(running.address) as client:
            config = ask(client, RequestCode.GET_TOPIC_CONFIG, topic="Kept")
            assert json.loads(config.body)["readQueueNums"] == 3
            assert [record.body for record in client.read_queue("Kept", 0)] == [b"kept"]
            stored = ask(client, RequestCode.QUERY_CONSUMER_OFFSET, **names)
            assert stored.ext_fields == {"offset": "1"}


def _is_offset_replicated(client: WireClient) -> bool:
    """The ledger takes a record each 50 ms while an offset changed; more messages show that time
    passed.
    """
    answer = ask(client, RequestCode.GET_MAX_OFFSET, topic="Kept", queueId=1)
    assert answer.ext_fields is not None
    return int(answer.ext_fields["offset"]) >= 100
