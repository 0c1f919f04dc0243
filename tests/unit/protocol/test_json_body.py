"""What all JSON bodies share: generous reading, and errors that say where."""

import pytest

from ledgermq.protocol.errors import LocalProtocolError, RemoteProtocolError
from ledgermq.protocol.json_body import read_plain
from ledgermq.protocol.route import KVTable, QueueData, TopicConfig, TopicRouteData


def test_unknown_members_are_skipped_and_missing_ones_have_defaults() -> None:
    data = b'{"topicName":"t","attributes":{"a":[1]},"readQueueNums":8}'
    assert TopicConfig.decode(data) == TopicConfig("t", read_queue_nums=8)


def test_null_counts_as_absent() -> None:
    assert TopicRouteData.decode(b'{"queueDatas":null,"orderTopicConf":null}') == TopicRouteData()


def test_quoted_numbers_are_read() -> None:
    data = b'{"brokerName":"b","readQueueNums":"8","writeQueueNums":"4","perm":6}'
    assert QueueData.decode(data) == QueueData("b", 8, 4, 6)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b'{"queueDatas":[{"brokerName":"b","perm":"x"}]}', "TopicRouteData $.queueDatas[0].perm"),
        (b'{"queueDatas":[{"perm":6}]}', "TopicRouteData $.queueDatas[0]"),
        (b'{"queueDatas":{}}', "TopicRouteData $.queueDatas"),
        (b"5", "TopicRouteData"),
    ],
)
def test_wrong_member_is_named(data: bytes, field: str) -> None:
    with pytest.raises(RemoteProtocolError) as raised:
        TopicRouteData.decode(data)
    assert raised.value.field == field


def test_number_out_of_range_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        TopicConfig.decode(b'{"topicName":"t","perm":2147483648}')


def test_text_that_json_cannot_carry_is_our_error() -> None:
    with pytest.raises(LocalProtocolError):
        KVTable({"k": "\ud800"}).encode()


def test_plain_values_are_converted_with_their_keys() -> None:
    assert read_plain({"1": "2"}, dict[int, int]) == {1: 2}


def test_large_body_must_be_standard_json() -> None:
    padding = b" " * KVTable.generous_bytes_max
    assert KVTable.decode(b'{"table":{"k":"v"}}' + padding) == KVTable({"k": "v"})
    assert KVTable.decode(b'{"table":{0:"v"}}') == KVTable({"0": "v"})
    with pytest.raises(RemoteProtocolError, match="standard JSON"):
        KVTable.decode(b'{"table":{0:"v"}}' + padding)


def test_large_route_may_be_in_the_dialect() -> None:
    route = TopicRouteData(queue_datas=[QueueData(f"b{n}", 8, 8, 6) for n in range(2_000)])
    data = route.encode().replace(b'"queueDatas"', b"queueDatas")
    assert len(data) > KVTable.generous_bytes_max
    assert TopicRouteData.decode(data) == route
