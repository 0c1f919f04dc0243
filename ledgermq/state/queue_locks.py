"""Which client may consume a queue in order: who holds the lock of it.

Pure. The table is a part of the replicated state: only `machine.py` changes it. How long a
lock lives is the leader's business (`lock_grants.py`). Source: `RebalanceLockManager.java`, whose
locks are lost with their broker.
"""

from collections.abc import Iterator, Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any, Final, NamedTuple

from ledgermq.state.document import Document
from ledgermq.state.errors import InvalidRequestError, SystemBusyError
from ledgermq.state.json_values import NAME_CHARS_MAX, is_name, is_text, is_whole
from ledgermq.state.ordered_names import OrderedNames

_LOCKS_MAX: Final = 1_000_000
# Of all locks as JSON: below what a state file may have.
_LOCKS_BYTES_MAX: Final = 128 << 20
# The same of one group, so that nobody takes the room of all.
_GROUP_BYTES_MAX: Final = 16 << 20
# Locks of one group: sorted, swept and compared in one turn.
_GROUP_LOCKS_MAX: Final = 20_000
# What a lock takes besides its names: a number of 20 digits, brackets and commas.
_ROW_BYTES: Final = 32
# Of a lock in an error.
_SHOWN_CHARS_MAX: Final = 255

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
        # group -> queue -> client id
        self._locks: dict[str, dict[QueueKey, str]] = {}
        self._names = OrderedNames()
        self._count = 0
        # At most what the locks take as JSON.
        self.json_bytes = 0
        self._bytes_max = bytes_max
        # The same by group.
        self._bytes_of: dict[str, int] = {}

    def __len__(self) -> int:
        return self._count

    def holder(self, group: str, queue: QueueKey) -> str:
        """Returns the client that holds a queue, empty when nobody does."""
        return self._locks.get(group, {}).get(queue, "")

    def holders_behind(self, after: str) -> Iterator[tuple[str, Mapping[QueueKey, str]]]:
        """Yields the groups behind a name, in order, with the holder of each queue; the table must
        not change meanwhile.
        """
        for group in self._names.behind(after):
            yield group, self._locks[group]

    def check_room(
        self,
        group: str,
        queue: QueueKey,
        client_id: str,
        more: int = 0,
        more_bytes: int = 0,
        more_bytes_of_group: int = 0,
        more_of_group: int = 0,
    ) -> None:
        """Checks a lock that is to change hands.

        Args:
            group, queue, client_id: whose it is to be.
            more: locks on their way into the table.
            more_bytes: what they take as JSON.
            more_bytes_of_group: the same of those of the group.
            more_of_group: how many those are.

        Raises:
            InvalidRequestError: no record can hold the lock.
            SystemBusyError: there are too many locks, or too many of the group.
        """
        row = [*queue, client_id]
        if not rows_from_json({group: [row]}):
            raise InvalidRequestError(
                f"cannot lock {str(row)[:_SHOWN_CHARS_MAX]} for group {group[:_SHOWN_CHARS_MAX]!r}:"
                f" a name is no UTF-8 or the group's too long (limit {NAME_CHARS_MAX} characters),"
                " or the queue id is out of range"
            )
        if not self.holder(group, queue):
            if self._count + more >= _LOCKS_MAX:
                raise SystemBusyError(
                    f"no lock for {queue}: there are {self._count}, allowed are {_LOCKS_MAX}"
                )
            own_count = len(self._locks.get(group, ())) + more_of_group
            if own_count >= _GROUP_LOCKS_MAX:
                raise SystemBusyError(
                    f"no lock for queue {queue.queue_id} of {queue.topic[:255]}: group"
                    f" {group[:255]} has {own_count} locks, allowed are {_GROUP_LOCKS_MAX}"
                )
        needed = row_bytes(group, queue, client_id)
        own = self._bytes_of.get(group, 0) + more_bytes_of_group
        if own + needed > _GROUP_BYTES_MAX:
            raise SystemBusyError(
                f"no lock for queue {queue.queue_id} of {queue.topic[:255]}: the locks of group"
                f" {group[:255]} take {own} bytes, allowed are {_GROUP_BYTES_MAX}"
            )
        size = self.json_bytes + more_bytes
        if size + needed > self._bytes_max:
            raise SystemBusyError(
                f"no lock for queue {queue.queue_id} of {queue.topic[:255]}: {self._count} locks"
                f" take {size} bytes, allowed are {self._bytes_max}"
            )

    def put(self, changes: Mapping[str, Sequence[LockRow]]) -> None:
        """Has queues change hands."""
        for group, rows in changes.items():
            for topic, broker_name, queue_id, client_id in rows:
                queue = QueueKey(topic, broker_name, queue_id)
                if self.holder(group, queue) == client_id:
                    continue
                self._drop(group, queue)
                if client_id:
                    self._take(group, queue, client_id)

    def _take(self, group: str, queue: QueueKey, client_id: str) -> None:
        if group not in self._locks:
            self._locks[group] = {}
            self._names.add(group)
        self._locks[group][queue] = client_id
        self._count += 1
        self._add_bytes(group, row_bytes(group, queue, client_id))

    def _drop(self, group: str, queue: QueueKey) -> None:
        locks = self._locks.get(group, {})
        client_id = locks.pop(queue, None)
        if client_id is None:
            return
        self._count -= 1
        self._add_bytes(group, -row_bytes(group, queue, client_id))
        if not locks:
            del self._locks[group], self._bytes_of[group]
            self._names.remove(group)

    def _add_bytes(self, group: str, count: int) -> None:
        self.json_bytes += count
        self._bytes_of[group] = self._bytes_of.get(group, 0) + count

    def clear(self) -> None:
        """Forgets all locks."""
        self._locks, self._names = {}, OrderedNames()
        self._bytes_of.clear()
        self._count = self.json_bytes = 0

    # Piece by piece.

    def behind(self, after: str) -> Iterator[tuple[str, Any]]:
        """Yields the groups behind a name, in order, with the rows of their locks."""
        for group in self._names.behind(after):
            yield group, self._rows(group)

    def _rows(self, group: str) -> list[LockRow]:
        return [(*queue, client_id) for queue, client_id in sorted(self._locks[group].items())]

    def replace_range(
        self, after: str, upto: str | None, put: Mapping[str, Sequence[LockRow]]
    ) -> bool:
        """Has exactly `put` among the groups behind `after`, up to `upto`.

        Returns:
            Whether something changed by it.
        """
        wanted = {
            group: {QueueKey(*row[:3]): row[3] for row in locks} for group, locks in put.items()
        }
        former = {group: self._locks[group] for group in self._names.between(after, upto)}
        if former == wanted:
            return False
        for group, holders in former.items():
            kept = wanted.get(group, {})
            for queue in [one for one in holders if one not in kept]:
                self._drop(group, queue)
        self.put(put)
        return True

    def merge(self, put: Mapping[str, Sequence[LockRow]]) -> bool:
        """Has queues change hands; returns whether one did."""
        has_changed = any(
            self.holder(group, QueueKey(*row[:3])) != row[3]
            for group, locks in put.items()
            for row in locks
        )
        self.put(put)
        return has_changed

    def joined(self, name: str, value: Sequence[LockRow]) -> list[LockRow]:
        """Returns the locks of a group, changed by a part of them."""
        changed = {QueueKey(*row[:3]) for row in value}
        kept = self._rows(name) if name in self._locks else []
        return [*(row for row in kept if QueueKey(*row[:3]) not in changed), *value]

    def keep_only(self, name: str, parts: Sequence[Sequence[LockRow] | None]) -> bool:
        """Frees the queues of a group that none of some parts has; returns whether any was."""
        told = {QueueKey(*row[:3]) for part in parts for row in part or ()}
        gone = [queue for queue in self._locks.get(name, ()) if queue not in told]
        for queue in gone:
            self._drop(name, queue)
        return bool(gone)

    # As a document.

    def document(self) -> Document:
        """Returns the content of queueLocks.json."""
        return Document({}, (("lockTable", self.behind),))

    def load_json(self, value: Mapping[str, Any]) -> None:
        """Takes over the content of queueLocks.json."""
        self.clear()
        self.put(rows_from_json(value.get("lockTable")))


def rows_from_json(value: object) -> dict[str, list[LockRow]]:
    """Reads rows by group; what is not understood is left out."""
    changes: dict[str, list[LockRow]] = {}
    for group, rows in value.items() if isinstance(value, Mapping) else ():
        for row in rows if isinstance(rows, list) else []:
            match row:
                case [topic, broker_name, queue_id, client_id] if (
                    is_name(group)
                    and is_whole(queue_id)
                    and all(map(is_text, (topic, broker_name, client_id)))
                ):
                    kept = changes.setdefault(group, [])
                    kept.append((topic, broker_name, queue_id, client_id))
    return changes


def row_bytes(group: str, queue: QueueKey, client_id: str) -> int:
    """What a lock takes as JSON at most, with the name of its group."""
    texts = (group, queue.topic, queue.broker_name, client_id)
    return _ROW_BYTES + sum(map(len, map(encode_basestring_ascii, texts)))
