"""What a client can reach by naming a place in the log, through each processor that takes one."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any

import pytest

from ledgermq.broker.admin.query import QueryProcessor
from ledgermq.broker.clients.forwarding import ForwardingProcessor
from ledgermq.broker.clients.open_questions import OpenQuestions
from ledgermq.broker.dispatch import Processor
from ledgermq.broker.own_messages import state_message
from ledgermq.broker.records.visible_records import HIDDEN_TOPICS, VisibleRecords
from ledgermq.broker.waits.send_back import SendBackProcessor
from ledgermq.broker.waits.transaction_ends import TransactionProcessor
from ledgermq.commitlog import AppendMessage, QueryResult, opening_record
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.message_id import encode_offset_id
from ledgermq.protocol.properties import decode_properties
from ledgermq.protocol.record import encode_record
from ledgermq.protocol.sysflag import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from ledgermq.protocol.transport.sliced_answers import SlicedAnswers
from ledgermq.state import names
from ledgermq.state.errors import BrokerError, SystemBusyError
from tests.unit.broker.parts import HOST, ListConnection, Parts

_SECRET = b'{"kind":"access","accounts":[{"secretKey":"of-the-operator"}]}'
_REAL = b"REAL_TOPIC\x01orders\x02REAL_QID\x013"


def id_of(place: int) -> str:
    return encode_offset_id(HOST[0], HOST[1], place)


def stored(message: AppendMessage, place: int) -> bytes:
    return encode_record(
        message.topic.encode(), message.queue_id, message.flag, 0, place, message.sys_flag,
        message.born_timestamp, message.born_host, 5, message.store_host, message.reconsume_times,
        message.prepared_transaction_offset, message.body, message.properties,
    )  # fmt: skip


def message(
    topic: str, body: bytes = b"body", properties: bytes = b"", *, sys_flag: int = 0
) -> AppendMessage:
    return AppendMessage(topic, 0, 0, sys_flag, 1, HOST, HOST, 0, 0, body, properties)


_HIDDEN = {
    "state": stored(state_message(_SECRET, HOST, 1), 100),
    "state of a Java member": stored(message(names.STATE_TOPIC, _SECRET), 100),
    "opening of a term": opening_record(3, HOST, 1),
    "half": stored(message(names.HALF_TOPIC, properties=_REAL), 100),
    "end of a half": stored(message(names.HALF_DONE_TOPIC), 100),
    "half put aside": stored(message(names.HALF_EXPIRED_TOPIC, properties=_REAL), 100),
    "prepared": stored(message("orders", sys_flag=TRANSACTION_PREPARED), 100),
    "rolled back": stored(message("orders", sys_flag=TRANSACTION_ROLLBACK), 100),
    "waits for nothing": stored(message("SCHEDULE_TOPIC_XXXX"), 100),
    "waits for the state": stored(
        message("SCHEDULE_TOPIC_XXXX", properties=_REAL.replace(b"orders", b"rmq_sys_LEDGERMQ_X")),
        100,
    ),
    "no text": stored(message("SCHEDULE_TOPIC_XXXX", properties=b"REAL_TOPIC\x01\xff"), 100),
    "no record": b"\0" * 200,
}
_VISIBLE = {
    "message": (stored(message("orders"), 100), ("orders",)),
    "committed": (stored(message("orders", sys_flag=TRANSACTION_COMMIT), 100), ("orders",)),
    "waiting": (
        stored(message("SCHEDULE_TOPIC_XXXX", properties=_REAL), 100),
        ("SCHEDULE_TOPIC_XXXX", "orders"),
    ),
}


class OneRecord:
    """A store with one record, at 100, which every query finds."""

    def __init__(self, record: bytes) -> None:
        self._record = record

    def record_at(self, physical_offset: int) -> bytes | None:
        return self._record if physical_offset == 100 else None

    def query_in_pieces(self, *_: object) -> Generator[None, None, QueryResult]:
        yield
        return QueryResult([self._record], 0, 0)


class Bench:
    """The processors that take a place, over one record."""

    def __init__(self, record: bytes) -> None:
        self.parts = parts = Parts().lead()
        store: Any = OneRecord(record)
        # What was counted for who asked.
        self.used: list[int] = []
        none: Any = None
        self.records = VisibleRecords(store)
        ends = TransactionProcessor(
            parts.config, parts.leadership, none, parts.proposals, self.records, lambda: 0
        )
        queries = QueryProcessor(
            parts.config, parts.state, parts.clients, store, self.records, lambda *_: 0.0,
            SlicedAnswers(parts.turn.soon, lambda: 0.0, SystemBusyError),
        )  # fmt: skip
        back = SendBackProcessor(
            parts.config, parts.leadership, parts.state, parts.proposals, self.records,
            rng=Random(1), statistics=parts.statistics,
            use_bytes=lambda connection, count: self.used.append(count),
        )  # fmt: skip
        forwarding = ForwardingProcessor(
            parts.config, parts.leadership, parts.state, parts.clients, OpenQuestions(), store,
            self.records,
            SlicedAnswers(parts.turn.soon, lambda: 0.0, SystemBusyError),
        )  # fmt: skip
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.CONSUMER_SEND_MSG_BACK: back.send_back,
            RequestCode.VIEW_MESSAGE_BY_ID: queries.view,
            RequestCode.QUERY_MESSAGE: queries.query,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: forwarding.consume_directly,
            RequestCode.END_TRANSACTION: ends.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: ends.resume,
        }

    def ask(self, code: RequestCode, place: int = 100) -> Any:
        message_id = id_of(place)
        fields = {
            RequestCode.CONSUMER_SEND_MSG_BACK: {
                "offset": str(place), "group": "thieves", "delayLevel": "1",
            },
            RequestCode.VIEW_MESSAGE_BY_ID: {"offset": str(place)},
            RequestCode.QUERY_MESSAGE: {
                "topic": "orders", "key": "k", "maxNum": "9", "beginTimestamp": "0",
                "endTimestamp": "9",
            },
            RequestCode.CONSUME_MESSAGE_DIRECTLY: {
                "msgId": message_id, "consumerGroup": "thieves", "clientId": "c",
            },
            RequestCode.END_TRANSACTION: {
                "producerGroup": "p", "tranStateTableOffset": "0", "commitLogOffset": str(place),
                "commitOrRollback": "8", "msgId": "m",
            },
            RequestCode.RESUME_CHECK_HALF_MESSAGE: {"msgId": message_id},
        }[code]  # fmt: skip
        connection: Any = ListConnection()
        command = RemotingCommand(code=code, ext_fields=fields)
        answer = self.processors[code](connection, command)
        return connection.take()[0] if connection.commands else answer


def refusal(bench: Bench, code: RequestCode, place: int = 100) -> str:
    with pytest.raises(BrokerError) as refused:
        bench.ask(code, place)
    return str(refused.value)


@pytest.mark.parametrize("kind", _HIDDEN)
def test_hidden_record_is_nothing_to_those_who_name_its_place(kind: str) -> None:
    bench = Bench(_HIDDEN[kind])
    for code in (
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
    ):
        there, nowhere = refusal(bench, code), refusal(bench, code, 101)
        assert there.replace(id_of(100), id_of(101)).replace(" 100", " 101") == nowhere
    assert bench.ask(RequestCode.QUERY_MESSAGE).code == ResponseCode.QUERY_NOT_FOUND
    bench.parts.turn.end()
    assert bench.parts.store.messages == []
    assert bench.parts.state.topics.find("%RETRY%thieves") is None


@pytest.mark.parametrize("kind", _VISIBLE)
def test_visible_record_tells_whose_readers_may_see_it(kind: str) -> None:
    raw, topics = _VISIBLE[kind]
    bench = Bench(raw)
    found = bench.records.find(100)
    assert found is not None and (found.raw, found.topics) == (raw, topics)
    assert bench.ask(RequestCode.VIEW_MESSAGE_BY_ID).body == raw
    assert bench.ask(RequestCode.QUERY_MESSAGE).body == raw
    assert "not online" in refusal(bench, RequestCode.CONSUME_MESSAGE_DIRECTLY)
    bench.ask(RequestCode.CONSUMER_SEND_MSG_BACK)
    bench.parts.turn.end()
    [copy] = bench.parts.store.messages
    assert copy.body == b"body"
    # It is stored now, and once more when its time has come.
    [used] = bench.used
    assert 2 * len(copy.body) < used <= 2 * (len(copy.body) + len(copy.properties))
    assert decode_properties(copy.properties)["REAL_TOPIC"] == "%RETRY%thieves"


def test_what_one_account_sends_back_leaves_room_for_the_messages_of_others() -> None:
    """Requests of two hundred bytes filled all that may wait for a commit."""
    bench = Bench(stored(message("orders", b"x" * (3 << 20)), 100))
    asked, limit = 0, bench.parts.config.waiting_bytes_max
    with pytest.raises(SystemBusyError, match="10.0.0.9 sent back wait for their commit"):
        while asked < 100:
            bench.ask(RequestCode.CONSUMER_SEND_MSG_BACK)
            asked += 1
    assert limit // 4 - (4 << 20) < asked * (3 << 20) <= limit // 4
    bench.parts.turn.end()
    assert len(bench.parts.store.messages) == asked
    bench.parts.proposals.committed(asked)
    bench.ask(RequestCode.CONSUMER_SEND_MSG_BACK)


@pytest.mark.parametrize(("delay_level", "times"), [(1, 2), (-1, 1)])
def test_what_comes_back_counts_as_often_as_it_is_stored(delay_level: int, times: int) -> None:
    """A dead letter waits for nothing: it is stored once."""
    raw = stored(message("orders")._replace(body=b"x" * 10_000), 100)
    bench = Bench(raw)
    fields = {"offset": "100", "group": "thieves", "delayLevel": str(delay_level)}
    code = RequestCode.CONSUMER_SEND_MSG_BACK
    connection: Any = ListConnection()
    bench.processors[code](connection, RemotingCommand(code=code, ext_fields=fields))
    bench.parts.turn.end()
    [copy] = bench.parts.store.messages
    [used] = bench.used
    assert times * 10_000 < used <= times * (10_000 + len(copy.properties))


def test_half_messages_are_found_by_their_own_requests_alone() -> None:
    kinds = dict.fromkeys(HIDDEN_TOPICS | {"orders"}, "")
    for topic in kinds:
        bench = Bench(stored(message(topic, properties=_REAL), 100))
        half, aside = (
            bench.records.find_half(100),
            bench.records.find_set_aside(id_of(100)),
        )
        assert (half is not None) == (topic == names.HALF_TOPIC)
        assert (aside is not None) == (topic == names.HALF_EXPIRED_TOPIC)
        if half is None:
            refusal(bench, RequestCode.END_TRANSACTION)
        if aside is None:
            refusal(bench, RequestCode.RESUME_CHECK_HALF_MESSAGE)


def test_queue_number_of_thousands_of_digits_is_none() -> None:
    """Python reads no number of more than 4,300 digits."""
    properties = b"REAL_TOPIC\x01orders\x02REAL_QID\x01" + b"1" * 5000
    waiting = stored(message("SCHEDULE_TOPIC_XXXX", properties=properties), 100)
    assert VisibleRecords(OneRecord(waiting)).find(100) is None
