"""Ready: all that the core wants done, as one value, and the order in which to do it."""

from dataclasses import dataclass, field
from typing import Self

from ledgermq.dledger.entry import EntryId, EntrySlice
from ledgermq.dledger.log import LogChanges
from ledgermq.dledger.member_state import Outbox, Role
from ledgermq.dledger.messages import Message
from ledgermq.dledger.storage import HardState


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChange:
    """The member's role, term or known leader is now this."""

    role: Role
    term: int
    leader_id: str | None
    # True when this member leads and the record that opened its term is committed.
    is_ready_leader: bool = False


class Told:
    """What the driver was told last, so that it is told changes only."""

    def __init__(self, commit_index: int, role: Role, term: int) -> None:
        self._end_index = commit_index + 1
        self._role = RoleChange(role=role, term=term, leader_id=None)

    def take_committed(self, commit_index: int, first_index: int) -> tuple[int, int] | None:
        """Returns what became committed; entries that a reset has skipped are not there to be
        applied.
        """
        start_index = max(self._end_index, first_index)
        if commit_index < start_index:
            return None
        self._end_index = commit_index + 1
        return start_index, self._end_index

    def take_role(
        self, role: Role, term: int, leader_id: str | None, *, is_ready: bool
    ) -> RoleChange | None:
        """Returns the present role, term, leader and readiness when one of them has changed."""
        told = self._role
        if (
            told.term == term
            and told.leader_id == leader_id
            and told.is_ready_leader is is_ready
            and told.role is role
        ):
            return None
        self._role = RoleChange(role=role, term=term, leader_id=leader_id, is_ready_leader=is_ready)
        return self._role


@dataclass(slots=True, kw_only=True)
class Ready:
    """The effects of everything received, proposed and ticked since the last Ready.

    The driver's contract, in this order and without calling the core in between (but for step 6):

    1. Save `hard_state` durably. Nothing of this Ready leaves the process before that.
    2. `store.begin_truncate(truncate_from)`, or `store.begin_reset(*reset_to)`; at most one of them
       is set. Then `store.begin_room(entries)`, where there is no room for them.
    3. `store.append` each of `entries`, in order. They may stay in the page cache.
    4. Send `messages`. A message that cannot be sent now is dropped; the core sends again what
       matters.
    5. SYNC_FLUSH, or an answer that `is_synced`: `store.begin_sync()`, many Ready values in one
       sync. ASYNC_FLUSH: nothing. Other calls to the core, and further Ready values, may happen
       while the sync runs.
    6. When the entries are as durable as configured: send `messages_after_persist`, then
       `raft.persisted(persist_id)`. Ready values are finished in the order in which they were
       taken; those that wait for the same sync at once, by the last of their ids, after
       `raft.persists_with_next` for each of the others. A failed sync is final: nothing of this
       step happens and the replica stops.
    7. Apply `committed`, then `raft.applied(last)`.

    Steps 1 and 2 wait for the disk: the keeper's thread does them, and the driver goes on with step
    3 when they are done. Meanwhile no other Ready is taken and no message is given to the core;
    `propose` and `persisted` may be called. A disk without room is waited for, and the step tried
    again. When any step raises, the replica stops: the core's state is no longer that of the disk.
    """

    # Term and vote to save, or None when unchanged.
    hard_state: HardState | None = None
    # First index to drop from the store, or None.
    truncate_from: int | None = None
    # (first_index, position) of a log to be started afresh, or None. Ranges in `committed` then
    # start there, too.
    reset_to: tuple[int, int] | None = None
    # Runs to append, in order; each continues the log as `entry.place` says.
    entries: list[EntrySlice] = field(default_factory=list)
    # May go as soon as step 1 is done.
    messages: list[Message] = field(default_factory=list)
    # Votes and push answers: they testify to state that must be durable first.
    messages_after_persist: list[Message] = field(default_factory=list)
    # Half-open range of indexes that became committed, or None.
    committed: tuple[int, int] | None = None
    # The last change of role, term or leader, or None.
    role: RoleChange | None = None
    # Last entry of `entries`; given back to the core by `persisted`. None without entries.
    persist_id: EntryId | None = None

    @classmethod
    def gather(
        cls,
        outbox: Outbox,
        changes: LogChanges | None,
        hard_state: HardState | None,
        committed: tuple[int, int] | None,
        role: RoleChange | None,
    ) -> Self | None:
        """Empties the outbox and returns it with all else, or None when there is nothing."""
        if not (changes or hard_state or role or committed):
            if not outbox.messages and not outbox.after_persist:
                return None
        ready = cls(
            hard_state=hard_state,
            messages=outbox.messages,
            messages_after_persist=outbox.after_persist,
            committed=committed,
            role=role,
        )
        if changes is not None:
            ready.truncate_from, ready.reset_to = changes.truncate_from, changes.reset_to
            ready.entries, ready.persist_id = changes.entries, changes.persist_id
        outbox.messages, outbox.after_persist = [], []
        return ready
