"""Tables of what no client should send, and of what it leads to; used by test_bad_input."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

from ledgermq.dledger.replica.greeting_bodies import WIRE_VERSION
from ledgermq.dledger.replica.wire_binary import BinaryCode
from ledgermq.protocol.batch import BatchMessage, encode_batch
from ledgermq.protocol.codes import RequestCode
from tests.e2e.wire_client import frame, pull_fields, request, send_fields

FRAMES = Path(__file__).parents[1] / "interop" / "frames"
MESSAGE_BYTES_MAX = 262_144
TOPIC = "Probed"

SEND = RequestCode.SEND_MESSAGE.value
SEND_BATCH = RequestCode.SEND_BATCH_MESSAGE.value
PULL = RequestCode.PULL_MESSAGE.value
COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET.value
MAX_OFFSET = RequestCode.GET_MAX_OFFSET.value
HEART_BEAT = RequestCode.HEART_BEAT.value
CREATE_TOPIC = RequestCode.UPDATE_AND_CREATE_TOPIC.value


def topic_fields(topic: str, **changes: str) -> dict[str, str]:
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        **changes,
    }


def binary_header(
    *, code: int = 11, remark: bytes = b"", remark_bytes: int = 0, fields: bytes = b"", **told: int
) -> bytes:
    """A ROCKETMQ header whose inner lengths may lie."""
    fields_bytes = told.get("fields_bytes", len(fields))
    head = struct.pack(">hbhiii", code, 0, 399, 7, 0, remark_bytes) + remark
    return head + struct.pack(">i", fields_bytes) + fields


CLOSING = {
    "length 0": frame(b"", length=0),
    "length 3": frame(b"", length=3),
    "negative length": frame(b"{}", length=-1),
    "most negative length": frame(b"{}", length=-(2**31)),
    "length above the limit": frame(b"{}", length=16_777_213),
    "greatest length": frame(b"{}", length=2**31 - 1),
    "HTTP": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "TLS": bytes.fromhex("16030100f8010000f40303") + bytes(248),
    "header longer than the frame": frame(b"{}", header_length=3),
    "header of 24 bits": frame(b"{}", header_length=0xFF_FFFF),
    "header over 1 MiB": frame(b'{"code":11,"remark":"' + b"x" * 1_100_000 + b'"}'),
    "serialize type 2": frame(b"{}", serialize_type=2),
    "serialize type 255": frame(b"{}", serialize_type=255),
    "no header": frame(b""),
    "garbage in place of JSON": frame(b"\x00\x01garbage"),
    "JSON that is no object": frame(b"[1,2]"),
    "JSON cut": frame(b'{"code":11'),
    "JSON of another encoding": frame('{"code":11,"remark":"é"}'.encode("latin-1")),
    "JSON deeper than any stack": frame(b'{"a":' * 150_000 + b"1" + b"}" * 150_000),
    "JSON with NaN": frame(b'{"code":NaN}'),
    "number of 400 digits": frame(b'{"code":' + b"9" * 400 + b"}"),
    "code that is text": request("SEND"),
    "code above 32 bits": request(2**31),
    "field that is an object": request(11, {"topic": {"a": 1}}),
    "lone surrogate": request(11, {"topic": "\ud800"}),
    "binary header cut": frame(b"\x00\x0b\x00", serialize_type=1),
    "negative remark length": frame(binary_header(remark_bytes=-2), serialize_type=1),
    "remark longer than the header": frame(binary_header(remark_bytes=1000), serialize_type=1),
    "fields longer than the header": frame(binary_header(fields_bytes=1000), serialize_type=1),
    "negative fields length": frame(binary_header(fields_bytes=-9), serialize_type=1),
    "key longer than the fields": frame(binary_header(fields=b"\x00\x63topic"), serialize_type=1),
    "negative value length": frame(
        binary_header(fields=b"\x00\x05topic\xff\xff\xff\xff"), serialize_type=1
    ),
}


def send(*, body: bytes = b"x", **changes: Any) -> bytes:
    return request(SEND, {**send_fields(TOPIC), **changes}, body)


def send_without(key: str) -> bytes:
    return request(SEND, send_fields(TOPIC, **{key: None}), b"x")


def batch(body: bytes) -> bytes:
    return request(SEND, send_fields(TOPIC, batch="true"), body)


def compact_batch(body: bytes) -> bytes:
    fields = dict(zip("abcdefghijkm", send_fields(TOPIC, batch="true").values(), strict=True))
    return request(SEND_BATCH, fields, body)


def pull(offset: int = 0, queue_id: int = 0, /, **changes: Any) -> bytes:
    return request(PULL, {**pull_fields(TOPIC, queue_id, offset), **changes})


def commit(offset: object, **changes: str) -> bytes:
    fields = {"consumerGroup": "wire", "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
    return request(COMMIT, {**fields, **changes})


WHOLE = encode_batch([BatchMessage(0, b"a", b""), BatchMessage(0, b"b", b"")])
TOO_MANY = encode_batch([BatchMessage(0, b"", b"")] * 10_001)
NOT_DIGITS = "allowed: 'a whole number"
ILLEGAL = "contains illegal characters"

# A request, the code of its answer, and what the remark must say.
REFUSED: dict[str, tuple[bytes, int, list[str]]] = {
    "code 0": (request(0), 3, ["request type 0 not supported"]),
    "unused code": (request(9999), 3, ["9999"]),
    "negative code": (request(-1), 3, ["-1"]),
    "greatest code": (request(2**31 - 1), 3, ["2147483647"]),
    "code of a name server": (request(103), 3, ["103"]),
    "send without fields": (request(SEND), 1, ["producerGroup is missing"]),
    "send without a topic": (send_without("topic"), 1, ["topic is missing"]),
    "send without a queue": (send_without("queueId"), 1, ["queueId is missing"]),
    "queue that is text": (send(queueId="one"), 1, ["queueId is 'one'", NOT_DIGITS]),
    "queue above 32 bits": (send(queueId=str(2**31)), 1, ["queueId is 2147483648"]),
    "time of 30 digits": (send(bornTimestamp="9" * 30), 1, ["bornTimestamp", NOT_DIGITS]),
    "digits of another script": (send(queueId="\u0661"), 1, ["queueId", NOT_DIGITS]),
    "pull without an offset": (pull(queueOffset="x"), 1, ["queueOffset is 'x'", NOT_DIGITS]),
    "unknown topic": (send(topic="Unknown"), 17, ["Unknown"]),
    "pull of an unknown topic": (pull(topic="Unknown"), 17, ["Unknown"]),
    "topic that leaves the folder": (send(topic="../../etc"), 1, [ILLEGAL, "../../etc"]),
    "absolute topic": (send(topic="/etc/passwd"), 1, [ILLEGAL]),
    "topic with NUL": (send(topic="a\0b"), 1, [ILLEGAL]),
    "topic of dots": (send(topic=".."), 1, [ILLEGAL]),
    "blank topic": (send(topic=" "), 1, ["blank"]),
    "empty topic": (send(topic=""), 1, ["blank"]),
    "topic of 128 characters": (send(topic="a" * 128), 1, ["128", "127"]),
    "topic beyond ASCII": (send(topic="Größe"), 1, [ILLEGAL]),
    "topic of the system": (send(topic="SCHEDULE_TOPIC_XXXX"), 16, ["SCHEDULE_TOPIC_XXXX"]),
    "topic of the ledger": (send(topic="rmq_sys_LEDGERMQ_STATE"), 16, ["rmq_sys_LEDGERMQ_STATE"]),
    "bad topic created": (request(CREATE_TOPIC, topic_fields("../..")), 1, [ILLEGAL]),
    "topic with too many queues": (
        request(CREATE_TOPIC, topic_fields("Many", readQueueNums="2000000000")),
        1,
        ["readQueueNums is 2000000000", "65536"],
    ),
    "topic with negative queues": (
        request(CREATE_TOPIC, topic_fields("Many", writeQueueNums="-1")),
        1,
        ["writeQueueNums is -1"],
    ),
    "body over the limit": (
        send(body=b"x" * (MESSAGE_BYTES_MAX + 1)),
        13,
        ["262145", "262144", "maxMessageSize"],
    ),
    "record over the limit": (
        send(body=b"x" * (MESSAGE_BYTES_MAX - 10)),
        13,
        ["record takes", "262120", "maxMessageSize"],
    ),
    "properties over the limit": (
        send(properties="key\x01" + "v" * 32_768 + "\x02"),
        13,
        ["properties", "32767"],
    ),
    "queue above the last": (send(queueId="4"), 1, ["queueId[4]", "4 queues"]),
    "queue far above the last": (send(queueId=str(2**31 - 1)), 1, ["queueId[2147483647]"]),
    "batch of 0 messages": (batch(b""), 13, ["0 messages", "1 to 10000"]),
    "batch of too many messages": (batch(TOO_MANY), 13, ["10001 messages", "1 to 10000"]),
    "batch over the limit": (batch(WHOLE * 6000), 13, ["request 10", "maxMessageSize"]),
    "batch cut": (batch(WHOLE[:-1]), 13, ["batch"]),
    "batch with a tail": (batch(WHOLE + b"\0"), 13, ["batch"]),
    "batch with a size of 0": (batch(bytes(4) + WHOLE[4:]), 13, ["batch"]),
    "batch with a negative size": (batch(b"\xff" * 4 + WHOLE[4:]), 13, ["batch"]),
    "batch with a lying body": (batch(WHOLE[:16] + b"\x7f\xff\xff\xff" + WHOLE[20:]), 13, []),
    "compact batch, second cut": (compact_batch(WHOLE[:-5]), 13, ["batch"]),
    "batch of garbage": (compact_batch(b"\x00\x00\x00\x20garbage that is long enough"), 13, []),
    "pull from below 0": (pull(-5), 21, []),
    "pull from far behind the end": (pull(2**62), 21, []),
    "pull from a queue above the last": (pull(0, 99), 1, ["queueId[99]"]),
    "pull from a negative queue": (pull(0, -1), 1, ["queueId[-1]"]),
    "pull by a group of dots": (pull(consumerGroup="../x"), 1, [ILLEGAL]),
    "pull by a group of 256": (pull(consumerGroup="g" * 256), 1, ["256", "255"]),
    "pull with a bad filter": (pull(subscription="a > b", expressionType="SQL92"), 1, ["SQL92"]),
    "commit below 0": (commit(-9), 1, ["-9"]),
    "commit on a negative queue": (commit(9, queueId="-2"), 1, ["-2"]),
    "commit on a bad topic": (commit(9, topic="a/b"), 1, [ILLEGAL]),
    "commit by a bad group": (commit(9, consumerGroup="a/../b"), 1, [ILLEGAL]),
    "commit above 64 bits": (commit(2**63), 1, ["commitOffset"]),
    "heart beat of garbage": (request(HEART_BEAT, None, b"\xff\xfe"), 1, ["JSON"]),
    "heart beat without a client": (request(HEART_BEAT, None, b"{}"), 1, ["clientID"]),
    "heart beat deeper than any stack": (request(HEART_BEAT, None, b"[" * 200_000), 1, ["JSON"]),
    "lock by nobody": (request(41, None, b"{}"), 1, ["consumerGroup"]),
    "message below 0": (request(33, {"offset": "-1"}), 1, ["-1"]),
    "message far behind the end": (request(33, {"offset": str(2**62)}), 1, [str(2**62)]),
}


def hello(**changes: Any) -> bytes:
    body = {
        "version": WIRE_VERSION, "group": "broker-a", "sender": "n1", "target": "n0",
        "segment_bytes": 16_777_216, "members": ["n0", "n1", "n2"], **changes,
    }  # fmt: skip
    return request(BinaryCode.HELLO.value, None, repr(body).replace("'", '"').encode())


def rpc(code: int, **changes: Any) -> bytes:
    body = {
        "group": "broker-a", "remoteId": "n0", "localId": "n1", "leaderId": "n1", "term": 99,
        "code": 200, **changes,
    }  # fmt: skip
    return request(code, None, repr(body).replace("'", '"').encode())


# A frame for the ledger port; the code of the answer (None: closed), and words of remark or body.
LEDGER: dict[str, tuple[bytes, int | None, str]] = {
    "hello of another group": (hello(group="broker-b"), 400, "broker-b"),
    "hello to another member": (hello(target="n7"), 401, "n7"),
    "hello of a stranger": (hello(sender="n9"), 401, "n9"),
    "hello of the member itself": (hello(sender="n0"), 401, "n0"),
    "hello of garbage": (request(BinaryCode.HELLO.value, None, b"\xffgarbage"), 411, ""),
    "vote for another group": (rpc(51001, group="broker-b"), 200, '"code":400'),
    "vote to another member": (rpc(51001, remoteId="n7"), 200, '"code":401'),
    "vote of a stranger": (rpc(51001, leaderId="n9"), 200, "REJECT_UNKNOWN_LEADER"),
    "heart beat for another group": (rpc(51002, group=""), 200, '"code":400'),
    "heart beat of a stranger": (rpc(51002, leaderId="n9"), 200, '"code":401'),
    "push of a stranger": (rpc(51004, leaderId="n9"), 200, '"code":'),
    "request of garbage": (request(51002, None, b"garbage"), 1, ""),
    "request that is no object": (request(51001, None, b"[]"), 1, ""),
    "request deeper than any stack": (request(51001, None, b"[" * 500_000), 1, ""),
    "unknown code": (request(51099), 3, "51099"),
    "code of a client": (send(), 3, "10"),
    "binary frame before hello": (request(BinaryCode.APPEND.value, None, bytes(40)), None, ""),
    "binary garbage before hello": (request(BinaryCode.VOTE.value, None, b"\xff"), None, ""),
    "frame over the limit": (frame(b"{}", length=2**31 - 1), None, ""),
    "negative length": (frame(b"{}", length=-7), None, ""),
    "garbage in place of JSON": (frame(b"garbage"), None, ""),
}


def damaged(rng: random.Random, frames: list[bytes]) -> bytes:
    """A recorded frame with some damage of a kind that is drawn."""
    data = bytearray(rng.choice(frames))
    for _ in range(rng.choice((1, 1, 2, 8))):
        reach = len(data) if rng.random() < 0.5 else min(80, len(data))
        place = rng.randrange(reach)
        match rng.randrange(6):
            case 0:
                data[place] ^= 1 << rng.randrange(8)
            case 1:
                data[place] = rng.randrange(256)
            case 2:
                del data[max(place, 1) :]
            case 3:
                data[place:place] = rng.randbytes(rng.randrange(1, 40))
            case 4:
                del data[place : place + rng.randrange(1, 20)]
            case _:
                data[place : place + 4] = rng.choice((b"\xff" * 4, bytes(4), b"\x7f\xff\xff\xff"))
        data = data or bytearray(b"\0")
    if rng.random() < 0.5 and len(data) > 4:
        # A length that fits, so that the damage reaches the reader of the header or the body.
        data[:4] = (len(data) - 4).to_bytes(4, "big")
    return bytes(data)


def recorded(*sets: str) -> list[bytes]:
    paths = [path for name in sets for path in sorted((FRAMES / name).glob("*.bin"))]
    return [path.read_bytes() for path in paths]
