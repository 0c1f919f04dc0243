"""The topic table: which topics exist, with how many queues and which permission.

Pure. The table is a part of the replicated state: only `machine.py` changes it. Sources:
`TopicConfig.java`, `TopicConfigManager.java`.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from ledgermq.commitlog import is_light_queue
from ledgermq.state.change_log import ChangeLog
from ledgermq.state.data_version import DataVersion
from ledgermq.state.errors import TopicNotFoundError
from ledgermq.state.json_values import truth, whole_number
from ledgermq.state.named_table import NamedTable
from ledgermq.state.topic_attributes import MESSAGE_TYPE, kept_attributes

PERM_INHERIT: Final = 1
PERM_WRITE: Final = 2
PERM_READ: Final = 4
PERM_READ_WRITE: Final = PERM_READ | PERM_WRITE

# Bits of topic_sys_flag.
TOPIC_UNIT: Final = 1
TOPIC_UNIT_SUBSCRIPTION: Final = 2

QUEUES_MAX: Final = 65_536
# What a topic takes as JSON besides its name, which stands there twice, and its attributes.
_JSON_BYTES: Final = 256


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

    @property
    def json_bytes(self) -> int:
        """At most what it takes as JSON, with its name."""
        attributes = len(json.dumps(dict(self.attributes))) if self.attributes else 0
        return _JSON_BYTES + 2 * len(self.name) + attributes

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


class TopicTable(NamedTable[TopicConfig]):
    """All topics of this broker; topics.json is its document, and the answer to code 21."""

    def __init__(self, topics_max: int, *, knows_light_queues: bool = False) -> None:
        """Begins empty.

        Args:
            topics_max: topics that may be there.
            knows_light_queues: every name of a light queue is that of a topic, though it is in no
                table.
        """
        super().__init__(
            TopicConfig.from_json,
            noun="topic",
            table_key="topicConfigTable",
            count_max=topics_max,
            count_key="maxTopicCount",
        )
        self._knows_light_queues = knows_light_queues
        # What name servers are told by.
        self.changes = ChangeLog()

    def _put(self, entry: TopicConfig) -> None:
        super()._put(entry)
        self.changes.note(entry.name)

    def _remove(self, name: str) -> None:
        super()._remove(name)
        self.changes.forget(name)

    def replace_all(self, entries: Iterable[TopicConfig], version: DataVersion) -> None:
        super().replace_all(entries, version)
        self.changes.replace_all(self._entries)

    def find(self, name: str) -> TopicConfig | None:
        topic = self._entries.get(name)
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
    # Upstream makes one without queues of a number below 1, to which nobody can send.
    count = min(max(queue_count, 1), parent.write_queue_count)
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
