"""An account shares topics and groups with others, and neither ends nor spoils what is theirs."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand, encode
from ledgermq.protocol.message_id import decode_offset_id
from ledgermq.protocol.properties import format_properties
from ledgermq.protocol.signature import Credentials
from ledgermq.protocol.sysflag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from tests.attack.closed_broker import ROOT, SHOP, THIEF, ask, beat
from tests.e2e.wire_client import (
    WireClient,
    end_fields,
    half_fields,
    pull_fields,
    request,
    send_fields,
)
from tests.processes import LiveProgram
from tests.waiting import wait_until

DEAD = "%DLQ%shared-readers"
KEEPER = Credentials(access_key="keeper-app", secret_key="secret-of-keeper")
REPLIES = "DefaultCluster_REPLY_TOPIC"
_MIB = 1 << 20


def test_half_message_of_another_account_is_not_ended(shop: WireClient, thief: WireClient) -> None:
    """Both may send to the topic; the half message is one account's."""
    fields = send_fields("stock", 0, **half_fields("secret-group", int(time.time() * 1000)))
    half = ask(shop, SHOP, RequestCode.SEND_MESSAGE, fields, b"half of shop").ext_fields or {}
    for group, offset in (("secret-group", half["queueOffset"]), ("a guess", "77")):
        for outcome in (TRANSACTION_ROLLBACK, TRANSACTION_COMMIT):
            wanted = end_fields({**half, "queueOffset": offset}, group, outcome)
            refused = ask(thief, THIEF, RequestCode.END_TRANSACTION, wanted)
            assert refused.code != 0 and "another account's" in str(refused.remark)
            assert "secret-group" not in str(refused.remark)
    wrong = end_fields(half, "a guess", TRANSACTION_COMMIT)
    refused = ask(shop, SHOP, RequestCode.END_TRANSACTION, wrong)
    assert refused.code != 0 and "secret-group" not in str(refused.remark)
    end = end_fields(half, "secret-group", TRANSACTION_COMMIT)
    assert ask(shop, SHOP, RequestCode.END_TRANSACTION, end).code == 0
    pull = pull_fields("stock", 0, 0, consumerGroup="shared-readers")
    wait_until(
        lambda: b"half of shop" in ask(shop, SHOP, RequestCode.PULL_MESSAGE, pull).body,
        what="the committed message",
    )


def test_dead_letter_names_no_foreign_topic_on_the_quick_road(program: LiveProgram) -> None:
    """The first sends to a topic open the quick road for those that come behind them."""
    names = "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp"
    letters = dict(zip([*names.split(), "flag", "properties"], "abcdefghi", strict=True))

    def frame(opaque: int, properties: str) -> bytes:
        given = send_fields(DEAD, 0, properties=properties)
        fields = {letter: str(given.get(name, "")) for name, letter in letters.items()}
        code = RequestCode.SEND_MESSAGE_V2.value
        signed = KEEPER.signed(fields, b"x", code)
        return encode(RemotingCommand(code=code, ext_fields=signed, body=b"x", opaque=opaque))

    account = {
        "accessKey": KEEPER.access_key, "secretKey": KEEPER.secret_key, "admin": "false",
        "topicPerms": f"{DEAD}=PUB|SUB",
    }  # fmt: skip
    with WireClient(program.address) as root, WireClient(program.address) as keeper:
        assert ask(root, ROOT, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, account).code == 0
        for number in range(3):
            keeper.write(frame(number, ""))
            assert keeper.read().code == 0
        forged = format_properties({"RETRY_TOPIC": "orders", "UNIQ_KEY": "F0"})
        plain = [frame(number, "") for number in range(4)]
        keeper.write(b"".join([*plain, *(frame(10 + number, forged) for number in range(4))]))
        answers = [keeper.read() for _ in range(8)]
        assert sorted(answer.opaque for answer in answers if answer.code == 0) == [0, 1, 2, 3]
        assert all("orders" in str(answer.remark) for answer in answers if answer.code)
        found = ask(root, ROOT, RequestCode.PULL_MESSAGE, pull_fields(DEAD, 0, 0))
        assert found.code == 0 and b"RETRY_TOPIC\x01orders" not in found.body


@pytest.mark.parametrize("times", [-(2**31), -3, 2**31 - 1])
def test_message_comes_back_however_often_its_sender_says_it_was_delivered(
    shop: WireClient, thief: WireClient, times: int
) -> None:
    fields = send_fields("stock", 0, reconsumeTimes=times)
    sent = ask(thief, THIEF, RequestCode.SEND_MESSAGE, fields, b"odd")
    assert sent.code == 0 and sent.ext_fields is not None
    place = decode_offset_id(sent.ext_fields["msgId"]).physical_offset
    for level in (0, -1):
        back = {
            "offset": place, "group": "shared-readers", "delayLevel": level, "unitMode": "false",
        }  # fmt: skip
        assert ask(shop, SHOP, RequestCode.CONSUMER_SEND_MSG_BACK, back).code == 0


