"""Which client may consume a queue in order: locks that expire.

Pure. A lock belongs to one client id of one group and lives for 60 s after it was last asked for;
an expired lock is free. The table is not replicated: after a change of leader the clients ask
again within 20 s, and a client holds its own lock to be valid for 30 s only. Source:
`RebalanceLockManager.java`.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from ledgermq.broker.errors import SystemBusyError

# `rocketmq.broker.rebalance.lockMaxLiveTime`.
LOCK_LIFE_MS: Final = 60_000
_LOCKS_MAX: Final = 1_000_000


class QueueKey(NamedTuple):
    """One queue as clients name it."""

    topic: str
    broker_name: str
    queue_id: int


class QueueLocks:
    """All locks of this broker."""

    def __init__(self) -> None:
        # group -> queue -> (client_id, time of the last request in ms)
        self._locks: dict[str, dict[QueueKey, tuple[str, int]]] = {}
        self._count = 0

    def lock(
        self, group: str, queues: Iterable[QueueKey], client_id: str, now_ms: int
    ) -> list[QueueKey]:
        """Takes or renews locks.

        Returns:
            The queues that the client holds now, out of those it asked for.

        Raises:
            SystemBusyError: there are too many locks.
        """
        locks = self._locks.setdefault(group, {})
        held: list[QueueKey] = []
        for queue in queues:
            owner = locks.get(queue)
            if owner is None:
                if self._count >= _LOCKS_MAX:
                    raise SystemBusyError(
                        f"no lock for {queue}: there are {self._count}, allowed are {_LOCKS_MAX}"
                    )
                self._count += 1
            elif owner[0] != client_id and now_ms - owner[1] <= LOCK_LIFE_MS:
                continue
            locks[queue] = (client_id, now_ms)
            held.append(queue)
        return held

    def unlock(self, group: str, queues: Iterable[QueueKey], client_id: str) -> None:
        """Gives up locks; those of other clients stay."""
        locks = self._locks.get(group, {})
        for queue in queues:
            owner = locks.get(queue)
            if owner is not None and owner[0] == client_id:
                del locks[queue]
                self._count -= 1
        if not locks:
            self._locks.pop(group, None)

    def expire(self, now_ms: int) -> None:
        """Forgets locks that nobody renewed."""
        for group in list(self._locks):
            locks = self._locks[group]
            for queue in [
                key for key, (_, since) in locks.items() if now_ms - since > LOCK_LIFE_MS
            ]:
                del locks[queue]
                self._count -= 1
            if not locks:
                del self._locks[group]

    def clear(self) -> None:
        """Forgets all locks: another member leads now."""
        self._locks = {}
        self._count = 0
