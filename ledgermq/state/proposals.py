"""StateProposals: commands of this leader on their way into the log, and back.

A command is proposed, stands in the log, and is applied. A part of a sweep must say what the tables
hold at its own place in the log, so it is proposed only when everything that stands before it is
applied; what comes meanwhile is held back, for a moment.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from ledgermq.state.errors import (
    BrokerError,
    IllegalMessageError,
    ServiceUnavailableError,
    is_refused,
)
from ledgermq.state.under_way import OnCommitted, UnderWay

# Longest that proposals are held back for a part of a sweep.
_HOLD_MS: Final = 200


class StateWriter(Protocol):
    """What is needed to bring records into the ledger: all of them, or none."""

    def __call__(self, bodies: Sequence[bytes], done: OnCommitted) -> None: ...


class _Held(NamedTuple):
    bodies: Sequence[bytes]
    done: OnCommitted


class StateProposals:
    """What one leader has proposed.

    Invariant: `_in_log` counts the records that this leader proposed in its term and that are
    neither applied nor refused.
    """

    def __init__(
        self, write: StateWriter, body_bytes_max: int, clock_ms: Callable[[], float]
    ) -> None:
        """Binds the parts.

        Args:
            write: appends records.
            body_bytes_max: of one record, in the log that `write` appends to.
            clock_ms: monotonic time.
        """
        self._write = write
        self._body_bytes_max = body_bytes_max
        self._clock_ms = clock_ms
        # Member and term as they stand in records; empty while this member does not lead.
        self.writer = ""
        self._in_log = 0
        self._under_way = UnderWay()
        # What waits until all is applied that was proposed, and what is held back for it.
        self._fence: Callable[[], None] | None = None
        self._fence_ms = 0.0
        self._held: list[_Held] = []

    def lead(self, writer: str) -> None:
        """This member begins to propose; all that former leaders proposed is applied."""
        self.writer = writer
        self._in_log = 0
        self._under_way = UnderWay()
        self._fence, self._held = None, []

    def follow(self) -> None:
        """This member proposes no more; what was held back is told so."""
        self.writer = ""
        self._fence = None
        held, self._held = self._held, []
        for one in held:
            one.done(ServiceUnavailableError("another member leads, or is about to"))

    def propose(
        self,
        bodies: Sequence[bytes],
        done: OnCommitted | None = None,
        *,
        is_held: bool = True,
    ) -> None:
        """Proposes records, all or none; those that are too large are refused at once.

        Args:
            is_held: whether they may wait for a part of a sweep. What messages rely on that are
                stored next may not, and takes along what is held before it.
            done: told when they are applied, or why that is not known; CommitTimeoutError says
                that they may be, later.
        """
        assert self.writer, "a member that does not lead changed the broker's state"
        ended = self._under_way.begin(done)
        if not bodies:
            # Nobody has to be told of it; those before may still be on their way.
            ended(None)
        elif self._fence is None:
            # Also the part that was waited for: it goes before what is held.
            self._append(bodies, ended)
        elif not is_held:
            self._release()
            self._append(bodies, ended)
        else:
            self._held.append(_Held(bodies, ended))

    def _append(self, bodies: Sequence[bytes], ended: OnCommitted) -> None:
        writer = self.writer
        self._in_log += len(bodies)

        def told(error: BrokerError | None) -> None:
            if is_refused(error) and self.writer == writer:
                self._in_log -= len(bodies)
            ended(error)
            if is_refused(error):
                self._look()

        size = max(map(len, bodies))
        if size > self._body_bytes_max:
            # The log would refuse all that is written in this turn together with it.
            error = (
                f"a record has {size} bytes, the log takes {self._body_bytes_max}"
                " (key mappedFileSizeCommitLog)"
            )
            told(IllegalMessageError(error))
        else:
            self._write(bodies, told)

    def join(self, done: OnCommitted) -> None:
        """Has `done` told when all is applied that was proposed so far: at once when it is."""
        self._under_way.join(done)

    @property
    def is_settled(self) -> bool:
        """True when all is applied that is in the log, and nothing is held back."""
        return self._in_log == 0 and not self._held

    def applied(self, writer: str) -> None:
        """Notes that a record was applied."""
        if writer and writer == self.writer:
            self._in_log -= 1
            self._look()

    # Moments at which nothing is on its way.

    @property
    def is_fenced(self) -> bool:
        """True while somebody waits for such a moment."""
        return self._fence is not None

    def when_applied(self, function: Callable[[], None]) -> None:
        """Calls a function when all that was proposed is applied; it may propose at once."""
        assert self._fence is None
        self._fence, self._fence_ms = function, self._clock_ms()
        self._look()

    def expire(self) -> None:
        """Gives up the wait for such a moment when it takes too long; called now and then."""
        if self._fence is not None and self._clock_ms() - self._fence_ms >= _HOLD_MS:
            self._fence = None
            self._release()

    def _look(self) -> None:
        if self._fence is not None and self._in_log == 0:
            function, self._fence = self._fence, None
            function()
            self._release()

    def _release(self) -> None:
        held, self._held = self._held, []
        for one in held:
            self._append(one.bodies, one.done)
