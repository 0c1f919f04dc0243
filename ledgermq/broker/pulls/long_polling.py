"""Pulls that found nothing and wait: parked by topic and queue, woken when a message comes.

Pure: time is passed in, and who runs a pull again is told by the caller. A parked pull is woken
once, by the first message that may match, by the scan that finds the queue longer, or by its
deadline; it is then run again. Only one by properties is parked again then, behind the messages
that it does not want. Source: `PullRequestHoldService.java`.

A hundred thousand pulls may wait. Not one of them is an object: each is a row of numbers, and names
what it has in common with others of its connection. So the memory is a few large pieces, which go
back to the system when the pulls are gone; as many small objects would leave it in pieces that are
in use for ever. And none costs more to park or to forget the more of them there are.
"""

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from math import ceil, inf
from typing import Any, Final, NamedTuple

from msgspec import Struct

from ledgermq.broker.selectors.filters import Matcher

# What one connection may park for one queue; a stock client parks one pull.
_PER_CONNECTION_AND_QUEUE_MAX: Final = 100
# What the texts of all parked pulls, and what was made of them, may take; those of pulls that
# say the same may count as one. A usual text counts as nothing.
WEIGHT_BYTES_MAX: Final = 64 << 20

# Topic, queue id.
_Key = tuple[str, int]

# Numbers of a row: first offset that is wanted, deadline, opaque.
_ROW: Final = 3
_DEADLINE: Final = 1


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
    # Whole milliseconds; a fraction is waited out.
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


class _Rows:
    """Pulls of one queue, in the order in which they were parked."""

    __slots__ = ("asked", "key", "numbers")

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.asked: list[_Asked] = []
        # As many rows, one behind the other.
        self.numbers = array("q")

    def __len__(self) -> int:
        return len(self.asked)

    def __iter__(self) -> Iterator[ParkedPull]:
        topic, queue_id = self.key
        numbers = iter(self.numbers)
        for asked, offset, deadline_ms, opaque in zip(
            self.asked, numbers, numbers, numbers, strict=True
        ):
            connection, request, matcher, serialize_type, weight_bytes = asked
            yield ParkedPull(
                connection, request, topic, queue_id, offset, matcher, deadline_ms, opaque,
                serialize_type, weight_bytes,
            )  # fmt: skip

    def some(self, places: Iterable[int]) -> "_Rows":
        """Returns the rows at some places, in order."""
        rows, numbers = _Rows(self.key), self.numbers
        for at in places:
            rows.asked.append(self.asked[at])
            rows.numbers.extend(numbers[at * _ROW : (at + 1) * _ROW])
        return rows


class _Queue:
    """The parked pulls of one queue."""

    __slots__ = ("lost_count", "rows")

    def __init__(self, key: _Key) -> None:
        # Those of lost connections among them, which are taken out when they are many.
        self.rows = _Rows(key)
        self.lost_count = 0


