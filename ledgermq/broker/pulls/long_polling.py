"""Pulls that found nothing and wait: parked by topic and queue, woken when a message comes.

Pure: time is passed in, and who runs a pull again is told by the caller. A parked pull is woken
once, by the first message that may match, by the scan that finds the queue longer, or by its
deadline; it is then run again. Only one by properties is parked again then, behind the messages
that it does not want. Source: `PullRequestHoldService.java`.

A hundred thousand pulls may wait. Those of a queue with more than a few are no objects: each is a
row of numbers, and names what it has in common with others of its connection. So the memory is a
few large pieces, which go back to the system when the pulls are gone; as many small objects would
leave it in pieces that are in use for ever. And none costs more to park or to forget the more of
them there are.
"""

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, compress
from math import ceil, inf
from typing import Any, Final, NamedTuple

from msgspec import Struct

from ledgermq.broker.selectors.filters import Matcher

# What one connection may park for one queue; a stock client parks one pull.
_PER_CONNECTION_AND_QUEUE_MAX: Final = 100
# What the texts of all parked pulls, and what was made of them, may take; those of pulls that
# say the same may count as one. A usual text counts as nothing.
WEIGHT_BYTES_MAX: Final = 64 << 20

# So many pulls of a queue stay what they came as, which is the quickest.
_FEW: Final = 16

# Topic, queue id.
_Key = tuple[str, int]


# Without the collector of cycles: it would look at all of them again and again, and whoever parked
# one is told to forget it when its connection is lost.
class ParkedPull(Struct, gc=False):
    """One pull that waits, for who parks it or runs it again."""

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


class _Asked(NamedTuple):
    """What pulls of a connection have in common; see `ParkedPull`."""

    connection: Any
    request: Any
    matcher: Matcher | None
    serialize_type: int
    weight_bytes: int


class _Rows(Collection[ParkedPull]):
    """Pulls of one queue, in the order in which they were parked."""

    __slots__ = ("asked", "deadlines_ms", "key", "offsets", "opaques")

    def __init__(self, key: _Key) -> None:
        self.key = key
        # Columns: what it has in common with others, the first offset that is wanted, and so on.
        self.asked: list[_Asked] = []
        self.offsets, self.deadlines_ms, self.opaques = array("q"), array("q"), array("q")

    def __len__(self) -> int:
        return len(self.asked)

    def __iter__(self) -> Iterator[ParkedPull]:
        topic, queue_id = self.key
        columns = (self.asked, self.offsets, self.deadlines_ms, self.opaques)
        for asked, offset, deadline_ms, opaque in zip(*columns, strict=True):
            connection, request, matcher, serialize_type, weight_bytes = asked
            yield ParkedPull(
                connection, request, topic, queue_id, offset, matcher, deadline_ms, opaque,
                serialize_type, weight_bytes,
            )  # fmt: skip

    def __contains__(self, pull: object) -> bool:
        return any(pull == own for own in self)

    def append(self, asked: _Asked, pull: ParkedPull) -> None:
        self.asked.append(asked)
        self.offsets.append(pull.queue_offset)
        self.deadlines_ms.append(ceil(pull.deadline_ms))
        self.opaques.append(pull.opaque)

    def some(self, chosen: Sequence[bool]) -> "_Rows":
        """Returns the rows for which there is True, in order."""
        rows = _Rows(self.key)
        rows.asked.extend(compress(self.asked, chosen))
        rows.offsets.extend(compress(self.offsets, chosen))
        rows.deadlines_ms.extend(compress(self.deadlines_ms, chosen))
        rows.opaques.extend(compress(self.opaques, chosen))
        return rows


class _Queue:
    """The parked pulls of one queue: `many` are older than all of the `few`."""

    __slots__ = ("few", "key", "lost_count", "many")

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.few: list[ParkedPull] = []
        self.many: _Rows | None = None
        # Those of lost connections among them, which are taken out when they are many.
        self.lost_count = 0

    def __len__(self) -> int:
        return len(self.few) + (0 if self.many is None else len(self.many))


