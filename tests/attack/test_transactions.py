"""An account without a right to a topic neither reads its half messages nor ends their
transactions.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.properties import decode_properties
from ledgermq.protocol.record import decode_record
from ledgermq.protocol.signature import Credentials
from ledgermq.protocol.sysflag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from tests.attack.closed_broker import ROOT, SHOP, THIEF, ask, beat, closed_broker
from tests.e2e.wire_client import WireClient, end_fields, half_fields, pull_fields, send_fields

# Half messages are asked about soon.
SETTINGS = ("transactionCheckInterval=200", "transactionTimeOut=200", "transactionCheckMax=100")


def send_half(
    client: WireClient, who: Credentials, topic: str, **properties: str
) -> dict[str, str]:
    now_ms = int(time.time() * 1000)
    fields = send_fields(topic, 0, **half_fields("shop-tellers", now_ms, **properties))
    answer = ask(client, who, RequestCode.SEND_MESSAGE, fields, b"half of " + topic.encode())
    assert answer.code == 0, answer.remark
    return answer.ext_fields or {}


def next_question(client: WireClient, times_max: int = 100) -> RemotingCommand:
    """Returns the next question about a transaction (39)."""
    for _ in range(times_max):
        command = client.read()
        assert command is not None
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            return command
    raise AssertionError("no question came")


def end(client: WireClient, who: Credentials, half: dict[str, str], outcome: int) -> Any:
    fields = end_fields(half, "shop-tellers", outcome)
    return ask(client, who, RequestCode.END_TRANSACTION, fields)


def read_orders(client: WireClient) -> list[bytes]:
    fields = pull_fields("orders", 0, 0, consumerGroup="order-readers")
    answer = ask(client, SHOP, RequestCode.PULL_MESSAGE, fields)
    bodies, start = [], 0
    while answer.code == 0 and start < len(answer.body):
        record = decode_record(answer.body, start)
        bodies.append(record.body)
        assert "LEDGERMQ_ACCOUNT" not in decode_properties(record.properties)
        start += record.size_bytes
    return bodies


def test_transaction_of_a_foreign_topic_is_not_ended(shop: WireClient, thief: WireClient) -> None:
    half = send_half(shop, SHOP, "orders")
    for outcome in (TRANSACTION_ROLLBACK, TRANSACTION_COMMIT):
        refused = end(thief, THIEF, half, outcome)
        assert refused.code != 0 and "topic:orders" in str(refused.remark)
    # A place where a foreign half message stands reads like one where none stands, or is refused.
    wrong = end(thief, THIEF, {**half, "queueOffset": "77"}, TRANSACTION_ROLLBACK)
    assert wrong.code != 0
    assert end(shop, SHOP, half, TRANSACTION_COMMIT).code == 0
    assert b"half of orders" in read_orders(shop)


def test_heart_beat_as_a_foreign_group_gets_no_half_messages(
    shop: WireClient, thief: WireClient
) -> None:
    """The thief's own half message is asked about all the time: by it the rounds are counted."""
    assert beat(thief, THIEF, "thief@1", producers=("shop-tellers",)).code == 0
    half = send_half(shop, SHOP, "orders")
    send_half(thief, THIEF, "bait")
    for _ in range(5):
        record = decode_record(next_question(thief).body)
        assert (record.topic, record.body) == ("bait", b"half of bait")
    # Its own account is asked, whenever it comes.
    assert beat(shop, SHOP, "shop@1", producers=("shop-tellers",)).code == 0
    asked = decode_record(next_question(shop).body)
    assert asked.body == b"half of orders"
    assert "LEDGERMQ_ACCOUNT" not in decode_properties(asked.properties)
    assert end(shop, SHOP, half, TRANSACTION_ROLLBACK).code == 0


def test_who_sent_a_half_message_is_not_for_its_sender_to_say(
    shop: WireClient, thief: WireClient
) -> None:
    """A mark of another account, in a half message of one's own, is replaced."""
    marked = send_half(thief, THIEF, "bait", LEDGERMQ_ACCOUNT="0" * 32)
    assert beat(thief, THIEF, "thief@2", producers=("shop-tellers",)).code == 0
    asked = decode_record(next_question(thief).body)
    assert asked.topic == "bait"
    assert end(thief, THIEF, marked, TRANSACTION_ROLLBACK).code == 0


def test_question_follows_the_account_over_a_restart(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("restarted")
    with closed_broker(folder, *SETTINGS) as running:
        with WireClient(running.wait_until_serving().address) as client:
            send_half(client, SHOP, "orders")
    with closed_broker(folder, *SETTINGS) as running:
        address = running.wait_until_serving().address
        with WireClient(address, 30.0) as thief, WireClient(address, 30.0) as shop:
            assert beat(thief, THIEF, "thief@1", producers=("shop-tellers",)).code == 0
            send_half(thief, THIEF, "bait")
            for _ in range(3):
                assert decode_record(next_question(thief).body).topic == "bait"
            assert beat(shop, SHOP, "shop@1", producers=("shop-tellers",)).code == 0
            assert decode_record(next_question(shop).body).body == b"half of orders"
            assert ask(shop, ROOT, RequestCode.GET_BROKER_RUNTIME_INFO).code == 0
