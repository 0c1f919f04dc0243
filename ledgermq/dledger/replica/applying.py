"""What the ledger tells whoever stands on it: committed ranges and role changes, in order.

A committed range is told once, a bounded part of it a turn. A new leader is told of as ready only
when the entry that opened its term is applied: from then on all entries of former terms are, too.
Pure but for the calls to the Applier, and for when they come (`ApplyTimes`).
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from ledgermq.dledger.member_state import Role
from ledgermq.dledger.ready import RoleChange

# A follower gathers what is committed for so long: nobody waits for it there, and the rounds of
# many small messages cost more than the messages. Its readers are behind the leader's by as much.
_GATHER_S: Final = 0.005


class Applier(Protocol):
    """What is told of the log: the broker's part, or whatever stands on the ledger."""

    def committed(self, start_index: int, end_index: int) -> None:
        """These entries (half-open) are committed; in order, each once after start, synchronous.

        Raises:
            ApplierBehindError, DiskFullError: nothing was applied; it is told of them again later.
        """

    def role_changed(self, role: Role, term: int, leader_id: str | None, is_ready: bool) -> None:
        """Role, term or leader changed; `is_ready`: leads, and all of former terms is applied."""

    def failed(self, error: BaseException) -> None:
        """The member has stopped for good and has no role any more; told once, last."""


class Applying:
    """How far the applier is, and what it must still hear.

    Invariant: the applier has heard of all entries from start up to `applied_index`, which is below
    the end of what is committed.
    """

    def __init__(self, applier: Applier, count_max: int) -> None:
        """Nothing is applied yet.

        Args:
            applier: is told.
            count_max: entries told in one call.
        """
        self._applier = applier
        self._count_max = count_max
        # Last entry that the applier was told of.
        self.applied_index = -1
        self._committed_end = 0
        # A leader that is ready but for entries not applied yet, and the last of these.
        self._coming: tuple[RoleChange, int] | None = None

    @property
    def committed_index(self) -> int:
        """Last entry that is known as committed, and is in the store."""
        return self._committed_end - 1

    @property
    def has_more(self) -> bool:
        """True while committed entries wait for another turn."""
        return self.applied_index + 1 < self._committed_end

    @property
    def is_leader_coming(self) -> bool:
        """True while a ready leader waits for entries to be applied."""
        return self._coming is not None

    def begin_after(self, applied_index: int) -> None:
        """Notes what the applier had before this start."""
        self.applied_index = applied_index
        self._committed_end = applied_index + 1

    def advance(self, end_index: int) -> None:
        """Notes that all entries below `end_index` are committed."""
        self._committed_end = max(self._committed_end, end_index)

    def skip_to(self, first_index: int) -> None:
        """Notes that the log is begun afresh there: what lies before will never be told."""
        self.applied_index = max(self.applied_index, first_index - 1)

    def apply(self) -> bool:
        """Tells the applier of the next part.

        Returns:
            True when it was told of entries.

        Raises:
            ApplierBehindError, DiskFullError: it takes them later.
        """
        start_index = self.applied_index + 1
        end_index = min(self._committed_end, start_index + self._count_max)
        if start_index < end_index:
            self._applier.committed(start_index, end_index)
            self.applied_index = end_index - 1
        if self._coming is not None and self.applied_index >= self._coming[1]:
            change, self._coming = self._coming[0], None
            self._applier.role_changed(change.role, change.term, change.leader_id, True)
        return start_index < end_index

    def change_role(self, change: RoleChange, opening_index: int | None) -> None:
        """Tells of a change, or keeps that a leader is ready until `opening_index` is applied."""
        self._coming = None
        is_ready = change.is_ready_leader
        if is_ready and opening_index is not None and self.applied_index < opening_index:
            self._coming = (change, opening_index)
            return
        self._applier.role_changed(change.role, change.term, change.leader_id, is_ready)

    def fail(self, error: BaseException) -> None:
        """Tells that the member has stopped."""
        self._coming = None
        self._applier.failed(error)


class ApplyTimes:
    """When the applier is told: by a leader at once, by a follower a moment later, with what comes
    meanwhile; and where it found no room on the disk, when that may have changed.

    Invariant: one delayed call at most.
    """

    def __init__(self, reactor: Any, wake: Callable[[], None]) -> None:
        """Nothing waits yet.

        Args:
            reactor: gives the time.
            wake: asks for a turn of the member.
        """
        self._reactor = reactor
        self._wake = wake
        self._call: Any = None
        # A gathered part may be told now; and: the call is one that waits for the disk.
        self._is_due = self._is_held = False

    def may_apply(self, *, is_leader: bool, has_more: bool) -> bool:
        """Tells whether to apply in this turn; if not, a turn is asked for when it is time."""
        if not has_more:
            self._is_due = False
            # A leader may be ready with nothing more to apply.
            return self._call is None
        if self._call is not None:
            if self._is_held or not is_leader:
                return False
            self.stop()
        if is_leader or self._is_due:
            self._is_due = False
            return True
        self._call = self._reactor.callLater(_GATHER_S, self._ring)
        return False

    def goes_on(self) -> None:
        """Notes that there is more of what is being told: the next turn goes on with it."""
        self._is_due = True

    def hold(self, delay_s: float) -> None:
        """Applies nothing for so long."""
        self.stop()
        self._is_held = True
        self._call = self._reactor.callLater(delay_s, self._ring)

    def stop(self) -> None:
        """Leaves no delayed call."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

    def _ring(self) -> None:
        self._call, self._is_held = None, False
        self._is_due = True
        self._wake()
