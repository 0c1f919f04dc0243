"""Who waits for a commit, as the tuples that `proposals.py` keeps, and how such a request is found
and answered.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ledgermq.commitlog import AppendMessage, AppendResult
from ledgermq.protocol.codes import RESPONSE_FLAG
from ledgermq.protocol.command import RemotingCommand, encode
from ledgermq.state.errors import BrokerError

# Told what became of records of the broker itself: the results, or why there are none.
Done = Callable[[Sequence[AppendResult] | None, BrokerError | None], None]


def without_slaves(results: Sequence[AppendResult] | None, error: BrokerError | None) -> None:
    """As `done` of a send whose property WAIT is false: it does not wait for slaves. Not called."""


# Who waits, before the append: connection (None for one-way and own records), opaque, serialize
# type, queue id, number of messages, their bytes, done.
Request = tuple[Any, int, int, int, int, int, Done | None]
COUNT: Final = 4
SIZE: Final = 5


class Waiting(NamedTuple):
    """Who waits for a commit; on the hot path it is built and taken apart as a plain tuple."""

    last_index: int
    connection: Any
    opaque: int
    serialize_type: int
    # Offset message ids joined by commas.
    message_id: str
    queue_id: int
    # Of the first message.
    queue_offset: int
    message_count: int
    size_bytes: int
    deadline_ms: float
    done: Done | None
    # For `done` only.
    results: Sequence[AppendResult] | None


# The same without the work of a NamedTuple's constructor, a third of its time.
WaitingTuple = tuple[
    int, Any, int, int, str, int, int, int, int, float, Done | None, Sequence[AppendResult] | None
]


def encode_untraced_response(
    opaque: int, serialize_type: int, msg_id: str, queue_id: int, queue_offset: int, region_id: str
) -> bytes:
    """Returns what encode_send_response does, but tells the client not to trace (key traceOn)."""
    fields = {
        "MSG_REGION": region_id,
        "TRACE_ON": "false",
        "msgId": msg_id,
        "queueId": str(queue_id),
        "queueOffset": str(queue_offset),
    }
    return encode(
        RemotingCommand(
            code=0,
            opaque=opaque,
            flag=RESPONSE_FLAG,
            ext_fields=fields,
            serialize_type=serialize_type,
        )
    )


def encode_stored_response(
    entry: Waiting, code: int, remark: str, region_id: str, is_trace_on: bool
) -> bytes:
    """Returns the answer to a send whose message is stored, with a code that says how well."""
    fields = {
        "MSG_REGION": region_id,
        "TRACE_ON": "true" if is_trace_on else "false",
        "msgId": entry.message_id,
        "queueId": str(entry.queue_id),
        "queueOffset": str(entry.queue_offset),
    }
    return encode(
        RemotingCommand(
            code=code,
            opaque=entry.opaque,
            flag=RESPONSE_FLAG,
            remark=remark,
            ext_fields=fields,
            serialize_type=entry.serialize_type,
        )
    )


def take_request_at(
    messages: list[AppendMessage], requests: list[Request], position: int
) -> Request:
    """Takes the request that a message belongs to out of a gathered turn, with all its messages."""
    start = 0
    for number, request in enumerate(requests):
        end = start + request[COUNT]
        if position < end:
            del messages[start:end]
            return requests.pop(number)
        start = end
    raise IndexError(f"message {position} of {len(messages)} gathered ones")
