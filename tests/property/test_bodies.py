"""JSON bodies both ways, and bytes that are none: a value or RemoteProtocolError, nothing else."""

import json
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.protocol import bodies, heartbeat, lenient_json, route
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.json_body import JsonBody

BODY_CLASSES: list[type[JsonBody]] = [
    bodies.CheckClientRequestBody,
    bodies.BrokerStatsData,
    bodies.ConsumeStats,
    bodies.ConsumeStatsList,
    bodies.ConsumerConnection,
    bodies.ConsumerOffsetTableBody,
    bodies.LockBatchRequestBody,
    bodies.LockBatchResponseBody,
    bodies.MessageQueue,
    bodies.ResetOffsetBody,
    bodies.SubscriptionGroupTableBody,
    bodies.TopicStatsTable,
    heartbeat.HeartbeatData,
    route.ClusterInfo,
    route.KVTable,
    route.TopicConfigTableBody,
    route.TopicList,
    route.TopicRouteData,
]

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
queues = st.builds(bodies.MessageQueue, texts, texts, int32)
topics = st.builds(route.TopicConfig, texts, int32, int32, int32, texts, int32, st.booleans())
versions = st.builds(route.DataVersion, int64, int64)
routes = st.builds(
    route.TopicRouteData,
    st.none() | texts,
    st.lists(st.builds(route.QueueData, texts, int32, int32, int32, int32), max_size=3),
    st.lists(
        st.builds(route.BrokerData, texts, texts, st.dictionaries(int64, texts, max_size=3)),
        max_size=3,
    ),
    st.dictionaries(texts, st.lists(texts, max_size=2), max_size=2),
)


@given(routes, st.booleans())
def test_route_comes_back_in_both_forms(data: route.TopicRouteData, standard: bool) -> None:
    encoded = data.encode(standard=standard)
    assert route.TopicRouteData.decode(encoded) == data
    if standard:
        json.loads(encoded)


@given(st.dictionaries(queues, st.builds(bodies.TopicOffset, int64, int64, int64), max_size=4))
def test_map_of_queues_comes_back(table: dict[bodies.MessageQueue, bodies.TopicOffset]) -> None:
    body = bodies.TopicStatsTable(table)
    assert bodies.TopicStatsTable.decode(body.encode()) == body


words = st.text("abcXYZ%_-09", min_size=1, max_size=12)


@given(st.lists(words, unique=True, max_size=5), versions, st.lists(texts, max_size=3))
def test_registration_comes_back_in_both_forms(
    names: list[str], version: route.DataVersion, servers: list[str]
) -> None:
    table = {name: route.TopicConfig(name, 4, 8, 6) for name in names}
    body = route.RegisterBrokerBody(table, version, servers)
    for compressed in (False, True):
        encoded = body.encode(compressed=compressed)
        assert route.RegisterBrokerBody.decode(encoded, compressed=compressed) == body


@given(st.dictionaries(texts, topics, max_size=4), versions)
def test_topic_table_comes_back(
    table: dict[str, route.TopicConfig], version: route.DataVersion
) -> None:
    body = route.TopicConfigTableBody(table, version)
    assert route.TopicConfigTableBody.decode(body.encode()) == body
    assert body.encode() == lenient_json.write(json.loads(body.encode()))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_read_like_json(value: object) -> None:
    text = json.dumps(value)
    try:
        read = lenient_json.read(b"{0:" + text.encode() + b"}")
    except RemoteProtocolError:
        return
    assert json.dumps(read["0"]) == text


@pytest.mark.parametrize("body_class", BODY_CLASSES, ids=lambda one: one.__name__)
@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_body_or_a_protocol_error(body_class: type[JsonBody], data: bytes) -> None:
    try:
        body_class.decode(data)
    except RemoteProtocolError:
        pass


GOLDEN = (
    b'{"clientID":"c","consumerDataSet":[{"consumeType":1,"groupName":"g","subscriptionDataSet":'
    b'[{"codeSet":["1"],"subVersion":"1","tagsSet":["a"],"topic":"t"}]}],"offsetTable":'
    b'{{"brokerName":"b","queueId":0,"topic":"t"}:{"maxOffset":1,"minOffset":0},0:{1:2}},'
    b'"brokerDatas":[{"brokerAddrs":{0:"a:1",1:"b:2"},"brokerName":"b","cluster":"c"}],'
    b'"connectionSet":[],"table":{"k":"v"},"topicList":["t"],"consumeTps":0.5}'
)


def damaged(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        start = rng.randrange(len(out) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            del out[start:]
        elif kind == 1 and out:
            out[start % len(out)] ^= 1 << rng.randrange(8)
        elif kind == 2:
            out[start:start] = rng.choice(
                [b"{", b"}", b'"', b",", b":", b"9" * 30, b"null", b"\xff"]
            )
        else:
            del out[start : start + rng.randrange(6)]
    return bytes(out)


def test_damaged_documents_are_bodies_or_protocol_errors() -> None:
    rng = random.Random(33)
    for _ in range(600):
        data = damaged(rng, GOLDEN)
        for body_class in BODY_CLASSES:
            try:
                body_class.decode(data)
            except RemoteProtocolError as error:
                assert len(str(error)) <= 1024


def test_damaged_registrations_are_bodies_or_protocol_errors() -> None:
    rng = random.Random(34)
    table = {f"t{number}": route.TopicConfig(f"t{number}", 8, 8) for number in range(5)}
    plain = zlib.decompress(route.RegisterBrokerBody(table).encode(compressed=True))
    for _ in range(1_500):
        data = damaged(rng, plain)
        stream = zlib.compress(data) if rng.random() < 0.8 else data
        for compressed in (False, True):
            try:
                route.RegisterBrokerBody.decode(stream, compressed=compressed)
            except RemoteProtocolError:
                pass
