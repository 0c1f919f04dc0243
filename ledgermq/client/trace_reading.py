"""Traces that stock clients write, as tools read them: pure functions.

One message of the trace topic holds several records, and has the ids that they tell of as its keys.
Fields end with 0x01, records with 0x02; later releases add fields at the end:

    Pub             time, region, group, topic, id, tags, keys, store host, body bytes, cost in ms,
                    type, offset id, success
    SubBefore       time, region, group, request, id, retries, keys
    SubAfter        request, id, cost in ms, success, keys, code, time, group
    EndTransaction  time, region, group, topic, id, tags, keys, store host, type, transaction id,
                    state, asked

Source: TraceDataEncoder of 4.9.3.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

# Where clients write traces to.
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
_FIELD_END: Final = "\x01"
_RECORD_END: Final = "\x02"
# Where the fields stand: kind of record -> number of the message's id.
_ID_AT: Final = {"Pub": 5, "SubBefore": 5, "SubAfter": 2, "EndTransaction": 5}


class TraceRow(NamedTuple):
    """One step of a message's way."""

    kind: str
    group: str
    # Where the client that wrote the trace is.
    client: str
    time_ms: int
    cost_ms: int | None
    status: str


def read_traces(message_id: str, body: bytes, client: str) -> list[TraceRow]:
    """Returns what one message of the trace topic tells about another one.

    Args:
        message_id: of the message that is asked for.
        body: of the trace.
        client: who wrote it.

    Returns:
        Its sends, deliveries and ends of transactions; records that are cut are left out.
    """
    text = body.decode("utf-8", "replace")
    records = [
        fields
        for record in _records_with(message_id, text)
        if _is_about(fields := record.split(_FIELD_END), message_id)
    ]
    begun = {fields[4]: fields for fields in records if fields[0] == "SubBefore"}
    return [row for fields in records if (row := _row(fields, begun, client)) is not None]


def _records_with(message_id: str, text: str) -> Iterator[str]:
    """Yields the records that hold an id anywhere: a body may have a million others."""
    at = text.find(message_id)
    while message_id and at >= 0:
        end = text.find(_RECORD_END, at)
        end = len(text) if end < 0 else end
        yield text[text.rfind(_RECORD_END, 0, at) + 1 : end]
        at = text.find(message_id, end)


def _is_about(fields: list[str], message_id: str) -> bool:
    place = _ID_AT.get(fields[0])
    return place is not None and len(fields) > place and fields[place] == message_id


def _row(fields: list[str], begun: dict[str, list[str]], client: str) -> TraceRow | None:
    kind = fields[0]
    if kind == "Pub" and len(fields) > 13:
        status = _success(fields[13])
        return TraceRow("Pub", fields[3], client, _number(fields[1]), _number(fields[10]), status)
    if kind == "EndTransaction" and len(fields) > 11:
        return TraceRow(kind, fields[3], client, _number(fields[1]), None, fields[11])
    if kind == "SubAfter" and len(fields) > 4:
        before = begun.get(fields[1])
        # A record of its own tells both since 4.5; otherwise the one before the delivery does.
        group = fields[8] if len(fields) > 8 else before[3] if before else ""
        time_text = fields[7] if len(fields) > 8 else before[1] if before else ""
        status = _success(fields[4])
        return TraceRow("Sub", group, client, _number(time_text), _number(fields[3]), status)
    return None


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _success(text: str) -> str:
    return "success" if text == "true" else "failed"
