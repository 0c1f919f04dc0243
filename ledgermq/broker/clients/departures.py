"""Departures: closed connections are taken out of their groups, a part of each turn.

A connection may be in a thousand groups, and a hundred may close at one moment: a tenth of a second
of work. The few groups that a usual client is in are left at once; the others of each connection a
few at a time, all connections in turns.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from ledgermq.protocol.transport import CommandProtocol

# Of a turn, for all connections together, in milliseconds.
DEPARTURES_MS: Final = 0.5


class Departures:
    """The closed connections that are still in groups.

    Invariant: while there are some, a call for another turn is due.
    """

    def __init__(
        self,
        leave_some: Callable[[CommandProtocol], bool],
        soon: Callable[[Callable[[], None]], None],
        clock_ms: Callable[[], float],
    ) -> None:
        """Begins empty.

        Args:
            leave_some: takes a connection out of some of its groups; tells whether it is in others
                still.
            soon: has a function called in another turn.
            clock_ms: monotonic time.
        """
        self._leave_some = leave_some
        self._soon = soon
        self._clock_ms = clock_ms
        # In the order in which they come next.
        self._leaving: deque[CommandProtocol] = deque()

    def __len__(self) -> int:
        return len(self._leaving)

    def add(self, connection: CommandProtocol) -> None:
        """Takes a connection out of its groups that was closed."""
        if not self._leave_some(connection):
            return
        if not self._leaving:
            self._soon(self._go_on)
        self._leaving.append(connection)

    def _go_on(self) -> None:
        end_ms = self._clock_ms() + DEPARTURES_MS
        try:
            while self._leaving and self._clock_ms() < end_ms:
                connection = self._leaving.popleft()
                if self._leave_some(connection):
                    self._leaving.append(connection)
        finally:
            if self._leaving:
                self._soon(self._go_on)
