"""Bodies in fastjson's dialect that any account may send are read while they are short."""

from __future__ import annotations

import pytest

from ledgermq.protocol.bodies import (
    CheckClientRequestBody,
    LockBatchRequestBody,
    UnlockBatchRequestBody,
)
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.heartbeat import HeartbeatData
from ledgermq.protocol.json_body import REQUEST_DIALECT_BYTES_MAX, JsonBody
from ledgermq.protocol.route import DataVersion
from ledgermq.protocol.running_info import ConsumerRunningInfo

_BODIES = {
    HeartbeatData: b'{clientID:"c",',
    LockBatchRequestBody: b'{consumerGroup:"g",clientId:"c",',
    UnlockBatchRequestBody: b'{consumerGroup:"g",clientId:"c",',
    CheckClientRequestBody: b'{clientId:"c",group:"g",subscriptionData:{topic:"T"},',
    DataVersion: b"{counter:1,",
}


@pytest.mark.parametrize("kind", _BODIES)
def test_the_dialect_is_read_up_to_its_limit(kind: type[JsonBody]) -> None:
    begun = _BODIES[kind]
    short = begun + b'x:"' + b"x" * (REQUEST_DIALECT_BYTES_MAX - len(begun) - 5) + b'"}'
    assert len(short) == REQUEST_DIALECT_BYTES_MAX
    kind.decode(short)
    with pytest.raises(RemoteProtocolError, match=f"allowed: {REQUEST_DIALECT_BYTES_MAX}"):
        kind.decode(short + b" ")


def test_running_info_of_a_consumer_has_its_limits() -> None:
    """It is shown in a console, whoever the consumer is."""
    for size, allowed in ((256 << 10, "allowed: 262144"), (1 << 20, "allowed: 1048576")):
        text = b'{"properties":{"a":"' + b"x" * size + b'"}}'
        dialect = text.replace(b'"properties"', b"properties")
        with pytest.raises(RemoteProtocolError, match=allowed):
            ConsumerRunningInfo.decode(dialect)
    assert len(ConsumerRunningInfo.decode(text[:1000] + b'"}}').properties["a"]) == 980


def test_words_as_numbers_are_no_dialect() -> None:
    """As C++ clients write heart beats."""
    consumer = b'{"groupName":"g","consumeType":1,"messageModel":1,"consumeFromWhere":0}'
    body = b'{"clientID":"c","consumerDataSet":[' + b",".join([consumer] * 300) + b"]}"
    assert len(body) > 5 * REQUEST_DIALECT_BYTES_MAX
    assert len(HeartbeatData.decode(body).consumer_data_set) == 300
