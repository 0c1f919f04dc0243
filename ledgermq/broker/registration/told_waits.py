"""ToldWaits: who changed a topic is answered when name servers know it, as upstream's is.

A client that asks for a route as soon as a tool has made the topic finds it. A name server that is
not reached, or that refuses, is not waited for, and one that does not answer for `WAIT_S` only.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from twisted.internet.defer import Deferred, succeed

# Upstream waits for registerBrokerTimeoutMills, 6 s, and for name servers that are gone, too.
WAIT_S: Final = 2.0


class _Wait(NamedTuple):
    # Of the topic table's changes.
    number: int
    until_s: float
    told: Deferred[None]


class ToldWaits:
    """A line of those who wait; both their numbers and their times ascend.

    Invariant: while somebody waits, a call at the time of the first one is due.
    """

    def __init__(self, reactor: Any, least_known: Callable[[], int | None]) -> None:
        """Begins empty.

        Args:
            reactor: gives time.
            least_known: the last change that all name servers know that are waited for; None when
                there are none.
        """
        self._reactor = reactor
        self._least_known = least_known
        self._line: deque[_Wait] = deque()
        self._late_call: Any = None

    def __len__(self) -> int:
        return len(self._line)

    def wait(self, number: int) -> Deferred[None]:
        """Returns a Deferred that fires when a change is known, or has been waited for."""
        known = self._least_known()
        if known is None or known >= number:
            return succeed(None)
        told: Deferred[None] = Deferred()
        self._line.append(_Wait(number, self._reactor.seconds() + WAIT_S, told))
        if self._late_call is None:
            self._late_call = self._reactor.callLater(WAIT_S, self._come_late)
        return told

    def look(self) -> None:
        """Lets those go on whose changes are known; called whenever a name server said a word."""
        if self._line:
            known = self._least_known()
            self._release(lambda wait: known is None or wait.number <= known)

    def stop(self) -> None:
        """Lets all go on."""
        self._release(lambda _: True)

    def _come_late(self) -> None:
        self._late_call = None
        now_s = self._reactor.seconds()
        self._release(lambda wait: wait.until_s <= now_s)
        if self._line and self._late_call is None:
            delay_s = max(0.0, self._line[0].until_s - now_s)
            self._late_call = self._reactor.callLater(delay_s, self._come_late)

    def _release(self, may_go: Callable[[_Wait], bool]) -> None:
        while self._line and may_go(self._line[0]):
            self._line.popleft().told.callback(None)
        if not self._line and self._late_call is not None:
            self._late_call.cancel()
            self._late_call = None
