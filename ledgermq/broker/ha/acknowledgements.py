"""Acknowledgements: which appends of a SYNC_MASTER a slave holds.

One slave that has a message suffices. Whether a slave can be waited for is decided when the message
is appended: without any, or with the best one too far behind, nobody waits. A wait ends when the
best acknowledgement passes the message, or at its deadline. No I/O; time is an argument.
Source: `CommitLog.java` (submitReplicaRequest), `HAService.java` (GroupTransferService).
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple


class ReplicaStatus(Enum):
    """What became of a message on the slaves."""

    # A slave holds it.
    REPLICATED = "replicated"
    # No slave is connected, or the best one is too far behind: nobody waited.
    SLAVE_NOT_AVAILABLE = "slave not available"
    # It was not acknowledged in time; a slave may hold it later.
    FLUSH_SLAVE_TIMEOUT = "flush slave timeout"


OnReplicated = Callable[[ReplicaStatus], None]


class _Wait(NamedTuple):
    end_offset: int
    deadline_ms: float
    done: OnReplicated


class Acknowledgements:
    """The best acknowledgement of all slaves, and who waits for it.

    Invariant: waits are ordered by offset and by deadline, and all lie behind `best_offset`.
    """

    def __init__(self, *, behind_bytes_max: int, timeout_ms: int) -> None:
        """Begins without slaves.

        Args:
            behind_bytes_max: a slave that is so far behind counts as none.
            timeout_ms: how long a message is waited for.
        """
        self._behind_bytes_max = behind_bytes_max
        self._timeout_ms = timeout_ms
        self._waits: deque[_Wait] = deque()
        # Highest offset that any slave ever reported: it holds the bytes also when it is gone.
        self.best_offset = 0
        # The last reports of the slaves that are connected.
        self._slave_offsets: Sequence[int] = ()

    @property
    def waiting_count(self) -> int:
        """Appends that wait for a slave."""
        return len(self._waits)

    @property
    def slave_count(self) -> int:
        """Slaves that are connected and have reported."""
        return len(self._slave_offsets)

    @property
    def nearest_offset(self) -> int:
        """What the best slave of those that are connected has; 0 without any."""
        return max(self._slave_offsets, default=0)

    def is_slave_available(self, max_offset: int) -> bool:
        """Tells whether a message that ends at `max_offset` would be waited for."""
        is_near = max_offset - self.nearest_offset < self._behind_bytes_max
        return is_near and self.slave_count > 0

    def wait(self, end_offset: int, now_ms: float, done: OnReplicated) -> None:
        """Has `done` called once: at once when nobody is waited for, else later.

        Args:
            end_offset: behind the appended bytes; not below that of the last call.
            now_ms: monotonic time.
            done: must not raise.
        """
        if end_offset <= self.best_offset:
            done(ReplicaStatus.REPLICATED)
        elif not self.is_slave_available(end_offset):
            done(ReplicaStatus.SLAVE_NOT_AVAILABLE)
        else:
            assert not self._waits or self._waits[-1].end_offset <= end_offset
            self._waits.append(_Wait(end_offset, now_ms + self._timeout_ms, done))

    def reported(self, slave_offsets: Sequence[int]) -> None:
        """Takes the last reports of all slaves that are connected, after a change of any, and ends
        the waits that they satisfy.
        """
        self._slave_offsets = slave_offsets
        offset = self.nearest_offset
        if offset <= self.best_offset:
            return
        self.best_offset = offset
        while self._waits and self._waits[0].end_offset <= offset:
            self._waits.popleft().done(ReplicaStatus.REPLICATED)

    def expire(self, now_ms: float) -> None:
        """Ends the waits whose time is over."""
        while self._waits and self._waits[0].deadline_ms <= now_ms:
            self._waits.popleft().done(ReplicaStatus.FLUSH_SLAVE_TIMEOUT)

    def close(self) -> None:
        """Ends all waits: the master stops."""
        while self._waits:
            self._waits.popleft().done(ReplicaStatus.FLUSH_SLAVE_TIMEOUT)
