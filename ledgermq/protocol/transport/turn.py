"""TurnOutput: what is sent in one turn of the reactor goes out once, at its end.

Connections report here that they have something to send. One delayed call of zero seconds for all
of them together flushes them when the reactor has served all that was readable. Whoever works at
the end of a turn anyway, such as the driver of the ledger, may call `flush` itself and save the
round.
"""

from collections.abc import Callable
from typing import Any, Protocol


class DelayedCall(Protocol):
    """What is needed of a delayed call of Twisted."""

    def cancel(self) -> None: ...

    def active(self) -> bool: ...


class Clock(Protocol):
    """What is needed of a reactor by everything here that waits; twisted's task.Clock is one."""

    def seconds(self) -> float: ...

    def callLater(
        self, delay: float, callable: Callable[..., Any], *args: object, **kwargs: object
    ) -> Any: ...


class Flushable(Protocol):
    """A connection with unsent bytes."""

    def flush(self) -> None: ...


class TurnOutput:
    """The connections that sent something in this turn. One for each reactor is enough."""

    __slots__ = ("_call", "_clock", "_waiting")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # A list, for the order; a connection adds itself once a turn.
        self._waiting: list[Flushable] = []
        self._call: DelayedCall | None = None

    def add(self, connection: Flushable) -> None:
        """Has `connection` flushed at the end of this turn."""
        self._waiting.append(connection)
        if self._call is None:
            self._call = self._clock.callLater(0, self._end_of_turn)

    def flush(self) -> None:
        """Flushes the waiting connections now; what they send meanwhile waits."""
        call, self._call = self._call, None
        if call is not None:
            # A call of zero seconds with nothing to do would cost the reactor a round.
            call.cancel()
        waiting = self._waiting
        self._waiting = []
        for connection in waiting:
            connection.flush()

    def stop(self) -> None:
        """Flushes what waits and leaves no delayed call."""
        self.flush()
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _end_of_turn(self) -> None:
        self._call = None
        self.flush()
