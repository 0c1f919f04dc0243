"""Commands: what changes the broker's state, and their form as records of the ledger. Pure.

A command says what shall be, never what to do with what is there: so it may be applied again after
a restart, and a member that has nothing yet takes it as well. Bodies are JSON objects with the
format's version and the writer, the member and term that proposed it:

    {"v":1,"by":B,"kind":"topics","put":{name: object},"removed":[name],"version":{...}}
    {"v":1,"by":B,"kind":"groups",...the same...,"forgets":bool}
    {"v":1,"by":B,"kind":"offsets","put":{"topic@group":{"queue":offset}}}
    {"v":1,"by":B,"kind":"locks","put":{group: [[topic, broker name, queue id, client id], ...]}}
    {"v":1,"by":B,"kind":"sweep","id":text,"part":i,"last":bool,"table":name,"after":name,
     "upto":name or null,"put":{...},"version":{...},"progress":{...}}
    {"v":1,"kind":"plan","runs":[[queue, next offset, count], ...]}
    {"v":1,"by":B,"kind":"access",...}, which `access/rules_table.py` explains

Records are cut by their bytes (`records.py`): changes of many offsets are several commands.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ledgermq.state.consumer_offsets import OffsetsByKey, offsets_from_json
from ledgermq.state.data_version import DataVersion, truth
from ledgermq.state.queue_locks import LockRow, rows_from_json
from ledgermq.state.queue_progress import Run, runs_from_json
from ledgermq.state.records import Entry, body_of, cut
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import TopicConfig

# Of the records that this program writes.
FORMAT_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """Topics are made, replaced and removed; with a topic go the offsets for it."""

    put: Sequence[TopicConfig] = ()
    removed: Sequence[str] = ()
    # Of the table, when this is applied.
    version: DataVersion = DataVersion()


@dataclass(frozen=True, slots=True)
class GroupsChanged:
    """Subscription groups are made, replaced and removed."""

    put: Sequence[SubscriptionGroup] = ()
    removed: Sequence[str] = ()
    # The offsets of those removed go with them.
    forgets_offsets: bool = False
    # As in TopicsChanged.
    version: DataVersion = DataVersion()


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """Groups have consumed so far."""

    put: OffsetsByKey


@dataclass(frozen=True, slots=True)
class LocksChanged:
    """Queues have another holder, or none."""

    put: Mapping[str, Sequence[LockRow]]


@dataclass(frozen=True, slots=True)
class DeliveriesPlanned:
    """Deliveries follow; see `queue_progress.py`."""

    runs: Sequence[Run]


@dataclass(frozen=True, slots=True)
class AccessChanged:
    """The rules of access control are these, whole."""

    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SweepPart:
    """A table has exactly these entries among the names behind `after`, up to `upto`.

    One entry that is too large for a record stands in several: the others add to the first.
    """

    sweep_id: str
    part: int
    is_last: bool
    # A name of StateMachine.swept.
    table: str
    put: Mapping[str, Any]
    # None in a part that adds to the one before it.
    after: str | None = None
    # None for the end of the table.
    upto: str | None = None
    # Of the topics or groups; None for other tables.
    version: DataVersion | None = None
    # Cursors of internal queues; in the first part only.
    progress: Mapping[str, int] | None = field(default=None)


Command = (
    TopicsChanged
    | GroupsChanged
    | OffsetsCommitted
    | LocksChanged
    | DeliveriesPlanned
    | AccessChanged
    | SweepPart
)


class Proposed(NamedTuple):
    """A command as it stands in the log."""

    command: Command
    # Member and term that proposed it; empty where nobody asks.
    writer: str


def bodies_of(command: Command, writer: str, cut_bytes: int) -> list[bytes]:
    """Returns the bodies of the records for a command, at least one unless it changes nothing.

    Args:
        cut_bytes: of what may be divided, in one record.
    """
    head: dict[str, Any] = {"v": FORMAT_VERSION, "by": writer}
    match command:
        case TopicsChanged():
            return [body_of({**head, "kind": "topics", **_changes(command)})]
        case GroupsChanged(forgets_offsets=forgets):
            members = {"kind": "groups", **_changes(command), "forgets": forgets}
            return [body_of({**head, **members})]
        case OffsetsCommitted(put=put):
            return _divided({**head, "kind": "offsets"}, put, cut_bytes)
        case LocksChanged(put=put):
            return _divided({**head, "kind": "locks"}, put, cut_bytes)
        case DeliveriesPlanned(runs=runs):
            return [body_of({"v": FORMAT_VERSION, "kind": "plan", "runs": runs})]
        case AccessChanged(record=record):
            return [body_of({**head, **record})]
        case SweepPart():
            return [sweep_body(command, writer)]


def _changes(command: TopicsChanged | GroupsChanged) -> dict[str, Any]:
    return {
        "put": {entry.name: entry.to_json() for entry in command.put},
        "removed": list(command.removed),
        "version": command.version.to_json(),
    }


def _divided(record: Mapping[str, Any], put: Mapping[str, Any], cut_bytes: int) -> list[bytes]:
    entries = [Entry("put", name, value, is_divisible=True) for name, value in put.items()]
    return [body_of(record, part) for part in cut(entries, cut_bytes)]


def sweep_body(part: SweepPart, writer: str, entries: str | None = None) -> bytes:
    """Returns the body of a part; `entries` is its `put` where that is encoded already."""
    members: dict[str, Any] = {
        "v": FORMAT_VERSION,
        "by": writer,
        "kind": "sweep",
        "id": part.sweep_id,
        "part": part.part,
        "last": part.is_last,
        "table": part.table,
    }
    if part.after is not None:
        members |= {"after": part.after, "upto": part.upto}
    if part.version is not None:
        members["version"] = part.version.to_json()
    if part.progress is not None:
        members["progress"] = part.progress
    if entries is None:
        return body_of({**members, "put": part.put})
    return body_of(members, {"put": entries})


def read_command(body: bytes) -> Proposed | None:
    """Returns the command in a record; None for one that nobody here understands.

    What makes no sense within a command is left out.
    """
    try:
        record = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or record.get("v") != FORMAT_VERSION:
        return None
    command = _command_of(record)
    writer = record.get("by")
    if command is None:
        return None
    return Proposed(command, writer if isinstance(writer, str) else "")


def _command_of(record: Mapping[str, Any]) -> Command | None:
    put, removed = record.get("put"), _texts(record.get("removed"))
    version = DataVersion.from_json(record.get("version"))
    match record.get("kind"):
        case "topics":
            topics = [TopicConfig.from_json(name, value) for name, value in objects(put)]
            return TopicsChanged(topics, removed, version)
        case "groups":
            groups = [SubscriptionGroup.from_json(name, value) for name, value in objects(put)]
            forgets = truth(record, "forgets", False)
            return GroupsChanged(groups, removed, forgets, version)
        case "offsets":
            return OffsetsCommitted(offsets_from_json(dict(objects(put))))
        case "locks":
            return LocksChanged(rows_from_json(put))
        case "plan":
            return DeliveriesPlanned(runs_from_json(record.get("runs")))
        case "access":
            return AccessChanged(record)
        case "sweep":
            return _sweep_part(record)
    return None


def _sweep_part(record: Mapping[str, Any]) -> SweepPart | None:
    after, upto, progress = record.get("after"), record.get("upto"), record.get("progress")
    match record:
        case {"id": str(sweep_id), "part": int(part), "table": str(table), "put": dict(put)}:
            return SweepPart(
                sweep_id,
                part,
                truth(record, "last", False),
                table,
                put,
                after if isinstance(after, str) else None,
                upto if isinstance(upto, str) else None,
                DataVersion.from_json(record["version"]) if "version" in record else None,
                progress if isinstance(progress, dict) else None,
            )
    return None


def objects(value: object) -> list[tuple[str, Mapping[str, Any]]]:
    """Returns the members of an object that are objects themselves."""
    if not isinstance(value, Mapping):
        return []
    return [(name, entry) for name, entry in value.items() if isinstance(entry, Mapping)]


def _texts(value: object) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