def test_nobody_locks_queues_that_are_not_there(shop: WireClient, thief: WireClient) -> None:
    def lock(client: WireClient, who: Credentials, client_id: str, *queues: tuple[str, int]) -> Any:
        rows = [{"topic": "stock", "brokerName": name, "queueId": at} for name, at in queues]
        body = {"consumerGroup": "shared-readers", "clientId": client_id, "mqSet": rows}
        answer = ask(client, who, RequestCode.LOCK_BATCH_MQ, {}, json.dumps(body).encode())
        assert answer.code == 0, answer.remark
        return [row["queueId"] for row in json.loads(answer.body)["lockOKMQSet"]]

    ask(shop, SHOP, RequestCode.SEND_MESSAGE, send_fields("stock", 0), b"x")
    assert beat(thief, THIEF, "thief@1", consumers=("shared-readers",)).code == 0
    unknown = [("broker-a", 4), ("broker-a", 65_535), ("made up", 4)]
    assert lock(thief, THIEF, "thief@1", *unknown) == []
    # A name of one's own may be locked: it is how one of many does something.
    assert lock(thief, THIEF, "thief@1", ("write-7/3", 0)) == [0]
    assert lock(thief, THIEF, "thief@1", *unknown, ("broker-a", 1)) == [1]
    assert beat(shop, SHOP, "shop@1", consumers=("shared-readers",)).code == 0
    assert lock(shop, SHOP, "shop@1", ("broker-a", 0), ("broker-a", 1)) == [0]


def test_locks_of_one_group_leave_room_for_those_of_others(
    shop: WireClient, thief: WireClient
) -> None:
    def ask_for(client: WireClient, who: Credentials, body: dict[str, Any]) -> Any:
        return ask(client, who, RequestCode.LOCK_BATCH_MQ, {}, json.dumps(body).encode())

    name = "\U0001f600" * 60
    assert beat(thief, THIEF, name, consumers=("shared-readers",)).code == 0
    for first in range(0, 20_000, 900):
        rows = [
            {"topic": "stock", "brokerName": f"{name}{number}", "queueId": 0}
            for number in range(first, first + 900)
        ]
        body = {"consumerGroup": "shared-readers", "clientId": name, "mqSet": rows}
        answer = ask_for(thief, THIEF, body)
        if answer.code:
            break
    assert "the locks of group shared-readers take 16" in str(answer.remark)
    ask(shop, SHOP, RequestCode.SEND_MESSAGE, send_fields("orders", 0), b"x")
    assert beat(shop, SHOP, "shop@2", consumers=("order-readers",)).code == 0
    rows = [{"topic": "orders", "brokerName": "broker-a", "queueId": 0}]
    body = {"consumerGroup": "order-readers", "clientId": "shop@2", "mqSet": rows}
    assert len(json.loads(ask_for(shop, SHOP, body).body)["lockOKMQSet"]) == 1


def test_replies_neither_fill_the_memory_nor_end_a_connection(
    program: LiveProgram, thief: WireClient
) -> None:
    """Anybody with a right to something may reply to anybody who asked."""

    def reply(client_id: str, size_bytes: int) -> Any:
        properties = format_properties({"CORRELATION_ID": "c", "REPLY_TO_CLIENT": client_id})
        fields = {
            name: str(v) for name, v in send_fields(REPLIES, 0, properties=properties).items()
        }
        body = bytes(size_bytes)
        code = RequestCode.SEND_REPLY_MESSAGE.value
        thief.write(request(code, THIEF.signed(fields, body, code), body))

    with WireClient(program.address, timeout_s=30.0) as asking:
        assert beat(asking, SHOP, "asks@1", producers=("askers",)).code == 0
        reply("asks@1", 5 * _MIB)
        refused = thief.read()
        assert refused.code != 0 and "allowed are 4194304" in str(refused.remark)
        before_mb = program.resident_mb
        # It reads nothing meanwhile.
        for _ in range(20):
            reply("asks@1", 4 * _MIB - 1000)
        # Three are under way, or as many as do not stand unread; the others are told at once.
        refusals = [thief.read() for _ in range(17)]
        assert all("too slowly" in str(one.remark) for one in refusals)
        assert program.resident_mb - before_mb < 120
        pushed = [asking.read() for _ in range(3)]
        assert {one.code for one in pushed} == {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT}
        assert beat(asking, SHOP, "asks@1", producers=("askers",)).code == 0
