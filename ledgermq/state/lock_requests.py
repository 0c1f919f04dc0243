"""LockRequests: what clients ask of a leader about the locks of queues, on its way through the log.

Who asks is told when the change is applied. Where nothing is to be changed, as when a client renews
its locks, it is told when it is certain that this member still leads: a later leader may have given
the queues to others. Pure.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from ledgermq.state.commands import LocksChanged
from ledgermq.state.errors import BrokerError, is_refused
from ledgermq.state.lock_grants import GIVEN_UP_MAX, LockGrants
from ledgermq.state.proposals import StateProposals
from ledgermq.state.queue_locks import LockRow, QueueKey, QueueLocks
from ledgermq.state.under_way import OnCommitted

# Looks for locks that nobody renewed, one after the other, where each finds as many as it may.
_LOOKS: Final = 10

# Told which of the queues that a client asked for it holds now, or why that is not known.
OnLocked = Callable[[list[QueueKey], BrokerError | None], None]


class LockRequests:
    """The requests of one leader."""

    def __init__(
        self,
        locks: QueueLocks,
        proposals: StateProposals,
        propose: Callable[[LocksChanged, OnCommitted], None],
        confirm: Callable[[OnCommitted], None],
        clock_ms: Callable[[], float],
    ) -> None:
        """Binds the parts.

        Args:
            locks: those that are applied.
            proposals: on their way; a lock that is renewed may be among them.
            propose: brings a change into the log.
            confirm: tells whether this member leads when it is called, or why that is not known.
            clock_ms: monotonic time.
        """
        self._grants = LockGrants(locks)
        self._proposals = proposals
        self._propose = propose
        self._confirm = confirm
        self._clock_ms = clock_ms

    def lead(self) -> None:
        """This member begins to lead: locks live for a while."""
        self._grants.lead(self._clock_ms())

    def lock(self, group: str, queues: Iterable[QueueKey], client_id: str, done: OnLocked) -> None:
        """Takes or renews locks; `done` is told which of them the client holds, when they are
        applied: a lock that was given back meanwhile is none.

        Raises:
            SystemBusyError: there are too many locks.
        """
        held, rows = self._grants.lock(group, queues, client_id, self._clock_ms())

        def applied(error: BrokerError | None) -> None:
            done([one for one in held if self._grants.holds(group, one, client_id)], error)

        self._change({group: rows}, applied)

    def unlock(
        self, group: str, queues: Iterable[QueueKey], client_id: str, done: OnCommitted
    ) -> None:
        """Gives up locks; those of other clients stay."""
        self._change({group: self._grants.unlock(group, queues, client_id)}, done)

    def expire(self, looks: int = _LOOKS) -> None:
        """Gives up locks that nobody renewed; called now and then. Where they are many, it goes on
        when the first of them are given up.
        """
        changes = self._grants.expire(self._clock_ms())
        if not changes:
            return
        is_last = looks == 1 or sum(map(len, changes.values())) < GIVEN_UP_MAX
        writer = self._proposals.writer

        def given_up(error: BrokerError | None) -> None:
            if error is None and not is_last and self._proposals.writer == writer:
                self.expire(looks - 1)

        self._change(changes, given_up)

    def applied(self, changes: Mapping[str, Sequence[LockRow]]) -> None:
        """What was proposed is applied."""
        self._grants.ended(changes)

    def _change(self, changes: Mapping[str, Sequence[LockRow]], done: OnCommitted) -> None:
        if not any(changes.values()):
            self._proposals.join(lambda error: self._settled(error, done))
            return
        writer = self._proposals.writer

        def ended(error: BrokerError | None) -> None:
            if is_refused(error) and self._proposals.writer == writer:
                self._grants.ended(changes)
            done(error)

        self._propose(LocksChanged(changes), ended)

    def _settled(self, error: BrokerError | None, done: OnCommitted) -> None:
        """What was proposed before is applied. That a majority has it says nothing of now: it may
        have acknowledged it before the client asked, and elected another leader since then.
        """
        if error is None:
            self._confirm(done)
        else:
            done(error)
