"""Which client may consume a queue in order: locks that expire.

Pure. A lock belongs to one client id of one group and lives for 60 s after it was last asked for;
an expired lock is free. A client holds its own lock to be valid for 30 s, also when the broker has
another leader meanwhile: so who holds which queue is replicated (`state_log.py`), and a new leader
keeps every lock for that long. Not longer, because a client that gives a queue back may tell it the
former leader. Times are monotonic, and not replicated. Source: `RebalanceLockManager.java`, whose
locks are lost with their broker.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ledgermq.broker.errors import SystemBusyError

# Time of a lock that came from elsewhere: `lead` gives it one that counts.
_LONG_AGO_MS: Final = -(1 << 62)
# `rocketmq.broker.rebalance.lockMaxLiveTime`.
LOCK_LIFE_MS: Final = 60_000
# Life of a lock under a leader that has not been asked for it yet: what its client counts on, and
# what a former leader may have granted until it knew that it leads no longer.
INHERITED_LIFE_MS: Final = 35_000
_LOCKS_MAX: Final = 1_000_000
# Of all locks as JSON: below what a state file may have.
_LOCKS_BYTES_MAX: Final = 128 << 20
# What a lock takes besides its names: a number of 20 digits, brackets and commas.
_ROW_BYTES: Final = 32

# Locks of a group as they are replicated and saved: topic, broker name, queue id, client id; an
# empty client id for a queue that is free again.
LockRow = tuple[str, str, int, str]


class QueueKey(NamedTuple):
    """One queue as clients name it."""

    topic: str
    broker_name: str
    queue_id: int


class QueueLocks:
    """All locks of this broker."""

    def __init__(self, *, bytes_max: int = _LOCKS_BYTES_MAX) -> None:
        """Begins empty; `bytes_max` bounds all locks as JSON."""
        # group -> queue -> (client_id, time of the last request in ms)
        self._locks: dict[str, dict[QueueKey, tuple[str, int]]] = {}
        self._count = 0
        # At most what the locks take as JSON.
        self.json_bytes = 0
        self._bytes_max = bytes_max
        # Queues that have another holder, or none, since the last `take_changes`.
        self._changed: dict[str, set[QueueKey]] = {}

    def __len__(self) -> int:
        return self._count

    def lock(
        self, group: str, queues: Iterable[QueueKey], client_id: str, now_ms: int
    ) -> list[QueueKey]:
        """Takes or renews locks; `now_ms` is monotonic here and everywhere below.

        Returns:
            The queues that the client holds now, out of those it asked for.

        Raises:
            SystemBusyError: there are too many locks.
        """
        locks = self._locks.setdefault(group, {})
        held: list[QueueKey] = []
        for queue in queues:
            owner = locks.get(queue)
            if owner is not None and owner[0] != client_id and now_ms - owner[1] <= LOCK_LIFE_MS:
                continue
            if owner is None or owner[0] != client_id:
                self._check_room(group, queue, client_id, is_new=owner is None)
                self._changed.setdefault(group, set()).add(queue)
                self._uncount(group, queue, owner)
                self._count += 1
                self.json_bytes += _row_bytes(group, queue, client_id)
            locks[queue] = (client_id, now_ms)
            held.append(queue)
        return held

    def _check_room(self, group: str, queue: QueueKey, client_id: str, *, is_new: bool) -> None:
        if is_new and self._count >= _LOCKS_MAX:
            raise SystemBusyError(
                f"no lock for {queue}: there are {self._count}, allowed are {_LOCKS_MAX}"
            )
        if self.json_bytes + _row_bytes(group, queue, client_id) > self._bytes_max:
            raise SystemBusyError(
                f"no lock for queue {queue.queue_id} of {queue.topic[:255]}: {self._count} locks"
                f" take {self.json_bytes} bytes, allowed are {self._bytes_max}"
            )

    def _uncount(self, group: str, queue: QueueKey, owner: tuple[str, int] | None) -> None:
        if owner is not None:
            self._count -= 1
            self.json_bytes -= _row_bytes(group, queue, owner[0])

    def unlock(self, group: str, queues: Iterable[QueueKey], client_id: str) -> None:
        """Gives up locks; those of other clients stay."""
        locks = self._locks.get(group, {})
        for queue in queues:
            owner = locks.get(queue)
            if owner is not None and owner[0] == client_id:
                self._drop(group, queue)

    def expire(self, now_ms: int) -> None:
        """Forgets locks that nobody renewed."""
        for group, locks in list(self._locks.items()):
            for queue, (_, since) in list(locks.items()):
                if now_ms - since > LOCK_LIFE_MS:
                    self._drop(group, queue)

    def clear(self) -> None:
        """Forgets all locks."""
        self._locks = {}
        self._count = self.json_bytes = 0
        self._changed = {}

    def _drop(self, group: str, queue: QueueKey) -> None:
        locks = self._locks[group]
        self._uncount(group, queue, locks.pop(queue))
        self._changed.setdefault(group, set()).add(queue)
        if not locks:
            del self._locks[group]

    # Replication.

    def take_changes(self) -> dict[str, list[LockRow]]:
        """Returns what changed since the last call, by group, and forgets that it did."""
        changes = {
            group: [
                (*queue, self._locks.get(group, {}).get(queue, ("", 0))[0])
                for queue in sorted(queues)
            ]
            for group, queues in self._changed.items()
        }
        self._changed = {}
        return changes

    def put_back(self, changes: Mapping[str, Sequence[LockRow]]) -> None:
        """Takes back what `take_changes` gave: it may be that nobody was told of it."""
        for group, rows in changes.items():
            self._changed.setdefault(group, set()).update(QueueKey(*row[:3]) for row in rows)

    def lead(self, now_ms: int) -> None:
        """Gives every lock the life of an inherited one."""
        since_ms = now_ms + INHERITED_LIFE_MS - LOCK_LIFE_MS
        for locks in self._locks.values():
            for queue, (client_id, _) in locks.items():
                locks[queue] = (client_id, since_ms)

    def follow(self, changes: Mapping[str, Any]) -> None:
        """Takes over changes of a leader; what is not understood is left out."""
        for group, rows in changes.items():
            locks = self._locks.setdefault(group, {})
            for row in rows if isinstance(rows, list) else []:
                match row:
                    case [str(topic), str(broker_name), int(queue_id), str(client_id)]:
                        queue = QueueKey(topic, broker_name, queue_id)
                        self._uncount(group, queue, locks.pop(queue, None))
                        if client_id:
                            locks[queue] = (client_id, _LONG_AGO_MS)
                            self._count += 1
                            self.json_bytes += _row_bytes(group, queue, client_id)
            if not locks:
                del self._locks[group]

    def replace_all(self, table: Mapping[str, Any]) -> None:
        """Takes over all locks of a leader or a file."""
        self.clear()
        self.follow(table)

    def all(self) -> dict[str, list[LockRow]]:
        """Returns all locks by group."""
        return {
            group: [(*queue, client_id) for queue, (client_id, _) in sorted(locks.items())]
            for group, locks in self._locks.items()
        }

    def to_json(self) -> dict[str, Any]:
        """Returns the content of queueLocks.json."""
        return {"lockTable": self.all()}

    def load_json(self, value: Mapping[str, Any]) -> None:
        """Takes over the content of queueLocks.json."""
        table = value.get("lockTable")
        self.replace_all(table if isinstance(table, Mapping) else {})


def _row_bytes(group: str, queue: QueueKey, client_id: str) -> int:
    """What a lock takes as JSON at most, with the name of its group."""
    texts = (group, queue.topic, queue.broker_name, client_id)
    return _ROW_BYTES + sum(len(json.dumps(text)) for text in texts)
