"""Pulls that found nothing and wait: parked by topic and queue, woken when a message comes.

Pure: time is passed in, and who runs a pull again is told by the caller. A parked pull is woken
once, by the first message that may match, by the scan that finds the queue longer, or by its
deadline; it is then run again. Only one by properties is parked again then, behind the messages
that it does not want. Source: `PullRequestHoldService.java`.

A hundred thousand pulls may wait, so each is small, and none costs more to park or to forget the
more of them there are.
"""

from collections.abc import Callable, Iterable
from math import inf
from typing import Any, Final

from msgspec import Struct

from ledgermq.broker.selectors.filters import Matcher

# What one connection may park for one queue; a stock client parks one pull.
_PER_CONNECTION_AND_QUEUE_MAX: Final = 100
# What the texts of all parked pulls, and what was made of them, may take; those of pulls that
# say the same may count as one. A usual text counts as nothing.
WEIGHT_BYTES_MAX: Final = 64 << 20

# Topic, queue id.
_Key = tuple[str, int]


# Without the collector of cycles: it would look at all of them again and again, and whoever parked
# one is told to forget it when its connection is lost.
class ParkedPull(Struct, gc=False):
    """One pull that waits."""

    connection: Any
    # Whatever the pull processor needs to run it again, besides what stands here.
    request: Any
    topic: str
    queue_id: int
    # First offset it wants.
    queue_offset: int
    matcher: Matcher | None
    deadline_ms: float
    # Of the request: its number on the connection, and how its answer is written.
    opaque: int = 0
    serialize_type: int = 0
    # Bytes that its text takes, and what was made of it.
    weight_bytes: int = 0


class _Queue:
    """The parked pulls of one queue."""

    __slots__ = ("key", "lost_count", "pulls")

    def __init__(self, key: _Key) -> None:
        self.key = key
        # Those of lost connections among them, which are taken out when they are many.
        self.pulls: list[ParkedPull] = []
        self.lost_count = 0


