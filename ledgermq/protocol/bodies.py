"""Bodies of groups, queues and offsets: what clients, brokers and admin tools exchange about them.

Maps with message queues as keys are written as fastjson writes them, {{"brokerName":...}:...}, and
read in that form and with the key as text. Go's client scans the key itself: its members stand in
the order brokerName, queueId, topic.

Source: LockBatchRequestBody.java, TopicStatsTable.java, ConsumeStats.java, ConsumerConnection.java
and their neighbors.
"""

from typing import Any, ClassVar, Final, Self, TypeVar

import msgspec

from ledgermq.protocol import lenient_json
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.headers.header import Int32, Int64
from ledgermq.protocol.heartbeat import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
    name_words,
)
from ledgermq.protocol.json_body import REQUEST_DIALECT_BYTES_MAX, JsonBody, read_plain
from ledgermq.protocol.route import DataVersion

_V = TypeVar("_V")


class MessageQueue(JsonBody, frozen=True, order=True):
    """MessageQueue: one queue of a topic on one broker name; sorts as clients sort their
    assignments.
    """

    is_plain: ClassVar[bool] = True

    topic: str
    broker_name: str
    queue_id: Int32


class GetConsumerListByGroupResponseBody(JsonBody, frozen=True):
    """GetConsumerListByGroupResponseBody: client ids of a group (38)."""

    is_plain: ClassVar[bool] = True

    consumer_id_list: list[str] = []


class LockBatchRequestBody(JsonBody, frozen=True):
    """LockBatchRequestBody: queues that a client wants for itself (41)."""

    is_plain: ClassVar[bool] = True
    dialect_bytes_max: ClassVar[int] = REQUEST_DIALECT_BYTES_MAX

    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue] = []


class UnlockBatchRequestBody(LockBatchRequestBody, frozen=True):
    """UnlockBatchRequestBody: queues that a client gives back (42)."""


class LockBatchResponseBody(JsonBody, frozen=True):
    """LockBatchResponseBody: queues that the client now has."""

    is_plain: ClassVar[bool] = True

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(name="lockOKMQSet", default_factory=list)


class CheckClientRequestBody(JsonBody, frozen=True):
    """CheckClientRequestBody: is this subscription one the broker can serve (46)."""

    dialect_bytes_max: ClassVar[int] = REQUEST_DIALECT_BYTES_MAX

    client_id: str
    group: str
    subscription_data: SubscriptionData


class SubscriptionGroupConfig(JsonBody, frozen=True):
    """SubscriptionGroupConfig: one consumer group (200)."""

    is_plain: ClassVar[bool] = True

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    # Whom to read from: always, and when the master is too far ahead of the reader.
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True


class SubscriptionGroupTableBody(JsonBody, frozen=True):
    """SubscriptionGroupWrapper: all groups of a broker (201)."""

    is_plain: ClassVar[bool] = True

    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
    data_version: DataVersion = DataVersion()


class ConsumerOffsetTableBody(JsonBody, frozen=True):
    """ConsumerOffsetSerializeWrapper: all offsets of a broker (43)."""

    generous_bytes_max: ClassVar[int] = lenient_json.DIALECT_BYTES_MAX

    # "topic@group" -> queue id -> offset.
    offset_table: dict[str, dict[Int32, Int64]] = {}


class DelayOffsetTableBody(JsonBody, frozen=True):
    """DelayOffsetSerializeWrapper: how far each delay level is delivered (45)."""

    generous_bytes_max: ClassVar[int] = lenient_json.DIALECT_BYTES_MAX

    # Delay level -> queue offset.
    offset_table: dict[Int32, Int64] = {}


class GroupList(JsonBody, frozen=True):
    """GroupList: names of groups (300)."""

    is_plain: ClassVar[bool] = True

    group_list: list[str] = []


class TopicOffset(JsonBody, frozen=True):
    """TopicOffset: the ends of one queue."""

    is_plain: ClassVar[bool] = True

    min_offset: Int64
    # Offset of the next message.
    max_offset: Int64
    # Store time of the last message, ms since 1970; 0 when there is none.
    last_update_timestamp: Int64 = 0


class ConsumeOffsets(JsonBody, frozen=True):
    """OffsetWrapper: where a group stands in one queue."""

    # Offset of the next message of the queue.
    broker_offset: Int64
    # Offset that the group committed.
    consumer_offset: Int64
    # Store time of the last message consumed, ms since 1970; 0 when there is none.
    last_timestamp: Int64 = 0
    # Offset behind the last pull, at least the committed one; 5.x. None: a broker of 4.9.
    pull_offset: Int64 | None = None


class TopicStatsTable(JsonBody, frozen=True):
    """TopicStatsTable: the ends of all queues of a topic (202)."""

    offset_table: dict[MessageQueue, TopicOffset] = {}

    @classmethod
    def decode(cls, data: bytes) -> Self:
        document = _read_object(data)
        return cls(read_queue_map(document.get("offsetTable"), TopicOffset))


