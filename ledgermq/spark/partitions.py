"""QueueRange: one partition of a read; and how the ranges of queues are split into partitions.

A range is fixed when it is planned, so a task that runs again reads the same rows. Everything here
is a pure function.
"""

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from ledgermq.client import MessageQueue
from ledgermq.spark.errors import OffsetRangeError
from ledgermq.spark.offsets import Offsets


@dataclass(slots=True, frozen=True, kw_only=True)
class QueueRange(InputPartition):  # type: ignore[misc,unused-ignore]  # untyped where absent
    """The messages of one queue from start_offset up to and without end_offset."""

    topic: str
    broker_name: str
    queue_id: int
    start_offset: int
    end_offset: int

    @property
    def queue(self) -> MessageQueue:
        """The queue it is a part of."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    @property
    def count(self) -> int:
        """Messages in it."""
        return self.end_offset - self.start_offset


def queue_name(queue: MessageQueue) -> str:
    """Returns a queue as errors name it."""
    return f"queue {queue.queue_id} of topic {queue.topic} on {queue.broker_name}"


def check_order(start: Offsets, end: Offsets) -> None:
    """Checks that no start lies behind its end.

    Raises:
        OffsetRangeError: one does.
    """
    for queue in sorted(end):
        if start[queue] > end[queue]:
            raise OffsetRangeError(
                queue_name(queue), start[queue], end[queue], "the start lies behind the end"
            )


def split(
    start: Offsets, end: Offsets, *, rows_per_partition: int, min_partitions: int
) -> list[QueueRange]:
    """Returns the partitions of a read, in order of their queues; empty ranges have none.

    Args:
        start: where each queue begins; names at least the queues of `end`.
        end: where it ends.
        rows_per_partition: a longer range is split into equal parts no longer than this.
        min_partitions: parts get shorter until there are about as many; 0 for no such wish.

    Raises:
        OffsetRangeError: a start lies behind its end.
    """
    check_order(start, end)
    total = sum(end[queue] - start[queue] for queue in end)
    rows_max = rows_per_partition
    if min_partitions:
        rows_max = min(rows_max, max(1, total // min_partitions))
    ranges = []
    for queue in sorted(end):
        first, count = start[queue], end[queue] - start[queue]
        parts = -(-count // rows_max)
        for part in range(parts):
            ranges.append(
                QueueRange(
                    topic=queue.topic,
                    broker_name=queue.broker_name,
                    queue_id=queue.queue_id,
                    start_offset=first + count * part // parts,
                    end_offset=first + count * (part + 1) // parts,
                )
            )
    return ranges
