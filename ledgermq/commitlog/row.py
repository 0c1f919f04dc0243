"""Row: what dispatch needs to know of one committed record, and what records of a queue share.

Part of the kernel (`ledgermq/kernel.py`), so that what is shared stands in one place of memory.
"""

from typing import NamedTuple

from ledgermq.commitlog.config import SCHEDULE_TOPIC
from ledgermq.commitlog.consume_queue import ConsumeQueue
from ledgermq.commitlog.key_index import KeyRow, topic_hash
from ledgermq.commitlog.queues import ConsumeQueues, is_queue_name

# What long polling is told: topic, queue id, queue offset behind the record, tags code.
Arrival = tuple[str, int, int, int]


class Row(NamedTuple):
    """One record for dispatch. Made as a plain tuple on the hot path; the fields are these."""

    # Where its unit goes; None when it takes no place in a queue.
    queue: ConsumeQueue | None
    queue_offset: int
    # The 20 bytes of the unit.
    unit: bytes
    # As in the unit; 0 when queue is None.
    tags_code: int
    # Keys to be entered; empty for none.
    keys: tuple[KeyRow, ...]
    # Topic and body of a record whose topic is watched; None for all others.
    watched: tuple[str, bytes] | None
    store_timestamp: int
    # Light queues in which its unit stands, too, with the offset in each; empty for almost all.
    light: tuple[tuple[ConsumeQueue, int], ...] = ()


class TopicQueue:
    """What all records of one topic and queue id share, and on a leader the next one's offset.

    The messages of one turn claim their offsets with the number of the turn. `keep` makes them
    final; without it the next turn begins where this one began.
    """

    __slots__ = (
        "_turn",
        "_turn_end",
        "is_schedule",
        "next_offset",
        "queue",
        "queue_id",
        "topic",
        "topic_bytes",
        "topic_hash",
        "watched",
    )

    def __init__(self, topic_bytes: bytes, queue_id: int, queues: ConsumeQueues) -> None:
        self.topic_bytes = topic_bytes
        self.topic = topic_bytes.decode("utf-8", "replace")
        self.queue_id = queue_id
        # None when the name is no name of a queue: such a record can be asked for by nobody.
        self.queue: ConsumeQueue | None = None
        if is_queue_name(self.topic, queue_id):
            self.queue = queues.get(self.topic, queue_id)
        # Unsigned.
        self.topic_hash = topic_hash(topic_bytes)
        self.is_schedule = self.topic == SCHEDULE_TOPIC
        # Whether bodies are handed to somebody at dispatch.
        self.watched = False
        # Right only as QueueOffsets says.
        self.next_offset = 0
        self.restart()
        # Last turn that claimed offsets, and the one behind them.
        self._turn = 0
        self._turn_end = 0

    def restart(self) -> None:
        """Go on where the queue ends: nothing is on its way to it."""
        self.next_offset = 0 if self.queue is None else self.queue.max_offset

    def claim(self, turn: int) -> int:
        """Return the offset of the next message of a turn; turns are numbered from 1 on."""
        if self._turn != turn:
            self._turn = turn
            self._turn_end = self.next_offset
        offset = self._turn_end
        self._turn_end = offset + 1
        return offset

    def keep(self, turn: int) -> None:
        """Count on from what a turn claimed: its messages were appended."""
        if self._turn == turn:
            self.next_offset = self._turn_end
