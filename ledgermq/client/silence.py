"""Silence: does the other end of a connection still live? A pure decision over times.

While requests wait and nothing at all comes, the other end is asked after half of the time that a
silence may last; it is given up when the question is not answered in the other half either. How
long a single request may wait plays no part: its deadline is the request's own business, and a
broker that is busy with it still answers the question.

Before that it is doubted: where a route names another leader, nobody waits for the second half.

What the other end takes is a sign of life, too: a large message on a slow line is no silence.
"""

from enum import Enum


class Verdict(Enum):
    """What to do about a connection now."""

    # Nothing until `due_ms`.
    WAIT = 0
    # Send something that every living peer answers, and look again at `due_ms`.
    ASK = 1
    # The other end is gone.
    GONE = 2


class Silence:
    """The silence of one connection. All times are ms of one clock that never goes back.

    Invariant: GONE is said only when a question was asked half of the longest silence ago, and
    nothing was heard or taken since.
    """

    __slots__ = (
        "_asked_ms",
        "_half_ms",
        "_since_ms",
        "_unwritten_bytes",
        "doubt_ms",
        "due_ms",
        "heard_ms",
    )

    def __init__(self, max_ms: int, now_ms: int) -> None:
        """Begins with a sign of life.

        Args:
            max_ms: how long a silence may last while requests wait.
            now_ms: when the connection was made.
        """
        self._half_ms = max(1, max_ms // 2)
        # A living peer answers sooner than this; one that does not may lead no longer.
        self.doubt_ms = max(1, self._half_ms // 3)
        # When anything came last; the connection sets it.
        self.heard_ms = now_ms
        # Since when requests wait, without a pause.
        self._since_ms = now_ms
        # When the open question was asked; None when there is none.
        self._asked_ms: int | None = None
        # Bytes that waited to be written when last looked at.
        self._unwritten_bytes = 0
        # When to judge next.
        self.due_ms = now_ms

    def begin(self, now_ms: int) -> None:
        """Notes that a request waits from now on, and none did before."""
        self._since_ms = now_ms
        self._asked_ms = None
        self.due_ms = now_ms + self._half_ms

    def is_open(self, now_ms: int) -> bool:
        """Tells whether the last question has no answer yet, for a third of its time or more."""
        asked_ms = self._asked_ms
        return (
            asked_ms is not None and self.heard_ms < asked_ms and now_ms - asked_ms >= self.doubt_ms
        )

    def judge(self, now_ms: int, unwritten_bytes: int) -> Verdict:
        """Decides what to do while requests wait, and sets `due_ms`.

        Args:
            now_ms: the time.
            unwritten_bytes: what waits to be written to the connection.
        """
        asked_ms = self._asked_ms
        if asked_ms is not None and self.heard_ms < asked_ms:
            if unwritten_bytes < self._unwritten_bytes:
                # Some of it was taken: the time for the answer begins anew.
                self._asked_ms = asked_ms = now_ms
            elif now_ms - asked_ms >= self._half_ms:
                return Verdict.GONE
            self._unwritten_bytes = unwritten_bytes
            self.due_ms = asked_ms + self._half_ms
            return Verdict.WAIT
        quiet_since_ms = max(self.heard_ms, self._since_ms)
        if now_ms - quiet_since_ms < self._half_ms:
            self._asked_ms = None
            self.due_ms = quiet_since_ms + self._half_ms
            return Verdict.WAIT
        self._asked_ms = now_ms
        self._unwritten_bytes = unwritten_bytes
        self.due_ms = now_ms + self._half_ms
        return Verdict.ASK
