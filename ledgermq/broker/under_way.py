"""UnderWay: who asks for what is being written already waits for that write.

A change that is made again while its record waits for a majority is no change any more, and yet it
is not known whether the next leader will have it. So whoever asks for it is told when the last
record of its kind is committed: those before it are, too. A record that took too long may be
committed later; it is not written again by itself, but when somebody wants to know of it.
"""

from collections import deque
from collections.abc import Callable

from ledgermq.broker.errors import BrokerError, CommitTimeoutError

# Told when the record of a change is committed, or why that is not known.
OnCommitted = Callable[[BrokerError | None], None]


class UnderWay:
    """The writes of one kind that are not committed yet.

    Invariant: they end in the order in which they began, but for those that the log refuses, which
    end at once.
    """

    def __init__(self) -> None:
        # Of each, in their order: who waits for it.
        self._writes: deque[list[OnCommitted]] = deque()
        # Each makes what took too long count as changed again.
        self._late: list[Callable[[], None]] = []

    def begin(self, done: OnCommitted | None, put_back: Callable[[], None]) -> OnCommitted:
        """Notes a write.

        Args:
            done: waits for it; None when nobody does, yet.
            put_back: makes what is written count as changed again.

        Returns:
            What the write has to tell of its end.
        """
        waiting = [] if done is None else [done]
        self._writes.append(waiting)

        def ended(error: BrokerError | None) -> None:
            if self._writes[0] is waiting:
                self._writes.popleft()
            else:
                # It was refused. Equal lists are not the same write.
                self._writes = deque(write for write in self._writes if write is not waiting)
            if error is None:
                self._late.clear()
            elif isinstance(error, CommitTimeoutError):
                self._late.append(put_back)
            for tell in waiting:
                tell(error)

        return ended

    def put_back_late(self) -> None:
        """Makes what took too long count as changed again: somebody wants to know of it."""
        late, self._late = self._late, []
        for put_back in late:
            put_back()

    def join(self, done: OnCommitted) -> None:
        """Has `done` told when all that was written is committed: at once when nothing is under
        way.
        """
        if self._writes:
            self._writes[-1].append(done)
        else:
            done(None)
