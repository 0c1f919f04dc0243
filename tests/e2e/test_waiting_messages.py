"""One broker process: messages that wait for a time, for a next try, or for the end of their
transaction.
"""

import json
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.message_id import decode_offset_id, encode_offset_id
from ledgermq.protocol.properties import decode_properties
from ledgermq.protocol.record import decode_record
from tests.e2e.wire_client import WireClient, end_fields, half_fields
from tests.processes import LiveProgram, broker
from tests.waiting import wait_until

SETTINGS = (
    "offsetReplicationIntervalMs=100",
    "flushDiskType=ASYNC_FLUSH",
    "messageDelayLevel=1s 1s 1s",
    "transactionCheckInterval=200",
    "transactionTimeOut=300",
    "transactionCheckMax=3",
)

_numbers = count()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProgram]:
    with broker(tmp_path_factory.mktemp("broker"), *SETTINGS) as running:
        yield running.wait_until_serving()


@pytest.fixture
def client(program: LiveProgram) -> Iterator[WireClient]:
    with WireClient(program.address) as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    return f"Topic-{next(_numbers)}"


def ask(client: WireClient, code: RequestCode, **fields: Any) -> RemotingCommand:
    return client.ask(code.value, {key: str(value) for key, value in fields.items()})


def test_message_comes_back_to_retry_and_at_last_to_dead_letters(
    client: WireClient, topic: str
) -> None:
    group = f"g-{topic}"
    client.send(topic, 0, b"hard", properties="TAGS\x01A")

    def give_back(offset: int, level: int) -> RemotingCommand:
        return ask(
            client,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            offset=offset,
            group=group,
            delayLevel=level,
            maxReconsumeTimes=1,
        )

    [first] = client.read_queue(topic, 0)
    assert give_back(first.physical_offset, 0).code == 0
    [second] = wait_until(
        lambda: client.read_queue(f"%RETRY%{group}", 0), what="the next try of the message"
    )
    assert (second.body, second.reconsume_times) == (b"hard", 1)
    properties = decode_properties(second.properties)
    assert properties["RETRY_TOPIC"] == topic and properties["TAGS"] == "A"
    assert decode_offset_id(properties["ORIGIN_MESSAGE_ID"]).physical_offset == (
        first.physical_offset
    )
    assert give_back(second.physical_offset, 0).code == 0
    [dead] = client.read_queue(f"%DLQ%{group}", 0)
    assert dead.body == b"hard"
    assert give_back(first.physical_offset + 1, 0).code == 1


def test_delayed_message_is_delivered_after_its_time_as_it_was_sent(
    client: WireClient, topic: str
) -> None:
    answer = client.send(
        topic, 1, b"late", properties="DELAY\x0199\x02TAGS\x01A", reconsumeTimes="4"
    )
    assert answer.code == 0 and (answer.ext_fields or {})["queueId"] == "1"
    [record] = wait_until(lambda: client.read_queue(topic, 1), what="the delayed message")
    assert (record.body, record.reconsume_times, record.queue_offset) == (b"late", 4, 0)
    properties = decode_properties(record.properties)
    assert properties == {
        "DELAY": "3", "TAGS": "A", "REAL_TOPIC": topic, "REAL_QID": "1",
        "CLUSTER": "DefaultCluster",
    }  # fmt: skip
    waited = [
        record
        for record in client.read_queue("SCHEDULE_TOPIC_XXXX", 2)
        if record.born_timestamp and decode_properties(record.properties)["REAL_TOPIC"] == topic
    ]
    assert record.store_timestamp - waited[0].store_timestamp >= 1000

    def is_all_delivered() -> bool:
        table = json.loads(client.ask(RequestCode.GET_BROKER_RUNTIME_INFO.value).body)["table"]
        delivered, end = table["scheduleMessageOffset_3"].split(",")
        return bool(delivered == end)

    wait_until(is_all_delivered, what="the note of what was delivered")
    assert b'"offsetTable":{3:' in client.ask(RequestCode.GET_ALL_DELAY_OFFSET.value).body


def test_send_to_retry_topic_ends_in_dead_letters(client: WireClient, topic: str) -> None:
    retry = f"%RETRY%g-{topic}"
    properties = "RETRY_TOPIC\x01T\x02DELAY\x013\x02"
    again = client.send(
        retry, 0, b"again", properties=properties, reconsumeTimes="1", maxReconsumeTimes="2"
    )
    assert again.code == 0
    dead = client.send(retry, 0, b"dead", reconsumeTimes="2", maxReconsumeTimes="2")
    assert dead.code == 0
    [waited] = wait_until(lambda: client.read_queue(retry, 0), what="the next try")
    assert waited.body == b"again"
    assert [record.body for record in client.read_queue(f"%DLQ%g-{topic}", 0)] == [b"dead"]


# Transactions.

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


def send_half(client: WireClient, topic: str, body: bytes, **properties: str) -> dict[str, str]:
    """Sends the first half of a transaction; returns the fields of the answer."""
    given = {"PGROUP": "tx", "UNIQ_KEY": f"U{body.hex()}", **properties}
    now_ms = time.time_ns() // 1_000_000
    answer = client.send(topic, 2, body, **half_fields(given.pop("PGROUP"), now_ms, **given))
    assert answer.code == 0 and answer.ext_fields is not None
    return answer.ext_fields


def end(client: WireClient, half: dict[str, str], outcome: int, **changes: Any) -> RemotingCommand:
    return ask(client, RequestCode.END_TRANSACTION, **end_fields(half, "tx", outcome, **changes))


