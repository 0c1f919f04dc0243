"""SlicedAnswers: answers that take long to make, made piece by piece, a part of each turn.

Where 2,300 groups stand takes half a second to look up and to write. Such an answer is a generator:
it yields behind each piece of work, of less than a millisecond, and returns what is answered. What
a slice is enough for is answered at once, as ever; else its request stands in a line, of which the
first is worked on for a slice of each turn. So one unfinished answer is held at a time.
"""

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final

from twisted.internet.defer import Deferred

from ledgermq.broker.dispatch import Answer
from ledgermq.broker.sight import Sight
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state.errors import SystemBusyError

# Of a turn, for all these answers together, in milliseconds.
SLICE_MS: Final = 0.5
# Requests in the line, and of one connection; tools ask for one after the other.
WAITING_MAX: Final = 256
PER_CONNECTION_MAX: Final = 16

# Work on one answer; what it returns may come still later.
Pieces = Generator[None, None, RemotingCommand | Deferred[Any]]


@dataclass(frozen=True, slots=True)
class Eyes:
    """What an account sees that asked; its connection tells it for the request at hand only."""

    sight: Sight | None


@dataclass(slots=True)
class _Waiting:
    connection: CommandProtocol
    pieces: Pieces
    answered: Deferred[Any]


class SlicedAnswers:
    """The line of one broker.

    Invariant: while somebody waits, a call for another turn is due.
    """

    def __init__(
        self, soon: Callable[[Callable[[], None]], None], clock_ms: Callable[[], float]
    ) -> None:
        """Begins empty.

        Args:
            soon: has a function called in another turn.
            clock_ms: monotonic time.
        """
        self._soon = soon
        self._clock_ms = clock_ms
        self._line: deque[_Waiting] = deque()

    def __len__(self) -> int:
        return len(self._line)

    def answer(self, connection: CommandProtocol, pieces: Pieces) -> Answer:
        """Returns an answer that is made so, or a Deferred of it.

        Args:
            connection: who asks; when it is closed nothing more is done.
            pieces: as `Pieces`; what it raises before it first yields is raised here.

        Raises:
            SystemBusyError: as many wait as may.
        """
        if not self._line:
            end_ms = self._clock_ms() + SLICE_MS
            made = _work(pieces, lambda: self._clock_ms() < end_ms)
            if made is not None:
                return made
            self._soon(self._go_on)
        else:
            self._check_room(connection)
        answered: Deferred[Any] = Deferred()
        self._line.append(_Waiting(connection, pieces, answered))
        return answered

    def _check_room(self, connection: CommandProtocol) -> None:
        own = sum(1 for waiting in self._line if waiting.connection is connection)
        if len(self._line) >= WAITING_MAX or own >= PER_CONNECTION_MAX:
            raise SystemBusyError(
                f"system busy: {len(self._line)} requests for long answers wait, {own} of them of"
                f" this connection; allowed are {WAITING_MAX} and {PER_CONNECTION_MAX}"
            )

    def _go_on(self) -> None:
        line, clock_ms = self._line, self._clock_ms
        end_ms = clock_ms() + SLICE_MS
        while line and clock_ms() < end_ms:
            first = line[0]
            if not first.connection.is_open:
                line.popleft()
                first.pieces.close()
                continue
            try:
                made = _work(first.pieces, lambda: clock_ms() < end_ms)
            except Exception:
                line.popleft()
                # The error that is being handled.
                first.answered.errback()
                continue
            if made is None:
                break
            line.popleft()
            if isinstance(made, Deferred):
                made.chainDeferred(first.answered)
            else:
                first.answered.callback(made)
        if line:
            self._soon(self._go_on)


def _work(pieces: Pieces, has_time: Callable[[], bool]) -> RemotingCommand | Deferred[Any] | None:
    """Does one piece at least; returns the answer when that was the last, else None."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            made: RemotingCommand | Deferred[Any] = end.value
            return made
        if not has_time():
            return None
