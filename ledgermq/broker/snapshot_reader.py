"""Snapshots of the broker's state as they are read from the log: part by part, whole or not at all.

Pure. What a record says is taken as it comes, and left out where it makes no sense.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ledgermq.broker.consumer_offsets import OffsetsByKey, offsets_from_json
from ledgermq.broker.subscriptions import SubscriptionGroup
from ledgermq.broker.topics import TopicConfig


class Tables(NamedTuple):
    """What a whole snapshot holds."""

    topics: list[TopicConfig]
    groups: list[SubscriptionGroup]
    offsets: OffsetsByKey
    locks: dict[str, list[Any]]


class SnapshotReader:
    """The snapshot under way, and where the last whole one stands."""

    def __init__(self) -> None:
        # Where the last whole snapshot begins that is committed, -1 while none was seen: a member
        # whose log begins behind it knows less than the whole state.
        self.snapshot_index = -1
        # Of the snapshot under way: its id, how many parts came, and where it begins.
        self._under_way: tuple[object, int, int] = (None, 0, -1)
        # Parts of a snapshot that is not complete, and its id.
        self._parts: list[Mapping[str, Any]] = []
        self._parts_id: object = None

    def note(self, record: Mapping[str, Any], index: int) -> None:
        """Notes that a part is committed, whoever wrote it."""
        name, part = record.get("id"), record.get("part")
        if part == 0:
            self._under_way = (name, 0, index)
        known, count, begin = self._under_way
        if (known, count) == (name, part):
            self._under_way = (name, count + 1, begin)
            if count + 1 == record.get("parts"):
                self.snapshot_index = begin

    def take(self, record: Mapping[str, Any]) -> Tables | None:
        """Takes one part; returns the tables when it was the last one and all came."""
        snapshot_id, part, parts = record.get("id"), record.get("part"), record.get("parts")
        if part == 0:
            self._parts_id, self._parts = snapshot_id, []
        if snapshot_id != self._parts_id or part != len(self._parts):
            self._parts_id, self._parts = None, []
            return None
        self._parts.append(record)
        if len(self._parts) != parts:
            return None
        pieces, self._parts_id, self._parts = self._parts, None, []
        return _tables(pieces)


def _tables(pieces: list[Mapping[str, Any]]) -> Tables:
    """Puts the parts of a snapshot together: one key's offsets or locks may stand in several."""
    topics: dict[str, TopicConfig] = {}
    groups: dict[str, SubscriptionGroup] = {}
    offsets: OffsetsByKey = {}
    locks: dict[str, list[Any]] = {}
    for piece in pieces:
        for name, value in objects(piece.get("topics")):
            topics[name] = TopicConfig.from_json(name, value)
        for name, value in objects(piece.get("groups")):
            groups[name] = SubscriptionGroup.from_json(name, value)
        for key, queues in offsets_from_json(dict(objects(piece.get("offsets")))).items():
            offsets.setdefault(key, {}).update(queues)
        held = piece.get("locks")
        for group, rows in held.items() if isinstance(held, Mapping) else ():
            locks.setdefault(group, []).extend(rows if isinstance(rows, list) else ())
    return Tables(list(topics.values()), list(groups.values()), offsets, locks)


def objects(value: object) -> list[tuple[str, Mapping[str, Any]]]:
    """Returns the members of an object that are objects themselves."""
    if not isinstance(value, Mapping):
        return []
    return [(name, entry) for name, entry in value.items() if isinstance(entry, Mapping)]