class WokenPulls(Collection[ParkedPull]):
    """Pulls that were taken out; a row becomes an object when it is come to."""

    __slots__ = ("_pieces",)

    def __init__(self, pieces: Sequence[Collection[ParkedPull]]) -> None:
        self._pieces = pieces

    def __len__(self) -> int:
        return sum(map(len, self._pieces))

    def __iter__(self) -> Iterator[ParkedPull]:
        return chain.from_iterable(self._pieces)

    def __contains__(self, pull: object) -> bool:
        return any(pull == own for own in self)


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
        # What each has parked last: who parks many asks for the same of all its queues.
        self._asked_of: dict[Any, _Asked] = {}
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
        queue.few.append(pull)
        if len(queue.few) > _FEW:
            self._pack(queue)
        counts[queue] = own_count + 1
        self.count += 1
        if weight_bytes:
            self.weight_bytes += weight_bytes
            self._weight_of[pull.connection] = (
                self._weight_of.get(pull.connection, 0) + weight_bytes
            )
        self._due_ms = min(self._due_ms, pull.deadline_ms)
        return True

    def _pack(self, queue: _Queue) -> None:
        """Makes the few of a queue some of its many."""
        # Nobody would have what those of lost connections ask for forgotten.
        many = self._without_lost(queue)
        if many is None:
            many = queue.many = _Rows(queue.key)
        for pull in queue.few:
            many.append(self._asked_by(pull), pull)
        queue.few.clear()

    def _asked_by(self, pull: ParkedPull) -> _Asked:
        """Returns what a pull has in common with others of its connection."""
        asked = self._asked_of.get(pull.connection)
        if (
            asked is None
            or asked.request is not pull.request
            or asked.matcher is not pull.matcher
            or (asked.serialize_type, asked.weight_bytes)
            != (pull.serialize_type, pull.weight_bytes)
        ):
            asked = self._asked_of[pull.connection] = _Asked(
                pull.connection, pull.request, pull.matcher, pull.serialize_type, pull.weight_bytes
            )
        return asked

    def wake(self, dispatched: Iterable[tuple[str, int, int, int]]) -> WokenPulls:
        """Takes out the pulls that some of the new messages may satisfy.

        Args:
            dispatched: topic, queue id, offset of the next message, tags code, in order of the
                log.

        Returns:
            Each woken pull once, in the order in which they were parked in their queues.
        """
        woken: list[Collection[ParkedPull]] = []
        for topic, queue_id, queue_offset_next, tags_code in dispatched if self._queues else ():
            queue = self._queues.get((topic, queue_id))
            if queue is None:
                continue
            many = self._without_lost(queue)
            if many is not None:
                chosen = [
                    queue_offset_next > offset
                    and (asked.matcher is None or asked.matcher(tags_code))
                    for asked, offset in zip(many.asked, many.offsets, strict=True)
                ]
                woken += self._take_many(queue, many, chosen)
            out: list[ParkedPull] = []
            kept: list[ParkedPull] = []
            for pull in queue.few:
                if queue_offset_next > pull.queue_offset and (
                    pull.matcher is None or pull.matcher(tags_code)
                ):
                    out.append(pull)
                else:
                    kept.append(pull)
            woken += self._take_few(queue, out, kept)
        return WokenPulls(woken)

    def scan(self, now_ms: float, max_offset_of: Callable[[str, int], int]) -> WokenPulls:
        """Takes out the pulls whose queue is longer than they knew and those whose time is over.

        Args:
            now_ms: on the clock of the deadlines.
            max_offset_of: offset of the next message of a queue.
        """
        woken: list[Collection[ParkedPull]] = []
        for queue in list(self._queues.values()):
            many, max_offset = self._without_lost(queue), max_offset_of(*queue.key)
            if many is not None:
                chosen = [
                    deadline_ms <= now_ms or offset < max_offset
                    for offset, deadline_ms in zip(many.offsets, many.deadlines_ms, strict=True)
                ]
                woken += self._take_many(queue, many, chosen)
            out: list[ParkedPull] = []
            kept: list[ParkedPull] = []
            for pull in queue.few:
                is_out = pull.deadline_ms <= now_ms or pull.queue_offset < max_offset
                (out if is_out else kept).append(pull)
            woken += self._take_few(queue, out, kept)
        return WokenPulls(woken)

    def due(self, now_ms: float) -> WokenPulls:
        """Takes out the pulls whose time is over; costs nothing while none can be."""
        if now_ms < self._due_ms:
            return WokenPulls([])
        woken = self.scan(now_ms, lambda topic, queue_id: -1)
        deadlines_ms = map(_deadlines_ms, self._queues.values())
        self._due_ms = min(chain.from_iterable(deadlines_ms), default=inf)
        return woken

    def take_all(self) -> WokenPulls:
        """Takes out everything: the broker stops."""
        return self.scan(inf, lambda topic, queue_id: -1)

    def connection_lost(self, connection: object) -> None:
        """Forgets the pulls of a connection."""
        self.weight_bytes -= self._weight_of.pop(connection, 0)
        self._asked_of.pop(connection, None)
        for queue, count in self._counts_of.pop(connection, {}).items():
            self.count -= count
            queue.lost_count += count
            # Looked through when half of them are lost, so each is looked at once or twice.
            if queue.lost_count * 2 >= len(queue):
                self._without_lost(queue)
                self._drop_if_empty(queue)

    def _without_lost(self, queue: _Queue) -> _Rows | None:
        """Takes the pulls of lost connections out of a queue; returns its many."""
        if queue.lost_count:
            queue.lost_count = 0
            living = self._counts_of
            queue.few = [pull for pull in queue.few if pull.connection in living]
            many = queue.many
            if many is not None:
                queue.many = many.some([asked.connection in living for asked in many.asked])
        return queue.many

    def _take_many(
        self, queue: _Queue, many: _Rows, chosen: Sequence[bool]
    ) -> Sequence[Collection[ParkedPull]]:
        """Takes the pulls for which there is True out of the many of a queue."""
        if not any(chosen):
            return ()
        if all(chosen):
            taken, queue.many = many, None
        else:
            taken, queue.many = many.some(chosen), many.some([not one for one in chosen])
        for asked in taken.asked:
            self._forget(queue, asked.connection, asked.weight_bytes)
        self._drop_if_empty(queue)
        return (taken,)

    def _take_few(
        self, queue: _Queue, out: list[ParkedPull], kept: list[ParkedPull]
    ) -> Sequence[Collection[ParkedPull]]:
        """Takes some of its few out of a queue; the others are `kept`."""
        if not out:
            return ()
        for pull in out:
            self._forget(queue, pull.connection, pull.weight_bytes)
        queue.few = kept
        self._drop_if_empty(queue)
        return (out,)

    def _drop_if_empty(self, queue: _Queue) -> None:
        if not queue.few and not queue.many:
            del self._queues[queue.key]

    def _forget(self, queue: _Queue, connection: Any, weight_bytes: int) -> None:
        """Counts a pull no more."""
        counts = self._counts_of[connection]
        counts[queue] -= 1
        if not counts[queue]:
            del counts[queue]
            if not counts:
                del self._counts_of[connection]
                self._asked_of.pop(connection, None)
        self.count -= 1
        if weight_bytes:
            self.weight_bytes -= weight_bytes
            self._weight_of[connection] -= weight_bytes
            if not self._weight_of[connection]:
                del self._weight_of[connection]


def _deadlines_ms(queue: _Queue) -> Iterator[float]:
    few = (pull.deadline_ms for pull in queue.few)
    return few if queue.many is None else chain(queue.many.deadlines_ms, few)
