"""Records of the trace topic, as stock clients write and tools read them: pure functions.

    Pub             time, region, group, topic, id, tags, keys, store host, body bytes, cost in ms,
                    kind, offset id, success
    SubBefore       time, region, group, request, id, deliveries before, keys
    SubAfter        request, id, cost in ms, success, keys, outcome, time, group
    EndTransaction  time, region, group, topic, id, tags, keys, store host, kind, transaction,
                    state, asked by the broker

Fields are separated by 0x01, and 0x02 ends a record. What is missing is the word null.

Source: TraceDataEncoder of 4.9.3.
"""

from enum import IntEnum
from typing import Final, NamedTuple

_FIELD: Final = "\x01"
_RECORD_END: Final = "\x02"


class Kind(IntEnum):
    """MessageType: which kind of message."""

    NORMAL = 0
    HALF = 1
    TRANSACTION_END = 2
    DELAYED = 3


class Outcome(IntEnum):
    """ConsumeReturnType: how a delivery ended, as far as this client knows such ends."""

    SUCCESS = 0
    EXCEPTION = 2


class Traced(NamedTuple):
    """What all records say of a message."""

    topic: str
    message_id: str
    tags: str
    # Separated by blanks.
    keys: str
    region_id: str


def sent_record(
    traced: Traced,
    *,
    time_ms: int,
    group: str,
    store_host: str,
    body_bytes: int,
    cost_ms: int,
    kind: Kind,
    offset_message_id: str,
    is_success: bool,
) -> str:
    """Returns the record of a send that was answered."""
    message = (group, traced.topic, traced.message_id, _or_null(traced.tags))
    place = (_or_null(traced.keys), store_host, str(body_bytes), str(cost_ms), str(kind.value))
    end = (_or_null(offset_message_id), _word(is_success))
    return _record("Pub", str(time_ms), traced.region_id, *message, *place, *end)


def begun_record(traced: Traced, *, time_ms: int, group: str, request_id: str, again: int) -> str:
    """Returns the record of a delivery that begins; `again` counts those before."""
    fields = ("SubBefore", str(time_ms), traced.region_id, group, request_id)
    return _record(*fields, traced.message_id, str(again), _or_null(traced.keys))


def ended_record(
    traced: Traced, *, time_ms: int, group: str, request_id: str, cost_ms: int, outcome: Outcome
) -> str:
    """Returns the record of a delivery that has ended."""
    is_success = _word(outcome is Outcome.SUCCESS)
    fields = ("SubAfter", request_id, traced.message_id, str(cost_ms), is_success)
    return _record(*fields, _or_null(traced.keys), str(outcome.value), str(time_ms), group)


def transaction_record(
    traced: Traced,
    *,
    time_ms: int,
    group: str,
    store_host: str,
    transaction_id: str,
    state: str,
    is_asked: bool,
) -> str:
    """Returns the record of the end of a transaction; `state` is such as COMMIT_MESSAGE."""
    message = (group, traced.topic, traced.message_id, _or_null(traced.tags))
    place = (_or_null(traced.keys), store_host, str(Kind.TRANSACTION_END.value))
    end = (transaction_id, state, _word(is_asked))
    return _record("EndTransaction", str(time_ms), traced.region_id, *message, *place, *end)


def keys_of(traced: Traced) -> list[str]:
    """Returns the words under which a trace is to be found."""
    return [traced.message_id, *traced.keys.split()]


def _record(*fields: str) -> str:
    return _FIELD.join(fields) + _RECORD_END


def _or_null(text: str) -> str:
    return text or "null"


def _word(value: bool) -> str:
    return "true" if value else "false"
