"""Bodies of groups and queues against what Java 4.9.3 writes."""

import pytest

from ledgermq.protocol.bodies import (
    BrokerStatsData,
    ClientConnection,
    ConsumeMessageDirectlyResult,
    ConsumeOffsets,
    ConsumerConnection,
    ConsumerOffsetTableBody,
    ConsumeStats,
    ConsumeStatsList,
    DelayOffsetTableBody,
    GetConsumerListByGroupResponseBody,
    GroupList,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    ProducerConnection,
    ResetOffsetBody,
    SubscriptionGroupConfig,
    SubscriptionGroupTableBody,
    TopicOffset,
    TopicStatsTable,
)
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.heartbeat import MessageModel, SubscriptionData
from ledgermq.protocol.json_body import JsonBody
from ledgermq.protocol.route import DataVersion

QUEUE = MessageQueue("TopicA", "broker-a", 0)
QUEUE_JSON = b'{"brokerName":"broker-a","queueId":0,"topic":"TopicA"}'
CLIENT = ClientConnection("10.0.0.9@1", "10.0.0.9:5555", "JAVA", 399)
CLIENT_JSON = (
    b'{"clientAddr":"10.0.0.9:5555","clientId":"10.0.0.9@1","language":"JAVA","version":399}'
)
GROUP_JSON = (
    b'{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
    b'"consumeFromMinEnable":true,"groupName":"GroupA","notifyConsumerIdsChangedEnable":true,'
    b'"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}'
)

GOLDEN: list[tuple[JsonBody, bytes]] = [
    (QUEUE, QUEUE_JSON),
    (
        GetConsumerListByGroupResponseBody(["10.0.0.9@1234#55"]),
        b'{"consumerIdList":["10.0.0.9@1234#55"]}',
    ),
    (
        LockBatchRequestBody("g", "c", [QUEUE]),
        b'{"clientId":"c","consumerGroup":"g","mqSet":[' + QUEUE_JSON + b"]}",
    ),
    (LockBatchResponseBody([QUEUE]), b'{"lockOKMQSet":[' + QUEUE_JSON + b"]}"),
    (SubscriptionGroupConfig("GroupA"), GROUP_JSON),
    (
        SubscriptionGroupTableBody(
            {"GroupA": SubscriptionGroupConfig("GroupA")}, DataVersion(1, 2)
        ),
        b'{"dataVersion":{"counter":2,"timestamp":1},"subscriptionGroupTable":{"GroupA":'
        + GROUP_JSON
        + b"}}",
    ),
    (
        ConsumerOffsetTableBody({"TopicA@GroupA": {0: 3, 1: 4}}),
        b'{"offsetTable":{"TopicA@GroupA":{0:3,1:4}}}',
    ),
    (DelayOffsetTableBody({1: 10, 2: 4}), b'{"offsetTable":{1:10,2:4}}'),
    (GroupList(["GroupA"]), b'{"groupList":["GroupA"]}'),
    (
        TopicStatsTable({QUEUE: TopicOffset(0, 0, 0)}),
        b'{"offsetTable":{'
        + QUEUE_JSON
        + b':{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0}}}',
    ),
    (TopicStatsTable(), b'{"offsetTable":{}}'),
    (
        ConsumeStats({QUEUE: ConsumeOffsets(0, 0, 0)}),
        b'{"consumeTps":0.0,"offsetTable":{'
        + QUEUE_JSON
        + b':{"brokerOffset":0,"consumerOffset":0,"lastTimestamp":0}}}',
    ),
    (
        ConsumeStatsList([{"GroupA": [ConsumeStats()]}], "10.0.0.1:10911", 5),
        b'{"brokerAddr":"10.0.0.1:10911","consumeStatsList":[{"GroupA":[{"consumeTps":0.0,'
        b'"offsetTable":{}}]}],"totalDiff":5}',
    ),
    (
        BrokerStatsData(),
        b'{"statsDay":{"avgpt":0.0,"sum":0,"tps":0.0},"statsHour":{"avgpt":0.0,"sum":0,"tps":0.0},'
        b'"statsMinute":{"avgpt":0.0,"sum":0,"tps":0.0}}',
    ),
    (
        ConsumeMessageDirectlyResult("CR_SUCCESS", remark="r"),
        b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"remark":"r",'
        b'"spentTimeMills":0}',
    ),
    (ResetOffsetBody({QUEUE: 10}), b'{"offsetTable":{' + QUEUE_JSON + b":10}}"),
    (ProducerConnection([CLIENT]), b'{"connectionSet":[' + CLIENT_JSON + b"]}"),
    (
        ConsumerConnection([CLIENT], {"TopicA": SubscriptionData("TopicA", "TagA", 1)}),
        b'{"connectionSet":['
        + CLIENT_JSON
        + b'],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY",'
        + b'"messageModel":"CLUSTERING","subscriptionTable":{"TopicA":{"classFilterMode":false,'
        + b'"codeSet":[],"expressionType":"TAG","subString":"TagA","subVersion":1,"tagsSet":[],'
        + b'"topic":"TopicA"}}}',
    ),
]


@pytest.mark.parametrize(("body", "data"), GOLDEN, ids=lambda value: type(value).__name__)
def test_body_is_java_s_byte_for_byte(body: JsonBody, data: bytes) -> None:
    assert body.encode() == data
    assert type(body).decode(data) == body


@pytest.mark.parametrize("key", [QUEUE_JSON, b'"' + QUEUE_JSON.replace(b'"', b'\\"') + b'"'])
def test_queue_as_key_is_read_as_object_and_as_text(key: bytes) -> None:
    data = b'{"offsetTable":{' + key + b":10}}"
    assert ResetOffsetBody.decode(data) == ResetOffsetBody({QUEUE: 10})


def test_reset_offsets_have_a_list_form_for_cpp() -> None:
    body = ResetOffsetBody({QUEUE: 10})
    data = body.encode_list()
    assert data == (
        b'{"offsetTable":[{"brokerName":"broker-a","offset":10,"queueId":0,"topic":"TopicA"}]}'
    )
    assert ResetOffsetBody.decode(data) == body


def test_words_of_a_consumer_connection_may_be_numbers() -> None:
    assert (
        ConsumerConnection.decode(b'{"messageModel":0}').message_model is MessageModel.BROADCASTING
    )


def test_queues_sort_as_clients_sort_them() -> None:
    queues = [MessageQueue("t", "b", 2), MessageQueue("t", "a", 9), MessageQueue("s", "z", 0)]
    assert sorted(queues) == [queues[2], queues[1], queues[0]]


@pytest.mark.parametrize("body_class", [TopicStatsTable, ConsumeStats, ResetOffsetBody])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"offsetTable":5}',
        b'{"offsetTable":{"x":{}}}',
        b'{"offsetTable":{{"topic":"t"}:{}}}',
        b'{"offsetTable":{' + QUEUE_JSON + b":[]}}",
        b'{"offsetTable":{' + QUEUE_JSON + b':"x"}}',
        b'{"offsetTable":[5]}',
    ],
)
def test_wrong_queue_map_is_refused(body_class: type[JsonBody], data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        body_class.decode(data)
