"""Headers of reading: PULL_MESSAGE (11), LITE_PULL_MESSAGE (361), QUERY_MESSAGE (12),
VIEW_MESSAGE_BY_ID (33), QUERY_CONSUME_QUEUE (321).

Source: PullMessageRequestHeader.java and its neighbors.
"""

from struct import Struct
from typing import Final, Protocol, TypeVar

import msgspec

from ledgermq.protocol.codes import VERSION_4_9_3
from ledgermq.protocol.errors import LocalProtocolError
from ledgermq.protocol.framing import FRAME_BYTES_MAX, LENGTH_BYTES
from ledgermq.protocol.headers.header import Header, Int32, Int64

# 4 length of all that follows, 4 length of the header; its type is 0: JSON
_PREFIX: Final = Struct(">II")
_FOUND: Final = (
    b'{"code":0,"extFields":{"suggestWhichBrokerId":"%%d","nextBeginOffset":"%%d",'
    b'"minOffset":"%%d","maxOffset":"%%d"},"flag":1,"language":"JAVA","opaque":%%d,'
    b'"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":%d}'
) % VERSION_4_9_3


class PullMessageRequestHeader(Header, frozen=True, kw_only=True):
    """PullMessageRequestHeader: give me messages of one queue from an offset on."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    # 1 commit_offset is valid, 2 wait when there is nothing, 4 subscription is in this header, 8
    # class filter, 16 lite pull.
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    subscription: str | None = None
    sub_version: Int64
    # "TAG" or "SQL92"; None is TAG.
    expression_type: str | None = None
    # From here on 5.x; not needed.
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_froward_client_id: str | None = None


class PullMessageResponseHeader(Header, frozen=True, kw_only=True):
    """PullMessageResponseHeader: in every answer to a pull, also in those without messages."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64


class QueryMessageRequestHeader(Header, frozen=True, kw_only=True):
    """QueryMessageRequestHeader: messages by key and store time."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    # Free field of the Java client: the key is a unique id, "true" or "false".
    unique_key_query: bool = msgspec.field(name="_UNIQUE_KEY_QUERY", default=False)


class QueryMessageResponseHeader(Header, frozen=True, kw_only=True):
    """QueryMessageResponseHeader: how far the index has come."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class ViewMessageRequestHeader(Header, frozen=True, kw_only=True):
    """ViewMessageRequestHeader: one message by its physical offset."""

    offset: Int64


class QueryConsumeQueueRequestHeader(Header, frozen=True, kw_only=True):
    """QueryConsumeQueueRequestHeader: units of one consume queue."""

    topic: str | None = None
    queue_id: Int32 = 0
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None


_H = TypeVar("_H", bound=Header)


class _PullCommand(Protocol):
    """What decode_pull_header reads of a command."""

    def header(self, header_class: type[_H]) -> _H: ...


def decode_pull_header(command: _PullCommand) -> PullMessageRequestHeader:
    """Reads the header of a pull.

    Raises:
        RemoteProtocolError: a required field is missing or a value does not fit; the error names
            the key.
    """
    return command.header(PullMessageRequestHeader)


def encode_found_head(
    opaque: int,
    broker_id: int,
    next_offset: int,
    min_offset: int,
    max_offset: int,
    body_bytes: int,
) -> bytes:
    """Writes all that stands before the messages of a successful pull's answer, as JSON.

    Args:
        opaque: of the request.
        broker_id, next_offset, min_offset, max_offset: as in PullMessageResponseHeader.
        body_bytes: of all messages.

    Raises:
        LocalProtocolError: the messages do not fit in a frame.
    """
    text = _FOUND % (broker_id, next_offset, min_offset, max_offset, opaque)
    length = 4 + len(text) + body_bytes
    if length + LENGTH_BYTES > FRAME_BYTES_MAX:
        raise LocalProtocolError("frame length", length + LENGTH_BYTES, FRAME_BYTES_MAX)
    return _PREFIX.pack(length, len(text)) + text
