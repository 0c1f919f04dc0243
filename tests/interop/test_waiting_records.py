"""The same requests to a stock broker and to LedgerMQ leave the same records and queue units.

For messages that wait: delayed, sent back, half, committed, rolled back, asked about. Both brokers
are alone in their DLedger group, so their files have one layout; they are read from disk.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.java_hash import java_string_hash
from ledgermq.protocol.message_id import decode_offset_id
from ledgermq.protocol.properties import SENDER_ACCOUNT, decode_properties
from ledgermq.protocol.record import Record, decode_record
from tests.e2e.wire_client import WireClient, end_fields, half_fields
from tests.interop.closed import broker_settings, is_on, wire
from tests.interop.stock_broker import JavaCluster, JavaClusterPlan
from tests.processes import broker
from tests.waiting import wait_until

# A stock broker's check runs once in its interval, whatever came meanwhile.
KEYS = {
    "messageDelayLevel": "1s 2s 1s 1s",
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "500",
    "transactionCheckMax": "2",
}
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
HALF, ENDS = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ASIDE = "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP = "wire-group"


@dataclass(slots=True, frozen=True, kw_only=True)
class Place:
    """A running broker and its files."""

    address: str
    root: Path
    # Name of the member's directory below the root.
    member: str
    # Topics whose records say which account has sent them.
    marks: frozenset[str] = frozenset()

    def queue(self, topic: str, queue_id: int) -> list[tuple[Record, int]]:
        """Returns the records of a queue with the tags codes of their units, from the files."""
        folder = self.root / "consumequeue" / topic / str(queue_id)
        found = []
        for file in sorted(folder.glob("[0-9]*")):
            data = file.read_bytes()
            for at in range(0, len(data), 20):
                place, size = (
                    int.from_bytes(data[at : at + 8]),
                    int.from_bytes(data[at + 8 : at + 12]),
                )
                if not size:
                    break
                tags_code = int.from_bytes(data[at + 12 : at + 20], signed=True)
                found.append((decode_record(self._log_bytes(place, size)), tags_code))
        return found

    def _log_bytes(self, place: int, size: int) -> bytes:
        [segment] = sorted((self.root / self.member / "data").glob("[0-9]*"))[:1]
        with segment.open("rb") as file:
            file.seek(place)
            return file.read(size)

    def shapes(self, topic: str, queue_id: int) -> list[dict[str, Any]]:
        """Returns what may not differ between two brokers; times and places are relative."""
        shapes = []
        for record, tags_code in self.queue(topic, queue_id):
            properties = decode_properties(record.properties)
            # Each broker names its own first place of the message.
            properties.pop("ORIGIN_MESSAGE_ID", None)
            # Ours notes whose a half message is, where accounts are asked for.
            assert (SENDER_ACCOUNT in properties) is (topic in self.marks), (topic, properties)
            properties.pop(SENDER_ACCOUNT, None)
            is_schedule = topic == SCHEDULE
            shapes.append(
                {
                    "queue": (record.topic, record.queue_id, record.queue_offset),
                    "flags": (record.flag, record.sys_flag, record.reconsume_times),
                    "has_half": record.prepared_transaction_offset > 0,
                    "body": record.body,
                    "properties": properties,
                    "tags": tags_code - record.store_timestamp if is_schedule else tags_code,
                }
            )
        return shapes


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("stock")
    plan = JavaClusterPlan(dledger_members=1, broker_keys=KEYS)
    with JavaCluster(directory, plan) as cluster:
        address = f"127.0.0.1:{cluster.broker_ports[0]}"
        yield Place(address=address, root=directory / "store-0", member="dledger-n0")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("ours")
    keys = (f"{key}={value}" for key, value in KEYS.items())
    with broker(directory, *keys, *broker_settings(directory)) as program:
        program.wait_until_serving()
        marks = frozenset((HALF, ASIDE) if is_on() else ())
        root = directory / "broker-a"
        yield Place(address=program.address, root=root, member="dledger-n0", marks=marks)


def ask(client: WireClient, code: RequestCode, **fields: Any) -> RemotingCommand:
    return client.ask(code.value, {key: str(value) for key, value in fields.items()})


def beat(client: WireClient) -> None:
    consumer = {
        "groupName": GROUP, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
        "subscriptionDataSet": [],
    }  # fmt: skip
    body = {
        "clientID": "wire", "consumerDataSet": [consumer], "producerDataSet": [{"groupName": "tx"}],
    }  # fmt: skip
    assert client.ask(RequestCode.HEART_BEAT.value, None, json.dumps(body).encode()).code == 0


def delay(place: Place) -> None:
    """Levels within and above the known ones, and their deliveries."""
    with wire(place.address) as client:
        for body, properties in (
            (b"one", "DELAY\x011\x02TAGS\x01A\x02KEYS\x01k\x02WAIT\x01true"),
            (b"two", "DELAY\x012\x02TAGS\x01B"),
            (b"cap", "DELAY\x0199"),
            (b"now", "DELAY\x010\x02TAGS\x01A"),
        ):
            answer = client.send("Late", 1, body, properties=properties, flag="7", sysFlag="1")
            assert answer.code == 0 and answer.ext_fields is not None
            assert answer.ext_fields["queueId"] == "1"
    wait_until(lambda: len(place.queue("Late", 1)) == 4, what=f"deliveries of {place.address}")


def send_back(place: Place) -> None:
    """A message that failed once, twice, and for good."""
    with wire(place.address) as client:
        beat(client)
        answer = client.send("Hard", 0, b"hard", properties="TAGS\x01A\x02WAIT\x01true")
        assert answer.code == 0 and answer.ext_fields is not None
        offset = decode_offset_id(answer.ext_fields["msgId"]).physical_offset
        for level in (0, 2, -1):
            back = ask(
                client, RequestCode.CONSUMER_SEND_MSG_BACK, offset=offset, group=GROUP,
                delayLevel=level, originMsgId="m", originTopic="Hard", unitMode="false",
                maxReconsumeTimes=16,
            )  # fmt: skip
            assert back.code == 0, back.remark
    wait_until(
        lambda: len(place.queue(f"%RETRY%{GROUP}", 0)) == 2, what=f"retries of {place.address}"
    )


def transact(place: Place) -> list[dict[str, Any]]:
    """A commit, a roll back, and one that nobody ends; returns what the producer was asked."""
    with wire(place.address) as producer, wire(place.address) as client:
        beat(producer)
        halves = []
        for body in (b"commit", b"rollback", b"forgotten"):
            now_ms = time.time_ns() // 1_000_000
            fields = half_fields("tx", now_ms, UNIQ_KEY=f"U{body.decode()}", TAGS="A", WAIT="true")
            answer = client.send("Paid", 2, body, **fields)
            assert answer.code == 0 and answer.ext_fields is not None
            halves.append(answer.ext_fields)
        for half, outcome in zip(halves, (8, 12), strict=False):
            assert (
                client.ask(RequestCode.END_TRANSACTION.value, end_fields(half, "tx", outcome)).code
                == 0
            )
        asked = []
        while len(asked) < 2:
            question = producer.read()
            assert question is not None
            if question.code == RequestCode.CHECK_TRANSACTION_STATE:
                asked.append(question)
        wait_until(lambda: place.queue(ASIDE, 0), what=f"what {place.address} puts aside")
    questions = []
    for question in asked:
        record = decode_record(question.body)
        assert question.ext_fields is not None
        own = decode_offset_id(question.ext_fields["offsetMsgId"]).physical_offset
        assert own == int(question.ext_fields["commitLogOffset"]) == record.physical_offset
        assert int(question.ext_fields["tranStateTableOffset"]) == record.queue_offset
        ids = (question.ext_fields.get("msgId"), question.ext_fields.get("transactionId"))
        questions.append(
            {
                "ids": ids,
                "flags": (question.is_one_way, record.sys_flag, record.flag),
                "queue": (record.topic, record.queue_id),
                "body": record.body,
                "properties": decode_properties(record.properties),
            }
        )
    return questions


def test_delayed_messages_are_stored_as_by_the_stock_broker(stock: Place, ours: Place) -> None:
    for place in (stock, ours):
        delay(place)
    assert {record["tags"] for record in ours.shapes("Late", 1)} == {
        0, java_string_hash("A"), java_string_hash("B"),
    }  # fmt: skip
    for queue_id in range(4):
        assert ours.shapes(SCHEDULE, queue_id) == stock.shapes(SCHEDULE, queue_id)
    by_body = [
        sorted(place.shapes("Late", 1), key=lambda one: one["body"]) for place in (ours, stock)
    ]
    for one in (*by_body[0], *by_body[1]):
        # The order of two that are due at once is not fixed.
        one["queue"] = one["queue"][:2]
    assert by_body[0] == by_body[1]


def test_messages_that_come_back_are_stored_as_by_the_stock_broker(
    stock: Place, ours: Place
) -> None:
    for place in (stock, ours):
        send_back(place)
    for topic in (f"%DLQ%{GROUP}", f"%RETRY%{GROUP}"):
        shapes = [
            sorted(place.shapes(topic, 0), key=lambda one: str(one["properties"].get("DELAY")))
            for place in (ours, stock)
        ]
        for one in (*shapes[0], *shapes[1]):
            one["queue"] = one["queue"][:2]
        assert shapes[0] == shapes[1]
    for place in (stock, ours):
        [(dead, _)] = place.queue(f"%DLQ%{GROUP}", 0)
        [(first, _)] = place.queue("Hard", 0)
        assert dead.store_host == first.store_host
        origin = decode_properties(dead.properties)["ORIGIN_MESSAGE_ID"]
        assert decode_offset_id(origin).physical_offset == first.physical_offset


def test_transactions_are_stored_as_by_the_stock_broker(stock: Place, ours: Place) -> None:
    asked_by_stock, asked_by_us = transact(stock), transact(ours)
    assert asked_by_us == asked_by_stock
    for topic, queue_id in (("Paid", 2), (HALF, 0), (ENDS, 0), (ASIDE, 0)):
        assert ours.shapes(topic, queue_id) == stock.shapes(topic, queue_id), topic