class ConsumeStats(JsonBody, frozen=True):
    """ConsumeStats: where a group stands (208)."""

    offset_table: dict[MessageQueue, ConsumeOffsets] = {}
    # Messages a second.
    consume_tps: float = 0.0

    @classmethod
    def decode(cls, data: bytes) -> Self:
        return cls.from_plain(lenient_json.read(data))

    @classmethod
    def from_plain(cls, value: Any) -> Self:
        document = _as_object(value)
        table = read_queue_map(document.get("offsetTable"), ConsumeOffsets)
        return cls(table, read_plain(document.get("consumeTps", 0.0), float))


class ConsumeStatsList(JsonBody, frozen=True):
    """ConsumeStatsList: where all groups of a broker stand (317)."""

    # Each a map of one group to its numbers by topic.
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
    broker_addr: str | None = None
    # Messages that the groups have not consumed yet.
    total_diff: Int64 = 0

    @classmethod
    def decode(cls, data: bytes) -> Self:
        document = _read_object(data)
        groups = read_plain(document.get("consumeStatsList", []), list[dict[str, list[Any]]])
        return cls(
            [
                {group: [ConsumeStats.from_plain(one) for one in all_of_it]}
                for entry in groups
                for group, all_of_it in entry.items()
            ],
            read_plain(document.get("brokerAddr", ""), str) or None,
            read_plain(document.get("totalDiff", 0), int),
        )


class BrokerStatsItem(JsonBody, frozen=True):
    """BrokerStatsItem: a count over some time."""

    is_plain: ClassVar[bool] = True

    sum: Int64 = 0
    # Each second, and each time something was counted.
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(JsonBody, frozen=True):
    """BrokerStatsData: one counted thing of a broker (315)."""

    is_plain: ClassVar[bool] = True

    stats_minute: BrokerStatsItem = BrokerStatsItem()
    stats_hour: BrokerStatsItem = BrokerStatsItem()
    stats_day: BrokerStatsItem = BrokerStatsItem()


class ConsumeMessageDirectlyResult(JsonBody, frozen=True):
    """ConsumeMessageDirectlyResult: how a client got on with one message (309)."""

    # CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, CR_THROW_EXCEPTION or CR_RETURN_NULL.
    consume_result: str
    order: bool = False
    auto_commit: bool = True
    remark: str | None = None
    # Wire name as Java spells it.
    spent_time_mills: Int64 = 0


class ResetOffsetBody(JsonBody, frozen=True):
    """ResetOffsetBody: offsets that a group is set to (220, 222)."""

    offset_table: dict[MessageQueue, Int64] = {}

    def encode_list(self) -> bytes:
        """Writes the form for C++ clients, a list in place of the map (ResetOffsetBodyForC)."""
        rows = [
            {
                "brokerName": queue.broker_name,
                "offset": offset,
                "queueId": queue.queue_id,
                "topic": queue.topic,
            }
            for queue, offset in self.offset_table.items()
        ]
        return lenient_json.write({"offsetTable": rows})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Reads either form."""
        table = _read_object(data).get("offsetTable")
        if isinstance(table, list):
            rows = read_plain(table, list[_QueueOffset])
            return cls(
                {MessageQueue(row.topic, row.broker_name, row.queue_id): row.offset for row in rows}
            )
        return cls(read_queue_map(table, int))


class _QueueOffset(JsonBody, frozen=True):
    """MessageQueueForC: a queue and an offset."""

    topic: str
    broker_name: str
    queue_id: Int32
    offset: Int64


class ClientConnection(JsonBody, frozen=True):
    """Connection: one client of a group."""

    is_plain: ClassVar[bool] = True

    client_id: str
    # "ip:port"
    client_addr: str
    # Name of a LanguageCode.
    language: str
    version: Int32


class ProducerConnection(JsonBody, frozen=True):
    """ProducerConnection: the clients of a producer group (204)."""

    is_plain: ClassVar[bool] = True

    connection_set: list[ClientConnection] = []


class ConsumerConnection(JsonBody, frozen=True):
    """ConsumerConnection: the clients of a consumer group and what they want (203)."""

    is_plain: ClassVar[bool] = True

    connection_set: list[ClientConnection] = []
    # By topic.
    subscription_table: dict[str, SubscriptionData] = {}
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET

    @classmethod
    def repair(cls, value: Any) -> Any:
        return name_words(value)


_OBJECT: Final = "an object"


def _read_object(data: bytes) -> dict[str, Any]:
    return _as_object(lenient_json.read(data))


def _as_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RemoteProtocolError("JSON body", type(value).__name__, _OBJECT)
    return value


def read_queue_map(table: Any, value_type: type[_V]) -> dict[MessageQueue, _V]:
    """Reads a map whose keys are message queues, as lenient_json.read returns it.

    Raises:
        RemoteProtocolError: it is no map, or a key or a value does not fit.
    """
    if table is None:
        return {}
    if not isinstance(table, dict):
        raise RemoteProtocolError("map of message queues", type(table).__name__, _OBJECT)
    try:
        return {
            MessageQueue.decode(key.encode()): read_plain(value, value_type)
            for key, value in table.items()
        }
    except UnicodeEncodeError as error:
        raise RemoteProtocolError("map of message queues", str(error), "UTF-8") from error
