"""What a request touches is found one by one, and no deeper than somebody may go."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pytest

from ledgermq.broker.access import needs
from ledgermq.broker.access.codes import needs_of
from ledgermq.broker.access.quotas import _messages_in
from ledgermq.broker.access.rights import Need
from ledgermq.broker.access.rules import Permission
from ledgermq.broker.records import namings
from ledgermq.broker.records.visible_records import VisibleRecords
from ledgermq.protocol.batch import BATCH_COUNT_MAX, BatchMessage, encode_batch
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.state.errors import IllegalMessageError
from tests.e2e.wire_client import send_fields

AROUND = needs.Surroundings(VisibleRecords(Any), "REPLIES")  # type: ignore[arg-type]
PUB = [Need(False, "T", Permission.PUB)]


def send(body: bytes, properties: str = "", *, batch: bool = True) -> RemotingCommand:
    fields = send_fields("T", 0, properties=properties, batch=str(batch).lower())
    texts = {name: str(value) for name, value in fields.items()}
    return RemotingCommand(code=RequestCode.SEND_MESSAGE, ext_fields=texts, body=body)


def found(command: RemotingCommand, count_max: int | None = None) -> list[Need]:
    return list(islice(needs_of(command, AROUND) or (), count_max))


def batch_of(properties: bytes, count: int = 1) -> bytes:
    return encode_batch([BatchMessage(0, b"x", properties)] * count)


@pytest.fixture
def nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namings, "decode_batch", None)
    monkeypatch.setattr(namings, "parse_properties", None)


@pytest.mark.usefixtures("nobody_looks")
def test_nothing_is_taken_apart_before_its_topic_is_judged() -> None:
    dispatch = "INNER_MULTI_DISPATCH\x01%LMQ%a"
    assert found(send(batch_of(dispatch.encode())), 1) == PUB
    assert found(send(b"", dispatch, batch=False), 1) == PUB


@pytest.mark.usefixtures("nobody_looks")
def test_what_breaks_a_limit_is_not_looked_into() -> None:
    long = "INNER_MULTI_DISPATCH\x01" + "%LMQ%a," * 5000
    with pytest.raises(IllegalMessageError, match="properties have 35021 characters"):
        found(send(b"", long, batch=False))


def test_properties_of_a_batch_are_looked_through_for_one_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(namings, "parse_properties", None)
    others = b"RETRY_TOPIC\x01x\x02" + b"a\x01b\x02" * 5000
    body = batch_of(others + b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b", 3)
    light = [Need(False, name, Permission.PUB) for name in ("%LMQ%a", "%LMQ%b")]
    assert found(send(body)) == [*PUB, *light]


def test_names_that_come_again_are_judged_once() -> None:
    consumer = {"groupName": "g", "subscriptionDataSet": [{"topic": "T"}] * 20}
    body = json.dumps({"clientID": "c", "consumerDataSet": [consumer] * 50}).encode()
    beat = RemotingCommand(code=RequestCode.HEART_BEAT, body=body)
    topic = Need(False, "T", Permission.SUB)
    assert found(beat) == [Need(True, "g", Permission.SUB), topic]
    queue = {"topic": "T", "brokerName": "b", "queueId": 0}
    body = json.dumps({"clientId": "c", "consumerGroup": "g", "mqSet": [queue] * 50}).encode()
    assert found(RemotingCommand(code=RequestCode.LOCK_BATCH_MQ, body=body))[1:] == [topic]


def test_messages_of_a_batch_are_counted_as_far_as_one_may_have_them() -> None:
    assert _messages_in(bytes(4_000_000)) == BATCH_COUNT_MAX
    assert _messages_in(batch_of(b"", 7)) == 7
