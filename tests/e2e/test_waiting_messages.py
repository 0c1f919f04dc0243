"""One broker process: messages that wait for a time, for a next try, or for the end of their
transaction.
"""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.message_id import decode_offset_id
from ledgermq.protocol.properties import decode_properties
from tests.e2e.live_program import LiveProgram, broker
from tests.e2e.wire_client import WireClient
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
    assert client.read_queue(topic, 1) == []
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
    table = json.loads(client.ask(RequestCode.GET_BROKER_RUNTIME_INFO.value).body)["table"]
    delivered, end = table["scheduleMessageOffset_3"].split(",")
    assert delivered == end
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
