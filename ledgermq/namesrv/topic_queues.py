"""TopicQueues: which broker name has how many queues of a topic; pure.

One entry is a topic of a broker name. Entries are counted over all and for whoever brought them, so
that nobody can fill the table for all others; what one broker name has is found without a look at
all topics.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ledgermq.namesrv.errors import LimitError
from ledgermq.namesrv.registrations import Registrant, RouteLimits
from ledgermq.protocol.route import QueueData, TopicConfig

PERM_WRITE: Final = 2
PERM_READ_WRITE: Final = 6
UNIT_FLAG: Final = 1
UNIT_SUB_FLAG: Final = 2


@dataclass(slots=True)
class _Brought:
    """The topics of one broker name."""

    # Whose quota they count in.
    key: str
    topics: set[str] = field(default_factory=set)


class TopicQueues:
    """All topics.

    Invariants: a topic has a broker name here exactly when the broker name has the topic; the
    counts are the sums of the sets.
    """

    def __init__(self, limits: RouteLimits) -> None:
        """Begins empty."""
        self._limits = limits
        # Topic to broker name to its queues.
        self._topics: dict[str, dict[str, QueueData]] = {}
        # By broker name.
        self._brought: dict[str, _Brought] = {}
        # Topics that have, or had since they are here, a unit flag at some broker name.
        self._flagged: set[str] = set()
        # Entries by the key of a registrant.
        self._counts: dict[str, int] = {}
        self._count = 0

    def check(
        self, broker_name: str, registrant: Registrant, topics: Mapping[str, TopicConfig]
    ) -> None:
        """Lets topics of a broker name pass that `put` would take.

        Raises:
            LimitError: they are too many.
        """
        limits, brought = self._limits, self._brought.get(broker_name)
        known = brought.topics if brought is not None else frozenset[str]()
        news = sum(1 for topic in topics if topic not in known)
        moved = len(known) if brought is not None and brought.key != registrant.key else 0
        own = self._counts.get(registrant.key, 0) + moved + news
        if own > limits.topics_per_registrant_max and not registrant.is_free:
            raise LimitError(
                "topicsPerRegistrantMax", own, limits.topics_per_registrant_max, registrant.key
            )
        if self._count + news > limits.topic_entries_max:
            raise LimitError("topicEntriesMax", self._count + news, limits.topic_entries_max)
        count = len(self._topics) + sum(1 for topic in topics if topic not in self._topics)
        if count > limits.topics_max:
            raise LimitError("topicsMax", count, limits.topics_max)

    def put(
        self, broker_name: str, registrant: Registrant, topics: Mapping[str, TopicConfig]
    ) -> None:
        """Adds topics of a broker name, and replaces those that are there."""
        brought = self._brought.get(broker_name)
        if brought is None:
            brought = self._brought[broker_name] = _Brought(registrant.key)
        elif brought.key != registrant.key:
            self._add(brought.key, -len(brought.topics))
            brought.key = registrant.key
            self._add(brought.key, len(brought.topics))
        before = len(brought.topics)
        for topic, config in topics.items():
            self._topics.setdefault(topic, {})[broker_name] = QueueData(
                broker_name=broker_name,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=config.perm,
                topic_sys_flag=config.topic_sys_flag,
            )
            brought.topics.add(topic)
            if config.topic_sys_flag & (UNIT_FLAG | UNIT_SUB_FLAG):
                self._flagged.add(topic)
        self._add(brought.key, len(brought.topics) - before)

    def drop_broker(self, broker_name: str) -> None:
        """Forgets all topics of a broker name."""
        brought = self._brought.pop(broker_name, None)
        if brought is None:
            return
        self._add(brought.key, -len(brought.topics))
        for topic in brought.topics:
            self._forget(topic, broker_name)

    def delete(self, topic: str, broker_names: Iterable[str]) -> None:
        """Forgets a topic on some broker names."""
        for broker_name in broker_names:
            brought = self._brought.get(broker_name)
            if brought is not None and topic in brought.topics:
                brought.topics.remove(topic)
                self._add(brought.key, -1)
                self._forget(topic, broker_name)

    def set_write_perm(self, broker_name: str, *, writable: bool) -> int:
        """Takes or gives the write permission of all topics of a broker name; returns how many."""
        brought = self._brought.get(broker_name)
        if brought is None:
            return 0
        for topic in brought.topics:
            data = self._topics[topic][broker_name]
            self._topics[topic][broker_name] = QueueData(
                broker_name=broker_name,
                read_queue_nums=data.read_queue_nums,
                write_queue_nums=data.write_queue_nums,
                perm=PERM_READ_WRITE if writable else data.perm & ~PERM_WRITE,
                topic_sys_flag=data.topic_sys_flag,
            )
        return len(brought.topics)

    def of(self, topic: str) -> Mapping[str, QueueData]:
        """The queues of a topic by broker name; empty for an unknown one."""
        return self._topics.get(topic, {})

    def names(self) -> list[str]:
        """All topics, sorted."""
        return sorted(self._topics)

    def names_with(self, broker_names: set[str]) -> list[str]:
        """Topics that one of some broker names has, sorted."""
        found: set[str] = set()
        for broker_name in broker_names:
            if (brought := self._brought.get(broker_name)) is not None:
                found |= brought.topics
        return sorted(found)

    def names_with_flags(self, *, unit: bool | None, unit_sub: bool | None) -> list[str]:
        """Topics whose unit flags are as asked (None: either), sorted."""
        found = []
        # Few topics have any of them, and whoever asks wants one that has.
        for topic in self._flagged if unit or unit_sub else self._topics:
            flags = next(iter(self._topics[topic].values())).topic_sys_flag
            is_unit, is_sub = bool(flags & UNIT_FLAG), bool(flags & UNIT_SUB_FLAG)
            if unit in (None, is_unit) and unit_sub in (None, is_sub):
                found.append(topic)
        return sorted(found)

    def _add(self, key: str, count: int) -> None:
        self._count += count
        left = self._counts.get(key, 0) + count
        if left:
            self._counts[key] = left
        else:
            self._counts.pop(key, None)

    def _forget(self, topic: str, broker_name: str) -> None:
        queues = self._topics[topic]
        del queues[broker_name]
        if not queues:
            del self._topics[topic]
            self._flagged.discard(topic)
