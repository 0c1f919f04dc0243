"""Farewell: what a broker that stops waits for before it leaves its group."""

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from ledgermq.broker.ha.plain_member import PlainMember
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.sends.proposals import Proposals
from ledgermq.dledger.errors import LedgerError
from ledgermq.dledger.replica.driver import Replica
from ledgermq.dledger.transfer import Transfer
from ledgermq.protocol.transport.schedule import Schedule

_CHECK_MS: Final = 10
# How long a stopping leader waits for another one.
_HAND_OVER_MS_MAX: Final = 2000

_log = Logger()


class Farewell:
    """The waits of one stop; each ends in time, whatever the others do."""

    def __init__(
        self, leadership: Leadership, schedule: Schedule, clock_ms: Callable[[], float]
    ) -> None:
        """Binds the parts; `clock_ms` is monotonic."""
        self._leadership = leadership
        self._schedule = schedule
        self._clock_ms = clock_ms

    def drain(self, proposals: Proposals | None, wait_ms: int) -> Deferred[None]:
        """Fires when nothing waits for a commit any more, or when that took too long."""
        return self._until(lambda: proposals is None or proposals.is_empty, wait_ms)

    def hand_over(self, replica: Replica | PlainMember | None) -> Deferred[None]:
        """Asks another member to lead, so that nobody has to wait for an election time-out.

        Returns:
            A Deferred that fires when this member leads no longer, or when nobody took over.
        """
        transfer = self._begin_transfer(replica)

        def is_over() -> bool:
            has_failed = transfer is None or transfer.code is not None
            return has_failed or not self._leadership.is_leader

        return self._until(is_over, _HAND_OVER_MS_MAX)

    def _begin_transfer(self, replica: Replica | PlainMember | None) -> Transfer | None:
        if not isinstance(replica, Replica) or not self._leadership.is_leader:
            return None
        for peer_id in replica.peer_ids:
            try:
                transfer = replica.transfer(peer_id)
            except LedgerError:
                continue
            _log.info("hands the leadership to {member}", member=peer_id)
            return transfer
        return None

    def _until(self, is_over: Callable[[], bool], wait_ms: int) -> Deferred[None]:
        ended: Deferred[None] = Deferred()
        deadline_ms = self._clock_ms() + wait_ms

        def check() -> None:
            if is_over() or self._clock_ms() >= deadline_ms:
                ended.callback(None)
            else:
                self._schedule.after(_CHECK_MS, check)

        check()
        return ended


def next_step(result: object, step: Callable[[], Any]) -> Any:
    """Takes the next step of a stop, whatever became of the one before; a failure is told."""
    if isinstance(result, Failure):
        _log.failure("a step of the stop failed", result)
    return step()
