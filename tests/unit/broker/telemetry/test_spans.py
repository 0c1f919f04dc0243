"""Which messages have spans, how many, and what becomes of those that wait for their commit."""

from __future__ import annotations

import pytest

from ledgermq.broker.telemetry.budget import Budget
from ledgermq.broker.telemetry.contexts import Carried, find_sampled
from ledgermq.broker.telemetry.pull_spans import Given, PullSpans
from ledgermq.broker.telemetry.send_spans import SendSpans, Stored
from ledgermq.commitlog import AppendMessage, AppendResult
from ledgermq.protocol.record import encode_record

_HOST = (b"\x7f\0\0\1", 1)
_PARENT = f"00-{'1' * 32}-{'2' * 16}-01"
_TRACED = f"traceparent\x01{_PARENT}\x02".encode()


@pytest.mark.parametrize(
    ("properties", "carried"),
    [
        (b"", None),
        (_TRACED, Carried(_PARENT, "")),
        (_TRACED[:-1], Carried(_PARENT, "")),
        (b"KEYS\x01k\x02" + _TRACED + b"tracestate\x01a=b\x02", Carried(_PARENT, "a=b")),
        (_TRACED + b"tracestate\x01\xc3\xa4=b\x02", Carried(_PARENT, "")),
        (_TRACED + b"tracestate\x01" + b"a" * 600, Carried(_PARENT, "")),
        # Not sampled; no trace; no span; capital letters; another version; a name that ends so.
        (_TRACED.replace(b"-01", b"-00"), None),
        (_TRACED.replace(b"1" * 32, b"0" * 32), None),
        (_TRACED.replace(b"2" * 16, b"0" * 16), None),
        (_TRACED.replace(b"1" * 32, b"A" * 32), None),
        (_TRACED.replace(b"00-", b"ff-", 1), None),
        (b"my-" + _TRACED, None),
        (b"traceparent\x01\x02", None),
    ],
)
def test_contexts_that_count(properties: bytes, carried: Carried | None) -> None:
    assert find_sampled(properties) == carried


def test_a_budget_fills_with_time_and_up_to_a_second() -> None:
    budget = Budget(10)
    assert [budget.take(0.0) for _ in range(12)] == [True] * 10 + [False] * 2
    assert [budget.take(250.0) for _ in range(3)] == [True, True, False]
    assert [budget.take(60_000.0) for _ in range(11)] == [True] * 10 + [False]
    assert budget.missed_count == 4


def message(properties: bytes, body: bytes = b"body") -> AppendMessage:
    return AppendMessage("T", 3, 0, 0, 0, _HOST, _HOST, 0, 0, body, properties)


class Told:
    def __init__(self, per_second: int = 100) -> None:
        self.stored: list[tuple[int, float, str]] = []
        self.given: list[Given] = []
        self.now_ms = 0.0
        budget = Budget(per_second)
        self.sends = SendSpans(self._stored, budget, lambda: self.now_ms)
        self.pulls = PullSpans(self.given.append, budget, lambda: self.now_ms)

    def _stored(self, sent: Stored, ended_ms: float, error: str) -> None:
        self.stored.append((sent.index, ended_ms, error))

    def append(self, first_index: int, *properties: bytes) -> None:
        messages = [message(one) for one in properties]
        results = [AppendResult(first_index + at, 100, 91, 0, 0) for at in range(len(messages))]
        self.sends.appended(messages, results, 1.0, 2.0, self.now_ms)


def test_traced_messages_end_when_they_are_committed() -> None:
    told = Told()
    told.append(10, b"", _TRACED, b"", _TRACED)
    told.append(14, _TRACED)
    told.sends.committed(11)
    assert told.stored == []
    told.now_ms = 7.0
    told.sends.committed(14)
    assert told.stored == [(11, 7.0, ""), (13, 7.0, "")]
    told.now_ms = 9.0
    told.sends.failed("leadership is lost")
    assert told.stored[2:] == [(14, 9.0, "leadership is lost")]
    told.sends.committed(20)
    assert len(told.stored) == 3


def test_no_more_spans_than_the_budget_allows() -> None:
    told = Told(per_second=5)
    told.append(0, *[_TRACED] * 20)
    told.sends.committed(20)
    assert [index for index, _, _ in told.stored] == [0, 1, 2, 3, 4]
    told.pulls.gave("T", "G", 3, 1, [record(0, _TRACED)], 0.0)
    assert told.given == []
    told.now_ms = 1000.0
    told.pulls.gave("T", "G", 3, 1, [record(0, _TRACED)], 0.0)
    assert len(told.given) == 1


def record(queue_offset: int, properties: bytes, body: bytes = b"body") -> bytes:
    return encode_record(
        b"T", 3, 0, queue_offset, 0, 0, 0, _HOST, 5, _HOST, 0, 0, body, properties
    )  # fmt: skip


def test_traced_messages_are_found_among_others() -> None:
    told = Told()
    # A body that holds the mark, and whole properties, is no context.
    decoy = record(1, b"KEYS\x01k\x02", b"\x02" + _TRACED)
    parts = [
        record(0, b"") + decoy + record(2, _TRACED),
        memoryview(record(3, b"A\x01b\x02" + _TRACED)),
    ]
    told.pulls.gave("T", "G", 3, 4, parts, 0.0)
    (given,) = told.given
    assert [one.queue_offset for one in given.messages] == [2, 3]
    assert (given.message_count, given.topic, given.group) == (4, "T", "G")


@pytest.mark.parametrize("data", [_TRACED, b"\0\0\0\0" + _TRACED, record(0, _TRACED)[:-1], b""])
def test_bytes_that_are_no_records_have_no_spans(data: bytes) -> None:
    told = Told()
    told.pulls.gave("T", "G", 3, 1, [data], 0.0)
    assert told.given == []


def test_an_answer_of_many_is_told_of_in_part() -> None:
    told = Told()
    told.pulls.gave("T", "G", 3, 100, [record(at, _TRACED) for at in range(100)], 0.0)
    assert len(told.given[0].messages) == 32