def beat_as_producer(client: WireClient, group: str = "tx") -> None:
    body = {"clientID": "p", "producerDataSet": [{"groupName": group}], "consumerDataSet": []}
    assert client.ask(RequestCode.HEART_BEAT.value, None, json.dumps(body).encode()).code == 0


def half_offset(client: WireClient) -> int:
    """How far the broker has worked off the half messages."""
    answer = ask(
        client,
        RequestCode.QUERY_CONSUMER_OFFSET,
        consumerGroup="CID_RMQ_SYS_TRANS",
        topic=HALF,
        queueId=0,
    )
    return int((answer.ext_fields or {}).get("offset", "0"))


def wait_until_walked(client: WireClient) -> None:
    """Waits until no half message is left to be ended."""
    max_offset = ask(client, RequestCode.GET_MAX_OFFSET, topic=HALF, queueId=0)
    last = int((max_offset.ext_fields or {})["offset"])
    wait_until(lambda: half_offset(client) >= last, what="a walk over all half messages")


def test_transaction_is_seen_when_it_is_committed(client: WireClient, topic: str) -> None:
    half = send_half(client, topic, b"paid", TAGS="A")
    assert half["queueId"] == "2"
    assert client.read_queue(topic, 2) == []
    assert end(client, half, COMMIT).code == 0
    [record] = client.read_queue(topic, 2)
    assert (record.body, record.sys_flag & 0xC) == (b"paid", COMMIT)
    place = decode_offset_id(half["msgId"]).physical_offset
    assert record.prepared_transaction_offset == place
    properties = decode_properties(record.properties)
    assert properties["REAL_TOPIC"] == topic and properties["TRAN_MSG"] == "true"
    # A second end is answered and changes nothing.
    assert end(client, half, COMMIT).code == 0
    assert len(client.read_queue(topic, 2)) == 1


def test_transaction_that_is_rolled_back_is_never_seen(client: WireClient, topic: str) -> None:
    half = send_half(client, topic, b"not paid")
    assert end(client, half, ROLLBACK).code == 0
    other = send_half(client, topic, b"paid")
    assert end(client, other, COMMIT).code == 0
    wait_until_walked(client)
    assert [record.body for record in client.read_queue(topic, 2)] == [b"paid"]


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"producerGroup": "other"}, "The producer group wrong"),
        ({"tranStateTableOffset": 9999}, "The transaction state table offset wrong"),
        ({"commitLogOffset": 1}, "Find prepared transaction message failed"),
    ],
)
def test_end_of_another_transaction_is_refused(
    client: WireClient, topic: str, changes: dict[str, Any], remark: str
) -> None:
    half = send_half(client, topic, b"mine")
    answer = end(client, half, COMMIT, **changes)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None and remark in answer.remark
    assert end(client, half, ROLLBACK).code == 0


def test_producer_is_asked_and_its_answer_counts_once(
    program: LiveProgram, client: WireClient, topic: str
) -> None:
    with WireClient(program.address) as producer:
        beat_as_producer(producer)
        half = send_half(client, topic, b"forgotten")
        asked = producer.read()
        assert asked is not None and asked.code == RequestCode.CHECK_TRANSACTION_STATE
        assert asked.is_one_way and asked.ext_fields is not None
        record = decode_record(asked.body)
        assert (record.topic, record.queue_id, record.body) == (topic, 2, b"forgotten")
        assert asked.ext_fields["transactionId"] == f"U{b'forgotten'.hex()}"
        assert decode_properties(record.properties)["TRANSACTION_CHECK_TIMES"] == "1"
        copy = {
            "queueOffset": asked.ext_fields["tranStateTableOffset"],
            "msgId": asked.ext_fields["offsetMsgId"],
        }
        assert copy["queueOffset"] != half["queueOffset"]
        assert end(client, copy, COMMIT, fromTransactionCheck="true").code == 0
        # The answer that was late comes after all.
        assert end(client, half, COMMIT).code == 0
        wait_until_walked(client)
        assert [record.body for record in client.read_queue(topic, 2)] == [b"forgotten"]


def test_half_message_that_nobody_ends_is_put_aside(client: WireClient, topic: str) -> None:
    send_half(client, topic, b"lost", PGROUP="nobody")
    wait_until(
        lambda: b"lost" in [r.body for r in client.read_queue("TRANS_CHECK_MAX_TIME_TOPIC", 0)],
        what="the message in the topic of those put aside",
    )
    assert client.read_queue(topic, 2) == []
    wait_until_walked(client)
    [aside] = [
        record
        for record in client.read_queue("TRANS_CHECK_MAX_TIME_TOPIC", 0)
        if record.body == b"lost"
    ]
    assert decode_properties(aside.properties)["TRANSACTION_CHECK_TIMES"] == "3"
    before = len(client.read_queue(HALF, 0))
    place = encode_offset_id(*aside.store_host, aside.physical_offset)
    assert ask(client, RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=place).code == 0
    resumed = client.read_queue(HALF, 0)[before]
    assert decode_properties(resumed.properties)["TRANSACTION_CHECK_TIMES"] == "0"


def test_producer_that_wants_time_is_not_asked_before(
    program: LiveProgram, client: WireClient, topic: str
) -> None:
    with WireClient(program.address) as producer:
        beat_as_producer(producer, "slow")
        half = send_half(client, topic, b"slow", PGROUP="slow", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
        wait_until(
            lambda: any(
                "TRAN_PREPARED_QUEUE_OFFSET" in decode_properties(record.properties)
                for record in client.read_queue(HALF, 0)
            ),
            what="a copy in the half queue",
        )
        assert end(client, half, COMMIT, producerGroup="slow").code == 0
        wait_until_walked(client)
        assert [record.body for record in client.read_queue(topic, 2)] == [b"slow"]
        beat_as_producer(producer, "slow")
