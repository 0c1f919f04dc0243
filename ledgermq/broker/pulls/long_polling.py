"""Pulls that found nothing and wait: parked by topic and queue, woken when a message comes.

Pure: time is passed in, and who runs a pull again is told by the caller. A parked pull is woken
once, by the first message that may match, by the scan that finds the queue longer, or by its
deadline; it is then run again. Only one by properties is parked again then, behind the messages
that it does not want. Source: `PullRequestHoldService.java`.
"""

from collections.abc import Callable, Iterable
from math import inf
from typing import Any, Final, NamedTuple

from ledgermq.broker.selectors.filters import Matcher

# What one connection may park for one queue; a stock client parks one pull.
_PER_CONNECTION_AND_QUEUE_MAX: Final = 100


class ParkedPull(NamedTuple):
    """One pull that waits."""

    connection: Any
    # Whatever the pull processor needs to run it again.
    request: Any
    topic: str
    queue_id: int
    # First offset it wants.
    queue_offset: int
    matcher: Matcher | None
    deadline_ms: float


class ParkedPulls:
    """All parked pulls of this broker.

    Invariant: `count` is the number of pulls in all queues, at most `pulls_max`.
    """

    def __init__(self, pulls_max: int) -> None:
        self._pulls_max = pulls_max
        self._parked: dict[tuple[str, int], list[ParkedPull]] = {}
        self.count = 0
        # Queues in which a connection parked something; may name some where it no longer does.
        self._queues_of: dict[Any, set[tuple[str, int]]] = {}
        # No parked pull is due before this time; an early value costs a look only.
        self._due_ms = inf

    def park(self, pull: ParkedPull) -> bool:
        """Keeps a pull; returns False when there is no room for it."""
        if self.count >= self._pulls_max:
            return False
        queue = self._parked.setdefault((pull.topic, pull.queue_id), [])
        if len(queue) >= _PER_CONNECTION_AND_QUEUE_MAX:
            own = sum(1 for parked in queue if parked.connection is pull.connection)
            if own >= _PER_CONNECTION_AND_QUEUE_MAX:
                return False
        queue.append(pull)
        self._queues_of.setdefault(pull.connection, set()).add((pull.topic, pull.queue_id))
        self.count += 1
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
        if not self._parked:
            return []
        woken: list[ParkedPull] = []
        for topic, queue_id, queue_offset_next, tags_code in dispatched:
            queue = self._parked.get((topic, queue_id))
            if queue is None:
                continue
            kept: list[ParkedPull] = []
            for pull in queue:
                if queue_offset_next > pull.queue_offset and (
                    pull.matcher is None or pull.matcher(tags_code)
                ):
                    woken.append(pull)
                else:
                    kept.append(pull)
            if len(kept) != len(queue):
                self._keep(topic, queue_id, kept)
        self.count -= len(woken)
        return woken

    def scan(self, now_ms: float, max_offset_of: Callable[[str, int], int]) -> list[ParkedPull]:
        """Takes out the pulls whose queue is longer than they knew and those whose time is over.

        Args:
            now_ms: on the clock of the deadlines.
            max_offset_of: offset of the next message of a queue.
        """
        woken: list[ParkedPull] = []
        for topic, queue_id in list(self._parked):
            queue = self._parked[topic, queue_id]
            max_offset = max_offset_of(topic, queue_id)
            out = [p for p in queue if p.deadline_ms <= now_ms or p.queue_offset < max_offset]
            if out:
                gone = set(map(id, out))
                self._keep(topic, queue_id, [pull for pull in queue if id(pull) not in gone])
                woken.extend(out)
        self.count -= len(woken)
        return woken

    def due(self, now_ms: float) -> list[ParkedPull]:
        """Takes out the pulls whose time is over; costs nothing while none can be."""
        if now_ms < self._due_ms:
            return []
        woken = self.scan(now_ms, lambda topic, queue_id: -1)
        deadlines = (pull.deadline_ms for queue in self._parked.values() for pull in queue)
        self._due_ms = min(deadlines, default=inf)
        return woken

    def take_all(self) -> list[ParkedPull]:
        """Takes out everything: the broker stops."""
        woken = [pull for queue in self._parked.values() for pull in queue]
        self._parked = {}
        self.count = 0
        return woken

    def connection_lost(self, connection: object) -> None:
        """Forgets the pulls of a connection."""
        for topic, queue_id in self._queues_of.pop(connection, ()):
            queue = self._parked.get((topic, queue_id))
            if queue is None:
                continue
            kept = [pull for pull in queue if pull.connection is not connection]
            self.count -= len(queue) - len(kept)
            self._keep(topic, queue_id, kept)

    def _keep(self, topic: str, queue_id: int, kept: list[ParkedPull]) -> None:
        if kept:
            self._parked[topic, queue_id] = kept
        else:
            del self._parked[topic, queue_id]
