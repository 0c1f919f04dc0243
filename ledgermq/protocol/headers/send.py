"""Headers of sending: SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320), replies
(324, 325), and CONSUMER_SEND_MSG_BACK (36), with the two functions that every message passes.

The compact header of 310, 320 and 325 has the fields of the long one under the keys a to n; both
classes have the same Python names, so that a processor need not care which of them came.

Source: SendMessageRequestHeader.java, SendMessageRequestHeaderV2.java,
AbstractSendMessageProcessor.java.
"""

from functools import lru_cache
from struct import Struct
from typing import Final, Protocol, TypeVar

import msgspec

from ledgermq.protocol.codes import VERSION_4_9_3, RequestCode
from ledgermq.protocol.errors import LocalProtocolError
from ledgermq.protocol.headers.header import Header, Int32, Int64

_LONG_FORM_CODES: Final = frozenset(
    {int(RequestCode.SEND_MESSAGE), int(RequestCode.SEND_REPLY_MESSAGE)}
)
# 4 length of all that follows, 4 serialize type and header length
_PREFIX: Final = Struct(">II")
# 4 frame length, 4 type and header length, 2 code, 1 language, 2 version, 4 opaque, 4 flag, 4
# remark length, 4 ext fields length
_BINARY_HEAD: Final = Struct(">IIhbhiiii")
# 4 length of a value
_INT32: Final = Struct(">I")
_ROCKETMQ: Final = 1


class SendMessageRequestHeader(Header, frozen=True, kw_only=True):
    """SendMessageRequestHeader: one message, or with `batch` several in one body."""

    producer_group: str
    topic: str
    # Topic whose settings a new topic takes, TBW102.
    default_topic: str
    # Queues of a topic that this send creates.
    default_topic_queue_nums: Int32
    # Below zero: the broker chooses.
    queue_id: Int32
    sys_flag: Int32
    # Client's clock, ms since 1970.
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: Int32 | None = None
    # 5.x and 4.9.8; not needed.
    broker_name: str | None = None


class SendMessageRequestHeaderV2(SendMessageRequestHeader, frozen=True, kw_only=True):
    """SendMessageRequestHeaderV2: the same under one-letter keys."""

    producer_group: str = msgspec.field(name="a")
    topic: str = msgspec.field(name="b")
    default_topic: str = msgspec.field(name="c")
    default_topic_queue_nums: Int32 = msgspec.field(name="d")
    queue_id: Int32 = msgspec.field(name="e")
    sys_flag: Int32 = msgspec.field(name="f")
    born_timestamp: Int64 = msgspec.field(name="g")
    flag: Int32 = msgspec.field(name="h")
    properties: str | None = msgspec.field(name="i", default=None)
    reconsume_times: Int32 | None = msgspec.field(name="j", default=None)
    unit_mode: bool | None = msgspec.field(name="k", default=None)
    max_reconsume_times: Int32 | None = msgspec.field(name="l", default=None)
    batch: bool | None = msgspec.field(name="m", default=None)
    broker_name: str | None = msgspec.field(name="n", default=None)


class SendMessageResponseHeader(Header, frozen=True, kw_only=True):
    """SendMessageResponseHeader: where the message lies."""

    # Offset message id; of a batch all of them, joined by commas.
    msg_id: str
    queue_id: Int32
    # Of a batch the first.
    queue_offset: Int64
    transaction_id: str | None = None


