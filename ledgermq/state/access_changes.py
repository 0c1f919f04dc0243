"""AccessChanges: rules of access control on their way through the log, on whoever leads. Pure.

A change is proposed, and in force on every member when it is committed, on the leader by the same
line as elsewhere; whoever asked for it is told then. Each says all rules, so one is made when the
one before it has ended, and on top of it: also of one that takes long, for it may come yet.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from ledgermq.state.access_record import AccessRecord
from ledgermq.state.commands import AccessChanged
from ledgermq.state.errors import (
    BrokerError,
    InvalidRequestError,
    ServiceUnavailableError,
    SystemBusyError,
    is_refused,
)
from ledgermq.state.refusals import Refusals
from ledgermq.state.under_way import OnCommitted

# Changes that wait for the one before them.
_WAITING_MAX: Final = 100

Record = Mapping[str, Any]
# Makes the record of the rules as they are to be, of those that are on their way (None: of those
# in force); None when nothing is to be proposed. Raises BrokerError.
Make = Callable[[Record | None], Record | None]


class AccessRules(Protocol):
    """The rules in force on this member, which have files of their own."""

    @property
    def alarm(self) -> str | None:
        """Why the file cannot be used, for operators; None while it can."""

    def follow(self, record: Record) -> None:
        """Puts rules in force that are committed, unless those here were changed later."""

    def to_record(self) -> Record | None:
        """Returns the rules as a command has them; None while members share none."""

    def reload(self) -> bool:
        """Looks at the file; tells whether the rules are other ones now."""


class _Change(NamedTuple):
    make: Make
    done: OnCommitted


class AccessChanges:
    """The changes of one leader.

    Invariant: at most one is proposed and has not ended.
    """

    def __init__(
        self,
        known: AccessRecord,
        propose: Callable[[AccessChanged, OnCommitted], None],
        record_bytes_max: int,
        clock_ms: Callable[[], float],
    ) -> None:
        """There are no rules yet.

        Args:
            known: what is applied.
            propose: has a command committed.
            record_bytes_max: of rules, sealed.
            clock_ms: monotonic time.
        """
        # None while access control is off here.
        self.rules: AccessRules | None = None
        self._known = known
        self._propose = propose
        self._record_bytes_max = record_bytes_max
        self._refusals = Refusals("the rules of access control", clock_ms)
        # What this member has in force has to be told, for the log refused it.
        self._is_wanted = False
        # Each leadership has a number of its own; None while this member does not lead.
        self._count = 0
        self._leadership: int | None = None
        self._waiting: deque[_Change] = deque()
        self._is_under_way = False
        # Proposed last, and not refused: what the next one is made on top of until it is in force.
        self._coming: Record | None = None

    @property
    def alarm(self) -> str | None:
        """Why the log does not take the rules of this member; None while it does."""
        return self._refusals.alarm

    def lead(self) -> None:
        """This member begins to propose: what it has in force, where the log has others."""
        self.follow()
        self._count += 1
        self._leadership = self._count
        self.write()

    def follow(self) -> None:
        """This member proposes no more; those that wait are told so."""
        self._leadership = self._coming = None
        self._is_under_way = self._is_wanted = False
        self._refusals.forget()
        waiting, self._waiting = self._waiting, deque()
        for change in waiting:
            change.done(ServiceUnavailableError("another member leads, or is about to"))

    def change(self, make: Make, done: OnCommitted) -> None:
        """Has rules proposed when the change before them has ended.

        Args:
            make: called then; see `Make`.
            done: told when they are in force, or why they are not, or not yet.
        """
        if self._leadership is None:
            done(ServiceUnavailableError("another member leads, or is about to"))
        elif len(self._waiting) >= _WAITING_MAX:
            done(
                SystemBusyError(f"{_WAITING_MAX} changes of access rules wait, allowed are no more")
            )
        else:
            self._waiting.append(_Change(make, done))
            self._go_on()

    def write(self, done: OnCommitted | None = None) -> None:
        """Proposes the rules in force here, where members share them and the log has others."""
        leadership = self._leadership
        self._is_wanted = False

        def ended(error: BrokerError | None) -> None:
            if self._leadership == leadership:
                if error is None:
                    self._refusals.stored()
                elif is_refused(error):
                    self._is_wanted = True
                    self._refusals.refused(error)
            if done is not None:
                done(error)

        self.change(lambda coming: self._untold(), ended)

    def _untold(self) -> Record | None:
        record = None if self.rules is None else self.rules.to_record()
        return None if record == self._known.record else record

    def reload(self) -> None:
        """Looks whether the file of access rules was changed; a leader tells all members, and
        tells again what the log refused.
        """
        if self.rules is None:
            return
        is_other = self.rules.reload()
        is_due = self._is_wanted and not self._refusals.is_waiting
        if self._leadership is not None and (is_other or is_due):
            self.write()

    def applied(self, record: Record | None) -> None:
        """Rules are committed, or told once more; None: there are none."""
        if record is None:
            return
        if self._coming is not None and record["sealed"] == self._coming["sealed"]:
            self._coming = None
        if self.rules is not None:
            self.rules.follow(record)

    def _go_on(self) -> None:
        while self._waiting and not self._is_under_way:
            change = self._waiting.popleft()
            try:
                record = change.make(self._coming)
                if record is not None:
                    self._check(record)
            except BrokerError as error:
                change.done(error)
            else:
                if record is None:
                    change.done(None)
                else:
                    self._begin(record, change.done)

    def _check(self, record: Record) -> None:
        size = len(record["sealed"])
        if size > self._record_bytes_max:
            raise InvalidRequestError(
                f"the rules of access control have {size} bytes when they are sealed, allowed are"
                f" {self._record_bytes_max} (key mappedFileSizeCommitLog)"
            )

    def _begin(self, record: Record, done: OnCommitted) -> None:
        leadership = self._leadership
        # One that took long, and may come yet.
        former = self._coming
        self._is_under_way, self._coming = True, record

        def ended(error: BrokerError | None) -> None:
            is_mine = self._leadership == leadership
            if is_mine:
                self._is_under_way = False
                if is_refused(error):
                    self._coming = former
            done(error)
            if is_mine and self._leadership == leadership:
                self._go_on()

        self._propose(AccessChanged(record), ended)
