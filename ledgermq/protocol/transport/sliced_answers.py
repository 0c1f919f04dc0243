"""SlicedAnswers: answers that take long to make, made piece by piece, a part of each turn.

Where 2,300 groups stand takes half a second to look up and to write. Such an answer is a generator:
it yields behind each piece of work, of less than a millisecond, and returns what is answered. What
a slice is enough for is answered at once, as ever; else its request stands in the line of the
account that asks, or of the address where there are no accounts. In each turn the first request of
one line is worked on for a slice, of the next line in the next turn. So whoever asks for much waits
behind their own requests, and one unfinished answer of each is held at a time.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred

from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.transport.turn_shares import Paying, payer_of

# Of a turn, for all these answers together, in milliseconds.
SLICE_MS: Final = 0.5
# Requests in all lines, and of one connection; tools ask for one after the other. One line has no
# more than half of all.
WAITING_MAX: Final = 256
PER_CONNECTION_MAX: Final = 16
_LINE_PART: Final = 2
# Of a long list, for one piece of work: some microseconds each.
NAMES_A_PIECE: Final = 32
# The same, of the bodies that requests come with: what is made of one may take ten times as much.
WAITING_BYTES_MAX: Final = 8 << 20
_PAYER_CHARS_SHOWN: Final = 128

# An answer, or one that comes still later; and the work on it.
Made = RemotingCommand | Deferred[Any]
Pieces = Generator[None, None, Made]


class Asking(Paying, Protocol):
    """A connection, of which it is known whether it is there."""

    @property
    def is_open(self) -> bool:
        """False: nobody wants the answer any more."""


@dataclass(slots=True)
class _Waiting:
    connection: Asking
    pieces: Pieces
    answered: Deferred[Any]
    body_bytes: int


class SlicedAnswers:
    """The lines of one broker or name server.

    Invariant: while somebody waits, a call for another turn is due.
    """

    def __init__(
        self,
        soon: Callable[[Callable[[], None]], None],
        clock_ms: Callable[[], float],
        busy: Callable[[str], Exception],
        bytes_max: int = WAITING_BYTES_MAX,
    ) -> None:
        """Begins empty.

        Args:
            soon: has a function called in another turn.
            clock_ms: monotonic time.
            busy: makes the error of who comes when as much waits as may.
            bytes_max: of the bodies that requests in all lines came with.
        """
        self._soon = soon
        self._clock_ms = clock_ms
        self._busy = busy
        self._bytes_max = bytes_max
        # By payer, in the order in which they come next. None is empty.
        self._lines: dict[str, deque[_Waiting]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def answer(
        self, connection: Asking, pieces: Pieces, body_bytes: int = 0, payer: str = ""
    ) -> Made:
        """Returns an answer that is made so, or a Deferred of it.

        Args:
            connection: who asks; when it is closed nothing more is done.
            pieces: as `Pieces`; what it raises before it first yields is raised here.
            body_bytes: of the request.
            payer: in whose line it stands; that of the connection's payer if empty.

        Raises:
            What `busy` makes: as many wait as may.
        """
        if not self._lines:
            end_ms = self._clock_ms() + SLICE_MS
            made = _work(pieces, lambda: self._clock_ms() < end_ms)
            if made is not None:
                return made
            self._soon(self._go_on)
        else:
            self._check_room(connection, body_bytes, payer or payer_of(connection))
        answered: Deferred[Any] = Deferred()
        line = self._lines.setdefault(payer or payer_of(connection), deque())
        line.append(_Waiting(connection, pieces, answered, body_bytes))
        return answered

    def has_of(self, connection: Asking, payer: str = "") -> bool:
        """Tells whether a request of a connection waits: what it says later comes behind that."""
        line = self._lines.get(payer or payer_of(connection), ())
        return any(waiting.connection is connection for waiting in line)

    def _check_room(self, connection: Asking, body_bytes: int, payer: str) -> None:
        line = self._lines.get(payer, ())
        own = sum(1 for waiting in line if waiting.connection is connection)
        count, line_bytes = len(self), body_bytes + _bytes_of(line)
        all_bytes = body_bytes + sum(map(_bytes_of, self._lines.values()))
        if (
            count >= WAITING_MAX
            or len(line) * _LINE_PART >= WAITING_MAX
            or own >= PER_CONNECTION_MAX
            or all_bytes > self._bytes_max
            or line_bytes * _LINE_PART > self._bytes_max
        ):
            raise self._busy(
                f"system busy: {count} requests for long answers wait, {own} of them of this"
                f" connection and {len(line)} of {payer[:_PAYER_CHARS_SHOWN]}, and would have"
                f" {all_bytes} bytes; allowed are {WAITING_MAX} and {PER_CONNECTION_MAX}, and"
                f" {self._bytes_max} bytes, half of all for each"
            )

    def _go_on(self) -> None:
        lines, clock_ms = self._lines, self._clock_ms
        end_ms = clock_ms() + SLICE_MS
        while lines and clock_ms() < end_ms:
            payer, line = next(iter(lines.items()))
            # The others come before it the next time.
            lines[payer] = lines.pop(payer)
            if self._is_done(line[0], end_ms):
                line.popleft()
                if not line:
                    del lines[payer]
        if lines:
            self._soon(self._go_on)

    def _is_done(self, first: _Waiting, end_ms: float) -> bool:
        """Works on one until a time; tells whether nothing of it is left."""
        if not first.connection.is_open:
            first.pieces.close()
            return True
        try:
            made = _work(first.pieces, lambda: self._clock_ms() < end_ms)
        except Exception:
            # The error that is being handled.
            first.answered.errback()
            return True
        if isinstance(made, Deferred):
            made.chainDeferred(first.answered)
        elif made is not None:
            first.answered.callback(made)
        return made is not None


def finished(pieces: Pieces) -> Made:
    """Does all the work at once; returns what is answered."""
    made = _work(pieces, lambda: True)
    assert made is not None
    return made


def _bytes_of(line: Iterable[_Waiting]) -> int:
    return sum(waiting.body_bytes for waiting in line)


def _work(pieces: Pieces, has_time: Callable[[], bool]) -> Made | None:
    """Does one piece at least; returns the answer when that was the last, else None."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            made: Made = end.value
            return made
        if not has_time():
            return None
