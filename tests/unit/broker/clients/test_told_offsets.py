"""Offsets that consumers tell: handed on as they are, read while short, left out else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.broker.clients import told_offsets
from ledgermq.broker.clients.told_offsets import (
    OTHER_FORM_BYTES_MAX,
    TOLD_BYTES_MAX,
    ToldOffsets,
    told_table,
)
from ledgermq.protocol import lenient_json
from ledgermq.protocol.bodies import MessageQueue, read_queue_map
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError

_queues = st.builds(
    MessageQueue,
    topic=st.text(max_size=8),
    broker_name=st.sampled_from(["broker-a", 'b"', "b\\", "", "ä", "b}"]),
    queue_id=st.integers(-(2**31), 2**31 - 1),
)


def read(table: bytes) -> dict[MessageQueue, int]:
    return read_queue_map(lenient_json.read(table), int)


def body_of(table: dict[MessageQueue, int]) -> bytes:
    return lenient_json.write({"messageQueueTable": table})


@given(st.dictionaries(_queues, st.integers(-(2**63), 2**63 - 1), max_size=5))
def test_what_is_handed_on_says_the_same(table: dict[MessageQueue, int]) -> None:
    assert read(told_table(body_of(table))) == table


def test_usual_answers_are_not_read_by_the_slow_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {MessageQueue("T", "broker-a", number): number * 7 for number in range(2000)}
    body = body_of(table)
    java = b'{"consumerTable":{},' + body[1:]
    assert len(body) > 100_000
    monkeypatch.setattr(told_offsets.lenient_json, "read", None)
    expected = body.removeprefix(b'{"messageQueueTable":')[:-1]
    assert told_table(body) == told_table(java) == expected
    assert told_table(b'{"messageQueueTable":{}}') == b"{}"


@pytest.mark.parametrize(
    "body",
    [
        body_of({MessageQueue("T", "b", number): 1 for number in range(8000)}),
        b'{"messageQueueTable": {' + b" " * OTHER_FORM_BYTES_MAX + b"}}",
        b'{"messageQueueTable":{}}' + b" " * TOLD_BYTES_MAX,
        b"{" * 300,
        b'{"messageQueueTable":7}',
    ],
)
def test_what_is_too_long_or_no_table_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        told_table(body)


def test_all_are_told_by_client() -> None:
    table = {MessageQueue("T", "b", 0): 5}
    told = ToldOffsets()
    told.add(RemotingCommand(code=0, body=body_of(table)), 'c"1')
    told.add(RemotingCommand(code=0, body=body_of({})), "c2")
    told.add(RemotingCommand(code=1, body=body_of(table)), "c3")
    assert lenient_json.read(told.encode()) == lenient_json.read(
        lenient_json.write({"consumerTable": {'c"1': table, "c2": {}}, "messageQueueTable": {}})
    )
