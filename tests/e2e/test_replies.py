"""Request and reply: a reply reaches the client that asked, and nobody else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand, encode
from ledgermq.protocol.properties import format_properties, parse_properties
from tests.e2e.wire_client import WireClient, send_fields
from tests.processes import LiveProgram, broker

REPLIES = "DefaultCluster_REPLY_TOPIC"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProgram]:
    with broker(tmp_path_factory.mktemp("broker"), "flushDiskType=ASYNC_FLUSH") as running:
        yield running.wait_until_serving()


@pytest.fixture
def asking(program: LiveProgram) -> Iterator[WireClient]:
    with WireClient(program.address) as client:
        body = {"clientID": "asker", "producerDataSet": [{"groupName": "askers"}]}
        client.ask(RequestCode.HEART_BEAT.value, None, json.dumps(body).encode())
        yield client


@pytest.fixture
def replying(program: LiveProgram) -> Iterator[WireClient]:
    with WireClient(program.address) as client:
        yield client


def reply_later(client: WireClient, to: str | None = "asker", body: bytes = b"reply") -> int:
    properties = {"CORRELATION_ID": "c1", "MSG_TYPE": "reply"}
    if to is not None:
        properties["REPLY_TO_CLIENT"] = to
    fields = send_fields(REPLIES, 0, properties=format_properties(properties))
    return client.ask_later(RequestCode.SEND_REPLY_MESSAGE.value, fields, body)


def take_reply(client: WireClient, code: int) -> RemotingCommand:
    pushed = client.read()
    assert pushed is not None and pushed.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    client.write(encode(pushed.response(code, None if code == 0 else "not now")))
    return pushed


def read(client: WireClient) -> tuple[RemotingCommand, dict[str, Any]]:
    answer = client.read()
    assert answer is not None
    return answer, answer.ext_fields or {}


def test_reply_reaches_the_client_that_asked_and_is_stored(
    asking: WireClient, replying: WireClient
) -> None:
    opaque = reply_later(replying)
    pushed = take_reply(asking, 0)
    assert pushed.body == b"reply" and not pushed.is_one_way
    fields = pushed.ext_fields or {}
    properties = parse_properties(fields["properties"])
    assert properties["CORRELATION_ID"] == "c1" and int(properties["PUSH_REPLY_TIME"]) > 0
    assert fields["topic"] == REPLIES and fields["bornHost"].startswith("/127.0.0.1:")
    answer, told = read(replying)
    assert (answer.opaque, answer.code) == (opaque, 0)
    assert len(told["msgId"]) == 32 and told["MSG_REGION"] == "DefaultRegion"
    stored = replying.pull(REPLIES, 0, int(told["queueOffset"]))
    assert stored[0].body == b"reply"


@pytest.mark.parametrize(
    ("to", "words"),
    [("nobody", "channel of <nobody> not found"), (None, "REPLY_TO_CLIENT is null")],
)
def test_reply_to_nobody_is_refused_with_the_reason(
    replying: WireClient, to: str | None, words: str
) -> None:
    reply_later(replying, to)
    answer, fields = read(replying)
    assert answer.code == ResponseCode.SYSTEM_ERROR and words in str(answer.remark)
    assert "TRACE_ON" in fields


def test_client_that_refuses_is_heard(asking: WireClient, replying: WireClient) -> None:
    reply_later(replying)
    take_reply(asking, 1)
    answer, _ = read(replying)
    assert answer.code == ResponseCode.SYSTEM_ERROR and "not now" in str(answer.remark)


def test_client_that_leaves_meanwhile_is_told(asking: WireClient, replying: WireClient) -> None:
    reply_later(replying)
    asking.read()
    asking.end_writing()
    answer, _ = read(replying)
    assert answer.code == ResponseCode.SYSTEM_ERROR and "asker fail" in str(answer.remark)


def test_reply_is_not_stored_when_that_is_off(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("broker")
    settings = ("flushDiskType=ASYNC_FLUSH", "storeReplyMessageEnable=false")
    with broker(folder, *settings) as running:
        address = running.wait_until_serving().address
        with WireClient(address) as asking, WireClient(address) as replying:
            body = {"clientID": "asker", "producerDataSet": [{"groupName": "askers"}]}
            asking.ask(RequestCode.HEART_BEAT.value, None, json.dumps(body).encode())
            reply_later(replying)
            take_reply(asking, 0)
            answer, told = read(replying)
            assert answer.code == 0
            assert (told["msgId"], told["queueOffset"]) == ("0", "0")
            assert replying.read_queue(REPLIES, 0) == []
