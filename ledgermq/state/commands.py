"""Commands: what changes the broker's state, and their form as records of the ledger. Pure.

A command says what shall be, never what to do with what is there: so it may be applied again after
a restart, and a member that has nothing yet takes it as well. Bodies are JSON objects with the
format's version (`formats.py`) and the writer, the member and term that proposed it; those of
version 1 are

    {"v":1,"by":B,"kind":"topics","put":{name: object},"removed":[name],"version":{...}}
    {"v":1,"by":B,"kind":"groups",...the same...,"forgets":bool}
    {"v":1,"by":B,"kind":"offsets","put":{"topic@group":{"queue":offset}}}
    {"v":1,"by":B,"kind":"expired","put":{"topic@group":{}}}
    {"v":1,"by":B,"kind":"locks","put":{group: [[topic, broker name, queue id, client id], ...]}}
    {"v":1,"by":B,"kind":"sweep","id":text,"part":i,"last":bool,"table":name,"after":name,
     "upto":name or null,"put":{...},"version":{...},"progress":{...}}
    {"v":1,"kind":"plan","runs":[[queue, next offset, count], ...]}
    {"v":1,"by":B,"kind":"access","changed":MS,"sealed":TEXT}, which only members can open

Records are cut by their bytes (`records.py`): changes of many offsets are several commands.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ledgermq.state.consumer_offsets import OffsetsByKey, offsets_from_json
from ledgermq.state.data_version import DataVersion
from ledgermq.state.json_values import is_name, objects, truth
from ledgermq.state.queue_locks import LockRow, rows_from_json
from ledgermq.state.queue_progress import Run, runs_from_json
from ledgermq.state.records import cut
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import TopicConfig

# Makes the body of a record: of its members, and of those that are encoded already.
WriteRecord = Callable[[Mapping[str, Any], Mapping[str, str] | None], bytes]

# What a sweep goes through, in its order; `StateSweep` knows that the rules are last.
SWEPT: Final = ("topics", "groups", "offsets", "locks", "rules")


# Of a name that is told.
_SHOWN_MAX: Final = 40


class UnknownPartError(Exception):
    """A record has a kind or a table that its version has not."""


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
class OffsetsExpired:
    """All offsets of some pairs go."""

    # topic@group.
    keys: Sequence[str]


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
    """The rules of access control are these, whole and sealed."""

    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SweepPart:
    """A table has exactly these entries among the names behind `after`, up to `upto`.

    One entry that is too large for a record stands in several, one behind the other: the others add
    to the first, and with the last one the entry has what they told, and nothing else. Where the
    last one never comes, for the leader was lost, nothing of the entry is forgotten.
    """

    sweep_id: str
    part: int
    is_last: bool
    # One of SWEPT.
    table: str
    # Entries as the table has them.
    put: Mapping[str, Any]
    # None in a part that adds to the one before it.
    after: str | None = None
    # None for the end of the table.
    upto: str | None = None
    # Whether the last entry goes on in the next part.
    goes_on: bool = False
    # Of the topics or groups; None for other tables.
    version: DataVersion | None = None
    # Cursors of internal queues; in the first part only.
    progress: Mapping[str, int] | None = field(default=None)


Command = (
    TopicsChanged
    | GroupsChanged
    | OffsetsCommitted
    | OffsetsExpired
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
    # Of its record.
    version: int


def bodies_of(command: Command, writer: str, cut_bytes: int, write: WriteRecord) -> list[bytes]:
    """Returns the bodies of the records for a command, at least one unless it changes nothing.

    Args:
        cut_bytes: of what may be divided, in one record.
        write: makes each body.
    """
    head: dict[str, Any] = {"by": writer}
    match command:
        case TopicsChanged():
            return [write({**head, "kind": "topics", **_changes(command)}, None)]
        case GroupsChanged(forgets_offsets=forgets):
            members = {"kind": "groups", **_changes(command), "forgets": forgets}
            return [write({**head, **members}, None)]
        case OffsetsCommitted(put=put):
            return _divided({**head, "kind": "offsets"}, put, cut_bytes, write)
        case OffsetsExpired(keys=keys):
            gone: dict[str, Any] = {key: {} for key in keys}
            return _divided({**head, "kind": "expired"}, gone, cut_bytes, write)
        case LocksChanged(put=put):
            return _divided({**head, "kind": "locks"}, put, cut_bytes, write)
        case DeliveriesPlanned(runs=runs):
            return [write({"kind": "plan", "runs": runs}, None)]
        case AccessChanged(record=record):
            return [write({**head, **record}, None)]
        case SweepPart():
            return [sweep_body(command, writer, write)]


def _changes(command: TopicsChanged | GroupsChanged) -> dict[str, Any]:
    return {
        "put": {entry.name: entry.to_json() for entry in command.put},
        "removed": list(command.removed),
        "version": command.version.to_json(),
    }


def _divided(
    record: Mapping[str, Any], put: Mapping[str, Any], cut_bytes: int, write: WriteRecord
) -> list[bytes]:
    return [write(record, {"put": entries}) for entries in cut(put, cut_bytes)]


def sweep_body(
    part: SweepPart, writer: str, write: WriteRecord, entries: str | None = None
) -> bytes:
    """Returns the body of a part; `entries` is its `put` where that is encoded already."""
    members: dict[str, Any] = {
        "by": writer,
        "kind": "sweep",
        "id": part.sweep_id,
        "part": part.part,
        "last": part.is_last,
        "table": part.table,
    }
    if part.after is not None:
        members |= {"after": part.after, "upto": part.upto}
    if part.goes_on:
        # Former programs pass it over, and take the first of the parts for the whole entry.
        members["goes_on"] = True
    if part.version is not None:
        members["version"] = part.version.to_json()
    if part.progress is not None:
        members["progress"] = part.progress
    if entries is None:
        return write({**members, "put": part.put}, None)
    return write(members, {"put": entries})


def command_of(record: Mapping[str, Any]) -> Command | None:
    """Returns the command in the members of a record of version 1, None for one without sense.

    What makes no sense within a command is left out.

    Raises:
        UnknownPartError: it is of a kind or table that this version has not.
    """
    put, removed = record.get("put"), _names(record.get("removed"))
    version = DataVersion.from_json(record.get("version"))
    match record.get("kind"):
        case "topics":
            return TopicsChanged(list(_topics(put).values()), removed, version)
        case "groups":
            forgets = truth(record, "forgets", False)
            return GroupsChanged(list(_groups(put).values()), removed, forgets, version)
        case "offsets":
            return OffsetsCommitted(_offsets(put))
        case "expired":
            return OffsetsExpired(list(_offsets(put)))
        case "locks":
            return LocksChanged(rows_from_json(put))
        case "plan":
            return DeliveriesPlanned(runs_from_json(record.get("runs")))
        case "access":
            return AccessChanged(record)
        case "sweep":
            return _sweep_part(record)
        case str(kind):
            raise UnknownPartError(f"kind {kind[:_SHOWN_MAX]!r}")
    return None


def _sweep_part(record: Mapping[str, Any]) -> SweepPart | None:
    after, upto, progress = record.get("after"), record.get("upto"), record.get("progress")
    match record:
        case {"id": str(sweep_id), "part": int(part), "table": str(table), "put": dict(put)}:
            if table not in SWEPT:
                raise UnknownPartError(f"table {table[:_SHOWN_MAX]!r}")
            return SweepPart(
                sweep_id,
                part,
                truth(record, "last", False),
                table,
                _ENTRIES_OF[table](put),
                after if isinstance(after, str) else None,
                upto if isinstance(upto, str) else None,
                truth(record, "goes_on", False),
                DataVersion.from_json(record["version"]) if "version" in record else None,
                progress if isinstance(progress, dict) else None,
            )
    return None


def _topics(put: object) -> dict[str, TopicConfig]:
    return {name: TopicConfig.from_json(name, value) for name, value in objects(put)}


def _groups(put: object) -> dict[str, SubscriptionGroup]:
    return {name: SubscriptionGroup.from_json(name, value) for name, value in objects(put)}


def _offsets(put: object) -> OffsetsByKey:
    return offsets_from_json(put) if isinstance(put, Mapping) else {}


def _rules(put: Mapping[str, Any]) -> Mapping[str, Any]:
    """As they are: AccessRecord alone knows what makes sense."""
    return put


def _names(value: object) -> list[str]:
    return [text for text in value if is_name(text)] if isinstance(value, list) else []


# Read the entries of a part of a sweep.
_ENTRIES_OF: Final[Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]]] = {
    "topics": _topics,
    "groups": _groups,
    "offsets": _offsets,
    "locks": rows_from_json,
    "rules": _rules,
}
