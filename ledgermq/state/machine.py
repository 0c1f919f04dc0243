"""StateMachine: the broker's replicated state, and the one way in which it changes. Pure.

`apply` takes committed commands in the order of the log, on leader and follower by the same line;
nothing else edits a table, but a start that loads files, and a member that copies a leader which
writes no commands. Tables that are equal at one index are equal at each later one, also where a
restart applies some commands again: each says what shall be, versions included.

A leader sweeps through the tables from time to time and proposes what it finds, range by range
(`sweep.py`). Each member takes over such a range as it stands; for one that has all of the
log it changes nothing. So whoever reads the log from the first part of a whole sweep on knows all
of the state at its end.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ledgermq.state.access_record import AccessRecord
from ledgermq.state.commands import (
    SWEPT,
    AccessChanged,
    Command,
    DeliveriesPlanned,
    GroupsChanged,
    LocksChanged,
    OffsetsCommitted,
    OffsetsExpired,
    SweepPart,
    TopicsChanged,
)
from ledgermq.state.consumer_offsets import ConsumerOffsetTable
from ledgermq.state.data_version import DataVersion
from ledgermq.state.pull_offsets import PullOffsets
from ledgermq.state.queue_locks import QueueLocks
from ledgermq.state.queue_progress import QueueProgress
from ledgermq.state.subscriptions import SubscriptionGroupTable
from ledgermq.state.topics import TopicTable


class Swept(Protocol):
    """A table that is read and replaced range by range, in the order of its names."""

    def behind(self, after: str) -> Iterator[tuple[str, Any]]: ...

    def replace_range(self, after: str, upto: str | None, put: Mapping[str, Any]) -> bool: ...

    def merge(self, put: Mapping[str, Any]) -> bool: ...


class Divisible(Swept, Protocol):
    """A table whose entries may be told in parts."""

    def joined(self, name: str, value: Any) -> Any:
        """Returns what an entry has, changed by a part of it."""

    def keep_only(self, name: str, parts: Sequence[Any]) -> bool:
        """Drops of an entry what none of its parts has; returns whether there was any."""


class _Divided(NamedTuple):
    """An entry of which parts were told, and not yet the last."""

    sweep_id: str
    next_part: int
    name: str
    parts: list[Any]


class Events(NamedTuple):
    """What others have to know of a command that was applied."""

    # Tables whose entries, or whose version, are other ones now: names of StateMachine.swept.
    changed: frozenset[str] = frozenset()
    # Topics whose removal is committed: what is behind the command belongs to new ones.
    removed_topics: tuple[str, ...] = ()
    # Whether rules of access control were told: those that count now, once more perhaps.
    are_rules_told: bool = False


_NOTHING = Events()
_TOPICS = frozenset({"topics"})
_GROUPS = frozenset({"groups"})
_OFFSETS = frozenset({"offsets"})
_LOCKS = frozenset({"locks"})
_RULES = frozenset({"rules"})


class StateMachine:
    """All tables."""

    def __init__(
        self,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        offsets: ConsumerOffsetTable,
    ) -> None:
        """Takes over the tables, which only this machine changes from now on."""
        self.topics = topics
        self.groups = groups
        self.offsets = offsets
        # Who consumes which queue in order.
        self.locks = QueueLocks()
        # How far delay levels and half messages are worked off.
        self.progress = QueueProgress()
        # What this member answered pulls with; only forgotten here.
        self.pulled = PullOffsets()
        # Rules of access control, also where it is off.
        self.rules = AccessRecord()
        # What a sweep goes through, in its order.
        tables: tuple[Swept, ...] = (topics, groups, offsets, self.locks, self.rules)
        self.swept = dict(zip(SWEPT, tables, strict=True))
        # Where the last whole sweep begins, -1 while none was seen: a member whose log begins
        # behind it knows less than the whole state.
        self.sweep_index = -1
        # The entry that a sweep is telling in parts; None while there is none.
        self._divided: _Divided | None = None
        self._divisible: dict[str, Divisible] = {"offsets": offsets, "locks": self.locks}
        # Of the sweep under way: its id, how many parts came, and where it begins.
        self._sweep: tuple[str, int, int] = ("", 0, -1)

    def version_of(self, table: str) -> DataVersion | None:
        """Returns the version of a swept table, None for one that has none."""
        match table:
            case "topics":
                return self.topics.version
            case "groups":
                return self.groups.version
        return None

    def apply(self, command: Command, index: int) -> Events:
        """Applies one committed command.

        Args:
            index: of its entry, in order; the same one may come again after a restart.
        """
        match command:
            case TopicsChanged():
                return self._change_topics(command)
            case GroupsChanged():
                return self._change_groups(command)
            case OffsetsCommitted(put=put):
                self.offsets.put(put)
                return Events(_OFFSETS)
            case OffsetsExpired(keys=keys):
                self.offsets.remove(keys)
                return Events(_OFFSETS)
            case LocksChanged(put=rows):
                self.locks.put(rows)
                return Events(_LOCKS)
            case DeliveriesPlanned(runs=runs):
                self.progress.planned(runs, index)
            case AccessChanged(record=record):
                return Events(
                    _RULES if self.rules.put(record) else frozenset(), are_rules_told=True
                )
            case SweepPart():
                return self._take_part(command, index)
        return _NOTHING

    def _change_topics(self, command: TopicsChanged) -> Events:
        self.topics.follow(command.put, command.removed, command.version)
        for name in command.removed:
            self.offsets.remove_topic(name)
            self.pulled.remove_topic(name)
        changed = _TOPICS | _OFFSETS if command.removed else _TOPICS
        return Events(changed, tuple(command.removed))

    def _change_groups(self, command: GroupsChanged) -> Events:
        self.groups.follow(command.put, command.removed, command.version)
        for name in command.removed:
            self.pulled.remove_group(name)
            if command.forgets_offsets:
                self.offsets.remove_group(name)
        forgets = command.removed and command.forgets_offsets
        return Events(_GROUPS | _OFFSETS if forgets else _GROUPS)

    def _take_part(self, part: SweepPart, index: int) -> Events:
        self._note_part(part, index)
        if part.progress is not None:
            self.progress.replace(part.progress)
        if part.table in self._divisible:
            has_changed = self._take_entries(self._divisible[part.table], part)
        elif part.after is None:
            has_changed = self.swept[part.table].merge(part.put)
        else:
            has_changed = self.swept[part.table].replace_range(part.after, part.upto, part.put)
        if part.version is not None and part.version != self.version_of(part.table):
            has_changed = True
            if part.table == "topics":
                self.topics.version = part.version
            elif part.table == "groups":
                self.groups.version = part.version
        changed = frozenset({part.table}) if has_changed else _NOTHING.changed
        return Events(changed, are_rules_told=part.table == "rules")

    def _take_entries(self, table: Divisible, part: SweepPart) -> bool:
        """Takes over a part of a table whose entries may be told in several."""
        former, self._divided = self._divided, None
        if part.after is not None:
            put, name = part.put, part.upto
            if part.goes_on and name is not None and name in put:
                self._divided = _Divided(part.sweep_id, part.part + 1, name, [put[name]])
                # What the next parts tell must not be forgotten when they never come.
                put = {**put, name: table.joined(name, put[name])}
            return table.replace_range(part.after, name, put)
        has_changed = table.merge(part.put)
        if former is not None and (part.sweep_id, part.part) == (former.sweep_id, former.next_part):
            parts = [*former.parts, part.put.get(former.name)]
            if part.goes_on:
                self._divided = former._replace(next_part=part.part + 1, parts=parts)
            else:
                has_changed |= table.keep_only(former.name, parts)
        return has_changed

    def _note_part(self, part: SweepPart, index: int) -> None:
        """Follows sweeps part by part: one that lacks a part is none."""
        if part.part == 0:
            self._sweep = (part.sweep_id, 0, index)
        sweep_id, count, begin = self._sweep
        if (sweep_id, count) == (part.sweep_id, part.part):
            self._sweep = (sweep_id, count + 1, begin)
            if part.is_last:
                self.sweep_index = begin
