"""What a broker says of all its topics (21), and of which kind a topic is."""

from typing import ClassVar, Final, NamedTuple

import msgspec

from ledgermq.console.answers import NAMES_MAX, check_objects
from ledgermq.console.shapes.topics import TopicKind
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.json_body import REQUEST_DIALECT_BYTES_MAX, JsonBody
from ledgermq.protocol.names import DEAD_LETTER_PREFIX, DEFAULT_TOPIC, RETRY_PREFIX
from ledgermq.protocol.route import TopicConfig

# Source: TopicValidator.java.
_SYSTEM: Final = frozenset(
    {
        DEFAULT_TOPIC, "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest", "TRANS_CHECK_MAX_TIME_TOPIC", "DefaultHeartBeatSyncerTopic",
    }
)  # fmt: skip
_SYSTEM_PREFIXES: Final = ("RMQ_SYS_", "rmq_sys_", "%SYS%", "wheel_timer")
_SYSTEM_GROUPS: Final = frozenset(
    {
        "DEFAULT_CONSUMER", "DEFAULT_PRODUCER", "TOOLS_CONSUMER", "SCHEDULE_CONSUMER",
        "FILTERSRV_CONSUMER", "__MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER", "SELF_TEST_P_GROUP",
        "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PULL", "CID_DefaultHeartBeatSyncerTopic",
    }
)  # fmt: skip
_SYSTEM_GROUP_PREFIXES: Final = ("CID_RMQ_SYS_", "CID_SYS_")
# As brokers and name servers have it.
_QUEUES_MAX: Final = 65_536
_KIND_OF_TYPE: Final[dict[str, TopicKind]] = {
    "FIFO": "fifo",
    "DELAY": "delay",
    "TRANSACTION": "transaction",
    "MIXED": "mixed",
}


class TopicEntry(NamedTuple):
    """A topic as one broker has it."""

    config: TopicConfig
    # message.type of 5.x; empty when it has none.
    message_type: str


# What stands for no attributes, or no type.
_Odd = bool | int | float


class _Attributes(JsonBody, frozen=True):
    message_type: str | _Odd | None = msgspec.field(name="message.type", default=None)


class _Topic(TopicConfig, frozen=True):
    # Of 5.x.
    attributes: _Attributes | str | _Odd | None = None


class _TopicTable(JsonBody, frozen=True):
    """TopicConfigSerializeWrapper, with what 5.x adds."""

    dialect_bytes_max: ClassVar[int] = REQUEST_DIALECT_BYTES_MAX

    topic_config_table: dict[str, _Topic] | None = None


def read_topic_table(body: bytes) -> dict[str, TopicEntry]:
    """Reads the answer to 21.

    Raises:
        RemoteProtocolError: it is none, or has more topics, or a topic more queues, than any.
    """
    # Each topic is one with its attributes.
    check_objects(body, 2 * NAMES_MAX)
    entries = {}
    for name, topic in (_TopicTable.decode(body).topic_config_table or {}).items():
        for count in (topic.read_queue_nums, topic.write_queue_nums):
            if not 0 <= count <= _QUEUES_MAX:
                raise RemoteProtocolError(f"queues of topic {name}", count, f"0 to {_QUEUES_MAX}")
        told = topic.attributes
        kind = told.message_type if isinstance(told, _Attributes) else None
        entries[name] = TopicEntry(topic, kind if isinstance(kind, str) else "")
    return entries


def kind_of(topic: str, entry: TopicEntry | None, own_names: frozenset[str]) -> TopicKind:
    """Returns of which kind a topic is.

    Args:
        topic: its name.
        entry: as a broker has it.
        own_names: of the clusters and brokers, whose topics of the same name are the system's.
    """
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    if topic.startswith(DEAD_LETTER_PREFIX):
        return "dead_letter"
    is_own = topic in own_names or topic.removesuffix("_REPLY_TOPIC") in own_names
    if is_own or topic in _SYSTEM or topic.startswith(_SYSTEM_PREFIXES):
        return "system"
    if entry is None:
        return "normal"
    return _KIND_OF_TYPE.get(entry.message_type, "fifo" if entry.config.order else "normal")


def is_system_group(group: str) -> bool:
    """Tells whether a consumer group is one of the brokers or of tools."""
    return group in _SYSTEM_GROUPS or group.startswith(_SYSTEM_GROUP_PREFIXES)
