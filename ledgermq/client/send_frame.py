"""The bytes of a send request, made from a template of what a producer repeats in every message.

The header is JSON, which brokers of all kinds read quickest: of LedgerMQ, Java, and those that look
at the first byte of the header length. The field names a to m are those of
SendMessageRequestHeaderV2; the test of this module reads a frame back through that class.
"""

import json
from collections.abc import Mapping
from json.encoder import encode_basestring
from struct import Struct
from typing import Final, NamedTuple

from ledgermq.client.checks import DELAY_LEVEL_MAX, check_values
from ledgermq.client.config import Compression
from ledgermq.client.errors import MessageError
from ledgermq.client.messages import Message
from ledgermq.protocol import properties as names
from ledgermq.protocol import sysflag
from ledgermq.protocol.batch import BatchMessage, encode_batch
from ledgermq.protocol.codes import ONE_WAY_FLAG, VERSION_4_9_3, LanguageCode, RequestCode
from ledgermq.protocol.command import RemotingCommand, encode
from ledgermq.protocol.compression import compress
from ledgermq.protocol.errors import LocalProtocolError
from ledgermq.protocol.names import DEFAULT_TOPIC
from ledgermq.protocol.properties import PROPERTIES_BYTES_MAX, format_properties
from ledgermq.protocol.record import TOPIC_BYTES_MAX
from ledgermq.protocol.signature import Credentials

# 4 length of all that follows, 4 serialize type (0, JSON) and header length
_PREFIX: Final = Struct(">II")
# Bits that choose a codec, and those that tell of it: none for zlib, for 4.9.3 knows no other, and
# later ones take none as it.
_CODECS: Final[dict[Compression, tuple[int, int]]] = {
    "zlib": (sysflag.COMPRESSION_ZLIB, 0),
    "lz4": (sysflag.COMPRESSION_LZ4, sysflag.COMPRESSION_LZ4),
    "zstd": (sysflag.COMPRESSION_ZSTD, sysflag.COMPRESSION_ZSTD),
}
# Bytes of a frame beside body and properties, about; for the account of bytes in flight.
FRAME_HEAD_BYTES: Final = 400


class SendBody(NamedTuple):
    """What of a send request stays the same in every try."""

    code: int
    sys_flag: int
    born_timestamp_ms: int
    flag: int
    # As a JSON text, with its quotes.
    properties: bytes
    body: bytes
    is_batch: bool

    @property
    def size_bytes(self) -> int:
        """About its size on the wire."""
        return FRAME_HEAD_BYTES + len(self.properties) + len(self.body)


class FrameTemplate:
    """Frames of one producer group to one topic."""

    __slots__ = ("_batch", "_credentials", "_fields", "_single")

    def __init__(
        self,
        group: str,
        topic: str,
        default_topic_queue_nums: int,
        credentials: Credentials | None = None,
    ) -> None:
        """Checks the names and writes what all frames share.

        Raises:
            MessageError: the topic is empty, too long or no text.
        """
        if not topic or len(topic.encode("utf-8", "replace")) > TOPIC_BYTES_MAX:
            raise MessageError(f"a topic has 1 to {TOPIC_BYTES_MAX} bytes", topic=topic)
        fixed = (
            b'{"code":%%d,"extFields":{"a":%b,"b":%b,"c":"%b","d":"%d","e":"%%d","f":"%%d",'
            b'"g":"%%d","h":"%%d","i":%%b,"j":"0","k":"false","m":"@"},"flag":%%d,'
            b'"language":"PYTHON","opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d}'
        ) % (
            json_text(group).replace(b"%", b"%%"),
            json_text(topic).replace(b"%", b"%%"),
            DEFAULT_TOPIC.encode(),
            default_topic_queue_nums,
            VERSION_4_9_3,
        )
        self._credentials = credentials
        self._fields = {"a": group, "b": topic, "c": DEFAULT_TOPIC, "j": "0", "k": "false"}
        self._fields["d"] = str(default_topic_queue_nums)
        self._single = fixed.replace(b'"m":"@"', b'"m":"false"')
        self._batch = fixed.replace(b'"m":"@"', b'"m":"true"')

    def frame(
        self,
        send: SendBody,
        queue_id: int,
        opaque: int,
        *,
        one_way: bool = False,
        signed_for: str = "",
    ) -> bytes:
        """Returns one whole frame; `signed_for` as `Credentials.signed` takes it."""
        if self._credentials is not None:
            fields = self._fields_of(send, queue_id)
            return encode(
                RemotingCommand(
                    code=send.code,
                    language=int(LanguageCode.PYTHON),
                    opaque=opaque,
                    flag=ONE_WAY_FLAG if one_way else 0,
                    ext_fields=self._credentials.signed(fields, send.body, send.code, signed_for),
                    body=send.body,
                )
            )
        code, sys_flag, born_ms, flag, properties, body, is_batch = send
        header = (self._batch if is_batch else self._single) % (
            code,
            queue_id,
            sys_flag,
            born_ms,
            flag,
            properties,
            ONE_WAY_FLAG if one_way else 0,
            opaque,
        )
        header_bytes = len(header)
        return _PREFIX.pack(4 + header_bytes + len(body), header_bytes) + header + body

    def _fields_of(self, send: SendBody, queue_id: int) -> dict[str, str]:
        """The single fields of the same frame, as a signature covers them."""
        return {
            **self._fields,
            "e": str(queue_id),
            "f": str(send.sys_flag),
            "g": str(send.born_timestamp_ms),
            "h": str(send.flag),
            "i": json.loads(send.properties),
            "m": "true" if send.is_batch else "false",
        }