class ParkedPulls:
    """All parked pulls of this broker.

    Invariant: `count` is the number of pulls of living connections in all queues, at most
    `pulls_max`; `weight_bytes` is what they weigh together.
    """

    def __init__(self, pulls_max: int, weight_bytes_max: int = WEIGHT_BYTES_MAX) -> None:
        self._pulls_max = pulls_max
        self._weight_bytes_max = weight_bytes_max
        self._queues: dict[_Key, _Queue] = {}
        self.count = 0
        self.weight_bytes = 0
        # How many pulls each connection has parked in which queue, and what they weigh together.
        self._counts_of: dict[Any, dict[_Queue, int]] = {}
        self._weight_of: dict[Any, int] = {}
        # No parked pull is due before this time; an early value costs a look only.
        self._due_ms = inf

    def park(self, pull: ParkedPull) -> bool:
        """Keeps a pull; returns False when there is no room for it, or nobody left to answer.

        A connection that is gone was forgotten already: its pulls would stay for ever, and those
        of it that are not taken out yet would count as living again.
        """
        weight_bytes = pull.weight_bytes
        if (
            not pull.connection.is_open
            or self.count >= self._pulls_max
            or (weight_bytes and self.weight_bytes + weight_bytes > self._weight_bytes_max)
        ):
            return False
        key = (pull.topic, pull.queue_id)
        counts = self._counts_of.setdefault(pull.connection, {})
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(key)
        own_count = counts.get(queue, 0)
        if own_count >= _PER_CONNECTION_AND_QUEUE_MAX:
            return False
        counts[queue] = own_count + 1
        queue.pulls.append(pull)
        self.count += 1
        if weight_bytes:
            self.weight_bytes += weight_bytes
            self._weight_of[pull.connection] = (
                self._weight_of.get(pull.connection, 0) + weight_bytes
            )
        self._due_ms = min(self._due_ms, pull.deadline_ms)
        return True

    def wake(self, dispatched: Iterable[tuple[str, int, int, int]]) -> list[ParkedPull]:
        """Takes out the pulls that some of the new messages may satisfy.

        Args:
            dispatched: topic, queue id, offset of the next message, tags code, in order of the
                log.

        Returns:
            Each woken pull once, in the order in which they were parked in their queues.
        """
        if not self._queues:
            return []
        woken: list[ParkedPull] = []
        for topic, queue_id, queue_offset_next, tags_code in dispatched:
            queue = self._queues.get((topic, queue_id))
            if queue is None:
                continue
            out: list[ParkedPull] = []
            kept: list[ParkedPull] = []
            for pull in self._living(queue):
                if queue_offset_next > pull.queue_offset and (
                    pull.matcher is None or pull.matcher(tags_code)
                ):
                    out.append(pull)
                else:
                    kept.append(pull)
            if out:
                self._take(queue, out, kept)
                woken += out
        return woken

    def scan(self, now_ms: float, max_offset_of: Callable[[str, int], int]) -> list[ParkedPull]:
        """Takes out the pulls whose queue is longer than they knew and those whose time is over.

        Args:
            now_ms: on the clock of the deadlines.
            max_offset_of: offset of the next message of a queue.
        """
        woken: list[ParkedPull] = []
        for queue in list(self._queues.values()):
            pulls, max_offset = self._living(queue), max_offset_of(*queue.key)
            out = [p for p in pulls if p.deadline_ms <= now_ms or p.queue_offset < max_offset]
            if out:
                gone = set(map(id, out))
                self._take(queue, out, [pull for pull in pulls if id(pull) not in gone])
                woken += out
        return woken

    def due(self, now_ms: float) -> list[ParkedPull]:
        """Takes out the pulls whose time is over; costs nothing while none can be."""
        if now_ms < self._due_ms:
            return []
        woken = self.scan(now_ms, lambda topic, queue_id: -1)
        deadlines = (pull.deadline_ms for queue in self._queues.values() for pull in queue.pulls)
        self._due_ms = min(deadlines, default=inf)
        return woken

    def take_all(self) -> list[ParkedPull]:
        """Takes out everything: the broker stops."""
        woken: list[ParkedPull] = []
        for queue in list(self._queues.values()):
            out = self._living(queue)
            self._take(queue, out, [])
            woken += out
        return woken

    def connection_lost(self, connection: object) -> None:
        """Forgets the pulls of a connection."""
        self.weight_bytes -= self._weight_of.pop(connection, 0)
        for queue, count in self._counts_of.pop(connection, {}).items():
            self.count -= count
            queue.lost_count += count
            # Looked through when half of them are lost, so each is looked at once or twice.
            if queue.lost_count * 2 >= len(queue.pulls):
                self._keep(queue, self._living(queue))

    def _living(self, queue: _Queue) -> list[ParkedPull]:
        """Returns the pulls of a queue without those of lost connections."""
        if not queue.lost_count:
            return queue.pulls
        queue.lost_count = 0
        queue.pulls = [pull for pull in queue.pulls if pull.connection in self._counts_of]
        return queue.pulls

    def _take(self, queue: _Queue, out: list[ParkedPull], kept: list[ParkedPull]) -> None:
        """Takes some pulls out of a queue; the others are `kept`."""
        for pull in out:
            self._forget(queue, pull)
        self._keep(queue, kept)

    def _forget(self, queue: _Queue, pull: ParkedPull) -> None:
        """Counts a pull no more."""
        connection = pull.connection
        counts = self._counts_of[connection]
        counts[queue] -= 1
        if not counts[queue]:
            del counts[queue]
            if not counts:
                del self._counts_of[connection]
        self.count -= 1
        if pull.weight_bytes:
            self.weight_bytes -= pull.weight_bytes
            self._weight_of[connection] -= pull.weight_bytes
            if not self._weight_of[connection]:
                del self._weight_of[connection]

    def _keep(self, queue: _Queue, kept: list[ParkedPull]) -> None:
        queue.pulls = kept
        if not kept:
            del self._queues[queue.key]
