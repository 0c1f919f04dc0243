"""LockGrants: what a leader grants of the locks of queues, and for how long. Pure.

A lock belongs to one client id of one group and lives for 60 s after it was last asked for; an
expired lock is free. A client holds its own lock to be valid for 30 s, also when the broker has
another leader meanwhile: so who holds which queue is replicated (`queue_locks.py`), and a new
leader keeps every lock for that long. Not longer, because a client that gives a queue back may tell
it the former leader. Times are monotonic, and not replicated.

A lock that changes hands is proposed; until that is applied nobody else gets the queue. Source:
`RebalanceLockManager.java`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Final

from ledgermq.state.queue_locks import LockRow, QueueKey, QueueLocks, row_bytes

# `rocketmq.broker.rebalance.lockMaxLiveTime`.
LOCK_LIFE_MS: Final = 60_000
# Life of a lock under a leader that has not been asked for it yet: what its client counts on, and
# the time that an answer of the former leader may take. That one renews a lock only when a majority
# confirms, after the client asked, that it leads (`lock_requests.py`).
INHERITED_LIFE_MS: Final = 35_000

# Locks that one look goes through, in ms some tens.
_LOOKED_AT_MAX: Final = 20_000
# Locks that one look gives up: each member drops them in one turn.
GIVEN_UP_MAX: Final = 2000

_Place = tuple[str, QueueKey]


class LockGrants:
    """The leader's view of the locks.

    Invariant: `_asked` holds the queues whose change of hands is proposed and neither applied nor
    refused, with the client that gets each and how many such changes there are.
    """

    def __init__(self, locks: QueueLocks) -> None:
        """Takes the table, which only applied commands change."""
        self._locks = locks
        self._asked: dict[_Place, tuple[str, int]] = {}
        # What the locks in all these changes take as JSON, and those of each group; how many those
        # are.
        self._asked_bytes = 0
        self._asked_bytes_of: Counter[str] = Counter()
        self._asked_count_of: Counter[str] = Counter()
        # When a lock was asked for last, and by whom.
        self._renewed: dict[_Place, tuple[str, float]] = {}
        # The last group whose locks were looked at, and its queues that are still to be.
        self._place = ""
        self._queues: Iterator[QueueKey] = iter(())
        # What counts for locks that this leader was not asked for yet.
        self._inherited_ms = -inf

    def lead(self, now_ms: float) -> None:
        """Gives every lock the life of an inherited one."""
        self._asked.clear()
        self._asked_bytes = 0
        self._asked_bytes_of.clear()
        self._asked_count_of.clear()
        self._renewed.clear()
        self._inherited_ms = now_ms + INHERITED_LIFE_MS - LOCK_LIFE_MS

    def _owner(self, place: _Place) -> str:
        asked = self._asked.get(place)
        return self._locks.holder(*place) if asked is None else asked[0]

    def holds(self, group: str, queue: QueueKey, client_id: str) -> bool:
        """Whether a client has the lock of a queue, and nobody has asked for that to change."""
        place = (group, queue)
        return self._locks.holder(*place) == client_id == self._owner(place)

    def _is_alive(self, place: _Place, owner: str, now_ms: float) -> bool:
        client_id, renewed_ms = self._renewed.get(place, (owner, self._inherited_ms))
        return client_id == owner and now_ms - renewed_ms <= LOCK_LIFE_MS

    def lock(
        self, group: str, queues: Iterable[QueueKey], client_id: str, now_ms: float
    ) -> tuple[list[QueueKey], list[LockRow]]:
        """Takes or renews locks; `now_ms` is monotonic here and everywhere below.

        Returns:
            The queues that the client holds, out of those it asked for, when the changes that must
            be proposed for it are applied; and these changes.

        Raises:
            SystemBusyError: there are too many locks; nothing was changed.
        """
        held: list[QueueKey] = []
        rows: list[LockRow] = []
        more = len(self._asked)
        asked_bytes, asked_bytes_of_group = self._asked_bytes, self._asked_bytes_of[group]
        more_bytes = 0
        for queue in dict.fromkeys(queues):
            place = (group, queue)
            owner = self._owner(place)
            if owner and owner != client_id and self._is_alive(place, owner, now_ms):
                continue
            if owner != client_id:
                self._locks.check_room(
                    group,
                    queue,
                    client_id,
                    more,
                    asked_bytes + more_bytes,
                    asked_bytes_of_group + more_bytes,
                    self._asked_count_of[group] + len(rows),
                )
                rows.append((*queue, client_id))
                more += 1
                more_bytes += row_bytes(group, queue, client_id)
            held.append(queue)
        for queue in held:
            self._renewed[group, queue] = (client_id, now_ms)
        self._ask(group, rows)
        return held, rows

    def unlock(self, group: str, queues: Iterable[QueueKey], client_id: str) -> list[LockRow]:
        """Gives up locks; those of other clients stay. Returns the changes to be proposed."""
        rows: list[LockRow] = [
            (*queue, "")
            for queue in dict.fromkeys(queues)
            if client_id and self._owner((group, queue)) == client_id
        ]
        self._ask(group, rows)
        return rows

    def expire(self, now_ms: float) -> dict[str, list[LockRow]]:
        """Gives up locks that nobody renewed; returns the changes to be proposed.

        It looks at some locks, at others each time, and gives up `GIVEN_UP_MAX` at most.
        """
        changes: dict[str, list[LockRow]] = {}
        looked_at = given_up = 0
        for place in self._places_behind():
            client_id = self._locks.holder(*place)
            is_asked = not client_id or place in self._asked
            if not is_asked and not self._is_alive(place, client_id, now_ms):
                group, queue = place
                changes.setdefault(group, []).append((*queue, ""))
                given_up += 1
            looked_at += 1
            if looked_at == _LOOKED_AT_MAX or given_up == GIVEN_UP_MAX:
                break
        for group, rows in changes.items():
            self._ask(group, rows)
        return changes

    def _places_behind(self) -> Iterator[_Place]:
        """Yields the locks behind the last one that was looked at, up to the end of the table; one
        that changed hands since its group was come to may be none any more.
        """
        for queue in self._queues:
            yield self._place, queue
        for group, holders in self._locks.holders_behind(self._place):
            # The group may change before all of them were looked at.
            self._place, self._queues = group, iter(list(holders))
            for queue in self._queues:
                yield group, queue
        self._place = ""

    def _ask(self, group: str, rows: Sequence[LockRow]) -> None:
        for topic, broker_name, queue_id, client_id in rows:
            place = (group, QueueKey(topic, broker_name, queue_id))
            _, count = self._asked.get(place, ("", 0))
            self._asked[place] = (client_id, count + 1)
            self._count(place, client_id, 1)

    def ended(self, changes: Mapping[str, Sequence[LockRow]]) -> None:
        """Notes that proposed changes are applied, or refused."""
        for group, rows in changes.items():
            for topic, broker_name, queue_id, changed_to in rows:
                place = (group, QueueKey(topic, broker_name, queue_id))
                client_id, count = self._asked.pop(place, ("", 0))
                if count:
                    self._count(place, changed_to, -1)
                if count > 1:
                    self._asked[place] = (client_id, count - 1)
                elif not self._locks.holder(*place):
                    self._renewed.pop(place, None)

    def _count(self, place: _Place, client_id: str, sign: int) -> None:
        """Counts a lock in a change, nothing where the queue is freed."""
        if not client_id:
            return
        group, queue = place
        change = sign * row_bytes(group, queue, client_id)
        self._asked_bytes += change
        self._asked_bytes_of[group] += change
        self._asked_count_of[group] += sign
        if not self._asked_count_of[group]:
            del self._asked_bytes_of[group], self._asked_count_of[group]
