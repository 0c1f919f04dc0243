"""Bodies in which a consumer tells about itself when a tool asks through its broker (221, 307).

Source: ConsumerRunningInfo.java, ProcessQueueInfo.java, ConsumeStatus.java,
GetConsumerStatusBody.java.
"""

from typing import Any, ClassVar, Self

import msgspec

from ledgermq.protocol import lenient_json
from ledgermq.protocol.bodies import MessageQueue, read_queue_map
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.headers.header import Int32, Int64
from ledgermq.protocol.heartbeat import SubscriptionData
from ledgermq.protocol.json_body import JsonBody, read_plain


class ConsumerStatusBody(JsonBody, frozen=True):
    """GetConsumerStatusBody: offsets that a consumer holds (221)."""

    # Offset of the next message to consume.
    message_queue_table: dict[MessageQueue, Int64] = {}
    # Of several consumers, by client id; only in the answer to 223.
    consumer_table: dict[str, dict[MessageQueue, Int64]] = {}


class ProcessQueueInfo(JsonBody, frozen=True):
    """ProcessQueueInfo: one queue that a consumer has."""

    is_plain: ClassVar[bool] = True

    commit_offset: Int64 = 0
    # Messages that are pulled and not consumed.
    cached_msg_min_offset: Int64 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_count: Int32 = 0
    cached_msg_size_in_mib: Int32 = msgspec.field(name="cachedMsgSizeInMiB", default=0)
    locked: bool = False
    # Wire name as Java spells it.
    droped: bool = False
    # ms since 1970
    last_pull_timestamp: Int64 = 0
    last_consume_timestamp: Int64 = 0


class ConsumeStatus(JsonBody, frozen=True):
    """ConsumeStatus: how a consumer gets on with one topic; times in ms, rates in messages/s."""

    is_plain: ClassVar[bool] = True

    consume_rt: float = msgspec.field(name="consumeRT", default=0.0)
    consume_ok_tps: float = msgspec.field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: float = msgspec.field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: Int64 = 0


class ConsumerRunningInfo(JsonBody, frozen=True):
    """ConsumerRunningInfo: a consumer, its queues and its topics (307)."""

    # Who answers is as foreign as any client. In the dialect, as Java consumers write it, that is a
    # thousand queues.
    bytes_max: ClassVar[int] = 1 << 20
    dialect_bytes_max: ClassVar[int] = 256 << 10

    # PROP_... -> text.
    properties: dict[str, str] = {}
    subscription_set: list[SubscriptionData] = []
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}
    # By topic.
    status_table: dict[str, ConsumeStatus] = {}
    # Stacks of its threads.
    jstack: str | None = None

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Reads what a consumer of any language tells.

        Raises:
            RemoteProtocolError: it is no such body, or too large.
        """
        if len(data) > cls.bytes_max:
            raise RemoteProtocolError("bytes of a running info", len(data), cls.bytes_max)
        text = lenient_json.read(data, cls.dialect_bytes_max)
        document: Any = read_plain(text, dict[str, Any])
        return cls(
            read_plain(document.get("properties") or {}, dict[str, str]),
            read_plain(document.get("subscriptionSet") or [], list[SubscriptionData]),
            read_queue_map(document.get("mqTable"), ProcessQueueInfo),
            read_plain(document.get("statusTable") or {}, dict[str, ConsumeStatus]),
            read_plain(document.get("jstack") or "", str) or None,
        )
