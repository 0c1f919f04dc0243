"""QueueOffsets: the number that the next message of each queue gets, known to the leader alone.

The numbers stand in the TopicQueues. They are right only while this member leads and only after
`open` in its term: the queues' ends, taken when all that the log holds is committed and dispatched.
Before that, and after `close`, nothing may be asked: an offset given out then could name two
messages. Source: DLedgerCommitLog.topicQueueTable of 4.9.3, without the window at its start.
"""

from ledgermq.commitlog.queues import ConsumeQueues
from ledgermq.commitlog.rows import RowMaker


class QueueOffsets:
    """Gives out queue offsets, turn by turn."""

    def __init__(self, queues: ConsumeQueues, row_maker: RowMaker) -> None:
        self._queues = queues
        self._row_maker = row_maker
        # Whether offsets may be given out.
        self.is_open = False
        # Segment of the log in which this leader last told the ends, -1 for none.
        self.told_in_segment = -1
        # Number of the turn under way.
        self.turn = 0

    def open(self) -> None:
        """Start from the ends of the queues: this member leads, and all is dispatched."""
        for topic_queue in self._row_maker.topic_queues.values():
            topic_queue.restart()
        self.told_in_segment = -1
        self.is_open = True

    def close(self) -> None:
        """Give out nothing more: this member may no longer lead."""
        self.is_open = False

    def begin_turn(self) -> int:
        """Return the number with which the messages of a turn claim their offsets."""
        self.turn += 1
        return self.turn

    def ends(self) -> dict[tuple[str, int], int]:
        """Return the next offset of each queue that has had messages, by topic and id."""
        ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in self._queues}
        for topic_queue in self._row_maker.topic_queues.values():
            if topic_queue.queue is not None:
                ends[topic_queue.topic, topic_queue.queue_id] = topic_queue.next_offset
        return {key: end for key, end in ends.items() if end}
