"""QueueOffsets: the number that the next message of each queue gets, known to the leader alone.

The table is right only while this member leads and only after `rebuild` in its term: the queues'
ends, taken when all that the log holds is committed and dispatched. Before that, and after
`close`, it answers nothing: an offset given out then could name two messages.
Source: DLedgerCommitLog.topicQueueTable of 4.9.3, without the window at its start.
"""

from collections.abc import Iterable, Mapping

from ledgermq.commitlog.consume_queue import ConsumeQueue


class QueueOffsets:
    """Next queue offsets by (topic, queue id)."""

    def __init__(self) -> None:
        # Whether offsets may be given out.
        self.is_open = False
        # Queues without an entry begin at 0.
        self.table: dict[tuple[str, int], int] = {}
        # Segment of the log in which this leader last told the table, -1 for none.
        self.told_in_segment = -1

    def rebuild(self, queues: Iterable[ConsumeQueue]) -> None:
        """Start from the ends of the queues: this member leads, and all is dispatched."""
        self.table = {
            (queue.topic, queue.queue_id): queue.max_offset for queue in queues if queue.max_offset
        }
        self.told_in_segment = -1
        self.is_open = True

    def close(self) -> None:
        """Forget everything: this member may no longer lead."""
        self.table = {}
        self.is_open = False

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset that the next message of a queue gets."""
        return self.table.get((topic, queue_id), 0)

    def advance(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Note the offsets behind messages that were appended."""
        self.table.update(ends)
