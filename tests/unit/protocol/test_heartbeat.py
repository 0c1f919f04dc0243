"""Heartbeats as each of the stock clients writes them."""

import pytest

from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)

JAVA = (
    b'{"clientID":"10.0.0.9@1234#55","consumerDataSet":[{"consumeFromWhere":'
    b'"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"GroupA",'
    b'"messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,'
    b'"codeSet":[2598919,2598920],"expressionType":"TAG","subString":"TagA || TagB",'
    b'"subVersion":1,"tagsSet":["TagA","TagB"],"topic":"TopicA"}],"unitMode":false}],'
    b'"producerDataSet":[{"groupName":"pg"}]}'
)
SUBSCRIPTION = SubscriptionData(
    topic="TopicA",
    sub_string="TagA || TagB",
    sub_version=1,
    tags_set=frozenset({"TagA", "TagB"}),
    code_set=frozenset({2598919, 2598920}),
)


def test_java_heartbeat_is_read_and_written() -> None:
    heartbeat = HeartbeatData.decode(JAVA)
    assert heartbeat == HeartbeatData(
        "10.0.0.9@1234#55",
        [ProducerData("pg")],
        [ConsumerData("GroupA", subscription_data_set=[SUBSCRIPTION])],
    )
    assert HeartbeatData.decode(heartbeat.encode()) == heartbeat


def test_cpp_heartbeat_with_numbers_and_missing_members_is_read() -> None:
    data = (
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":4,"consumeType":0,'
        b'"groupName":"g","messageModel":0,"subscriptionDataSet":[{"subString":"*",'
        b'"subVersion":"1700000000000","topic":"t","codeSet":null}]}]}\n'
    )
    (consumer,) = HeartbeatData.decode(data).consumer_data_set
    assert consumer.consume_type is ConsumeType.CONSUME_ACTIVELY
    assert consumer.message_model is MessageModel.BROADCASTING
    assert consumer.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert consumer.subscription_data_set == [SubscriptionData("t", sub_version=1_700_000_000_000)]


def test_go_heartbeat_with_quoted_codes_is_read() -> None:
    data = JAVA.replace(b"[2598919,2598920]", b'["2598919","2598920"]')
    assert HeartbeatData.decode(data) == HeartbeatData.decode(JAVA)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"clientID":null}',
        JAVA.replace(b'"CLUSTERING"', b'"TOGETHER"'),
        JAVA.replace(b'"CLUSTERING"', b"2"),
        JAVA.replace(b'"CLUSTERING"', b"-1"),
        JAVA.replace(b'"groupName":"GroupA",', b""),
        JAVA.replace(b'"subVersion":1', b'"subVersion":9223372036854775808'),
        b'{"clientID":"c","consumerDataSet":[1]}',
        b'{"clientID":"c","consumerDataSet":{"groupName":"g"}}',
    ],
)
def test_wrong_heartbeat_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        HeartbeatData.decode(data)