class WokenPulls(Collection[ParkedPull]):
    """Pulls that were taken out; each becomes an object when it is come to."""

    __slots__ = ("_all_rows",)

    def __init__(self, all_rows: list[_Rows]) -> None:
        self._all_rows = all_rows

    def __len__(self) -> int:
        return sum(map(len, self._all_rows))

    def __iter__(self) -> Iterator[ParkedPull]:
        for rows in self._all_rows:
            yield from rows

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
        queue.rows.numbers.extend((pull.queue_offset, ceil(pull.deadline_ms), pull.opaque))
        queue.rows.asked.append(self._common(pull))
        counts[queue] = own_count + 1
        self.count += 1
        if weight_bytes:
            self.weight_bytes += weight_bytes
            self._weight_of[pull.connection] = (
                self._weight_of.get(pull.connection, 0) + weight_bytes
            )
        self._due_ms = min(self._due_ms, pull.deadline_ms)
        return True

    def _common(self, pull: ParkedPull) -> _Asked:
        """Returns what a pull has in common with others of its connection."""
        asked = self._asked_of.get(pull.connection)
        if (
            asked is None
            or asked.request is not pull.request
            or asked.matcher is not pull.matcher
            or asked.serialize_type != pull.serialize_type
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
        woken: list[_Rows] = []
        for topic, queue_id, queue_offset_next, tags_code in dispatched if self._queues else ():
            queue = self._queues.get((topic, queue_id))
            if queue is None:
                continue
            rows = self._living(queue)
            offsets = rows.numbers[::_ROW]
            out = [
                at
                for at, asked in enumerate(rows.asked)
                if queue_offset_next > offsets[at]
                and (asked.matcher is None or asked.matcher(tags_code))
            ]
            if out:
                woken.append(self._take(queue, out))
        return WokenPulls(woken)

    def scan(self, now_ms: float, max_offset_of: Callable[[str, int], int]) -> WokenPulls:
        """Takes out the pulls whose queue is longer than they knew and those whose time is over.

        Args:
            now_ms: on the clock of the deadlines.
            max_offset_of: offset of the next message of a queue.
        """
        woken: list[_Rows] = []
        for queue in list(self._queues.values()):
            rows = self._living(queue)
            max_offset = max_offset_of(*rows.key)
            pairs = zip(rows.numbers[::_ROW], rows.numbers[_DEADLINE::_ROW], strict=True)
            out = [
                at
                for at, (offset, deadline_ms) in enumerate(pairs)
                if deadline_ms <= now_ms or offset < max_offset
            ]
            if out:
                woken.append(self._take(queue, out))
        return WokenPulls(woken)

    def due(self, now_ms: float) -> WokenPulls:
        """Takes out the pulls whose time is over; costs nothing while none can be."""
        if now_ms < self._due_ms:
            return WokenPulls([])
        woken = self.scan(now_ms, lambda topic, queue_id: -1)
        deadlines = (min(q.rows.numbers[_DEADLINE::_ROW]) for q in self._queues.values())
        self._due_ms = min(deadlines, default=inf)
        return woken

    def take_all(self) -> WokenPulls:
        """Takes out everything: the broker stops."""
        woken: list[_Rows] = []
        for queue in list(self._queues.values()):
            rows = self._living(queue)
            woken.append(self._take(queue, range(len(rows))))
        return WokenPulls(woken)

    def connection_lost(self, connection: object) -> None:
        """Forgets the pulls of a connection."""
        self.weight_bytes -= self._weight_of.pop(connection, 0)
        self._asked_of.pop(connection, None)
        for queue, count in self._counts_of.pop(connection, {}).items():
            self.count -= count
            queue.lost_count += count
            # Looked through when half of them are lost, so each is looked at once or twice.
            if queue.lost_count * 2 >= len(queue.rows) and not self._living(queue):
                del self._queues[queue.rows.key]

    def _living(self, queue: _Queue) -> _Rows:
        """Returns the pulls of a queue without those of lost connections."""
        if queue.lost_count:
            queue.lost_count = 0
            rows = queue.rows
            queue.rows = rows.some(
                at for at, asked in enumerate(rows.asked) if asked.connection in self._counts_of
            )
        return queue.rows

    def _take(self, queue: _Queue, places: Sequence[int]) -> _Rows:
        """Takes the pulls at some places out of a queue and counts them no more."""
        rows = queue.rows
        if len(places) == len(rows):
            taken = rows
            del self._queues[rows.key]
        else:
            taken, gone = rows.some(places), set(places)
            queue.rows = rows.some(at for at in range(len(rows)) if at not in gone)
        for asked in taken.asked:
            self._forget(queue, asked)
        return taken

    def _forget(self, queue: _Queue, asked: _Asked) -> None:
        """Counts a pull no more."""
        connection = asked.connection
        counts = self._counts_of[connection]
        counts[queue] -= 1
        if not counts[queue]:
            del counts[queue]
            if not counts:
                del self._counts_of[connection], self._asked_of[connection]
        self.count -= 1
        if asked.weight_bytes:
            self.weight_bytes -= asked.weight_bytes
            self._weight_of[connection] -= asked.weight_bytes
            if not self._weight_of[connection]:
                del self._weight_of[connection]
