"""The topic table: which topics exist, with how many queues and which permission.

Pure: time is passed in, files and replication are `state_log.py`'s. The table is one of the three
parts of the broker's state that go through the ledger; on a follower it only follows. Sources:
`TopicConfig.java`, `TopicConfigManager.java`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from ledgermq.broker import names
from ledgermq.broker.config import BrokerConfig
from ledgermq.broker.data_version import DataVersion, truth, whole_number
from ledgermq.broker.errors import SystemBusyError, TopicNotFoundError
from ledgermq.broker.topic_attributes import MESSAGE_TYPE, kept_attributes
from ledgermq.commitlog import SCHEDULE_TOPIC, is_light_queue

PERM_INHERIT: Final = 1
PERM_WRITE: Final = 2
PERM_READ: Final = 4
PERM_READ_WRITE: Final = PERM_READ | PERM_WRITE

# Bits of topic_sys_flag.
TOPIC_UNIT: Final = 1
TOPIC_UNIT_SUBSCRIPTION: Final = 2

QUEUES_MAX: Final = 65_536
_BENCHMARK_QUEUES: Final = 1024
_CLUSTER_TOPIC_QUEUES: Final = 16
_SCHEDULE_QUEUES: Final = 18


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic on this broker."""

    name: str
    read_queue_count: int = 16
    write_queue_count: int = 16
    # PERM_ bits.
    permission: int = PERM_READ_WRITE
    # SINGLE_TAG or MULTI_TAG.
    filter_type: str = "SINGLE_TAG"
    # TOPIC_UNIT bits; kept for clients in unit mode.
    topic_sys_flag: int = 0
    # The producer keeps an order over all queues.
    is_ordered: bool = False
    # What tools of 5.x set, by name; never changed once the topic is made.
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def message_type(self) -> str | None:
        """The one type of its messages as upstream names it, None when nobody set one."""
        return self.attributes.get(MESSAGE_TYPE)

    @property
    def queue_count(self) -> int:
        """Queues that may hold messages: a queue id of a send must be below it."""
        return max(self.read_queue_count, self.write_queue_count)

    def to_json(self) -> dict[str, Any]:
        """Returns upstream's object; as 4.9 has it while there are no attributes."""
        attributes = {"attributes": dict(self.attributes)} if self.attributes else {}
        return {
            **attributes,
            "order": self.is_ordered,
            "perm": self.permission,
            "readQueueNums": self.read_queue_count,
            "topicFilterType": self.filter_type,
            "topicName": self.name,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_count,
        }

    @classmethod
    def from_json(cls, name: str, value: Mapping[str, Any]) -> Self:
        """Reads upstream's object; what is missing or of another type takes its default, unknown
        members are ignored.
        """
        filter_type = value.get("topicFilterType")
        return cls(
            name=name,
            read_queue_count=_bounded(whole_number(value, "readQueueNums", 16)),
            write_queue_count=_bounded(whole_number(value, "writeQueueNums", 16)),
            permission=whole_number(value, "perm", PERM_READ_WRITE) & 7,
            filter_type=filter_type if filter_type == "MULTI_TAG" else "SINGLE_TAG",
            topic_sys_flag=whole_number(value, "topicSysFlag", 0),
            is_ordered=truth(value, "order", False),
            attributes=kept_attributes(value.get("attributes")),
        )


def _bounded(count: int) -> int:
    return min(max(count, 0), QUEUES_MAX)


