"""The broker's state as records of the ledger: topics, subscription groups, committed offsets,
locks of queues.

The leader writes each change as a record of the topic `rmq_sys_LEDGERMQ_STATE`; every member
applies the records when they are committed, so that a new leader starts from state that is at most
one second old. The records are marked as prepared messages, which keeps them out of every consume
queue, here and in a Java member. Bodies are JSON objects:

    {"kind":"topics"|"groups","by":B,"put":{name: object},"removed":[name],"version":{...}}
    {"kind":"offsets","by":B,"put":{"topic@group":{"queue":offset}},
     "removedGroups":[name],"removedTopics":[name]}
    {"kind":"snapshot","by":B,"id":text,"part":i,"parts":n,"topics":{...},"groups":{...},
     "offsets":{...},"locks":{...},"topicsVersion":{...},"groupsVersion":{...}}, in part 0
     "progress":{...}
    {"kind":"locks","by":B,"put":{group: [[topic, broker name, queue id, client id], ...]}}
    {"kind":"plan",...}, which `queue_progress.py` explains
    {"kind":"access",...}, which `access/rules_table.py` explains; also behind each snapshot

`by` is the member and term that wrote the record. The leader changes its own tables first and
skips its own records of the same term when they come back; what it wrote and lost with its
leadership is put right by the snapshot that every leader writes when it begins to serve. A
snapshot counts when its last part is there. Only the progress through internal queues follows the
log alone, on every member.

Records are cut by their bytes (`state_records.py`), so the entries of one key may stand in several
parts of a snapshot. What the log refuses is kept, and written again (`refusals.py`).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from ledgermq.broker import names
from ledgermq.broker.access.rules_table import RulesTable
from ledgermq.broker.consumer_offsets import ConsumerOffsetTable, OffsetsByKey, offsets_from_json
from ledgermq.broker.data_version import DataVersion
from ledgermq.broker.errors import (
    BrokerError,
    CommitTimeoutError,
    GroupNotFoundError,
    IllegalMessageError,
    SystemBusyError,
)
from ledgermq.broker.pull_offsets import PullOffsets
from ledgermq.broker.queue_locks import QueueLocks
from ledgermq.broker.queue_progress import QueueProgress, Run
from ledgermq.broker.refusals import Refusals
from ledgermq.broker.snapshot_reader import SnapshotReader, objects
from ledgermq.broker.state_records import Entry, body_of, cut, cut_bytes
from ledgermq.broker.subscriptions import (
    SubscriptionGroup,
    SubscriptionGroupTable,
    is_created_on_use,
)
from ledgermq.broker.topics import PERM_INHERIT, TopicConfig, TopicTable
from ledgermq.broker.under_way import OnCommitted, UnderWay


class StateWriter(Protocol):
    """What is needed to bring records into the ledger: all of them, or none."""

    def __call__(self, bodies: Sequence[bytes], done: OnCommitted) -> None: ...


class BrokerState:
    """The replicated tables and their way through the ledger.

    Invariant: changes by this member happen between `lead` and `follow` only; `copy` is outside.
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
        auto_create_groups: bool,
        on_topics_changed: Callable[[], None],
        on_topic_removed: Callable[[str], object],
    ) -> None:
        """Takes over the tables.

        Args:
            topics: changed only here from now on.
            groups: changed only here from now on.
            offsets: written by processors as well.
            write: appends records.
            body_bytes_max: of one record, in the log that `write` appends to.
            now_ms: wall clock, for versions.
            clock_ms: monotonic time.
            auto_create_groups: whether unknown groups come into being by their first use.
            on_topics_changed: called after the topic table changed in any way.
            on_topic_removed: called on every member when the removal of a topic is committed,
                between the entries before it and those behind it.
        """
        self.topics = topics
        self.groups = groups
        self.offsets = offsets
        # How far delay levels and half messages are worked off.
        self.progress = QueueProgress()
        # Who consumes which queue in order; written by processors, who call `write_locks`.
        self.locks = QueueLocks()
        # What this member answered pulls with; only forgotten here.
        self.pulled = PullOffsets()
        # Rules of access control; None while it is off.
        self.access: RulesTable | None = None
        self._write = write
        self._body_bytes_max = body_bytes_max
        self._cut_bytes = cut_bytes(body_bytes_max)
        self._now_ms = now_ms
        self._clock_ms = clock_ms
        self._auto_create_groups = auto_create_groups
        self._on_topics_changed = on_topics_changed
        self._on_topic_removed = on_topic_removed
        # Member and term as they stand in records; None while this member does not lead.
        self._writer: str | None = None
        self._snapshot_count = 0
        self._reader = SnapshotReader()
        # Files that are older than the tables; cleared by whoever writes them.
        self.are_topics_unsaved = False
        self.are_groups_unsaved = False
        self.are_offsets_unsaved = False
        self.are_locks_unsaved = False
        # A record was refused although this member still leads: the next snapshot puts it right.
        self._is_snapshot_wanted = False
        self._is_access_wanted = False
        self._offsets_written, self._locks_written = UnderWay(), UnderWay()
        self._snapshots = Refusals("the broker's state", clock_ms)
        self._offset_changes = Refusals("consumer offsets", clock_ms)
        self._access_records = Refusals("the rules of access control", clock_ms)

    # Changes by the leader.

    def adopt(self, topics: Sequence[TopicConfig], groups: Sequence[SubscriptionGroup]) -> None:
        """Adds what is built in and missing; called just before `lead`, whose snapshot holds it.

        A default topic that is not built in any more can no longer be inherited from.
        """
        now_ms = self._now_ms()
        for topic in topics:
            if self.topics.find(topic.name) is None:
                self.topics.put(topic, now_ms)
        for group in groups:
            if self.groups.find(group.name) is None:
                self.groups.put(group, now_ms)
        default = self.topics.find(names.DEFAULT_TOPIC)
        if default is not None and default.name not in {topic.name for topic in topics}:
            self.topics.put(replace(default, permission=default.permission & ~PERM_INHERIT), now_ms)
        self.are_groups_unsaved = True
        self._topics_changed()

    def lead(self, writer: str) -> None:
        """This member begins to write; `writer` names it and its term. A snapshot follows."""
        self._writer = writer
        self._offsets_written, self._locks_written = UnderWay(), UnderWay()
        self._forget_refusals()
        self.progress.lead()
        self.locks.lead(int(self._clock_ms()))
        self.write_snapshot()

    def follow(self) -> None:
        """This member no longer writes."""
        self._writer = None
        self.progress.follow()
        self._forget_refusals()

    def _forget_refusals(self) -> None:
        self._is_snapshot_wanted = self._is_access_wanted = False
        for refusals in (self._snapshots, self._offset_changes, self._access_records):
            refusals.forget()

    @property
    def is_snapshot_due(self) -> bool:
        """True when the log refused a record, and it is time to write all again."""
        return self._is_snapshot_wanted and not self._snapshots.is_waiting

    @property
    def snapshot_index(self) -> int:
        """Where the last whole snapshot begins that is committed, -1 while none was seen."""
        return self._reader.snapshot_index

    @property
    def alarm(self) -> str | None:
        """What of the state the log refuses, for operators; None while it takes all."""
        for refusals in (self._snapshots, self._offset_changes, self._access_records):
            if refusals.alarm is not None:
                return refusals.alarm
        return None

    def permission_changed(self) -> None:
        """What the broker allows changed: whoever caches topics looks again, others are told."""
        self.topics.generation += 1
        self._on_topics_changed()

    @property
    def is_leading(self) -> bool:
        """True between `lead` and `follow`."""
        return self._writer is not None

    def put_topic(self, topic: TopicConfig, done: OnCommitted | None = None) -> None:
        """Adds or replaces a topic here and now, and in the ledger."""
        if not self.topics.put(topic, self._now_ms()) and done is None:
            return
        self._topics_changed()
        self._write_table("topics", {topic.name: topic.to_json()}, [], self.topics.version, done)

    def remove_topic(self, name: str, done: OnCommitted | None = None) -> None:
        """Drops a topic and the offsets for it."""
        self.topics.remove(name, self._now_ms())
        self._topics_changed()
        self.offsets.remove_topic(name)
        self.are_offsets_unsaved = True
        self._write_record({"kind": "offsets", "put": {}, "removedTopics": [name]}, None)
        self._write_table("topics", {}, [name], self.topics.version, done)

    def put_group(self, group: SubscriptionGroup, done: OnCommitted | None = None) -> None:
        """Adds or replaces a subscription group."""
        if not self.groups.put(group, self._now_ms()) and done is None:
            return
        self.are_groups_unsaved = True
        self._write_table("groups", {group.name: group.to_json()}, [], self.groups.version, done)

    def remove_group(
        self, name: str, removes_offsets: bool, done: OnCommitted | None = None
    ) -> None:
        """Drops a subscription group, and its offsets when asked to."""
        self.groups.remove(name, self._now_ms())
        self.pulled.remove_group(name)
        self.are_groups_unsaved = True
        if removes_offsets:
            self.offsets.remove_group(name)
            self.are_offsets_unsaved = True
            self._write_record({"kind": "offsets", "put": {}, "removedGroups": [name]}, None)
        self._write_table("groups", {}, [name], self.groups.version, done)

    def group_for_use(self, name: str) -> SubscriptionGroup:
        """Returns a group, made now when that is allowed; a follower makes it for this one call
        only.

        Raises:
            GroupNotFoundError: unknown, and groups are not created on use.
            InvalidRequestError: the name may not be that of a group.
            SystemBusyError: there are too many groups.
        """
        group = self.groups.find(name)
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
            self.groups.check_room(name)
            self.put_group(group)
        return group

    def topic_for_group(self, name: str, queue_count: int, topic_sys_flag: int) -> TopicConfig:
        """Returns a retry or dead-letter topic; the leader makes it when it is missing."""
        topic = self.topics.find(name)
        if topic is None:
            names.check_topic_name(name)
            topic = TopicConfig(name, queue_count, queue_count, topic_sys_flag=topic_sys_flag)
            if self.is_leading:
                self.topics.check_room(name)
                self.put_topic(topic)
        return topic

    def write_offsets(self, done: OnCommitted | None = None) -> None:
        """Writes the offsets that changed since the last call; called each second on a leader.

        Those that the log refuses count as changed again. `done` is told when they are committed,
        and all that were written before.
        """
        if done is not None and self._told_refused(done):
            return
        if done is not None:
            self._offsets_written.put_back_late()
        if not self.is_leading or self._offset_changes.is_waiting or not self.offsets.has_changes:
            alarm = self._offset_changes.alarm
            if done is not None and alarm is not None:
                # What the log refused is told to operators, and written again.
                done(SystemBusyError(alarm))
            elif done is not None:
                self._offsets_written.join(done)
            return
        self.are_offsets_unsaved = True
        changes = self.offsets.take_changes()

        def put_back() -> None:
            self.offsets.put_back(changes)

        written = self._offsets_written.begin(done, put_back)
        bodies = self._bodies("offsets", changes)
        self._write_bodies(bodies, self._offset_changes, put_back, written, is_whole=True)

    def write_locks(self, done: OnCommitted | None = None) -> None:
        """Writes the locks that changed hands; `done` is told when all that did are committed."""
        if done is not None and self._told_refused(done):
            return
        if done is not None:
            self._locks_written.put_back_late()
        changes = self.locks.take_changes()
        if changes:
            self.are_locks_unsaved = True
            bodies = self._bodies("locks", changes)

            def put_back() -> None:
                self.locks.put_back(changes)

            def refused() -> None:
                self._want_snapshot()
                put_back()

            written = self._locks_written.begin(done, put_back)
            self._write_bodies(bodies, self._snapshots, refused, written)
        elif done is not None:
            self._locks_written.join(done)

    def _told_refused(self, done: OnCommitted) -> bool:
        """Tells who waits when a snapshot was refused: what it was to hold, changed or not, is in
        the tables alone.
        """
        alarm = self._snapshots.alarm
        if not self._is_snapshot_wanted or alarm is None:
            return False
        done(SystemBusyError(alarm))
        return True

    def write_snapshot(self) -> None:
        """Writes all tables, in as many records as they need."""
        if not self.is_leading:
            return
        self._is_snapshot_wanted = False
        changes = self.offsets.take_changes()
        if changes:
            self.are_offsets_unsaved = True
        self._snapshot_count += 1
        parts = cut(self._entries(), self._cut_bytes) or [{}]
        bodies: list[bytes] = []
        for number, part in enumerate(parts):
            record: dict[str, Any] = {
                "kind": "snapshot",
                "by": self._writer,
                "id": f"{self._writer}/{self._snapshot_count}",
                "part": number,
                "parts": len(parts),
                "topicsVersion": self.topics.version.to_json(),
                "groupsVersion": self.groups.version.to_json(),
            }
            if number == 0:
                record["progress"] = self.progress.to_record()
            bodies.append(body_of(record, part))

        def refused() -> None:
            self._want_snapshot()
            self.offsets.put_back(changes)

        # What this member lost with an earlier leadership stands in its tables, and nowhere else.
        offsets_written = self._offsets_written.begin(None, self.write_snapshot)
        locks_written = self._locks_written.begin(None, self.write_snapshot)

        def ended(error: BrokerError | None) -> None:
            offsets_written(error)
            locks_written(error)

        self._write_bodies(bodies, self._snapshots, refused, ended, is_whole=True)
        if self.access is not None:
            self.write_access()

    def _entries(self) -> Iterator[Entry]:
        """All that a snapshot holds."""
        for topic in self.topics.all():
            yield Entry("topics", topic.name, topic.to_json())
        for group in self.groups.all():
            yield Entry("groups", group.name, group.to_json())
        for key, queues in self.offsets.all().items():
            yield Entry("offsets", key, queues, is_divisible=True)
        for name, rows in self.locks.all().items():
            yield Entry("locks", name, rows, is_divisible=True)

    def write_access(self, done: OnCommitted | None = None) -> None:
        """Writes the rules of access control that are in force here."""
        assert self.access is not None
        self._is_access_wanted = False
        body = body_of({**self.access.to_record(), "by": self._writer})

        def refused() -> None:
            self._is_access_wanted = True

        self._write_bodies([body], self._access_records, refused, done, is_whole=True)

    def reload_access(self) -> None:
        """Looks whether the file of access rules was changed; a leader tells all members, and
        tells again what the log refused.
        """
        if self.access is None:
            return
        is_other = self.access.reload()
        is_due = self._is_access_wanted and not self._access_records.is_waiting
        if self.is_leading and (is_other or is_due):
            self.write_access()

    @staticmethod
    def plan_body(runs: Sequence[Run]) -> bytes:
        """Returns the record that goes before deliveries out of an internal queue."""
        return body_of({"kind": "plan", "runs": runs})

    def _write_table(
        self,
        kind: str,
        put: Mapping[str, Any],
        removed: Sequence[str],
        version: DataVersion,
        done: OnCommitted | None,
    ) -> None:
        record = {"kind": kind, "put": put, "removed": removed, "version": version.to_json()}
        self._write_record(record, done)

    def _write_record(self, record: Mapping[str, Any], done: OnCommitted | None) -> None:
        """Writes one change; a snapshot follows when it is refused."""
        body = body_of({**record, "by": self._writer})
        self._write_bodies([body], self._snapshots, self._want_snapshot, done)

    def _want_snapshot(self) -> None:
        self._is_snapshot_wanted = True

    def _bodies(self, kind: str, put: Mapping[str, Any]) -> list[bytes]:
        """Returns changes as records; the value of each key may be divided."""
        entries = (Entry("put", name, value, is_divisible=True) for name, value in put.items())
        record = {"kind": kind, "by": self._writer}
        return [body_of(record, part) for part in cut(entries, self._cut_bytes)]

    def _write_bodies(
        self,
        bodies: Sequence[bytes],
        refusals: Refusals,
        refused: Callable[[], None],
        done: OnCommitted | None = None,
        *,
        is_whole: bool = False,
    ) -> None:
        """Writes records, all or none.

        Args:
            refusals: told of a refusal.
            refused: called when this member still leads, and nobody will know of the records.
            is_whole: nothing that was refused before is missing, once these are stored.
        """
        writer = self._writer
        assert writer is not None, "a member that does not lead changed the broker's state"

        def committed(error: BrokerError | None) -> None:
            # What only takes long is in this member's log, and stays there while it leads.
            if self._writer == writer and not isinstance(error, CommitTimeoutError):
                if error is not None:
                    refused()
                    refusals.refused(error)
                elif is_whole:
                    refusals.stored()
            if done is not None:
                done(error)

        size = max(map(len, bodies), default=0)
        if size > self._body_bytes_max:
            # The log would refuse all that is written in this turn together with it.
            error = (
                f"a record has {size} bytes, the log takes {self._body_bytes_max}"
                " (key mappedFileSizeCommitLog)"
            )
            committed(IllegalMessageError(error))
        elif bodies:
            self._write(bodies, committed)

    def copy(
        self,
        topics: Iterable[TopicConfig],
        groups: Iterable[SubscriptionGroup],
        offsets: OffsetsByKey,
    ) -> None:
        """Takes over what a leader told that writes no records; nothing is removed, but that who
        holds which queue is not known any more.
        """
        if len(self.locks):
            self.locks.clear()
            self.are_locks_unsaved = True
        now_ms = self._now_ms()
        for topic in topics:
            if self.topics.put(topic, now_ms):
                self._topics_changed()
        for group in groups:
            if self.groups.put(group, now_ms):
                self.are_groups_unsaved = True
        if offsets:
            self.offsets.follow(offsets)
            self.are_offsets_unsaved = True

    # Committed records, on every member.

    def apply(self, body: bytes, index: int) -> None:
        """Applies one committed record; a record that nobody understands is left out.

        Args:
            body: of the message at `index`.
            index: of the entry, in order; the same one may come again after a restart.
        """
        try:
            record = json.loads(body)
        except ValueError:
            return
        if not isinstance(record, dict):
            return
        if record.get("kind") == "topics":
            for name in _texts(record.get("removed")):
                self.pulled.remove_topic(name)
                self._on_topic_removed(name)
        if record.get("kind") == "snapshot":
            self._reader.note(record, index)
        self.progress.follow_record(record, index)
        if self._writer is not None and record.get("by") == self._writer:
            return
        match record.get("kind"):
            case "topics":
                self._apply_topics(record)
            case "groups":
                self._apply_groups(record)
            case "offsets":
                self._apply_offsets(record)
            case "locks":
                put = record.get("put")
                self.locks.follow(put if isinstance(put, Mapping) else {})
                self.are_locks_unsaved = True
            case "snapshot":
                self._apply_snapshot_part(record)
            case "access" if self.access is not None:
                self.access.follow(record)

    def _apply_topics(self, record: Mapping[str, Any]) -> None:
        put = [TopicConfig.from_json(name, value) for name, value in objects(record.get("put"))]
        version = DataVersion.from_json(record.get("version"))
        self.topics.follow(put, _texts(record.get("removed")), version)
        self._topics_changed()

    def _apply_groups(self, record: Mapping[str, Any]) -> None:
        put = [
            SubscriptionGroup.from_json(name, value) for name, value in objects(record.get("put"))
        ]
        version = DataVersion.from_json(record.get("version"))
        removed = _texts(record.get("removed"))
        for name in removed:
            self.pulled.remove_group(name)
        self.groups.follow(put, removed, version)
        self.are_groups_unsaved = True

    def _apply_offsets(self, record: Mapping[str, Any]) -> None:
        for group in _texts(record.get("removedGroups")):
            self.offsets.remove_group(group)
        for topic in _texts(record.get("removedTopics")):
            self.offsets.remove_topic(topic)
        self.offsets.follow(offsets_from_json(dict(objects(record.get("put")))))
        self.are_offsets_unsaved = True

    def _apply_snapshot_part(self, record: Mapping[str, Any]) -> None:
        tables = self._reader.take(record)
        if tables is None:
            return
        self.topics.replace_all(tables.topics, DataVersion.from_json(record.get("topicsVersion")))
        self.groups.replace_all(tables.groups, DataVersion.from_json(record.get("groupsVersion")))
        self.offsets.replace_all(tables.offsets)
        self.locks.replace_all(tables.locks)
        self._topics_changed()
        self.are_groups_unsaved = self.are_offsets_unsaved = self.are_locks_unsaved = True

    def _topics_changed(self) -> None:
        self.are_topics_unsaved = True
        self._on_topics_changed()


def _texts(value: object) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
