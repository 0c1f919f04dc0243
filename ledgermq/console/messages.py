"""Messages as they are read from brokers: by place, by id, by key; and their rows and bodies."""

from ipaddress import IPv6Address
from typing import Final

import msgspec

from ledgermq.client.errors import RefusedError
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.queue_requests import decode_messages
from ledgermq.console.absent import missing
from ledgermq.console.cluster import ClusterView, Target
from ledgermq.console.shapes import messages as shapes
from ledgermq.console.tally import Tally
from ledgermq.http.replies import RequestError
from ledgermq.protocol import properties as names
from ledgermq.protocol import sysflag
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.compression import decompress
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.headers import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryMessageRequestHeader,
    ViewMessageRequestHeader,
)
from ledgermq.protocol.message_id import decode_offset_id
from ledgermq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX

# The group under which brokers let tools read.
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
BODY_BYTES_MAX: Final = 16 * 1024 * 1024
# Of one that is looked into, for a page or a search.
_LOOKED_INTO_BYTES_MAX: Final = 4 * 1024 * 1024
_BRACKETS: Final = b"[]{}"
_NO_BRACKETS: Final = bytes(set(range(256)) - set(_BRACKETS))
_AS_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")
_INDENTED_DEPTH_MAX: Final = 32
# Of keys, tags and ids in a row of a list; the page of a message shows all of them.
_ROW_CHARS_MAX: Final = 1024
_PREVIEW_BYTES: Final = 512
_PREVIEW_CHARS: Final = 160
_TEXT_BYTES_MAX: Final = 256 * 1024
_HEX_BYTES: Final = 4_096
_FOUND_MAX: Final = 64
# Messages of one answer: brokers give at most what is asked for, and those of a batch.
_OF_ANSWER_MAX: Final = 1024
_TIME_MAX: Final = 2**63 - 1
_BINARY_SHARE: Final = 0.1
_COMPRESSIONS: Final = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}
_MOVED: Final = frozenset({int(ResponseCode.PULL_OFFSET_MOVED)})
_FOUND: Final = frozenset({int(ResponseCode.SUCCESS)})
_NOTHING: Final = frozenset(
    {int(ResponseCode.PULL_NOT_FOUND), int(ResponseCode.PULL_RETRY_IMMEDIATELY)}
)


class Pulled:
    """What a pull brought: messages, and where the next one goes on."""

    __slots__ = ("max_offset", "messages", "min_offset", "next_offset")

    def __init__(
        self, messages: list[ReceivedMessage], next_offset: int, min_offset: int, max_offset: int
    ) -> None:
        self.messages = messages
        self.next_offset = next_offset
        self.min_offset, self.max_offset = min_offset, max_offset


async def pull(
    view: ClusterView,
    address: str,
    queue: MessageQueue,
    offset: int,
    count_max: int = 32,
    expression: str = "*",
    expression_type: str = "TAG",
) -> Pulled:
    """Reads some messages of a queue from an offset on; waits for none.

    Raises:
        ClientError, ProtocolError: the broker does not answer, or refuses.
    """
    header = PullMessageRequestHeader(
        consumer_group=TOOLS_GROUP,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count_max,
        sys_flag=sysflag.PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=expression,
        sub_version=0,
        expression_type=expression_type,
    )
    answer = await view.remote.ask(address, RequestCode.PULL_MESSAGE, header)
    if answer.code not in _FOUND | _NOTHING | _MOVED:
        raise _refused(answer, address, queue.topic)
    told = answer.header(PullMessageResponseHeader)
    messages = []
    if answer.code in _FOUND:
        messages = _decoded(answer.body, queue)
    following = told.next_begin_offset
    if answer.code not in _MOVED:
        # Whatever the broker says, a loop over offsets gets on.
        following = max(following, offset + (1 if messages else 0))
    return Pulled(messages, following, told.min_offset, told.max_offset)


def _refused(answer: RemotingCommand, address: str, topic: str) -> RefusedError:
    return RefusedError(answer.code, answer.remark, broker=address, topic=topic)