class ReplyMessageRequestHeader(Header, frozen=True, kw_only=True):
    """ReplyMessageRequestHeader: a reply handed to the client that asked (326)."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    # "/ip:port"
    born_host: str
    store_host: str
    store_timestamp: Int64


class ConsumerSendMsgBackRequestHeader(Header, frozen=True, kw_only=True):
    """ConsumerSendMsgBackRequestHeader: a consumer gives a message back for a later try."""

    # Physical offset of the message.
    offset: Int64
    group: str
    # 0: the broker decides; below 0: dead letters at once.
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


_H = TypeVar("_H", bound=Header)


class _SendCommand(Protocol):
    """What decode_send_header reads of a command."""

    code: int

    def header(self, header_class: type[_H]) -> _H: ...


def decode_send_header(command: _SendCommand) -> SendMessageRequestHeader:
    """Reads the header of a send of any form.

    Raises:
        RemoteProtocolError: a required field is missing or a value does not fit; the error names
            the key.
    """
    if command.code in _LONG_FORM_CODES:
        return command.header(SendMessageRequestHeader)
    return command.header(SendMessageRequestHeaderV2)


def encode_send_response(
    opaque: int, serialize_type: int, msg_id: str, queue_id: int, queue_offset: int, region_id: str
) -> bytes:
    """Writes the whole frame that answers a successful send.

    The frame has the fields msgId, queueId, queueOffset, MSG_REGION and TRACE_ON, all of them text:
    a Java client takes a missing map for a crash, a C++ or Go client a number in it.

    Args:
        opaque: of the request.
        serialize_type: of the request, 0 or 1.
        msg_id: offset message ids, joined by commas; hexadecimal digits.
        queue_id: queue that was used.
        queue_offset: of the first message.
        region_id: MSG_REGION, any text.
    """
    if serialize_type == _ROCKETMQ:
        return _binary_send_response(opaque, msg_id, queue_id, queue_offset, region_id)
    header = _json_template(region_id) % (queue_id, msg_id.encode(), queue_offset, opaque)
    length = len(header)
    return _PREFIX.pack(length + 4, length) + header


def send_response_pieces(region_id: str) -> tuple[bytes, ...]:
    """Returns what stands in the JSON header of encode_send_response around queue id, message id,
    queue offset and opaque: five pieces.
    """
    marked = _json_template(region_id) % (0, b"\0", 0, 0)
    first, _, rest = marked.partition(b'"queueId":"0"')
    second, _, rest = rest.partition(b"\0")
    third, _, rest = rest.partition(b'"queueOffset":"0"')
    fourth, _, last = rest.partition(b'"opaque":0')
    return (
        first + b'"queueId":"',
        b'"' + second,
        third + b'"queueOffset":"',
        b'"' + fourth + b'"opaque":',
        last,
    )


@lru_cache(maxsize=16)
def _json_template(region_id: str) -> bytes:
    region = _json_text(region_id).replace(b"%", b"%%")
    return (
        b'{"code":0,"extFields":{"queueId":"%%d","TRACE_ON":"true","MSG_REGION":%b,"msgId":"%%b",'
        b'"queueOffset":"%%d"},"flag":1,"language":"JAVA","opaque":%%d,'
        b'"serializeTypeCurrentRPC":"JSON","version":%d}'
    ) % (region, VERSION_4_9_3)


def _binary_send_response(
    opaque: int, msg_id: str, queue_id: int, queue_offset: int, region_id: str
) -> bytes:
    queue = b"%d" % queue_id
    message = msg_id.encode()
    offset = b"%d" % queue_offset
    fields = b"".join(
        (
            _binary_fixed_fields(region_id),
            b"\x00\x05msgId",
            _INT32.pack(len(message)),
            message,
            b"\x00\x07queueId",
            _INT32.pack(len(queue)),
            queue,
            b"\x00\x0bqueueOffset",
            _INT32.pack(len(offset)),
            offset,
        )
    )
    header_length = _BINARY_HEAD.size - _PREFIX.size + len(fields)
    head = _BINARY_HEAD.pack(
        4 + header_length,
        _ROCKETMQ << 24 | header_length,
        0,
        0,
        VERSION_4_9_3,
        opaque,
        1,
        0,
        len(fields),
    )
    return head + fields


@lru_cache(maxsize=16)
def _binary_fixed_fields(region_id: str) -> bytes:
    region = region_id.encode()
    return b"".join(
        (
            b"\x00\x08TRACE_ON\x00\x00\x00\x04true",
            b"\x00\x0aMSG_REGION",
            _INT32.pack(len(region)),
            region,
        )
    )


def _json_text(text: str) -> bytes:
    try:
        return msgspec.json.encode(text)
    except UnicodeError as error:
        raise LocalProtocolError("MSG_REGION", str(error), "UTF-8 text") from error
