"""Requests that wait for their answers: the table by opaque, and its deadlines.

No I/O and no clock: whoever drives a connection passes the time and acts on what comes back. The
table is bounded; a request that finds it full is refused, not queued. An answer that nobody waits
for is not an error of the peer: its request may just have run out of time.
"""

import heapq
from typing import Final, Generic, TypeVar

from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import LocalProtocolError

# Java's clientAsyncSemaphoreValue.
OUTSTANDING_MAX: Final = 65_535
# Opaque is a signed 32-bit number on the wire; below zero is allowed but confuses people.
_OPAQUE_MAX: Final = 2**31 - 1
# Entries of answered requests that the heap of deadlines may hold before it is made anew.
_STALE_COUNT_MAX: Final = 64

T = TypeVar("T")


class RequestTable(Generic[T]):
    """Outstanding requests of one connection in one direction.

    Invariants: at most `outstanding_max` requests are in the table; each has an entry in the heap;
    the heap holds at most as many stale entries as live ones, and 64.
    """

    __slots__ = ("_contexts", "_deadlines", "_next_opaque", "_outstanding_max")

    def __init__(self, outstanding_max: int = OUTSTANDING_MAX) -> None:
        """Starts empty; opaque counts from 0.

        Args:
            outstanding_max: requests that may wait at a time.
        """
        assert outstanding_max > 0
        self._outstanding_max = outstanding_max
        # opaque -> deadline in ms, what the caller wants back.
        self._contexts: dict[int, tuple[int, T]] = {}
        # (deadline in ms, opaque); may hold answered requests.
        self._deadlines: list[tuple[int, int]] = []
        self._next_opaque = 0

    def __len__(self) -> int:
        return len(self._contexts)

    def register(self, opaque: int | None, deadline_ms: int, context: T) -> int:
        """Notes a request that is about to be sent.

        Args:
            opaque: number to use, or None to have one chosen.
            deadline_ms: when `expire` gives the request up, on the caller's clock.
            context: what `resolve`, `expire` or `fail_all` gives back, once.

        Returns:
            The opaque of the request.

        Raises:
            LocalProtocolError: the table is full, or the given opaque is in use. Nothing has
                changed.
        """
        contexts = self._contexts
        if len(contexts) >= self._outstanding_max:
            raise LocalProtocolError("outstanding requests", len(contexts), self._outstanding_max)
        if opaque is None:
            opaque = self._next_opaque
            while opaque in contexts:
                opaque = opaque + 1 if opaque < _OPAQUE_MAX else 0
            self._next_opaque = opaque + 1 if opaque < _OPAQUE_MAX else 0
        elif opaque in contexts:
            raise LocalProtocolError("opaque", opaque, "a number not in use")
        contexts[opaque] = (deadline_ms, context)
        heapq.heappush(self._deadlines, (deadline_ms, opaque))
        return opaque

    def resolve(self, response: RemotingCommand) -> T | None:
        """Takes the request that `response` answers out of the table.

        Returns:
            Its context, or None when no request waits under that opaque.
        """
        found = self._contexts.pop(response.opaque, None)
        if found is None:
            return None
        if len(self._deadlines) > 2 * len(self._contexts) + _STALE_COUNT_MAX:
            self._deadlines = [(entry[0], opaque) for opaque, entry in self._contexts.items()]
            heapq.heapify(self._deadlines)
        return found[1]

    def forget(self, opaque: int) -> None:
        """Drops a request whose answer is no longer wanted; nothing happens when it is unknown."""
        self._contexts.pop(opaque, None)

    def deadline_ms(self) -> int | None:
        """Returns when `expire` is due next, None when nothing waits."""
        self._drop_stale()
        return self._deadlines[0][0] if self._deadlines else None

    def expire(self, now_ms: int) -> list[T]:
        """Takes out the requests whose deadline has come, in order of their deadlines."""
        expired: list[T] = []
        self._drop_stale()
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, opaque = heapq.heappop(self._deadlines)
            expired.append(self._contexts.pop(opaque)[1])
            self._drop_stale()
        return expired

    def fail_all(self) -> list[T]:
        """Takes out all requests, in the order in which they were sent."""
        contexts = [context for _, context in self._contexts.values()]
        self._contexts.clear()
        self._deadlines.clear()
        return contexts

    def _drop_stale(self) -> None:
        """Removes answered requests from the front of the heap.

        An opaque that was used again stands there under its new deadline too, hence the comparison.
        """
        deadlines = self._deadlines
        while deadlines:
            deadline_ms, opaque = deadlines[0]
            entry = self._contexts.get(opaque)
            if entry is not None and entry[0] == deadline_ms:
                return
            heapq.heappop(deadlines)