async def find_message(
    view: ClusterView, topic: str, broker: str, queue_id: int, offset: int
) -> ReceivedMessage:
    """Returns the message at a place.

    Raises:
        RequestError: there is none.
        ClientError, ProtocolError: the broker does not answer, or refuses.
    """
    brokers = await view.brokers()
    if broker not in brokers or not brokers[broker]:
        raise missing("broker", broker)
    target = (await view.leaders(Tally(), [broker]))[0]
    queue = MessageQueue(topic, broker, queue_id)
    pulled = await pull(view, target.address, queue, offset, 1)
    for message in pulled.messages:
        if message.queue_offset == offset:
            return message
    raise missing("message", text_of_place(topic, broker, queue_id, offset))


def text_of_place(topic: str, broker: str, queue_id: int, offset: int) -> str:
    """Returns a place in words."""
    return f"{topic}/{broker}/{queue_id}/{offset}"


async def find_by_key(
    view: ClusterView,
    tally: Tally,
    targets: list[Target],
    topic: str,
    key: str,
    *,
    is_unique: bool,
    begin_ms: int = 0,
    end_ms: int = _TIME_MAX,
) -> list[ReceivedMessage]:
    """Returns the messages of a key, at most 64 of each broker."""
    found = await view.each(
        tally,
        targets,
        RequestCode.QUERY_MESSAGE,
        QueryMessageRequestHeader(
            topic=topic,
            key=key,
            max_num=_FOUND_MAX,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            unique_key_query=is_unique,
        ),
        read=lambda answer: answer.body,
        empty_codes=frozenset({int(ResponseCode.QUERY_NOT_FOUND)}),
    )
    # The index goes by hashes: what has another key slips through.
    return [
        message
        for target, body in found
        for message in decode_at(body, target.name)
        if key in (message.message_id if is_unique else message.keys.split(" "))
    ]


