"""Pulls that found nothing and wait: parked by topic and queue, woken when a message comes.

Pure: time is passed in, and who runs a pull again is told by the caller. A parked pull is woken
once, by the first message that may match, by the scan that finds the queue longer, or by its
deadline; it is then run again. Only one by properties is parked again then, behind the messages
that it does not want. Source: `PullRequestHoldService.java`.

A hundred thousand pulls may wait. Those of a queue with more than a few are no objects: each is a
row of numbers (`parked_rows.py`), and names what it has in common with others of its connection. So
the memory is a few large pieces, which go back to the system when the pulls are gone; as many small
objects would leave it in pieces that are in use for ever. And none costs more to park or to forget
the more of them there are: rows stand in blocks, of which those that nobody wants anything of are
not looked into, and looking for the late and the lost goes a few blocks at a time.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain
from math import inf
from typing import Any, Final

from ledgermq.broker.pulls.parked_rows import BLOCK_ROWS, Arrived, Asked, ParkedPull, ParkedRows
from ledgermq.protocol.transport import payer_of

# What one connection may park for one queue; a stock client parks one pull.
_PER_CONNECTION_AND_QUEUE_MAX: Final = 100
# What the texts of all parked pulls, and what was made of them, may take; those of pulls that
# say the same may count as one. A usual text counts as nothing.
WEIGHT_BYTES_MAX: Final = 64 << 20

# Of the last quarter of all places, and of that of the bytes, an account or address gets none as
# long as it has an eighth of them: nobody takes the places of all others.
_KEPT_PART: Final = 4
_SMALL_PART: Final = 8

# So many pulls of a queue stay what they came as, which is the quickest.
_FEW: Final = 16
# Blocks that are looked through in one step for the late, and as many for the lost.
_STEP_BLOCKS: Final = 8
# Places in the line of queues that are due, for each queue that is there.
_PLACES: Final = 4
_PLACES_MIN: Final = 1000

# Topic, queue id.
_Key = tuple[str, int]


class _Queue:
    """The parked pulls of one queue: `many` are older than all of the `few`."""

    __slots__ = ("due_ms", "few", "key", "lost_count", "many")

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.few: list[ParkedPull] = []
        self.many: list[ParkedRows] = []
        # Those of lost connections among them, which are taken out when they are many.
        self.lost_count = 0
        # None is due before.
        self.due_ms = inf

    def __len__(self) -> int:
        return len(self.few) + sum(map(len, self.many))

    def room(self) -> ParkedRows:
        """Returns a block for one more row."""
        if not self.many or len(self.many[-1]) >= BLOCK_ROWS:
            self.many.append(ParkedRows(*self.key))
        return self.many[-1]


class WokenPulls(Collection[ParkedPull]):
    """Pulls that were taken out; a row becomes an object when it is come to."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: Sequence[Collection[ParkedPull]]) -> None:
        # Each of one queue, and each a block at most.
        self.pieces = pieces

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    def __iter__(self) -> Iterator[ParkedPull]:
        return chain.from_iterable(self.pieces)

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
        # The same by account, or address, and whose the pulls of each connection are.
        self._payer_of: dict[Any, str] = {}
        self._count_by: Counter[str] = Counter()
        self._weight_by: Counter[str] = Counter()
        # What each has parked last: who parks many asks for the same of all its queues.
        self._asked_of: dict[Any, Asked] = {}
        # Queues by the time at which one is due, as a heap; a place counts while its queue has that
        # very time. And those with many that are lost, of which blocks were looked through.
        self._due: list[tuple[float, _Key]] = []
        self._with_lost: dict[_Queue, int] = {}

    def park(self, pull: ParkedPull) -> bool:
        """Keeps a pull; returns False when there is no room for it, or nobody left to answer.

        A connection that is gone was forgotten already: its pulls would stay for ever, and those
        of it that are not taken out yet would count as living again.
        """
        connection, weight_bytes = pull.connection, pull.weight_bytes
        # As it was with its first one here: other requests may be signed by others.
        payer = self._payer_of.get(connection) or payer_of(connection)
        if not connection.is_open or not self._has_room(payer, weight_bytes):
            return False
        key = (pull.topic, pull.queue_id)
        counts = self._counts_of.setdefault(connection, {})
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(key)
        own_count = counts.get(queue, 0)
        if own_count >= _PER_CONNECTION_AND_QUEUE_MAX:
            return False
        queue.few.append(pull)
        counts[queue] = own_count + 1
        if len(queue.few) > _FEW:
            self._pack(queue)
        self._payer_of[connection] = payer
        self.count += 1
        self._count_by[payer] += 1
        if weight_bytes:
            self.weight_bytes += weight_bytes
            self._weight_by[payer] += weight_bytes
            self._weight_of[connection] = self._weight_of.get(connection, 0) + weight_bytes
        if pull.deadline_ms < queue.due_ms:
            self._call_at(pull.deadline_ms, queue)
        return True

    def _has_room(self, payer: str, weight_bytes: int) -> bool:
        """Tells whether one more pull of an account, or address, may wait."""
        return _is_below(self.count + 1, self._count_by[payer] + 1, self._pulls_max) and (
            not weight_bytes
            or _is_below(
                self.weight_bytes + weight_bytes,
                self._weight_by[payer] + weight_bytes,
                self._weight_bytes_max,
            )
        )

    def _call_at(self, due_ms: float, queue: _Queue) -> None:
        """Gives a queue its place among those that are due."""
        queue.due_ms = due_ms
        heappush(self._due, (due_ms, queue.key))
        if len(self._due) > max(_PLACES * len(self._queues), _PLACES_MIN):
            self._due[:] = [(queue.due_ms, key) for key, queue in self._queues.items()]
            heapify(self._due)

    def _pack(self, queue: _Queue) -> None:
        """Makes the few of a queue some of its many."""
        for pull in queue.few:
            if pull.connection in self._counts_of:
                queue.room().append(self._asked_by(pull), pull)
            else:
                # Nobody would have what one of a lost connection asks for forgotten.
                queue.lost_count -= 1
        queue.few.clear()

    def _asked_by(self, pull: ParkedPull) -> Asked:
        """Returns what a pull has in common with others of its connection."""
        asked = self._asked_of.get(pull.connection)
        if asked is None or not asked.is_of(pull):
            asked = self._asked_of[pull.connection] = Asked(pull)
        return asked

    def wake(self, dispatched: Iterable[tuple[str, int, int, int]]) -> WokenPulls:
        """Takes out the pulls that some of the new messages may satisfy.

        Each waiting pull is looked at once, however many messages came to its queue.

        Args:
            dispatched: topic, queue id, offset of the next message, tags code, in order of the
                log.

        Returns:
            Each woken pull once, in the order in which they were parked in their queues.
        """
        # Of each queue with pulls the last message of each tags code.
        ends_of: dict[_Queue, dict[int, int]] = {}
        for topic, queue_id, offset_next, tags_code in dispatched if self._queues else ():
            queue = self._queues.get((topic, queue_id))
            if queue is not None:
                ends_of.setdefault(queue, {})[tags_code] = offset_next
        woken: list[Collection[ParkedPull]] = []
        for queue, ends in ends_of.items():
            arrived = Arrived(ends)
            if queue.many:
                self._take_many(queue, _wanting(arrived), woken)
            out: list[ParkedPull] = []
            kept: list[ParkedPull] = []
            for pull in queue.few:
                is_out = pull.queue_offset < arrived.end_for(pull.matcher)
                (out if is_out else kept).append(pull)
            self._take_few(queue, out, kept, woken)
        return WokenPulls(woken)

    def scan(self, now_ms: float, max_offset_of: Callable[[str, int], int]) -> WokenPulls:
        """Takes out the pulls whose queue is longer than they knew and those whose time is over.

        Args:
            now_ms: on the clock of the deadlines.
            max_offset_of: offset of the next message of a queue.
        """
        woken: list[Collection[ParkedPull]] = []
        for queue in list(self._queues.values()):
            self._take_late(queue, now_ms, max_offset_of(*queue.key), woken)
        return WokenPulls(woken)

    def due(self, now_ms: float) -> WokenPulls:
        """Takes out pulls whose time is over; costs nothing while there are none.

        Where they are very many, those that it did not come to are due again at once. To be called
        often: it also takes out, a few at a time, what lost connections left behind.
        """
        if self._with_lost:
            self._take_out_lost()
        due, left = self._due, _STEP_BLOCKS
        woken: list[Collection[ParkedPull]] = []
        while due and due[0][0] <= now_ms and left > 0:
            due_ms, key = heappop(due)
            queue = self._queues.get(key)
            # Its time may have changed, or it is another one by now.
            if queue is None or queue.due_ms != due_ms:
                continue
            left -= self._take_late(queue, now_ms, -1, woken, left)
            if self._queues.get(key) is queue:
                self._call_at(_due_ms(queue), queue)
        return WokenPulls(woken)

    def take_all(self) -> WokenPulls:
        """Takes out everything: the broker stops."""
        return self.scan(inf, lambda topic, queue_id: -1)

    def connection_lost(self, connection: object) -> None:
        """Forgets the pulls of a connection."""
        counts = self._counts_of.pop(connection, {})
        self._count_out(connection, sum(counts.values()), self._weight_of.pop(connection, 0))
        self._asked_of.pop(connection, None)
        self._payer_of.pop(connection, None)
        for queue, count in counts.items():
            queue.lost_count += count
            size = len(queue)
            if queue.lost_count >= size:
                self._drop_if_empty(queue)
            # Looked through when half of them are lost, so each is looked at once or twice.
            elif queue.lost_count * 2 >= size:
                self._with_lost.setdefault(queue, 0)

    def _take_out_lost(self) -> None:
        """Looks through some blocks for pulls of lost connections."""
        queue, at = next(iter(self._with_lost.items()))
        end = at + _STEP_BLOCKS
        before_count = len(queue.few)
        queue.few = [pull for pull in queue.few if pull.connection in self._counts_of]
        queue.lost_count -= before_count - len(queue.few)
        kept = [self._living(queue, rows) for rows in queue.many[at:end]]
        kept = _joined(kept)
        is_last = end >= len(queue.many)
        queue.many[at:end] = kept
        del self._with_lost[queue]
        if not is_last:
            self._with_lost[queue] = at + len(kept)

    def _living(self, queue: _Queue, rows: ParkedRows) -> ParkedRows:
        """Returns a block without the pulls of lost connections, which it counts no more."""
        living = {asked for asked in set(rows.asked) if asked.connection in self._counts_of}
        chosen = [asked in living for asked in rows.asked]
        if all(chosen):
            return rows
        some = rows.some(chosen)
        queue.lost_count -= len(rows) - len(some)
        return some

    def _take_late(
        self,
        queue: _Queue,
        now_ms: float,
        max_offset: int,
        woken: list[Collection[ParkedPull]],
        blocks_max: float = inf,
    ) -> int:
        """Takes out the pulls whose queue is longer than they knew and those whose time is over, of
        so many blocks, and of the few behind all of them; returns how many it looked into, one at
        least.
        """
        choose = _late_or_behind(now_ms, max_offset)
        count = self._take_many(queue, choose, woken, blocks_max) if queue.many else 0
        if count >= blocks_max:
            return count
        out: list[ParkedPull] = []
        kept: list[ParkedPull] = []
        for pull in queue.few:
            is_out = pull.deadline_ms <= now_ms or pull.queue_offset < max_offset
            (out if is_out else kept).append(pull)
        self._take_few(queue, out, kept, woken)
        return max(count, 1)

    def _take_many(
        self,
        queue: _Queue,
        choose: Callable[[ParkedRows], Sequence[bool]],
        woken: list[Collection[ParkedPull]],
        blocks_max: float = inf,
    ) -> int:
        """Takes the chosen ones out of the many of a queue; returns how many blocks had some."""
        count, blocks = 0, []
        for block in queue.many:
            rows = block
            if count < blocks_max and any(chosen := choose(rows)):
                count += 1
                if queue.lost_count:
                    rows = self._living(queue, rows)
                    chosen = choose(rows)
                if any(chosen):
                    taken = rows if all(chosen) else rows.some(chosen)
                    rows = rows.some([not one for one in chosen])
                    for asked, asked_count in Counter(taken.asked).items():
                        self._forget(queue, asked.connection, asked.weight_bytes, asked_count)
                    woken.append(taken)
            blocks.append(rows)
        if count:
            queue.many = _joined(blocks)
            self._drop_if_empty(queue)
        return count

    def _take_few(
        self,
        queue: _Queue,
        out: list[ParkedPull],
        kept: list[ParkedPull],
        woken: list[Collection[ParkedPull]],
    ) -> None:
        """Takes some of its few out of a queue; the others are `kept`."""
        if not out:
            return
        queue.few = kept
        if queue.lost_count:
            before_count = len(out)
            out = [pull for pull in out if pull.connection in self._counts_of]
            queue.lost_count -= before_count - len(out)
        for pull in out:
            self._forget(queue, pull.connection, pull.weight_bytes, 1)
        self._drop_if_empty(queue)
        woken.append(out)

    def _drop_if_empty(self, queue: _Queue) -> None:
        """Lets go of a queue in which nobody waits any more."""
        if self._queues.get(queue.key) is queue and queue.lost_count >= len(queue):
            del self._queues[queue.key]
            self._with_lost.pop(queue, None)

    def _forget(self, queue: _Queue, connection: Any, weight_bytes: int, count: int) -> None:
        """Counts so many pulls no more, each of which weighs so much."""
        weight_bytes *= count
        self._count_out(connection, count, weight_bytes)
        if weight_bytes:
            self._weight_of[connection] -= weight_bytes
            if not self._weight_of[connection]:
                del self._weight_of[connection]
        counts = self._counts_of[connection]
        counts[queue] -= count
        if not counts[queue]:
            del counts[queue]
            if not counts:
                del self._counts_of[connection], self._payer_of[connection]
                self._asked_of.pop(connection, None)

    def _count_out(self, connection: Any, count: int, weight_bytes: int) -> None:
        """Takes so many pulls of a connection off all counts but its own."""
        payer = self._payer_of.get(connection)
        if payer is None:
            return
        self.count -= count
        self._count_by[payer] -= count
        if not self._count_by[payer]:
            del self._count_by[payer]
        if weight_bytes:
            self.weight_bytes -= weight_bytes
            self._weight_by[payer] -= weight_bytes
            if not self._weight_by[payer]:
                del self._weight_by[payer]


def _is_below(whole: int, own: int, limit: int) -> bool:
    """Tells whether there may be so much of all, of which so much is of one."""
    return whole <= limit and (
        whole * _KEPT_PART <= limit * (_KEPT_PART - 1) or own * _SMALL_PART <= limit
    )


def _wanting(arrived: Arrived) -> Callable[[ParkedRows], Sequence[bool]]:
    return lambda rows: rows.wanting(arrived)


def _late_or_behind(now_ms: float, max_offset: int) -> Callable[[ParkedRows], Sequence[bool]]:
    return lambda rows: rows.late_or_behind(now_ms, max_offset)


def _joined(blocks: Iterable[ParkedRows]) -> list[ParkedRows]:
    """Returns blocks in order without the empty ones, small ones as part of those before them."""
    joined: list[ParkedRows] = []
    for rows in blocks:
        if joined and len(joined[-1]) + len(rows) <= BLOCK_ROWS:
            joined[-1].extend(rows)
        elif rows:
            joined.append(rows)
    return joined


def _due_ms(queue: _Queue) -> float:
    few_ms = (pull.deadline_ms for pull in queue.few)
    return min(chain(few_ms, (rows.due_ms for rows in queue.many)), default=inf)
