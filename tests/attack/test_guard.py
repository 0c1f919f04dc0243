"""Attacks on the guard of a real broker: places in the log, odd numbers, every code there is.

`thief` has rights to topics and groups of its own; `idle` is an account without any.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.signature import Credentials
from tests.attack.closed_broker import ROOT, SHOP, THIEF, ask, beat, closed_broker
from tests.e2e.wire_client import WireClient, pull_fields, send_fields
from tests.processes import LiveProgram
from tests.unit.broker.guarded import fields_of_all_headers

IDLE = Credentials(access_key="idle-app", secret_key="secret-of-idle")
FORGED = Credentials(access_key="root-app", secret_key="secret-of-thief")
STRANGER = Credentials(access_key="nobody-app", secret_key="secret-of-thief")
BODY = b"what the shop alone may read"
# Of a record, at its fifth byte.
MAGIC = bytes.fromhex("daa320a7")
UNKNOWN_CODES = (0, 1, 9, 99, 1000, 4711, 2**31 - 1, -1)


class Broker(NamedTuple):
    """A broker with a message of the shop, and where it stands."""

    program: LiveProgram
    log: Path
    place: int


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("broker")
    with closed_broker(folder) as program:
        program.wait_until_serving()
        with WireClient(program.address) as client:
            fields = send_fields("orders", 0)
            assert ask(client, SHOP, RequestCode.SEND_MESSAGE, fields, BODY).code == 0
            assert ask(client, THIEF, RequestCode.SEND_MESSAGE, send_fields("bait", 0)).code == 0
            assert beat(client, SHOP, "shop-client", consumers=("order-readers",)).code == 0
            assert beat(client, THIEF, "thief", consumers=("shared-readers",)).code == 0
            offset = {"consumerGroup": "order-readers", "topic": "orders", "queueId": "0"}
            told = {**offset, "commitOffset": "1"}
            assert ask(client, SHOP, RequestCode.UPDATE_CONSUMER_OFFSET, told).code == 0
            idle = {"accessKey": IDLE.access_key, "secretKey": IDLE.secret_key, "admin": "false"}
            made = ask(client, ROOT, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, idle)
            assert made.code == 0, made.remark
        log = next(folder.glob("**/data/00000000000000000000"))
        data = log.read_bytes()[: 1 << 20]
        yield Broker(program, log, data.rindex(MAGIC, 0, data.index(BODY)) - 4)


@pytest.fixture
def client(broker: Broker) -> Iterator[WireClient]:
    with WireClient(broker.program.address) as connected:
        yield connected


def everything(client: WireClient) -> list[Any]:
    """What an admin sees of tables, rules and messages."""
    seen: list[Any] = [
        ask(client, ROOT, code).body
        for code in (
            RequestCode.GET_ALL_TOPIC_CONFIG,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.GET_ALL_CONSUMER_OFFSET,
            RequestCode.GET_ALL_DELAY_OFFSET,
            RequestCode.GET_BROKER_CONFIG,
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
        )
    ]
    for topic in ("orders", "stock", "bait"):
        for queue_id in range(4):
            fields = {"topic": topic, "queueId": str(queue_id)}
            seen.append(ask(client, ROOT, RequestCode.GET_MAX_OFFSET, fields).ext_fields)
    return seen


def spellings(place: int) -> list[str]:
    digits = str(place)
    return [
        f"{digits}.0", f"{digits}e0", f"0{digits}", f"{place:020d}", f"+{digits}", f" {digits}",
        f"{digits}\n", hex(place), f"{digits}L", f"{digits}_0", str(place + 2**64),
        "".join(chr(0x660 + int(digit)) for digit in digits),
    ]  # fmt: skip


def test_message_of_others_is_not_read_by_its_place_however_it_is_written(
    client: WireClient, broker: Broker
) -> None:
    """The guard looked at one number, and the broker read another one."""
    place = str(broker.place)
    read = ask(client, SHOP, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": place})
    assert read.code == 0 and BODY in read.body
    back = {"group": "shared-readers", "delayLevel": "0"}
    before = everything(client)
    for text in [place, *spellings(broker.place)]:
        for code, fields in (
            (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": text}),
            (RequestCode.CONSUMER_SEND_MSG_BACK, {**back, "offset": text}),
        ):
            answer = ask(client, THIEF, code, fields)
            assert answer.code != 0 and not answer.body, (code, text)
    assert everything(client) == before
    assert broker.log.read_bytes()[: 1 << 20].count(BODY) == 1


def test_no_state_record_is_copied_or_read_by_its_place(client: WireClient, broker: Broker) -> None:
    """Given back, one came into the retry topic of the group, with all that it held."""
    log = broker.log.read_bytes()[: 1 << 20]
    places = [at - 4 for at in range(len(log)) if log.startswith(MAGIC, at)]
    hidden = [at for at in places if at != broker.place]
    assert len(hidden) > 2
    back = {"group": "shared-readers", "delayLevel": "0"}
    copied = 0
    for place in hidden:
        fields = {**back, "offset": str(place)}
        copied += ask(client, THIEF, RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == 0
        viewed = ask(client, THIEF, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(place)})
        assert viewed.code != 0 or b"bait" in viewed.body
    # Its own message, the only one that it may have back.
    assert copied <= 1
    retry = pull_fields("%RETRY%shared-readers", 0, 0, consumerGroup="shared-readers")
    pulled = ask(client, THIEF, RequestCode.PULL_MESSAGE, retry)
    assert b'"kind"' not in pulled.body and BODY not in pulled.body


@pytest.mark.parametrize(
    "who", [None, STRANGER, FORGED, IDLE], ids=["none", "new", "forged", "idle"]
)
def test_no_code_reads_or_changes_anything_without_a_right(
    broker: Broker, who: Credentials | None
) -> None:
    """Every code that is known, and some that are not, with fields that all headers can be read
    from; and the same with nothing.
    """
    plausible = fields_of_all_headers("orders", 0)
    plausible |= {"offset": str(broker.place), "consumerGroup": "order-readers"}
    address = broker.program.address
    with WireClient(address) as operator, WireClient(address) as client:
        before = everything(operator)
        for code in [*map(int, RequestCode), *UNKNOWN_CODES]:
            for fields, body in ((plausible, b""), ({}, b"{}")):
                signed = fields if who is None else who.signed(fields, body)
                answer = client.ask(code, signed, body)
                assert answer.code != 0 and not answer.body, (code, answer.remark)
                assert not _names(answer.ext_fields), code
        assert everything(operator) == before


def _names(fields: dict[str, str] | None) -> list[str]:
    """Fields that tell more than what every answer to a send has."""
    return [name for name in fields or {} if name not in ("MSG_REGION", "TRACE_ON")]


def test_lists_show_an_account_what_it_has_a_right_to(client: WireClient) -> None:
    """They told the names, settings, members and offsets of everybody."""
    code = RequestCode
    topics = json.loads(ask(client, THIEF, code.GET_ALL_TOPIC_CONFIG).body)["topicConfigTable"]
    assert set(topics) <= {"bait", "stock", "%RETRY%shared-readers"} and "bait" in topics
    groups = json.loads(ask(client, THIEF, code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)
    assert set(groups["subscriptionGroupTable"]) == {"shared-readers"}
    offsets = json.loads(ask(client, THIEF, code.GET_ALL_CONSUMER_OFFSET).body)
    assert offsets["offsetTable"] == {}
    assert (
        b"order" not in ask(client, THIEF, code.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}).body
    )
    assert b"order-readers" in ask(client, SHOP, code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body
    assert b"orders@order-readers" in ask(client, SHOP, code.GET_ALL_CONSUMER_OFFSET).body
    everyone = ask(client, ROOT, code.GET_ALL_TOPIC_CONFIG).body
    assert b"orders" in everyone and b"bait" in everyone


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.GET_BROKER_CONFIG, {}),
        (RequestCode.GET_BROKER_RUNTIME_INFO, {}),
        (RequestCode.GET_ALL_DELAY_OFFSET, {}),
        (RequestCode.GET_BROKER_CLUSTER_ACL_INFO, {}),
        (RequestCode.GET_TOPIC_CONFIG, {"topic": "orders"}),
        (RequestCode.GET_TOPIC_STATS_INFO, {"topic": "orders"}),
        (RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "orders"}),
        (RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "order-readers"}),
        (RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "order-readers"}),
        (RequestCode.GET_CONSUMER_RUNNING_INFO,
         {"consumerGroup": "order-readers", "clientId": "shop-client"}),
        (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "order-readers"}),
        (RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "orders", "group": "order-readers"}),
        (RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "shop-producers"}),
        (RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "orders"}),
        (RequestCode.CLONE_GROUP_OFFSET,
         {"srcGroup": "order-readers", "destGroup": "shared-readers", "topic": "orders"}),
    ],
)  # fmt: skip
def test_account_of_other_topics_is_told_nothing_of_these(
    client: WireClient, code: RequestCode, fields: dict[str, str]
) -> None:
    answer = ask(client, THIEF, code, fields)
    assert answer.code != 0 and not answer.body
    assert "ermission" in str(answer.remark), answer.remark


def test_names_that_a_peer_sends_forge_no_line_of_the_log(
    client: WireClient, broker: Broker
) -> None:
    forged = "1970-01-01T00:00:00+0000 [ledgermq#info] all is well"
    name = f"x\n{forged}\x1b[2J"
    for code, fields in (
        (RequestCode.UPDATE_CONSUMER_OFFSET, {"topic": name, "consumerGroup": name}),
        (RequestCode.UPDATE_BROKER_CONFIG, {"x": name}),
    ):
        ask(client, ROOT, code, {**fields, "queueId": "0", "commitOffset": "1"})
    ask(client, ROOT, RequestCode.UPDATE_BROKER_CONFIG, {}, b"shortPollingTimeMills=1000")
    text = broker.program.log_text()
    assert "\x1b" not in text
    assert not any(line.startswith("1970-") for line in text.splitlines())


@pytest.mark.parametrize(
    "group", ["%RETRY%shared-readers", "%DLQ%shared-readers", "%RETRY%%RETRY%x"]
)
def test_group_of_a_groups_topic_is_refused(client: WireClient, group: str) -> None:
    before = everything(client)
    assert beat(client, ROOT, "odd-client", consumers=(group,)).code != 0
    fields = pull_fields("bait", 0, 0, consumerGroup=group)
    assert ask(client, ROOT, RequestCode.PULL_MESSAGE, fields).code != 0
    assert everything(client) == before