async def find_by_id(view: ClusterView, offset_id: str) -> ReceivedMessage:
    """Returns the message whose id tells where it lies.

    Only brokers of the cluster are asked: an id names an address, and anybody can write one.

    Raises:
        RequestError: it is no such id, or names no broker of this cluster.
        ClientError, ProtocolError: the broker does not answer, or has no such message.
    """
    try:
        place = decode_offset_id(offset_id)
    except RemoteProtocolError as error:
        raise RequestError(400, str(error), field="offset_id", value=offset_id) from error
    address = f"{_host(place.address)}:{place.port}"
    known = {target.address: target.name for target in await view.everybody()}
    if address not in known:
        message = f"{address}, which the id names, is no broker of this cluster"
        raise RequestError(404, message, code="not_found", field="offset_id", value=offset_id)
    header = ViewMessageRequestHeader(offset=place.physical_offset)
    answer = await view.remote.call(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
    found = decode_at(answer.body, known[address])
    if not found:
        raise missing("message", offset_id)
    return found[0]


def _decoded(body: bytes, queue: MessageQueue) -> list[ReceivedMessage]:
    return decode_messages(body, queue, BODY_BYTES_MAX, frozenset(), count_max=_OF_ANSWER_MAX)


def decode_at(body: bytes, broker: str) -> list[ReceivedMessage]:
    """Returns messages that do not say in which queue's pull they came."""
    messages = _decoded(body, MessageQueue("", broker, 0))
    for message in messages:
        record = message.record
        message.queue = MessageQueue(record.topic, broker, record.queue_id)
    return messages


def _host(address: bytes) -> str:
    parts = [str(byte) for byte in address]
    if len(parts) == 4:
        return ".".join(parts)
    return str(IPv6Address(bytes(address)))


def shown_host(host: tuple[bytes, int]) -> str:
    """Returns address and port in words."""
    address, port = host
    return f"{_host(bytes(address))}:{port}"


def properties_of(message: ReceivedMessage) -> tuple[dict[str, str], bool]:
    """Returns all properties, and whether they are UTF-8; what is not is replaced."""
    try:
        return dict(message.properties), True
    except RemoteProtocolError:
        text = bytes(message.record.properties).decode("utf-8", "replace")
        pairs = [pair.partition("\x01") for pair in text.split("\x02") if pair]
        return {name: value for name, _, value in pairs}, False


def row_of(message: ReceivedMessage) -> shapes.MessageRow:
    """Returns a message as a row."""
    record, queue = message.record, message.queue
    properties, _ = properties_of(message)
    is_late = record.topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    origin = properties.get(names.RETRY_TOPIC, "")[:_ROW_CHARS_MAX] or None if is_late else None
    return shapes.MessageRow(
        topic=record.topic,
        broker=queue.broker_name,
        queue=record.queue_id,
        offset=record.queue_offset,
        message_id=properties.get(names.UNIQUE_KEY, "")[:_ROW_CHARS_MAX]
        or message.offset_message_id,
        offset_id=message.offset_message_id,
        keys=properties.get(names.KEYS, "")[:_ROW_CHARS_MAX],
        tags=properties.get(names.TAGS, "")[:_ROW_CHARS_MAX],
        stored_ms=record.store_timestamp,
        born_ms=record.born_timestamp,
        body_bytes=len(record.body),
        preview=_preview(message),
        reconsume_times=record.reconsume_times,
        origin_topic=origin,
        origin_id=properties.get(names.ORIGIN_MESSAGE_ID, "")[:_ROW_CHARS_MAX] or None
        if is_late
        else None,
    )


def _preview(message: ReceivedMessage) -> str:
    if message.record.sys_flag & sysflag.COMPRESSED:
        # A list does not inflate.
        return ""
    data = bytes(message.record.body[:_PREVIEW_BYTES])
    text = data.decode("utf-8", "ignore")
    if len(text.encode()) < len(data) - 3 or not _is_text(text):
        return ""
    return text[:_PREVIEW_CHARS]


def _is_text(text: str) -> bool:
    odd = sum(not (one.isprintable() or one in "\r\n\t") for one in text)
    return odd <= len(text) * _BINARY_SHARE


def body_of(message: ReceivedMessage, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """Returns the body, decompressed.

    Raises:
        RemoteProtocolError: it cannot be, or is larger than `bytes_max` then.
    """
    record = message.record
    return bytes(decompress(record.body, record.sys_flag, bytes_max))


def has_text(message: ReceivedMessage, text: str) -> bool:
    """Tells whether a body holds a text; one that inflates to more than 4 MiB is not looked at."""
    try:
        body = body_of(message, _LOOKED_INTO_BYTES_MAX)
    except RemoteProtocolError:
        return False
    return text.encode("utf-8", "surrogatepass") in body


def shown_body(message: ReceivedMessage) -> shapes.Body:
    """Returns a body as a page shows it; it takes time that the sender chose (`Bodies`)."""
    record = message.record
    is_packed = bool(record.sys_flag & sysflag.COMPRESSED)
    kind_of_packing = (record.sys_flag & sysflag.COMPRESSION_MASK) >> 8
    compression = _COMPRESSIONS.get(kind_of_packing, "unknown") if is_packed else ""
    reason = ""
    try:
        data = body_of(message, _LOOKED_INTO_BYTES_MAX)
    except RemoteProtocolError as error:
        data, reason = bytes(record.body), str(error)
    kind, text = ("broken", None) if reason else _read_text(data)
    cut = text is not None and len(text) > _TEXT_BYTES_MAX
    return shapes.Body(
        kind=kind,
        encoding="utf-8" if text is not None else "",
        compression=compression,
        stored_bytes=len(record.body),
        bytes=len(data),
        text=None if text is None else text[:_TEXT_BYTES_MAX],
        hex=data[:_HEX_BYTES].hex(),
        text_cut=cut,
        hex_cut=len(data) > _HEX_BYTES,
        reason=reason,
    )


def _is_deep(data: bytes) -> bool:
    """Tells whether a JSON document is nested more deeply than one that is indented."""
    # Every second part between quotation marks is a text, where brackets say nothing.
    parts = data.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2]
    brackets = b"".join(parts).translate(_AS_ONE_KIND, _NO_BRACKETS)
    for _ in range(_INDENTED_DEPTH_MAX):
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _read_text(data: bytes) -> tuple[shapes.BodyKind, str | None]:
    if not data:
        return "empty", ""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "binary", None
    if text.lstrip()[:1] in ("{", "[") and len(data) <= _TEXT_BYTES_MAX:
        try:
            # Without making the values, of which a body may have a hundred thousand.
            msgspec.json.decode(data, type=msgspec.Raw)
            # Of a few bytes that are nested deeply, most of each line would be blanks.
            indent = -1 if _is_deep(data) else 2
            return "json", msgspec.json.format(data, indent=indent).decode()
        except (msgspec.MsgspecError, RecursionError):
            pass
    return ("text", text) if _is_text(text[:_TEXT_BYTES_MAX]) else ("binary", None)
