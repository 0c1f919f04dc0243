"""Traces of stock clients: what is read of them, and what is left out."""

import pytest

from ledgermq.client import trace_reading
from ledgermq.client.trace_reading import TraceRow, read_traces

ID, OTHER = "AC1100010001", "AC1100010002"


def trace(*records: tuple[object, ...]) -> bytes:
    return "".join("\x01".join(map(str, record)) + "\x02" for record in records).encode()


def test_the_way_of_one_message_is_read_out_of_many() -> None:
    sent = ("Pub", 1000, "r", "senders", "T", ID, "tag", "k", "h:1", 5, 7, 0, "offset", "true")
    other = ("Pub", 1000, "r", "senders", "T", OTHER, "", "", "h:1", 5, 9, 0, "offset", "true")
    begun = ("SubBefore", 2000, "r", "readers", "request", ID, 0, "k")
    done = ("SubAfter", "request", ID, 3, "true", "k", 0, 2003, "late-readers")
    ended = (
        "EndTransaction",
        1500,
        "r",
        "senders",
        "T",
        ID,
        "",
        "",
        "h:1",
        2,
        "tx",
        "COMMIT",
        "no",
    )
    body = trace(sent, other, begun, done, ended)
    assert read_traces(ID, body, "10.0.0.1") == [
        TraceRow("Pub", "senders", "10.0.0.1", 1000, 7, "success"),
        TraceRow("Sub", "late-readers", "10.0.0.1", 2003, 3, "success"),
        TraceRow("EndTransaction", "senders", "10.0.0.1", 1500, None, "COMMIT"),
    ]
    assert [row.cost_ms for row in read_traces(OTHER, body, "")] == [9]


def test_a_delivery_without_group_and_time_gets_those_of_its_beginning() -> None:
    begun = ("SubBefore", 2000, "r", "readers", "request", ID, 0, "k")
    done = ("SubAfter", "request", ID, 3, "false", "k", 4)
    row = TraceRow("Sub", "readers", "", 2000, 3, "failed")
    assert read_traces(ID, trace(begun, done), "") == [row]
    assert read_traces(ID, trace(done), "") == [row._replace(group="", time_ms=0)]


def test_records_of_others_are_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    is_about = trace_reading._is_about

    def counting(fields: list[str], message_id: str) -> bool:
        looked_at.append(len(fields))
        return is_about(fields, message_id)

    monkeypatch.setattr(trace_reading, "_is_about", counting)
    done = ("SubAfter", "request", ID, 3, "false", "k", 4)
    body = b"\x02" * 100_000 + trace(done) + trace(("Sub", OTHER)) * 1000 + trace(done, (ID, ID))
    assert len(read_traces(ID, body, "")) == 2
    assert looked_at == [7, 7, 2]
    assert read_traces("", body, "") == []


def test_what_is_no_trace_or_cut_is_left_out() -> None:
    bodies = (
        b"", b"\xff\x01\x02", b"Pub", trace(("Pub", 1, "r", "g", "T", ID)), trace(("SubAfter",)),
        trace(("Sub", 1, ID)), trace(("SubAfter", "q", ID)),
    )  # fmt: skip
    for body in bodies:
        assert read_traces(ID, body, "") == []
    odd = ("Pub", "x" * 30, "r", "g", "T", ID, "", "", "h", 5, "-7", 0, "offset", "")
    assert read_traces(ID, trace(odd), "") == [TraceRow("Pub", "g", "", 0, 0, "failed")]
