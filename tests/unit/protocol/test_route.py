"""Bodies of routes and registrations against what Java 4.9.3 writes."""

import random
import struct
import zlib

import pytest

from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.route import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    KVTable,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTableBody,
    TopicList,
    TopicRouteData,
)

ROUTE = TopicRouteData(
    queue_datas=[QueueData("broker-a", 8, 8, 6, 0)],
    broker_datas=[
        BrokerData("DefaultCluster", "broker-a", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"})
    ],
)
ROUTE_JSON = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
    b'"brokerName":"broker-a","cluster":"DefaultCluster"}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,'
    b'"writeQueueNums":8}]}'
)
TOPIC_TABLE_JSON = (
    b'{"dataVersion":{"counter":0,"timestamp":1},"topicConfigTable":{"TopicA":{"order":false,'
    b'"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"TopicA",'
    b'"topicSysFlag":0,"writeQueueNums":8}}}'
)
REGISTRATION = RegisterBrokerBody({"TopicA": TopicConfig("TopicA", 8, 8)}, DataVersion(1, 0))


def test_route_is_java_s_byte_for_byte() -> None:
    assert ROUTE.encode() == ROUTE_JSON
    assert TopicRouteData.decode(ROUTE_JSON) == ROUTE


def test_standard_route_quotes_the_broker_ids() -> None:
    standard = ROUTE_JSON.replace(b"{0:", b'{"0":').replace(b",1:", b',"1":')
    assert ROUTE.encode(standard=True) == standard
    assert TopicRouteData.decode(standard) == ROUTE


def test_route_of_an_ordered_topic_says_so() -> None:
    route = TopicRouteData(order_topic_conf="broker-a:8", filter_server_table={"a:1": ["f:2"]})
    assert b'"orderTopicConf":"broker-a:8"' in route.encode()
    assert TopicRouteData.decode(route.encode()) == route


def test_cluster_info_is_java_s_byte_for_byte() -> None:
    info = ClusterInfo({"broker-a": ROUTE.broker_datas[0]}, {"DefaultCluster": ["broker-a"]})
    assert info.encode() == (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
        b'"brokerName":"broker-a","cluster":"DefaultCluster"}},'
        b'"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
    )
    assert ClusterInfo.decode(info.encode()) == info


def test_tables_and_lists_are_java_s_byte_for_byte() -> None:
    assert TopicConfigTableBody(
        {"TopicA": TopicConfig("TopicA", 8, 8)}, DataVersion(1)
    ).encode() == (TOPIC_TABLE_JSON)
    assert KVTable({"k": "v"}).encode() == b'{"table":{"k":"v"}}'
    assert TopicList(["A", "B"]).encode() == b'{"topicList":["A","B"]}'
    assert TopicList(["A"], "a:1").encode() == b'{"brokerAddr":"a:1","topicList":["A"]}'


def test_registration_is_java_s_byte_for_byte() -> None:
    assert REGISTRATION.encode() == (
        b'{"filterServerList":[],"topicConfigSerializeWrapper":' + TOPIC_TABLE_JSON + b"}"
    )
    assert RegisterBrokerBody.decode(REGISTRATION.encode()) == REGISTRATION


def compressed(
    version: bytes = b'{"counter":0,"timestamp":1}',
    topics: tuple[bytes, ...] = (b"TopicA 8 8 6 SINGLE_TAG",),
    servers: bytes = b"[]",
) -> bytes:
    parts = [struct.pack(">i", len(version)), version, struct.pack(">i", len(topics))]
    for topic in topics:
        parts += [struct.pack(">i", len(topic)), topic]
    return b"".join([*parts, struct.pack(">i", len(servers)), servers])


def test_compressed_registration_is_laid_out_as_drawn() -> None:
    assert zlib.decompress(REGISTRATION.encode(compressed=True)) == compressed()
    data = zlib.compress(compressed(topics=(b"TopicA 8 8 6 SINGLE_TAG {}",)))
    assert RegisterBrokerBody.decode(data, compressed=True) == REGISTRATION


def test_empty_registration_has_no_topics() -> None:
    for is_compressed in (False, True):
        body = RegisterBrokerBody.decode(b"", compressed=is_compressed)
        assert (body.topic_config_table, body.data_version) == ({}, DataVersion(0, 0))


@pytest.mark.parametrize(
    "plain",
    [
        b"",
        b"\x00\x00",
        compressed()[:-1],
        compressed() + b"x",
        compressed(version=b"[]"),
        compressed(version=b"{"),
        compressed(servers=b"{}"),
        compressed(topics=(b"TopicA 8 8 6",)),
        compressed(topics=(b"TopicA x 8 6 SINGLE_TAG",)),
        compressed(topics=(b"TopicA 08 8 6 SINGLE_TAG",)),
        compressed(topics=(b"TopicA  8 6 SINGLE_TAG",)),
        compressed(topics=(b"TopicA 8 8 2147483648 SINGLE_TAG",)),
        compressed(topics=(b"TopicA \xd9\xa1 8 6 SINGLE_TAG",)),
        compressed(topics=(b"\xff 8 8 6 SINGLE_TAG",)),
        struct.pack(">i", -1) + b"{}",
        struct.pack(">i", 2) + b"{}" + struct.pack(">i", 2**31 - 1),
    ],
)
def test_broken_compressed_registration_is_refused(plain: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        RegisterBrokerBody.decode(zlib.compress(plain), compressed=True)


def test_what_nobody_registers_is_not_read() -> None:
    """A hundred kilobytes that inflate to millions of entries stopped a name server for seconds."""
    many = struct.pack(">i", 2) + b"{}" + struct.pack(">i", 50) + b"\0\0\0\x0aa 1 1 6 x " * 50
    large = b'["' + random.Random(1).randbytes(40_000).hex().encode() + b'"]'
    servers = b"[{1:1}" + b",1" * 3000 + b"]"
    for plain, reason in (
        (many, "topics in a compressed body is 50, allowed: 49"),
        (compressed(servers=servers), "size of a JSON body is 6007, allowed: 4096"),
        (compressed(servers=large), "bytes of the filter servers is 80004"),
    ):
        with pytest.raises(RemoteProtocolError, match=reason):
            RegisterBrokerBody.decode(zlib.compress(plain), compressed=True, topics_max=49)


@pytest.mark.parametrize("numbers", [b"1 2 6", b"0 2147483647 6", b"999999999 0 6", b"1 -2 6"])
def test_numbers_of_a_topic_are_read_alike_however_many_digits_they_have(numbers: bytes) -> None:
    data = zlib.compress(compressed(topics=(b"T " + numbers + b" SINGLE_TAG",)))
    read, write, perm = map(int, numbers.split())
    topic = TopicConfig("T", read, write, perm, "SINGLE_TAG")
    assert RegisterBrokerBody.decode(data, compressed=True).topic_config_table == {"T": topic}


@pytest.mark.parametrize(
    "data",
    [b"no zlib", zlib.compress(compressed())[:-4], zlib.compress(bytes(20_000_000), 9)],
    ids=["no stream", "cut", "bomb"],
)
def test_stream_that_does_not_inflate_within_its_limits_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        RegisterBrokerBody.decode(data, compressed=True)
