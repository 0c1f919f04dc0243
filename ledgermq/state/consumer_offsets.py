"""The offsets that consumer groups committed: group, topic, queue -> number of the next message to
consume.

Pure. The last write wins, a smaller offset is accepted. The table is a part of the replicated
state: only `machine.py` changes it. Source: `ConsumerOffsetManager.java`.
"""

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, filterfalse
from typing import Any, Final, NamedTuple

from ledgermq.protocol.group_keys import SEPARATOR, group_key, split_group_key
from ledgermq.state.document import Document
from ledgermq.state.errors import InvalidRequestError, SystemBusyError
from ledgermq.state.json_values import INT32, INT64, NAME_CHARS_MAX, is_text
from ledgermq.state.names import LIGHT_QUEUE_PREFIX
from ledgermq.state.ordered_names import OrderedNames
from ledgermq.state.removals import Removals
from ledgermq.state.topics import QUEUES_MAX

_OFFSET_MAX: Final = INT64.stop - 1
# Of a queue id, and of its text: Python refuses to read one of some thousand digits.
_QUEUE_ID_MAX: Final = INT32.stop - 1
_QUEUE_DIGITS_MAX: Final = 10
# Of a key in an error.
_SHOWN_CHARS_MAX: Final = 80
_KEY_CHARS_MAX: Final = 2 * NAME_CHARS_MAX
# Of all offsets as JSON: below what a state file may have, and read within seconds at a start.
OFFSETS_BYTES_MAX: Final = 128 << 20
# What a pair takes besides its key, and what a queue takes: the longest id and offset, quoted.
_PAIR_BYTES: Final = 16
_QUEUE_BYTES: Final = 30

# topic@group -> queue_id -> offset
OffsetsByKey = dict[str, dict[int, int]]
_NO_OFFSETS: Final[Mapping[int, int]] = {}
# Pairs of a removal that one turn drops, in two ms. One with a few is done at once: a hundred such
# commands may be applied in one turn.
_DROPPED_MAX: Final = 1000
_AT_ONCE_PART: Final = 8


class Room(NamedTuple):
    """What offsets take in the table that it has not yet."""

    pairs: int = 0
    bytes: int = 0

    def plus(self, other: "Room") -> "Room":
        """Returns the sum."""
        return Room(self.pairs + other.pairs, self.bytes + other.bytes)

    def minus(self, other: "Room") -> "Room":
        """Returns what is left without the other."""
        return Room(self.pairs - other.pairs, self.bytes - other.bytes)


NO_ROOM: Final = Room()


