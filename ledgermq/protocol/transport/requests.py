"""PendingRequests: the Deferreds of own requests, and the one timer that ends them.

RequestTable decides; this class holds what needs a reactor. There is at most one delayed call for a
connection, set to the earliest deadline, and none when the connection is gone.
"""

from math import ceil

from twisted.internet.defer import Deferred

from ledgermq.protocol.codes import RESPONSE_FLAG
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.connection import RequestTable
from ledgermq.protocol.errors import ConnectionClosedError, RequestTimeoutError
from ledgermq.protocol.transport.turn import Clock, DelayedCall


class _Pending:
    """A request that waits for its answer."""

    __slots__ = ("code", "deferred", "timeout_ms")

    def __init__(self, code: int, timeout_ms: int, deferred: Deferred[RemotingCommand]) -> None:
        self.code = code
        self.timeout_ms = timeout_ms
        self.deferred = deferred


class PendingRequests:
    """Own requests of one connection that wait for their answers."""

    __slots__ = ("_clock", "_peer", "_table", "_timer", "_timer_ms")

    def __init__(self, clock: Clock, peer: str, outstanding_max: int) -> None:
        """Starts empty.

        Args:
            clock: the reactor.
            peer: "ip:port", for the errors.
            outstanding_max: requests that may wait at a time.
        """
        self._clock = clock
        self._peer = peer
        self._table: RequestTable[_Pending] = RequestTable(outstanding_max)
        self._timer: DelayedCall | None = None
        # When the timer rings, ms on the clock.
        self._timer_ms = 0

    def __len__(self) -> int:
        return len(self._table)

    def add(self, command: RemotingCommand, timeout_ms: int) -> Deferred[RemotingCommand]:
        """Gives a command its opaque and returns the Deferred of its answer.

        Raises:
            LocalProtocolError: too many requests wait already.
        """
        deferred: Deferred[RemotingCommand] = Deferred(lambda _: self._table.forget(opaque))
        deadline_ms = self._now_ms() + timeout_ms
        pending = _Pending(command.code, timeout_ms, deferred)
        opaque = self._table.register(None, deadline_ms, pending)
        command.opaque = opaque
        self._arm(deadline_ms)
        return deferred

    def resolve(self, response: RemotingCommand) -> bool:
        """Gives an answer to whom it belongs; returns False when no caller waits for it."""
        pending = self._table.resolve(response)
        if pending is None:
            return False
        pending.deferred.callback(response)
        return True

    def take_answers(self, commands: list[RemotingCommand]) -> tuple[list[RemotingCommand], int]:
        """Gives answers to those who wait for them.

        Returns: the requests among the commands, and the number of answers that nobody waits for.
        """
        requests = [command for command in commands if not command.flag & RESPONSE_FLAG]
        if len(requests) == len(commands):
            return requests, 0
        answers = [command for command in commands if command.flag & RESPONSE_FLAG]
        return requests, sum(not self.resolve(answer) for answer in answers)

    def fail_all(self, reason: str) -> None:
        """Fails what waits with ConnectionClosedError and leaves no delayed call."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for pending in self._table.fail_all():
            pending.deferred.errback(ConnectionClosedError(self._peer, reason))

    def _now_ms(self) -> int:
        return int(self._clock.seconds() * 1000)

    def _arm(self, deadline_ms: int) -> None:
        """Makes the timer ring at `deadline_ms` or before."""
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_ms = max(0, ceil(deadline_ms - self._clock.seconds() * 1000))
        self._timer = self._clock.callLater(delay_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        for pending in self._table.expire(self._now_ms()):
            error = RequestTimeoutError(self._peer, pending.code, pending.timeout_ms)
            pending.deferred.errback(error)
        deadline_ms = self._table.deadline_ms()
        if deadline_ms is not None:
            self._arm(deadline_ms)
