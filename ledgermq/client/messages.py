"""Messages: what a program sends, what it receives, and what a broker says about a send."""

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any, Final, NamedTuple

from ledgermq.client.delays import level_of
from ledgermq.client.errors import MessageError
from ledgermq.client.namespaces import without_namespace
from ledgermq.client.serializers import Serializer, value_of
from ledgermq.protocol import properties as names
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.compression import decompress
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.message_id import encode_offset_id
from ledgermq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ledgermq.protocol.plain_text import escaped
from ledgermq.protocol.properties import decode_properties, parse_properties
from ledgermq.protocol.record import Record
from ledgermq.protocol.sysflag import COMPRESSED

# Of the topics in which a broker stores a message once more, with the name of the first one.
_COPIED_PREFIXES: Final = (RETRY_PREFIX, DEAD_LETTER_PREFIX)
# None may be a value.
_UNREAD: Final = object()
# Namespace and serializer of a consumer that has neither.
_PLAIN: Final[tuple[str, Serializer | None]] = ("", None)


@dataclass(slots=True)
class Message:
    """What a program sends."""

    topic: str
    # Bytes, or with a serializer what that takes.
    body: Any
    # Words under which the message can be found, separated by blanks.
    keys: str = field(default="", kw_only=True)
    # One word that consumers can select by.
    tags: str = field(default="", kw_only=True)
    # Further properties; neither names nor values may be empty.
    properties: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    # Any number of the application.
    flag: int = field(default=0, kw_only=True)
    # 1 to 18: delivered after 1 s to 2 h, as the broker's levels say; 0 at once.
    delay_level: int = field(default=0, kw_only=True)
    # The same as a time: the shortest level that is not shorter; not kept beside delay_level.
    delay: InitVar[timedelta | None] = field(default=None, kw_only=True)

    def __post_init__(self, delay: timedelta | None) -> None:
        if delay is not None:
            if self.delay_level:
                raise MessageError("delay and delay_level exclude each other", topic=self.topic)
            self.delay_level = level_of(delay)


class SendStatus(Enum):
    """How safely a message is stored."""

    # As safely as the broker is set up to.
    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


class SendResult(NamedTuple):
    """Where an acknowledged message lies."""

    status: SendStatus
    # The id its producer gave it; the same after a retry.
    message_id: str
    # The id that tells where it is stored; empty when the broker gave none.
    offset_message_id: str
    topic: str
    queue_id: int
    # Of a batch the offset of its first message.
    queue_offset: int
    broker_name: str
    # Where the broker says it is; empty when it wants no traces. Told only while tracing is on.
    region_id: str = ""

    @property
    def queue(self) -> MessageQueue:
        """The queue it lies in."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


class ReceivedMessage:
    """A message as it came from a broker; properties and body are decoded when asked for."""

    __slots__ = (
        "_body", "_body_bytes_max", "_properties", "_terms", "_value", "queue",
        "record",
    )  # fmt: skip

    def __init__(
        self,
        record: Record,
        queue: MessageQueue,
        body_bytes_max: int,
        namespace: str = "",
        serializer: Serializer | None = None,
    ) -> None:
        """Wraps a record.

        Args:
            record: as decoded from the answer to a pull.
            queue: the queue it was pulled from; may be one of a group's retry topic.
            body_bytes_max: largest body that decompression may give.
            namespace: of the consumer; taken off the name of the topic.
            serializer: makes `value` of the body.
        """
        self.record = record
        self.queue = queue
        self._body_bytes_max = body_bytes_max
        self._terms = (namespace, serializer) if namespace or serializer is not None else _PLAIN
        self._properties: dict[str, str] | None = None
        self._body: bytes | None = None
        self._value: Any = _UNREAD

    @property
    def properties(self) -> dict[str, str]:
        """All properties, also those of the broker and of clients.

        Raises:
            RemoteProtocolError: they are not UTF-8.
        """
        if self._properties is None:
            self._properties = decode_properties(self.record.properties)
        return self._properties

    @property
    def readable_properties(self) -> dict[str, str]:
        """All properties, whatever a producer put into them: bytes that are no UTF-8 stand as their
        numbers.
        """
        try:
            return self.properties
        except RemoteProtocolError:
            return parse_properties(_as_text(self.record.properties))

    @property
    def body(self) -> bytes:
        """The body as it was sent.

        Raises:
            RemoteProtocolError: it is compressed, and broken or too large.
        """
        if self._body is None:
            self._body = decompress(self.record.body, self.record.sys_flag, self._body_bytes_max)
        return self._body

    @property
    def value(self) -> Any:
        """The body as the serializer of the consumer reads it; the body itself without one.

        Raises:
            RemoteProtocolError: as for the body.
            MessageError: the serializer cannot read it.
        """
        serializer = self._terms[1]
        if serializer is None:
            return self.body
        if self._value is _UNREAD:
            self._value = value_of(self.body, serializer, self.topic)
        return self._value

    @property
    def topic(self) -> str:
        """The topic it was sent to, also when it is delivered again through a retry topic."""
        topic = self.record.topic
        # There the broker wrote the property; elsewhere a sender did.
        if topic.startswith(_COPIED_PREFIXES):
            topic = self.readable_properties.get(names.RETRY_TOPIC, topic)
        return without_namespace(self._terms[0], topic)

    def legible(self) -> "ReceivedMessage":
        """Returns a message that can be shown whatever its producer put into it: itself, or a copy
        whose body is as it is stored, since it cannot be unpacked, and in whose properties bytes
        that are no UTF-8 stand as their numbers.
        """
        record = self.record
        try:
            decode_properties(record.properties)
        except RemoteProtocolError:
            record = record._replace(properties=_as_text(record.properties).encode())
        try:
            self.body  # noqa: B018
        except RemoteProtocolError:
            record = record._replace(sys_flag=record.sys_flag & ~COMPRESSED)
        if record is self.record:
            return self
        namespace, serializer = self._terms
        return ReceivedMessage(record, self.queue, self._body_bytes_max, namespace, serializer)

    @property
    def keys(self) -> str:
        """Words under which it can be found, separated by blanks."""
        return self.properties.get(names.KEYS, "")

    @property
    def tags(self) -> str:
        """Its tag, empty when it has none."""
        return self.properties.get(names.TAGS, "")

    @property
    def message_id(self) -> str:
        """The id its producer gave it, or else the one that tells where it is stored."""
        return self.properties.get(names.UNIQUE_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The id that tells where it is stored."""
        address, port = self.record.store_host
        return encode_offset_id(address, port, self.record.physical_offset)

    @property
    def queue_offset(self) -> int:
        """Its number in its queue."""
        return self.record.queue_offset

    @property
    def born_timestamp_ms(self) -> int:
        """When it was sent, by the producer's clock, in ms since 1970."""
        return self.record.born_timestamp

    @property
    def store_timestamp_ms(self) -> int:
        """When it was stored, by the broker's clock, in ms since 1970."""
        return self.record.store_timestamp

    @property
    def reconsume_times(self) -> int:
        """How often its group failed to consume it."""
        # Before that its sender says so, who may write less than 0.
        return max(self.record.reconsume_times, 0)

    def __repr__(self) -> str:
        # Others wrote most of it, and it goes to logs.
        return escaped(
            f"<ReceivedMessage {self.topic} {self.queue.broker_name}/{self.queue.queue_id}"
            f"@{self.queue_offset}>"
        )


def _as_text(properties: bytes) -> str:
    return properties.decode("utf-8", "backslashreplace")
