"""ProcessQueue: what of one queue is pulled and not yet consumed, and what may be committed.

Messages are consumed in any order, but an offset is committed only up to the lowest message that is
not yet consumed: whoever goes on from there misses nothing, and may see a message twice. No I/O.
"""

from collections import deque
from typing import Final

from ledgermq.client.messages import ReceivedMessage
from ledgermq.protocol.bodies import MessageQueue

# How long an offset beyond the end is kept: a new leader may still be applying its log.
BEYOND_END_PATIENCE_S: Final = 10.0


class ProcessQueue:
    """One queue that this consumer has.

    Invariants: committable() never falls, and lies above every consumed message that has no
    unconsumed one below it; pending offsets are in rising order.
    """

    __slots__ = (
        "_bytes", "_consumed", "_pending", "committed", "given_offset", "is_awaited", "is_dropped",
        "moved_ms", "next_offset", "pulled_ms", "queue",
    )  # fmt: skip

    def __init__(self, queue: MessageQueue, offset: int) -> None:
        """Starts empty.

        Args:
            queue: which.
            offset: of the first message to pull.
        """
        self.queue = queue
        # Where the next pull goes on.
        self.next_offset = offset
        # Behind the message that was given last to whoever polls; 0 when none was.
        self.given_offset = 0
        # What the broker was told last, None when nothing yet.
        self.committed: int | None = None
        # True when the queue is another consumer's now: nothing of it is to be consumed any more.
        self.is_dropped = False
        # True while its puller waits for messages to be consumed.
        self.is_awaited = False
        # When a pull was last answered, and when a commit last found more consumed, ms since 1970.
        self.pulled_ms = 0
        self.moved_ms = 0
        # Offsets of messages that are pulled, from the lowest unconsumed one on.
        self._pending: deque[int] = deque()
        # Those of them that are consumed.
        self._consumed: set[int] = set()
        # Sizes of messages that are not consumed.
        self._bytes = 0

    @property
    def pending_count(self) -> int:
        """Messages that are pulled and not consumed."""
        return len(self._pending) - len(self._consumed)

    @property
    def pending_bytes(self) -> int:
        """Their bytes."""
        return self._bytes

    def add(self, messages: list[ReceivedMessage], next_offset: int) -> list[ReceivedMessage]:
        """Takes what a pull brought.

        Args:
            messages: in order of their offsets.
            next_offset: where the next pull goes on; skips what the subscription does not want.

        Returns:
            The messages that are new.
        """
        first = self.next_offset
        fresh = [message for message in messages if message.record.queue_offset >= first]
        self._pending.extend([message.record.queue_offset for message in fresh])
        self._bytes += sum([message.record.size_bytes for message in fresh])
        self.next_offset = max(self.next_offset, next_offset)
        return fresh

    def consumed(self, message: ReceivedMessage) -> None:
        """Notes that a message need not come again; a message of before is ignored."""
        record = message.record
        offset, pending, consumed = record.queue_offset, self._pending, self._consumed
        if not pending or offset < pending[0] or offset in consumed:
            return
        self._bytes -= record.size_bytes
        if offset != pending[0]:
            consumed.add(offset)
            return
        pending.popleft()
        while consumed and pending[0] in consumed:
            consumed.discard(pending.popleft())

    def committable(self) -> int:
        """Returns the offset of the lowest message that is not yet consumed."""
        return self._pending[0] if self._pending else self.next_offset

    def position(self) -> int:
        """Returns the offset of the next message to give to whoever polls."""
        return max(self.given_offset, self.committable())

    def is_full(self, count_max: int, bytes_max: int) -> bool:
        """Tells whether pulling has to wait.

        The span counts, not only what is unconsumed: one slow message must not let the set of the
        consumed ones behind it grow without bound.
        """
        return len(self._pending) >= 2 * count_max or (
            self.pending_count >= count_max or self._bytes >= bytes_max
        )


def offset_after_illegal(
    offset: int, min_offset: int, max_offset: int, waited_s: float
) -> int | None:
    """Returns where to go on when a broker says that an offset is not in its queue.

    A broker suggests an offset too, but offset 0 for one beyond the end of a young queue, which
    would consume everything again.

    Args:
        offset: the one that was refused.
        min_offset: of the oldest message.
        max_offset: of the next message.
        waited_s: since it was refused for the first time.

    Returns:
        None to ask for the same offset again a little later.
    """
    if offset < min_offset:
        return min_offset
    if waited_s < BEYOND_END_PATIENCE_S:
        return None
    return max_offset
