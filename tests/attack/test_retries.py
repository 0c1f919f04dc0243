"""Which topic a message came from is not for its sender to say: others go by it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.message_id import decode_offset_id
from ledgermq.protocol.properties import decode_properties, format_properties
from ledgermq.protocol.record import decode_record
from tests.attack.closed_broker import ROOT, SHOP, THIEF, ask
from tests.e2e.wire_client import WireClient, pull_fields, send_fields
from tests.processes import LiveProgram

GROUP = "shared-readers"
FORGED = format_properties({"RETRY_TOPIC": "orders", "UNIQ_KEY": "F0"})


@pytest.fixture
def client(program: LiveProgram) -> Iterator[WireClient]:
    with WireClient(program.address) as connected:
        yield connected


def origins_of_dead(client: WireClient) -> list[str]:
    """Returns the topics that the dead letters of the group say they came from."""
    fields = pull_fields(f"%DLQ%{GROUP}", 0, 0)
    answer = ask(client, ROOT, RequestCode.PULL_MESSAGE, fields)
    origins, start = [], 0
    while answer.code == 0 and start < len(answer.body):
        record = decode_record(answer.body, start)
        origins.append(decode_properties(record.properties).get("RETRY_TOPIC", ""))
        start += record.size_bytes
    return origins


def test_message_that_comes_back_has_the_topic_that_it_stands_in(client: WireClient) -> None:
    """A dead letter that is sent anew by an admin goes to the topic that it names."""
    sent = ask(
        client, THIEF, RequestCode.SEND_MESSAGE, send_fields("stock", 0, properties=FORGED), b"x"
    )
    assert sent.code == 0 and sent.ext_fields is not None
    place = decode_offset_id(sent.ext_fields["msgId"]).physical_offset
    back = {"offset": place, "group": GROUP, "delayLevel": -1, "unitMode": "false"}
    assert ask(client, SHOP, RequestCode.CONSUMER_SEND_MSG_BACK, back).code == 0
    assert origins_of_dead(client)[-1] == "stock"


def test_retry_is_not_sent_in_the_name_of_a_foreign_topic(client: WireClient) -> None:
    before = origins_of_dead(client)
    for topic, taken in (("orders", False), ("%RETRY%order-readers", False), ("stock", True)):
        properties = format_properties({"RETRY_TOPIC": topic})
        fields = send_fields(
            f"%RETRY%{GROUP}", 0, properties=properties, reconsumeTimes="3", maxReconsumeTimes="3"
        )
        answer = ask(client, THIEF, RequestCode.SEND_MESSAGE, fields, b"x")
        assert (answer.code == 0) is taken, answer.remark
    assert origins_of_dead(client) == [*before, "stock"]


def test_last_of_two_origins_is_the_one_that_is_judged(client: WireClient) -> None:
    both = "RETRY_TOPIC\x01stock\x02RETRY_TOPIC\x01orders\x02"
    fields = send_fields(f"%RETRY%{GROUP}", 0, properties=both)
    refused = ask(client, THIEF, RequestCode.SEND_MESSAGE, fields, b"x")
    assert "topic:orders" in str(refused.remark)
