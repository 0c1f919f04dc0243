"""TopicQueues: which broker name has how many queues of a topic; pure.

One entry is a topic of a broker name. Entries are counted over all and for whoever brought them, so
that nobody can fill the table for all others; what one broker name has is found without a look at
all topics.

A broker may bring a hundred thousand topics, and leave with them. They are looked at, taken over
and forgotten piece by piece: each yield ends a piece of less than half a millisecond. What others
bring between two pieces counts only when it is there, so together they may pass a limit by that.
Entries of a broker name that left stay until `forget_some` comes to them; nobody is told of them
who asks what broker names are there.
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from ledgermq.namesrv.errors import LimitError
from ledgermq.namesrv.registrations import Registrant, RouteLimits
from ledgermq.protocol.route import QueueData, TopicConfig

PERM_WRITE: Final = 2
PERM_READ_WRITE: Final = 6
UNIT_FLAG: Final = 1
UNIT_SUB_FLAG: Final = 2
_TOPICS_A_PIECE: Final = 128

Steps = Generator[None, None, None]


@dataclass(slots=True)
class _Brought:
    """The topics of one broker name."""

    # Whose quota they count in.
    key: str
    topics: set[str] = field(default_factory=set)


class TopicQueues:
    """All topics.

    Invariants: a topic has a broker name here exactly when the broker name has the topic, or left
    with it; the counts are the sums of the sets of those that did not leave.
    """

    def __init__(self, limits: RouteLimits) -> None:
        """Begins empty."""
        self._limits = limits
        # Topic to broker name to its queues.
        self._topics: dict[str, dict[str, QueueData]] = {}
        # By broker name.
        self._brought: dict[str, _Brought] = {}
        # Of broker names that left: what is to be forgotten yet. None is empty.
        self._leaving: dict[str, set[str]] = {}
        # Topics with these flags at the broker name that has them longest.
        self._unit: set[str] = set()
        self._unit_sub: set[str] = set()
        # Entries by the key of a registrant.
        self._counts: dict[str, int] = {}
        self._count = 0

    def checking(
        self, broker_name: str, registrant: Registrant, topics: Mapping[str, TopicConfig]
    ) -> Steps:
        """Lets topics of a broker name pass that `putting` would take.

        Raises:
            LimitError: they are too many.
        """
        news = new_names = 0
        for piece in _pieces(topics):
            known = self._topics_of(broker_name)
            news += sum(1 for topic in piece if topic not in known)
            new_names += sum(1 for topic in piece if topic not in self._topics)
            yield
        if self._count + news > self._limits.topic_entries_max or (
            len(self._topics) + new_names > self._limits.topics_max
        ):
            # Some were counted before others brought them, and what left is there still.
            while self.forget_some():
                yield
            known = self._topics_of(broker_name)
            news = sum(1 for topic in topics if topic not in known)
            new_names = sum(1 for topic in topics if topic not in self._topics)
        limits, brought = self._limits, self._brought.get(broker_name)
        is_moved = brought is not None and brought.key != registrant.key
        moved = len(self._topics_of(broker_name)) if is_moved else 0
        own = self._counts.get(registrant.key, 0) + moved + news
        if own > limits.topics_per_registrant_max and not registrant.is_free:
            raise LimitError(
                "topicsPerRegistrantMax", own, limits.topics_per_registrant_max, registrant.key
            )
        if self._count + news > limits.topic_entries_max:
            raise LimitError("topicEntriesMax", self._count + news, limits.topic_entries_max)
        count = len(self._topics) + new_names
        if count > limits.topics_max:
            raise LimitError("topicsMax", count, limits.topics_max)

    def putting(
        self, broker_name: str, registrant: Registrant, topics: Mapping[str, TopicConfig]
    ) -> Steps:
        """Adds topics of a broker name, and replaces those that are there.

        Whoever works on it stops when the broker name leaves, or is told something else.
        """
        brought = self._brought.get(broker_name)
        if brought is None:
            brought = self._brought[broker_name] = _Brought(registrant.key)
        elif brought.key != registrant.key:
            self._add(brought.key, -len(brought.topics))
            brought.key = registrant.key
            self._add(brought.key, len(brought.topics))
        for piece in _pieces(topics):
            before = len(brought.topics)
            for topic, config in piece.items():
                queues = self._topics.setdefault(topic, {})
                queues[broker_name] = QueueData(
                    broker_name=broker_name,
                    read_queue_nums=config.read_queue_nums,
                    write_queue_nums=config.write_queue_nums,
                    perm=config.perm,
                    topic_sys_flag=config.topic_sys_flag,
                )
                brought.topics.add(topic)
                if (
                    config.topic_sys_flag & (UNIT_FLAG | UNIT_SUB_FLAG)
                    or topic in self._unit
                    or topic in self._unit_sub
                ):
                    self._note_flags(topic, queues)
            self._add(brought.key, len(brought.topics) - before)
            if broker_name in self._leaving:
                left = self._leaving[broker_name]
                left.difference_update(piece)
                self._leave(broker_name, left)
            yield

    def _topics_of(self, broker_name: str) -> Collection[str]:
        brought = self._brought.get(broker_name)
        return () if brought is None else brought.topics

    def drop_broker(self, broker_name: str) -> bool:
        """Forgets topics of a broker name; tells whether some are left to `forget_some`."""
        brought = self._brought.pop(broker_name, None)
        if brought is None:
            return False
        self._add(brought.key, -len(brought.topics))
        brought.topics.update(self._leaving.get(broker_name, ()))
        self._leave(broker_name, brought.topics)
        self._forget_of(broker_name)
        return broker_name in self._leaving

    def forget_some(self) -> bool:
        """Forgets a piece of what left; tells whether there is more."""
        if self._leaving:
            self._forget_of(next(iter(self._leaving)))
        return bool(self._leaving)

    def _forget_of(self, broker_name: str) -> None:
        left = self._leaving.get(broker_name, set())
        for topic in [left.pop() for _ in range(min(len(left), _TOPICS_A_PIECE))]:
            self._forget(topic, broker_name)
        self._leave(broker_name, left)

    def _leave(self, broker_name: str, topics: set[str]) -> None:
        if topics:
            self._leaving[broker_name] = topics
        else:
            self._leaving.pop(broker_name, None)

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

    # Names are told in no order: to sort a hundred thousand takes ten times as long as all else.

    def names(self) -> list[str]:
        """All topics."""
        return list(self._topics)

    def names_with(self, broker_names: set[str]) -> list[str]:
        """Topics that one of some broker names has."""
        found: set[str] = set()
        for broker_name in broker_names:
            if (brought := self._brought.get(broker_name)) is not None:
                found |= brought.topics
        return list(found)

    def unit_names(self) -> list[str]:
        """Topics with the unit flag."""
        return list(self._unit)

    def unit_sub_names(self, *, also_unit: bool) -> list[str]:
        """Topics with the flag of subscribers in units; those with the unit flag if asked for."""
        return list(self._unit_sub if also_unit else self._unit_sub - self._unit)

    def _note_flags(self, topic: str, queues: Mapping[str, QueueData]) -> None:
        flags = next(iter(queues.values())).topic_sys_flag if queues else 0
        for flag, flagged in ((UNIT_FLAG, self._unit), (UNIT_SUB_FLAG, self._unit_sub)):
            if flags & flag:
                flagged.add(topic)
            else:
                flagged.discard(topic)

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
        self._note_flags(topic, queues)


def _pieces(topics: Mapping[str, TopicConfig]) -> Iterator[Mapping[str, TopicConfig]]:
    items = iter(topics.items())
    while piece := dict(islice(items, _TOPICS_A_PIECE)):
        yield piece
