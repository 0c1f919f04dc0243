"""SQL92 filters through a broker process: pulls, parked pulls, checks, and what is refused."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from tests.e2e.wire_client import WireClient, pull_fields, request
from tests.processes import LiveProgram, broker

_TOPIC = "Filtered"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProgram]:
    folder = tmp_path_factory.mktemp("broker")
    with broker(folder, "enablePropertyFilter=true", "flushDiskType=ASYNC_FLUSH") as running:
        yield running.wait_until_serving()


@pytest.fixture
def client(program: LiveProgram) -> Iterator[WireClient]:
    with WireClient(program.address) as connected:
        yield connected


def pull(client: WireClient, expression: str | None, **changes: Any) -> RemotingCommand:
    fields = pull_fields(_TOPIC, 0, 0, **{"subscription": expression, **changes})
    fields["expressionType"] = "SQL92"
    return client.ask(RequestCode.PULL_MESSAGE.value, fields)


def heart_beat(client: WireClient, group: str, expression: str) -> RemotingCommand:
    subscription = {
        "topic": _TOPIC,
        "subString": expression,
        "expressionType": "SQL92",
        "subVersion": 1,
    }
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [subscription],
    }
    body = {"clientID": "c1", "consumerDataSet": [consumer], "producerDataSet": []}
    return client.ask(RequestCode.HEART_BEAT.value, None, json.dumps(body).encode())


def next_offset(answer: RemotingCommand) -> int:
    return int((answer.ext_fields or {})["nextBeginOffset"])


def end_of(client: WireClient) -> int:
    answer = client.ask(RequestCode.GET_MAX_OFFSET.value, {"topic": _TOPIC, "queueId": "0"})
    return int((answer.ext_fields or {})["offset"])


def pulled(client: WireClient, expression: str | None, start: int, **fields: str) -> bytes:
    """All records that a consumer gets: it goes on where each answer says, since one pull has a
    bounded share of a turn.
    """
    records, end = b"", end_of(client)
    while start < end:
        answer = pull(client, expression, queueOffset=str(start), **fields)
        assert answer.code in (0, ResponseCode.PULL_RETRY_IMMEDIATELY)
        assert bool(answer.body) is (answer.code == 0) and next_offset(answer) > start
        records, start = records + answer.body, next_offset(answer)
    assert start == end
    return records


def send(client: WireClient, body: bytes, **properties: str) -> None:
    text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
    assert client.send(_TOPIC, 0, body, properties=text).code == 0


def test_pull_gets_what_its_expression_wants(client: WireClient) -> None:
    send(client, b"first")
    start = end_of(client)
    for price in (5, 15, 25):
        send(client, b"%d" % price, price=str(price), TAGS="A")
    both = pulled(client, "price > 10 AND TAGS = 'A'", start)
    assert b"15" in both and b"25" in both and both.count(b"price") == 2
    assert pulled(client, "price < 10", start).count(b"price") == 1
    assert pulled(client, "price > 100", start) == b""


def test_parked_pull_waits_for_a_wanted_message(client: WireClient, program: LiveProgram) -> None:
    send(client, b"first")
    start = end_of(client)
    fields = pull_fields(
        _TOPIC, 0, start, sysFlag="6", suspendTimeoutMillis="20000",
        subscription="kind = 'wanted'",
    )  # fmt: skip
    fields["expressionType"] = "SQL92"
    with WireClient(program.address) as other:
        client.write(request(RequestCode.PULL_MESSAGE.value, fields, opaque=77))
        for _ in range(3):
            send(other, b"noise", kind="noise")
        send(other, b"the one", kind="wanted")
        answer = client.read()
    assert answer is not None and answer.opaque == 77 and answer.code == 0
    assert b"the one" in answer.body and b"noise" not in answer.body
    assert next_offset(answer) == start + 4


def test_parked_pull_learns_at_its_deadline_how_far_it_came(
    client: WireClient, program: LiveProgram
) -> None:
    send(client, b"first")
    start = end_of(client)
    fields = pull_fields(
        _TOPIC, 0, start, sysFlag="6", suspendTimeoutMillis="700",
        subscription="kind = 'never'",
    )  # fmt: skip
    fields["expressionType"] = "SQL92"
    begun = time.monotonic()
    with WireClient(program.address) as other:
        client.write(request(RequestCode.PULL_MESSAGE.value, fields, opaque=78))
        send(other, b"noise", kind="noise")
        answer = client.read()
    assert answer is not None
    assert time.monotonic() - begun > 0.6
    assert answer.code == ResponseCode.PULL_NOT_FOUND and next_offset(answer) == start + 1


def test_expression_of_the_heart_beat_is_applied(client: WireClient) -> None:
    send(client, b"first")
    start = end_of(client)
    send(client, b"red one", color="red")
    send(client, b"blue one", color="blue")
    assert heart_beat(client, "g-color", "color = 'blue'").code == 0
    records = pulled(client, None, start, consumerGroup="g-color", sysFlag="0")
    assert b"blue one" in records and b"red one" not in records
    # Tools are told the expression, and which messages it wants.
    fields = {"topic": _TOPIC, "queueId": "0", "index": str(start), "count": "2"}
    asked = {**fields, "consumerGroup": "g-color"}
    shown = json.loads(client.ask(RequestCode.QUERY_CONSUME_QUEUE.value, asked).body)
    assert [unit["eval"] for unit in shown["queueData"]] == [False, True]
    told = json.loads(shown["filterData"])
    assert (told["consumerGroup"], told["expression"]) == ("g-color", "color = 'blue'")


def test_wrong_expressions_have_their_codes(client: WireClient) -> None:
    send(client, b"first")
    wrong = pull(client, "a ==")
    assert wrong.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "at character 4" in (wrong.remark or "")
    assert heart_beat(client, "g-wrong", "a ==").code == 0
    answer = pull(client, None, consumerGroup="g-wrong", sysFlag="0")
    assert answer.code == ResponseCode.FILTER_DATA_NOT_EXIST
    outdated = pull(client, None, consumerGroup="g-wrong", sysFlag="0", subVersion="2")
    assert outdated.code == ResponseCode.SUBSCRIPTION_NOT_LATEST


@pytest.mark.parametrize(("expression", "code"), [("a > 1", 0), ("a > '1'", 23), ("", 23)])
def test_check_of_a_client_parses_its_expression(
    client: WireClient, expression: str, code: int
) -> None:
    subscription = {"topic": _TOPIC, "subString": expression, "expressionType": "SQL92"}
    body = {"clientId": "c", "group": "g", "subscriptionData": subscription}
    answer = client.ask(RequestCode.CHECK_CLIENT_CONFIG.value, None, json.dumps(body).encode())
    assert answer.code == code
