"""Queues without a broker: what a reader asks of a cluster when it plans."""

from collections.abc import Iterable

from ledgermq.client import MessageQueue
from ledgermq.spark.errors import UnknownTopicError

FIRST, SECOND = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)


class Queues:
    """A cluster in memory: each queue with its oldest and its next offset."""

    def __init__(self) -> None:
        self.ends = {FIRST: (10, 100), SECOND: (0, 50)}
        # So many times no name server knows the topic.
        self.unknown_count = 0

    def topics(self, names: tuple[str, ...], _pattern: str) -> list[str]:
        return list(names)

    def queues(self, topics: Iterable[str], *, are_found: bool = False) -> list[MessageQueue]:
        assert not are_found
        if self.unknown_count:
            self.unknown_count -= 1
            raise UnknownTopicError("T", "h:1")
        return [queue for queue in self.ends if queue.topic in topics]

    def min_offset(self, queue: MessageQueue) -> int:
        return self.ends[queue][0]

    def max_offset(self, queue: MessageQueue) -> int:
        return self.ends[queue][1]

    def grow(self, count: int) -> None:
        """Every queue gets messages."""
        self.ends = {queue: (low, high + count) for queue, (low, high) in self.ends.items()}