class TopicTable:
    """All topics of this broker by name.

    Invariant: `generation` grows with every change, so that whoever caches something about a topic
    can tell that it is stale by comparing one number.
    """

    def __init__(self, topics_max: int, *, knows_light_queues: bool = False) -> None:
        self._topics: dict[str, TopicConfig] = {}
        self._topics_max = topics_max
        # Every name of a light queue is that of a topic, though it is in no table.
        self._knows_light_queues = knows_light_queues
        # What name servers compare.
        self.version = DataVersion()
        # Changes of this table in this process.
        self.generation = 0

    def __len__(self) -> int:
        return len(self._topics)

    def find(self, name: str) -> TopicConfig | None:
        """Returns the topic, or None."""
        topic = self._topics.get(name)
        if topic is None and self._knows_light_queues and is_light_queue(name):
            return TopicConfig(name, 1, 1)
        return topic

    def get(self, name: str) -> TopicConfig:
        """Returns the topic.

        Raises:
            TopicNotFoundError: there is none of that name.
        """
        topic = self.find(name)
        if topic is None:
            raise TopicNotFoundError(f"topic[{name}] not exist, apply first please!")
        return topic

    def all(self) -> list[TopicConfig]:
        """Returns all topics in the order of their names."""
        return [self._topics[name] for name in sorted(self._topics)]

    def check_room(self, name: str) -> None:
        """Raises SystemBusyError when one more topic would pass the limit."""
        if name not in self._topics and len(self._topics) >= self._topics_max:
            raise SystemBusyError(
                f"topic[{name}] not created: there are {len(self._topics)} topics,"
                f" allowed are {self._topics_max} (key maxTopicCount)"
            )

    def put(self, topic: TopicConfig, now_ms: int) -> bool:
        """Adds or replaces a topic; returns False when it was there exactly so."""
        if self._topics.get(topic.name) == topic:
            return False
        self._topics[topic.name] = topic
        self._changed(now_ms)
        return True

    def remove(self, name: str, now_ms: int) -> bool:
        """Drops a topic; returns False when there was none."""
        if self._topics.pop(name, None) is None:
            return False
        self._changed(now_ms)
        return True

    def replace_all(self, topics: Iterable[TopicConfig], version: DataVersion) -> None:
        """Takes over the whole table of a leader or a file."""
        self._topics = {topic.name: topic for topic in topics}
        self.version = version
        self.generation += 1

    def follow(
        self, put: Iterable[TopicConfig], removed: Iterable[str], version: DataVersion
    ) -> None:
        """Takes over changes of a leader together with its version."""
        for topic in put:
            self._topics[topic.name] = topic
        for name in removed:
            self._topics.pop(name, None)
        self.version = version
        self.generation += 1

    def to_json(self) -> dict[str, Any]:
        """Returns the content of topics.json, which is also the body of GET_ALL_TOPIC_CONFIG."""
        return {
            "dataVersion": self.version.to_json(),
            "topicConfigTable": {name: topic.to_json() for name, topic in self._topics.items()},
        }

    def load_json(self, value: Mapping[str, Any]) -> None:
        """Takes over the content of topics.json; entries that are not topics are left out."""
        table = value.get("topicConfigTable")
        entries = table.items() if isinstance(table, Mapping) else ()
        self.replace_all(
            (
                TopicConfig.from_json(name, entry)
                for name, entry in entries
                if isinstance(entry, Mapping)
            ),
            DataVersion.from_json(value.get("dataVersion")),
        )

    def _changed(self, now_ms: int) -> None:
        self.version = self.version.next(now_ms)
        self.generation += 1


def built_in_topics(config: BrokerConfig) -> list[TopicConfig]:
    """Returns the topics that upstream's broker makes at every start."""
    cluster_permission = 7 if config.is_cluster_topic_open else PERM_INHERIT
    broker_permission = 7 if config.is_broker_topic_open else PERM_INHERIT
    topics = [
        TopicConfig(names.SELF_TEST_TOPIC, 1, 1),
        TopicConfig(names.BENCHMARK_TOPIC, _BENCHMARK_QUEUES, _BENCHMARK_QUEUES),
        TopicConfig(config.broker_name, 1, 1, broker_permission),
        TopicConfig(
            config.cluster_name, _CLUSTER_TOPIC_QUEUES, _CLUSTER_TOPIC_QUEUES, cluster_permission
        ),
        TopicConfig(names.OFFSET_MOVED_TOPIC, 1, 1),
        TopicConfig(SCHEDULE_TOPIC, _SCHEDULE_QUEUES, _SCHEDULE_QUEUES),
        TopicConfig(names.reply_topic(config.cluster_name), 1, 1),
    ]
    if config.auto_create_topics:
        count = config.default_queue_count
        topics.append(TopicConfig(names.DEFAULT_TOPIC, count, count, 7))
    if config.has_trace_topic:
        topics.append(TopicConfig(config.trace_topic, 1, 1))
    return topics


def topic_for_send(
    table: TopicTable, name: str, default_topic: str, queue_count: int, topic_sys_flag: int
) -> TopicConfig:
    """Decides what a topic looks like that a send creates.

    Args:
        table: the topics there are.
        name: the new topic, a valid name.
        default_topic: topic whose settings it takes, TBW102 for every stock client.
        queue_count: queues the client asks for.
        topic_sys_flag: TOPIC_UNIT bits from the client's unit mode.

    Raises:
        TopicNotFoundError: the default topic is not there or may not be inherited from.
        SystemBusyError: there are too many topics.

    Source: `TopicConfigManager.createTopicInSendMessageMethod`.
    """
    parent = table.find(default_topic)
    if parent is None:
        raise TopicNotFoundError(
            f"topic[{name}] not exist, apply first please! It is not created either:"
            f" the default topic [{default_topic}] not exist (key autoCreateTopicEnable)"
        )
    if not parent.permission & PERM_INHERIT:
        raise TopicNotFoundError(
            f"topic[{name}] not exist, apply first please! It is not created either:"
            f" the default topic [{default_topic}]"
            f" has permission {parent.permission} without the inherit bit 1"
        )
    table.check_room(name)
    count = max(min(queue_count, parent.write_queue_count), 0)
    return replace(
        parent,
        name=name,
        read_queue_count=count,
        write_queue_count=count,
        permission=parent.permission & ~PERM_INHERIT,
        topic_sys_flag=topic_sys_flag,
        is_ordered=False,
        attributes={},
    )