def json_text(text: str) -> bytes:
    """Returns a text as JSON, with its quotes.

    Raises:
        MessageError: UTF-8 cannot carry it.
    """
    try:
        return encode_basestring(text).encode()
    except UnicodeEncodeError as error:
        raise MessageError(f"text that UTF-8 cannot carry: {text!r}") from error


def properties_text(
    message: Message,
    unique_id: str,
    namespace: str = "",
    delay_level_max: int = DELAY_LEVEL_MAX,
) -> str:
    """Returns the properties of a message as they go onto the wire.

    Args:
        message: as the program gave it.
        unique_id: its id.
        namespace: of the producer.
        delay_level_max: delays that the brokers have.

    Raises:
        MessageError: a value is not what the field takes, a name or value is empty or holds a
            separator, or all are too long.
    """
    check_values(message, delay_level_max)
    properties: dict[str, str] = {names.UNIQUE_KEY: unique_id, names.WAIT_STORE_MSG_OK: "true"}
    if namespace:
        properties[names.INSTANCE_ID] = namespace
    if message.keys:
        properties[names.KEYS] = message.keys
    if message.tags:
        properties[names.TAGS] = message.tags
    if message.delay_level:
        properties[names.DELAY_TIME_LEVEL] = str(message.delay_level)
    if message.properties:
        _add_user_properties(properties, message.properties, message.topic)
    try:
        text = format_properties(properties)
    except LocalProtocolError as error:
        raise MessageError(str(error), topic=message.topic) from error
    # A character takes four bytes at most.
    if len(text) * 4 > PROPERTIES_BYTES_MAX:
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > PROPERTIES_BYTES_MAX:
            raise MessageError(
                f"properties of {size} bytes; allowed: {PROPERTIES_BYTES_MAX}", topic=message.topic
            )
    return text


def single_body(
    message: Message,
    text: str,
    now_ms: int,
    compress_from_bytes: int,
    body_bytes_max: int,
    compression: Compression = "zlib",
) -> SendBody:
    """Returns what a send of one message repeats in every try.

    Args:
        message: as the user gave it.
        text: its properties, from properties_text.
        now_ms: when it was sent.
        compress_from_bytes: compress a body of this size or more, when it gets smaller; 0 never.
        body_bytes_max: largest body before compression.
        compression: how.

    Raises:
        MessageError: the body is too large, or a text cannot be carried.
    """
    body = message.body
    _check_size(len(body), body_bytes_max, message.topic)
    sys_flag = 0
    if compress_from_bytes and len(body) >= compress_from_bytes:
        bits, told_bits = _CODECS[compression]
        packed = compress(body, bits)
        if len(packed) < len(body):
            body, sys_flag = packed, sysflag.COMPRESSED | told_bits
    code = int(RequestCode.SEND_MESSAGE_V2)
    return SendBody(code, sys_flag, now_ms, message.flag, json_text(text), body, False)


def batch_body(
    messages: list[Message], texts: list[str], now_ms: int, body_bytes_max: int
) -> SendBody:
    """Returns what a send of several messages repeats in every try; nothing is compressed.

    Raises:
        MessageError: the messages are too large together, have different topics, or are delayed.
    """
    topic = messages[0].topic
    for message in messages:
        if message.topic != topic:
            raise MessageError(f"a batch has one topic, not also {message.topic!r}", topic=topic)
        if message.delay_level:
            raise MessageError("a batch cannot be delayed", topic=topic)
    try:
        body = encode_batch(
            [
                BatchMessage(message.flag, message.body, text.encode())
                for message, text in zip(messages, texts, strict=True)
            ]
        )
    except (LocalProtocolError, UnicodeEncodeError) as error:
        raise MessageError(str(error), topic=topic) from error
    _check_size(len(body), body_bytes_max, topic)
    code = int(RequestCode.SEND_BATCH_MESSAGE)
    wait = format_properties({names.WAIT_STORE_MSG_OK: "true"})
    return SendBody(code, 0, now_ms, 0, json_text(wait), body, True)


def _check_size(size: int, size_max: int, topic: str) -> None:
    if size > size_max:
        raise MessageError(f"a body of {size} bytes; allowed: {size_max}", topic=topic)


def _add_user_properties(properties: dict[str, str], given: Mapping[str, str], topic: str) -> None:
    for name, value in given.items():
        if name in properties or name in (names.KEYS, names.TAGS, names.DELAY_TIME_LEVEL):
            raise MessageError(f"property {name} is set by the client itself", topic=topic)
        properties[name] = value
