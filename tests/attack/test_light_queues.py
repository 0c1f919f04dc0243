"""What a message names besides its topic is judged as its topic is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledgermq.protocol.batch import BatchMessage, encode_batch
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.properties import format_properties
from tests.attack.closed_broker import ROOT, THIEF, ask, closed_broker
from tests.e2e.wire_client import WireClient, pull_fields, send_fields
from tests.processes import LiveProgram

LIGHT = "%LMQ%orders"
DEAD = "%DLQ%shared-readers"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProgram]:
    settings = ("enableLmq=true", "enableMultiDispatch=true", "storeReplyMessageEnable=true")
    with closed_broker(tmp_path_factory.mktemp("broker"), *settings) as running:
        yield running.wait_until_serving()


@pytest.fixture
def client(program: LiveProgram) -> Iterator[WireClient]:
    with WireClient(program.address) as connected:
        yield connected


def named(name: str, value: str) -> str:
    return format_properties({name: value, "UNIQ_KEY": "F0"})


def batch_of(text: str) -> bytes:
    return encode_batch([BatchMessage(0, b"plain", b""), BatchMessage(0, b"x", text.encode())])


def shortened(fields: dict[str, str]) -> dict[str, str]:
    """Returns the fields of a send under the names that a batch has."""
    names = (
        "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
        "bornTimestamp", "flag", "properties",
    )  # fmt: skip
    return {letter: fields.get(name, "") for letter, name in zip("abcdefghi", names, strict=True)}


def in_light_queue(client: WireClient) -> int:
    """Returns how many messages stand in the light queue."""
    fields = {"topic": LIGHT, "queueId": 0}
    answer = ask(client, ROOT, RequestCode.GET_MAX_OFFSET, fields)
    assert answer.code == 0 and answer.ext_fields is not None
    return int(answer.ext_fields["offset"])


def test_message_goes_into_light_queues_that_its_sender_may_write_to(client: WireClient) -> None:
    text = named("INNER_MULTI_DISPATCH", LIGHT)
    fields = send_fields("bait", 0, properties=text)
    sent = ask(client, ROOT, RequestCode.SEND_MESSAGE, fields, b"x")
    assert sent.code == 0, sent.remark
    before = in_light_queue(client)
    assert before
    plain = send_fields("bait", 0)
    tries = (
        (RequestCode.SEND_MESSAGE, fields, b"x"),
        (RequestCode.SEND_BATCH_MESSAGE, shortened(plain), batch_of(text)),
        (RequestCode.SEND_MESSAGE, {**plain, "batch": "true"}, batch_of(text)),
        (
            RequestCode.SEND_REPLY_MESSAGE,
            send_fields("DefaultCluster_REPLY_TOPIC", 0, properties=text),
            b"x",
        ),
    )
    for code, told, body in tries:
        refused = ask(client, THIEF, code, told, body)
        assert f"topic:{LIGHT}" in str(refused.remark), (code, refused.remark)
    assert in_light_queue(client) == before


def test_dead_letter_does_not_say_that_it_came_from_a_foreign_topic(client: WireClient) -> None:
    account = {
        "accessKey": "keeper-app", "secretKey": "secret-of-keeper", "admin": "false",
        "topicPerms": f"{DEAD}=PUB|SUB,stock=SUB",
    }  # fmt: skip
    made = ask(client, ROOT, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, account)
    assert made.code == 0, made.remark
    keeper = type(ROOT)(access_key="keeper-app", secret_key="secret-of-keeper")
    for topic, is_taken in (("orders", False), ("stock", True)):
        text = named("RETRY_TOPIC", topic)
        one = ask(
            client, keeper, RequestCode.SEND_MESSAGE, send_fields(DEAD, 0, properties=text), b"x"
        )
        fields = shortened(send_fields(DEAD, 0))
        many = ask(client, keeper, RequestCode.SEND_BATCH_MESSAGE, fields, batch_of(text))
        assert [one.code == 0, many.code == 0] == [is_taken] * 2, (one.remark, many.remark)
    answer = ask(client, ROOT, RequestCode.PULL_MESSAGE, pull_fields(DEAD, 0, 0))
    assert b"orders" not in answer.body