class ConsumerOffsetTable:
    """All committed offsets of this broker."""

    def __init__(
        self,
        keys_max: int,
        *,
        bytes_max: int = OFFSETS_BYTES_MAX,
        knows_light_queues: bool = False,
        dropped_max: int = _DROPPED_MAX,
    ) -> None:
        """Begins empty.

        Args:
            keys_max: pairs of topic and group.
            bytes_max: of all offsets as JSON.
            knows_light_queues: whether offsets of light groups stand apart in JSON, as upstream
                has it with enableLmq.
            dropped_max: pairs that one call of `drop_some` drops.
        """
        self.knows_light_queues = knows_light_queues
        self._offsets: OffsetsByKey = {}
        # The pairs that stand apart in JSON, and all others.
        self._light = OrderedNames()
        self._others = OrderedNames()
        # Of each group: a million pairs are not looked through for one group's.
        self._topics_of: dict[str, OrderedNames] = {}
        # What is removed and not yet dropped.
        self._removals = Removals()
        self._dropped_max = dropped_max
        self._keys_max = keys_max
        # At most what the offsets take as JSON.
        self.json_bytes = 0
        self._bytes_max = bytes_max

    def __len__(self) -> int:
        """Pairs in memory: also those that are removed and not yet dropped."""
        return len(self._offsets)

    def __contains__(self, key: str) -> bool:
        is_hidden = bool(self._removals.numbers) and self._removals.hides(key)
        return key in self._offsets and not is_hidden

    def find(self, group: str, topic: str, queue_id: int) -> int | None:
        """Returns the committed offset, or None when the group never committed one."""
        return self.of_key(group_key(topic, group)).get(queue_id)

    def of_key(self, key: str) -> Mapping[int, int]:
        """Returns the offsets of one pair by queue id; empty when there are none."""
        queues = self._offsets.get(key, _NO_OFFSETS)
        if self._removals.numbers and self._removals.hides(key):
            return _NO_OFFSETS
        return queues

    def of_topic(self, group: str, topic: str) -> dict[int, int]:
        """Returns the offsets of one group by queue id; empty when there are none."""
        return dict(self.of_key(group_key(topic, group)))

    def check(self, key: str, queue_id: int, offset: int) -> None:
        """Raises InvalidRequestError for a number that no offset or queue can have.

        Args:
            key: topic@group.
        """
        if not 0 <= queue_id < QUEUES_MAX or not 0 <= offset <= _OFFSET_MAX:
            raise InvalidRequestError(
                f"offset {offset} of {key} queue {queue_id} not stored: allowed are"
                f" offsets from 0 to {_OFFSET_MAX} and queue ids from 0 to {QUEUES_MAX - 1}"
            )

    def room_for(
        self, key: str, queue_id: int, more: Room = NO_ROOM, *, is_pair_coming: bool = False
    ) -> Room:
        """Returns what an offset takes that a group wants to commit; nothing where it replaces one.

        Args:
            key: topic@group.
            more: taken by what is on its way into the table.
            is_pair_coming: whether offsets of the same pair are among it.

        Raises:
            InvalidRequestError: no record can hold the names.
            SystemBusyError: one more pair of topic and group, or one more queue, would pass the
                limit.
        """
        if queue_id in self.of_key(key):
            return NO_ROOM
        is_new = key not in self and not is_pair_coming
        if is_new and not is_pair(key):
            raise InvalidRequestError(
                f"cannot store an offset of {key[:_SHOWN_CHARS_MAX]!r}: a name has a {SEPARATOR},"
                f" is no UTF-8, or too long ({len(key)} characters together, limit"
                f" {_KEY_CHARS_MAX})"
            )
        pairs = len(self._offsets) + more.pairs
        if is_new and pairs >= self._keys_max:
            raise SystemBusyError(
                f"offset of {key} not stored: there are {pairs}"
                f" pairs of topic and group, allowed are {self._keys_max}"
            )
        needed = Room(int(is_new), _QUEUE_BYTES + (_key_bytes(key) if is_new else 0))
        size = self.json_bytes + more.bytes
        if size + needed.bytes > self._bytes_max:
            raise SystemBusyError(
                f"offset of {key} not stored: the offsets of {pairs} pairs of topic"
                f" and group take {size} bytes, allowed are {self._bytes_max}"
            )
        return needed

    def put(self, changes: Mapping[str, Mapping[int, int]]) -> None:
        """Adds and replaces offsets; nothing is removed."""
        for key, queues in changes.items():
            known = self._offsets.get(key)
            if self._removals.numbers:
                if known is not None and self._removals.hides(key):
                    self._drop(key)
                    known = None
                self._removals.note_written(key)
            if known is None:
                known = self._offsets[key] = {}
                self._others.add(key)
                self._note(key)
                self.json_bytes += _key_bytes(key)
            count, former = len(known), self._names_with(key, known)
            known.update(queues)
            self.json_bytes += (len(known) - count) * _QUEUE_BYTES
            names = self._names_with(key, known)
            if names is not former:
                former.remove(key)
                names.add(key)

    def replace_all(self, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Takes over all offsets of a document."""
        self._removals = Removals()
        self._offsets = {key: dict(queues) for key, queues in offsets.items()}
        self._light = OrderedNames(
            key for key, queues in self._offsets.items() if self._stands_apart(key, queues)
        )
        self._others = OrderedNames(
            key for key, queues in self._offsets.items() if not self._stands_apart(key, queues)
        )
        self._topics_of.clear()
        for key in self._offsets:
            self._note(key)
        self.json_bytes = sum(
            _key_bytes(key) + len(queues) * _QUEUE_BYTES for key, queues in offsets.items()
        )

    # Piece by piece.

    def behind(self, after: str) -> Iterator[tuple[str, Any]]:
        """Yields the pairs behind a key, in order, with their offsets by queue id."""
        for key in self._keys_behind(after):
            yield key, self._offsets[key]

    def _keys_behind(self, after: str) -> Iterator[str]:
        return self._visible(heapq.merge(self._others.behind(after), self._light.behind(after)))

    def _visible(self, keys: Iterable[str]) -> Iterator[str]:
        """Leaves out what is removed, of groups: the lists have no pairs of removed topics."""
        return filterfalse(self._removals.hides, keys) if self._removals.numbers else iter(keys)

    def replace_range(
        self, after: str, upto: str | None, put: Mapping[str, Mapping[int, int]]
    ) -> bool:
        """Has exactly `put` among the keys behind `after`, up to `upto`.

        Returns:
            Whether something changed by it.
        """
        keys = self._others.between(after, upto) + self._light.between(after, upto)
        former = {key: self._offsets[key] for key in self._visible(keys)}
        if former == put:
            return False
        for key in former:
            self._drop(key)
        self.put(put)
        return True

    def merge(self, put: Mapping[str, Mapping[int, int]]) -> bool:
        """Adds and replaces offsets; returns whether something changed by it."""
        has_changed = any(
            self.of_key(key).get(queue_id) != offset
            for key, queues in put.items()
            for queue_id, offset in queues.items()
        )
        self.put(put)
        return has_changed

    def joined(self, name: str, value: Mapping[int, int]) -> dict[int, int]:
        """Returns the offsets of a pair, changed by a part of them."""
        return {**self.of_key(name), **value}

    def keep_only(self, name: str, parts: Sequence[Mapping[int, int] | None]) -> bool:
        """Forgets the offsets of a pair that none of some parts has; returns whether any went."""
        known = self.of_key(name)
        told = {queue_id for part in parts for queue_id in part or ()}
        kept = {queue_id: offset for queue_id, offset in known.items() if queue_id in told}
        if len(kept) == len(known):
            return False
        self._drop(name)
        if kept:
            self.put({name: kept})
        return True

    def topics_of(self, group: str) -> list[str]:
        """Returns the topics for which a group has offsets, in order."""
        topics = self._topics_of.get(group, ())
        if not self._removals.numbers:
            return list(topics)
        return [topic for topic in topics if group_key(topic, group) in self]

    def groups_behind(self, topic: str, after: str = "") -> Iterator[str]:
        """Yields the groups behind a name that have offsets for a topic, in order."""
        start = topic + SEPARATOR
        for key in self._keys_behind(start + after):
            if not key.startswith(start):
                return
            yield key[len(start) :]

    def remove(self, keys: Iterable[str]) -> None:
        """Forgets all offsets of some pairs, those that are there."""
        for key in keys:
            if key in self:
                self._drop(key)

    def remove_group(self, group: str) -> None:
        """Forgets all offsets of a group; of many the memory is freed by `drop_some`."""
        topics = self._topics_of.pop(group, None)
        if topics is None:
            return
        keys = (group_key(topic, group) for topic in topics)
        if self._is_small(len(topics)):
            self._drop_all(keys)
        else:
            self._removals.begin_group(group, keys)

    def remove_topic(self, topic: str) -> None:
        """Forgets all offsets for a topic; of many the memory is freed by `drop_some`."""
        # Keys of no other topic are between the two.
        begin, end = topic + SEPARATOR, topic + chr(ord(SEPARATOR) + 1)
        runs = self._others.cut(begin, end) + self._light.cut(begin, end)
        keys = chain.from_iterable(runs)
        if self._is_small(sum(map(len, runs))):
            self._drop_all(keys)
        else:
            self._removals.begin_topic(topic, keys)

    def _is_small(self, count: int) -> bool:
        return count <= self._dropped_max // _AT_ONCE_PART

    def drop_some(self) -> int:
        """Frees the memory of some pairs that are removed; called many times a second.

        Returns:
            How many pairs were dropped.
        """
        return self._drop_all(self._removals.take(self._dropped_max))

    def _drop_all(self, keys: Iterable[str]) -> int:
        """Drops those of the pairs that are still in memory; returns how many."""
        count = len(self._offsets)
        for key in keys:
            if key in self._offsets:
                self._drop(key)
        return count - len(self._offsets)

    def _drop(self, key: str) -> None:
        """Takes a pair out of whatever still has it."""
        queues = self._offsets.pop(key)
        self.json_bytes -= _key_bytes(key) + len(queues) * _QUEUE_BYTES
        self._names_with(key, queues).discard(key)
        topic, group = split_group_key(key)
        topics = self._topics_of.get(group)
        if topics is not None:
            topics.discard(topic)
            if not topics:
                del self._topics_of[group]

    def _names_with(self, key: str, queues: Mapping[int, int]) -> OrderedNames:
        return self._light if self._stands_apart(key, queues) else self._others

    def _stands_apart(self, key: str, queues: Mapping[int, int]) -> bool:
        """Tells whether a pair is one of a light group, with the one queue that these have."""
        return self.knows_light_queues and queues.keys() == {0} and _is_of_light_group(key)

    def _note(self, key: str) -> None:
        topic, group = split_group_key(key)
        topics = self._topics_of.get(group)
        if topics is None:
            topics = self._topics_of[group] = OrderedNames()
        topics.add(topic)

    def all(self) -> OffsetsByKey:
        """Returns all offsets; the dicts are the table's own and must not be changed."""
        if not self._removals.numbers:
            return self._offsets
        return {key: self._offsets[key] for key in self._visible(self._offsets)}

    def document(self) -> Document:
        """Returns the content of consumerOffset.json."""
        if not self.knows_light_queues:
            return Document({}, (("offsetTable", self.behind),))
        tables = (("lmqOffsetTable", self._light_behind), ("offsetTable", self._others_behind))
        return Document({}, tables)

    def _light_behind(self, after: str) -> Iterator[tuple[str, Any]]:
        for key in self._visible(self._light.behind(after)):
            yield key, self._offsets[key][0]

    def _others_behind(self, after: str) -> Iterator[tuple[str, Any]]:
        for key in self._visible(self._others.behind(after)):
            yield key, self._offsets[key]

    def to_json(self) -> dict[str, Any]:
        """Returns all of it at once: the body of code 43."""
        return self.document().whole()

    def load_json(self, value: Mapping[str, Any]) -> None:
        """Takes over the content of consumerOffset.json; entries that are not offsets are left
        out.
        """
        self.replace_all(offsets_of_document(value))


def _key_bytes(key: str) -> int:
    return _PAIR_BYTES + len(json.dumps(key))


def _is_of_light_group(key: str) -> bool:
    return split_group_key(key)[1].startswith(LIGHT_QUEUE_PREFIX)


def offsets_of_document(value: Mapping[str, Any]) -> OffsetsByKey:
    """Reads the content of consumerOffset.json or of lmqConsumerOffset.json."""
    table, light = value.get("offsetTable"), value.get("lmqOffsetTable")
    entries = dict(table) if isinstance(table, Mapping) else {}
    if isinstance(light, Mapping):
        entries |= {key: {"0": offset} for key, offset in light.items()}
    return offsets_from_json(entries)


def offsets_from_json(table: Mapping[str, Any]) -> OffsetsByKey:
    """Reads `{"topic@group": {"0": 5}}`, queue ids as text or numbers; the rest is left out."""
    offsets: OffsetsByKey = {}
    for key, queues in table.items():
        if is_pair(key) and isinstance(queues, Mapping):
            offsets[key] = offsets_by_queue(queues)
    return offsets


def is_pair(key: str) -> bool:
    """Tells whether a text may be topic@group: neither of the two names has a separator."""
    return key.count(SEPARATOR) == 1 and len(key) <= _KEY_CHARS_MAX and is_text(key)


def offsets_by_queue(table: Mapping[Any, Any]) -> dict[int, int]:
    """Reads `{"0": 5}`, queue ids as text or numbers; what is not understood is left out."""
    return {
        number: offset
        for text, offset in ((str(queue_id), offset) for queue_id, offset in table.items())
        if text.isdecimal()
        and len(text) <= _QUEUE_DIGITS_MAX
        and (number := int(text)) <= _QUEUE_ID_MAX
        and type(offset) is int
        and 0 <= offset <= _OFFSET_MAX
    }
