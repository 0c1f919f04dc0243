"""The broker's state and its way through the ledger: who wants a change proposes a command, and
sees it when it is applied.

The tables are `machine.py`'s, the commands `commands.py`'s. Commands stand in the
ledger as records of the topic `rmq_sys_LEDGERMQ_STATE`, marked as prepared messages, which keeps
them out of every consume queue, here and in a Java member. Every member applies them when they are
committed; the leader has no other way. Until then nothing is visible, registered or answered.

What a leader has proposed and not yet applied it remembers only so far as the next request must
know of it: topics and groups that are on their way (`coming.py`), offsets that are on theirs
(`offset_commits.py`), queues that change hands (`lock_requests.py`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from ledgermq.protocol.group_keys import group_key
from ledgermq.state import names
from ledgermq.state.access_changes import AccessChanges, AccessRules
from ledgermq.state.coming import Coming
from ledgermq.state.commands import (
    Command,
    DeliveriesPlanned,
    GroupsChanged,
    LocksChanged,
    OffsetsCommitted,
    TopicsChanged,
    bodies_of,
)
from ledgermq.state.consumer_offsets import ConsumerOffsetTable, OffsetsByKey
from ledgermq.state.data_version import DataVersion
from ledgermq.state.errors import (
    GroupNotFoundError,
    InvalidRequestError,
    ServiceUnavailableError,
    TopicNotFoundError,
)
from ledgermq.state.formats import StateFormats
from ledgermq.state.lock_requests import LockRequests
from ledgermq.state.log_coverage import LogCoverage
from ledgermq.state.machine import Events, StateMachine
from ledgermq.state.offset_commits import OffsetCommits
from ledgermq.state.offset_expiry import OffsetExpiry
from ledgermq.state.proposals import StateProposals, StateWriter
from ledgermq.state.queue_progress import Run
from ledgermq.state.records import cut_bytes, entry_bytes_max
from ledgermq.state.refusals import Refusals
from ledgermq.state.subscriptions import (
    SubscriptionGroup,
    SubscriptionGroupTable,
    is_created_on_use,
)
from ledgermq.state.sweep import STEP_BYTES, StateSweep
from ledgermq.state.topics import PERM_INHERIT, TopicConfig, TopicTable
from ledgermq.state.under_way import OnCommitted

# Gets kind, name and maker of a topic or group that is made by its use, while the maker's request
# is worked on; returns who is told when it is committed, or why it is not.
OnMade = Callable[[str, str, Any], OnCommitted]


class CreationLimits(Protocol):
    """How many topics and groups somebody may make; who that is, only the owner knows.

    Both raise SystemBusyError when it is one too many, and count it otherwise.
    """

    def take_topic(self, maker: Any, name: str) -> None: ...

    def take_group(self, maker: Any, name: str) -> None: ...


class BrokerState:
    """The replicated tables of one member, and what it proposes while it leads.

    Invariant: tables change in `apply`, and in `copy` while the leader is one that writes no
    commands.
    """

    def __init__(
        self,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        offsets: ConsumerOffsetTable,
        *,
        write: StateWriter,
        body_bytes_max: int,
        now_ms: Callable[[], int],
        clock_ms: Callable[[], float],
        call_at_end_of_turn: Callable[[Callable[[], None]], object],
        auto_create_groups: bool,
        on_topics_changed: Callable[[], None],
        on_topic_removed: Callable[[str], object],
        sweep_step_bytes: int = STEP_BYTES,
        formats: StateFormats | None = None,
    ) -> None:
        """Takes over the tables.

        Args:
            topics: changed only here from now on.
            groups: changed only here from now on.
            offsets: changed only here from now on.
            write: appends records.
            body_bytes_max: of one record, in the log that `write` appends to.
            now_ms: wall clock, for versions.
            clock_ms: monotonic time.
            call_at_end_of_turn: has a function called when the reactor has served all that was
                readable.
            auto_create_groups: whether unknown groups come into being by their first use.
            on_topics_changed: called after the topic table changed in any way.
            on_topic_removed: called on every member when the removal of a topic is committed,
                between the entries before it and those behind it.
            sweep_step_bytes: of what one step of a sweep proposes.
            formats: of the records; None for those of this program.
        """
        self.formats = formats or StateFormats()
        machine = self._machine = StateMachine(topics, groups, offsets)
        self.topics, self.groups, self.offsets = topics, groups, offsets
        self.locks, self.progress, self.pulled = machine.locks, machine.progress, machine.pulled
        self.access_record, self.coverage = machine.rules, LogCoverage(machine)
        self._now_ms = now_ms
        self._clock_ms = clock_ms
        self._auto_create_groups = auto_create_groups
        self._on_topics_changed = on_topics_changed
        self._on_topic_removed = on_topic_removed
        self._cut_bytes = cut_bytes(body_bytes_max)
        self._proposals = StateProposals(write, body_bytes_max, clock_ms)
        self._sweeps = Refusals("the broker's state", clock_ms)
        self.access_changes = self._new_access_changes(body_bytes_max)
        self._sweep = self._new_sweep(sweep_step_bytes)
        # Whether this member leads now, for answers without a proposal; the ledger's owner sets it.
        self.confirm_lead: Callable[[OnCommitted], None] = _lead_alone
        self.lock_requests = LockRequests(
            self.locks, self._proposals, self._propose, self._confirm_lead, clock_ms
        )
        self.expiry = OffsetExpiry(offsets, self.find_topic, self._propose, clock_ms)
        self.commits = self._new_commits(call_at_end_of_turn)
        # Of tables with changes that were proposed in this leadership: what the last one leads to.
        self._versions: dict[TopicTable | SubscriptionGroupTable, DataVersion] = {}
        # What this leader has proposed and not applied yet.
        self._topics_coming = Coming(topics, body_bytes_max)
        self._groups_coming = Coming(groups, body_bytes_max)
        # Of those for whom topics and groups come into being; None where nobody is counted.
        self.creations: CreationLimits | None = None
        # None: nobody wants to know.
        self.on_made: OnMade | None = None
        # Names of tables that are newer than their files; whoever writes these takes them out.
        self.unsaved: set[str] = set()

    def _new_sweep(self, step_bytes: int) -> StateSweep:
        return StateSweep(
            self._machine,
            self._proposals,
            self._sweeps,
            self.formats,
            self._cut_bytes,
            step_bytes,
        )

    def _new_access_changes(self, body_bytes_max: int) -> AccessChanges:
        return AccessChanges(
            self._machine.rules, self._propose, entry_bytes_max(body_bytes_max), self._clock_ms
        )

    def _confirm_lead(self, done: OnCommitted) -> None:
        self.confirm_lead(done)

    def _new_commits(
        self, call_at_end_of_turn: Callable[[Callable[[], None]], object]
    ) -> OffsetCommits:
        return OffsetCommits(
            self.offsets,
            propose=self._propose_offsets,
            on_told=self.expiry.note,
            is_settled=lambda: self._proposals.is_settled,
            call_at_end_of_turn=call_at_end_of_turn,
            clock_ms=self._clock_ms,
        )

    # What others may ask.

    @property
    def access(self) -> AccessRules | None:
        """Rules of access control; None while it is off."""
        return self.access_changes.rules

    @access.setter
    def access(self, rules: AccessRules | None) -> None:
        self.access_changes.rules = rules

    @property
    def is_leading(self) -> bool:
        """True between `lead` and `follow`."""
        return bool(self._proposals.writer)

    @property
    def sweep_index(self) -> int:
        """Where the last whole sweep begins that is committed, -1 while none was seen."""
        return self._machine.sweep_index

    def is_whole_from(self, first_index: int) -> bool:
        """Whether a log that begins at this index has told the whole state, as far as it came.

        Where it begins behind the state's first records, the rest is told by a sweep.
        """
        return first_index == 0 or self.sweep_index >= first_index

    @property
    def alarm(self) -> str | None:
        """What of the state the log refuses, or who cannot read it, for operators; None while all
        is well.
        """
        refused = (self._sweeps.alarm, self.commits.alarm, self.access_changes.alarm)
        alarms = (*refused, self.formats.alarm)
        return next((alarm for alarm in alarms if alarm is not None), None)

    # Leadership.

    def lead(self, writer: str) -> None:
        """This member begins to propose; `writer` names it and its term.

        All that former leaders proposed is applied. A sweep follows: what this member copied of a
        leader that writes no commands stands in no record.
        """
        self._proposals.lead(writer)
        self._forget()
        self.progress.lead()
        self.lock_requests.lead()
        self.expiry.lead()
        self._sweep.begin()
        self.access_changes.lead()

    def follow(self) -> None:
        """This member proposes no more."""
        if self.is_leading:
            # First, so that what is held back is not taken for refused by the log.
            self.access_changes.follow()
            self.commits.follow(ServiceUnavailableError("another member leads, or is about to"))
            self._proposals.follow()
        self.progress.follow()
        self._forget()

    def _forget(self) -> None:
        self._versions.clear()
        self._topics_coming.clear()
        self._groups_coming.clear()
        self.commits.forget()
        self._sweep.follow()
        self._sweeps.forget()

    def adopt(
        self,
        topics: Sequence[TopicConfig],
        groups: Sequence[SubscriptionGroup],
        done: OnCommitted,
    ) -> None:
        """Makes what is built in and missing; `done` is told when it is there: at once when nothing
        is missing.

        A default topic that is not built in any more can no longer be inherited from.
        """
        new_topics = [topic for topic in topics if self.topics.find(topic.name) is None]
        default = self.topics.find(names.DEFAULT_TOPIC)
        if default is not None and default.name not in {topic.name for topic in topics}:
            closed = replace(default, permission=default.permission & ~PERM_INHERIT)
            new_topics += [closed] if closed != default else []
        new_groups = [group for group in groups if self.groups.find(group.name) is None]
        for group in new_groups:
            self.put_group(group)
        for topic in new_topics:
            self.put_topic(topic)
        if new_groups or new_topics:
            self.when_made(done)
        else:
            done(None)

    @property
    def is_making(self) -> bool:
        """True while topics or groups are on their way into the tables."""
        return bool(self._topics_coming) or bool(self._groups_coming)

    def when_made(self, done: OnCommitted) -> None:
        """Has `done` told when all is applied that was proposed so far: at once when it is."""
        self._proposals.join(done)

    # Topics and groups.

    def put_topic(self, topic: TopicConfig, done: OnCommitted | None = None) -> None:
        """Adds or replaces a topic."""
        is_new = self.topics.find(topic.name) != topic
        command = TopicsChanged((topic,), version=self._next(self.topics, is_new))
        self._propose(command, self._topics_coming.begin(topic, done))

    def remove_topic(self, name: str, done: OnCommitted | None = None) -> None:
        """Drops a topic and the offsets for it."""
        self._propose(TopicsChanged(removed=(name,), version=self._next(self.topics)), done)

    def put_group(self, group: SubscriptionGroup, done: OnCommitted | None = None) -> None:
        """Adds or replaces a subscription group."""
        is_new = self.groups.find(group.name) != group
        command = GroupsChanged((group,), version=self._next(self.groups, is_new))
        self._propose(command, self._groups_coming.begin(group, done))

    def remove_group(
        self, name: str, removes_offsets: bool, done: OnCommitted | None = None
    ) -> None:
        """Drops a subscription group, and its offsets when asked to."""
        version = self._next(self.groups)
        self._propose(GroupsChanged((), (name,), removes_offsets, version), done)

    def _next(
        self, table: TopicTable | SubscriptionGroupTable, has_changed: bool = True
    ) -> DataVersion:
        """Returns the version of a table when a change that is about to be proposed is applied."""
        known = self._versions.get(table)
        version = table.version if known is None else known
        if has_changed or version != table.version:
            # As it is now, and not as it will be when what is on its way is applied.
            version = self._versions[table] = version.next(self._now_ms())
        return version

    def find_topic(self, name: str) -> TopicConfig | None:
        """Returns a topic that is there, or on its way: what is stored for it stands behind it in
        the log.
        """
        return self.topics.find(name) or self._topics_coming.find(name)

    def find_group(self, name: str) -> SubscriptionGroup | None:
        """Returns a group that is there, or on its way."""
        return self.groups.find(name) or self._groups_coming.find(name)

    def check_topic(self, topic: TopicConfig, maker: object) -> None:
        """Checks a topic that somebody wants to make or to change, before it is proposed.

        Args:
            topic: as it is to be.
            maker: for whom; None for the broker itself.

        Raises:
            InvalidRequestError: it is too large for a record.
            SystemBusyError: the table is full, or its maker made too many.
        """
        self._topics_coming.check_room(topic)
        is_new = self.find_topic(topic.name) is None
        if is_new and maker is not None and self.creations is not None:
            self.creations.take_topic(maker, topic.name)

    def check_group(self, group: SubscriptionGroup, maker: object) -> None:
        """As `check_topic`, of a group."""
        self._groups_coming.check_room(group)
        is_new = self.find_group(group.name) is None
        if is_new and maker is not None and self.creations is not None:
            self.creations.take_group(maker, group.name)

    def make_topic(self, topic: TopicConfig, maker: object = None) -> None:
        """Makes a topic that is missing.

        Raises:
            As `check_topic`.
        """
        self.check_topic(topic, maker)
        self.put_topic(topic, self._made("topic", topic.name, maker))

    def _made(self, kind: str, name: str, maker: object) -> OnCommitted | None:
        """Returns who is told what becomes of a topic or group that is made by its use."""
        on_made = self.on_made
        if on_made is None or maker is None:
            return None
        return on_made(kind, name, maker)

    def group_for_use(self, name: str, maker: object = None) -> SubscriptionGroup:
        """Returns a group; one that is missing is made by a leader when that is allowed. A follower
        gives one for this call only.

        Args:
            name: of the group.
            maker: as in `check_topic`.

        Raises:
            GroupNotFoundError: unknown, and groups are not created on use.
            InvalidRequestError: the name may not be that of a group.
            SystemBusyError: there are too many groups, or its maker made too many.
        """
        group = self.find_group(name)
        if group is not None:
            return group
        names.check_group_name(name)
        if not is_created_on_use(name, self._auto_create_groups):
            raise GroupNotFoundError(
                f"subscription group [{name}] does not exist, apply first please!"
                " (key autoCreateSubscriptionGroup)"
            )
        group = SubscriptionGroup(name)
        if self.is_leading:
            self.check_group(group, maker)
            self.put_group(group, self._made("group", group.name, maker))
        return group

    def topic_for_group(
        self, name: str, queue_count: int, topic_sys_flag: int, maker: object = None
    ) -> TopicConfig:
        """Returns a retry or dead-letter topic; the leader makes it when it is missing.

        What a group in the table needs was counted with the group: it counts for the maker only
        where there are groups that stand in no table.
        """
        topic = self.find_topic(name)
        if topic is None:
            names.check_topic_name(name)
            topic = TopicConfig(name, queue_count, queue_count, topic_sys_flag=topic_sys_flag)
            if self.is_leading:
                self.make_topic(topic, maker if names.LIGHT_QUEUE_PREFIX in name else None)
        return topic

    def permission_changed(self) -> None:
        """What the broker allows changed: whoever caches topics looks again, others are told."""
        self.topics.generation += 1
        self._on_topics_changed()

    # Offsets, for others than `commits`.

    def check_offset(self, group: str, topic: str, queue_id: int, maker: object) -> None:
        """Checks that a group may have an offset for a queue; a group that is missing is made, as
        by any other use.

        Args:
            maker: as in `check_topic`.

        Raises:
            InvalidRequestError: the name may not be that of a group, or the topic has no such
                queue.
            TopicNotFoundError: there is no such topic.
            GroupNotFoundError, SystemBusyError: there is no such group, and it is not made.
        """
        if self.offsets.find(group, topic, queue_id) is not None:
            return
        names.check_group_name(group)
        names.check_topic_name(topic)
        known = self.find_topic(topic)
        if known is None:
            raise TopicNotFoundError(
                f"offset of group[{group}] not stored: topic[{topic}] not exist"
            )
        if not 0 <= queue_id < known.queue_count:
            raise InvalidRequestError(
                f"offset of group[{group}] not stored: queueId is {queue_id},"
                f" topic[{topic}] has {known.queue_count} queues, allowed are smaller ids"
            )
        if not self.is_leading and self.find_group(group) is None:
            raise GroupNotFoundError(
                f"offset of group[{group}] not stored: this broker does not know the group"
            )
        self.group_for_use(group, maker)

    def _propose_offsets(self, offsets: OffsetsByKey, done: OnCommitted) -> None:
        self._propose(OffsetsCommitted(offsets), done)

    def write_offsets(self) -> None:
        """Proposes the offsets that were told since the last call; called each second."""
        if self.is_leading:
            self.commits.propose()

    def keep_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Keeps an offset on a slave, which has no log of its own, until its master tells another.

        Raises:
            BrokerError: it is refused.
        """
        key = group_key(topic, group)
        self.offsets.check(key, queue_id, offset)
        self.offsets.room_for(key, queue_id)
        self.offsets.put({key: {queue_id: offset}})
        self.unsaved.add("offsets")

    # Sweeps.

    def begin_sweep(self) -> None:
        """Has all tables proposed once more, a little at a time."""
        if self.is_leading:
            self._sweep.begin()

    def sweep(self) -> None:
        """Frees some of what is removed, and takes the next step of a leader's sweep; called many
        times a second.
        """
        self.offsets.drop_some()
        if self.is_leading:
            self._sweep.step()

    @property
    def is_swept(self) -> bool:
        """True while no sweep is under way, or wanted."""
        return self._sweep.is_at_rest

    @property
    def sweep_bytes(self) -> int:
        """Bodies of the last whole sweep of this leader, 0 when there was none."""
        return self._sweep.bytes

    def plan_body(self, runs: Sequence[Run]) -> bytes:
        """Returns the record that goes before deliveries out of an internal queue."""
        [body] = bodies_of(DeliveriesPlanned(runs), "", 0, self.formats.written.write)
        return body

    def _propose(self, command: Command, done: OnCommitted | None) -> None:
        write = self.formats.written.write
        bodies = bodies_of(command, self._proposals.writer, self._cut_bytes, write)
        # A message of a new topic goes behind it, in this turn.
        self._proposals.propose(bodies, done, is_held=not isinstance(command, TopicsChanged))

    # Committed records, on every member.

    def apply(self, body: bytes, index: int) -> None:
        """Applies one committed record; one that makes no sense is left out.

        Args:
            body: of the message at `index`.
            index: of the entry, in order; the same one may come again after a restart.

        Raises:
            UnreadRecordError: a newer program wrote it; this member cannot go on.
        """
        proposed = self.formats.read(body, index)
        if proposed is None:
            return
        self.formats.note(proposed.version)
        command = proposed.command
        is_own = self.is_leading and proposed.writer == self._proposals.writer
        events = self._machine.apply(command, index)
        for name in events.removed_topics:
            self._on_topic_removed(name)
        self._tell(events)
        if is_own:
            self._end(command)
            self._proposals.applied(proposed.writer)

    def replay(self, body: bytes, index: int) -> None:
        """Applies once more what is below the checkpoint, where state files are lost: queues of
        removed topics are gone since then, and new ones may be there.

        Raises:
            UnreadRecordError: as `apply`.
        """
        proposed = self.formats.read(body, index)
        if proposed is not None:
            self.formats.note(proposed.version)
            self._tell(self._machine.apply(proposed.command, index))

    def _end(self, command: Command) -> None:
        """What this leader proposed is applied."""
        match command:
            case TopicsChanged(put=topics):
                for topic in topics:
                    self._topics_coming.applied(topic.name)
            case GroupsChanged(put=groups):
                for group in groups:
                    self._groups_coming.applied(group.name)
            case LocksChanged(put=changes):
                self.lock_requests.applied(changes)

    def _tell(self, events: Events) -> None:
        self.unsaved |= events.changed
        if events.are_rules_told:
            self.access_changes.applied(self.access_record.record)
        if "topics" in events.changed:
            self._on_topics_changed()

    # A leader that writes no commands.

    def copy(
        self,
        topics: Iterable[TopicConfig],
        groups: Iterable[SubscriptionGroup],
        offsets: OffsetsByKey,
    ) -> None:
        """Takes over what a leader told that writes no commands; nothing is removed, but that who
        holds which queue is not known any more.
        """
        self.coverage.copied()
        if len(self.locks):
            self.locks.clear()
            self.unsaved.add("locks")
        now_ms = self._now_ms()
        for topic in topics:
            if self.topics.put(topic, now_ms):
                self.unsaved.add("topics")
                self._on_topics_changed()
        for group in groups:
            if self.groups.put(group, now_ms):
                self.unsaved.add("groups")
        if offsets:
            self.offsets.put(offsets)
            self.unsaved.add("offsets")


def _lead_alone(done: OnCommitted) -> None:
    """Without a ledger nobody else could lead."""
    done(None)
