"""Replicated tables: what the log says of them, and what each member must therefore know.

I25  a committed group offset is not forgotten, over restarts and changes of the leader, unless its
     topic is removed: then it is nowhere, also when the topic comes back
I26  a topic or group that was acknowledged as made is there, as it was made, on every leader, on
     every member whose broker has applied it, and after every restart; versions do not go back;
     one whose removal was acknowledged is nowhere, just so
I40  members that have applied the same record of the state have the same state
I39  a group offset is committed when its consumer, who waited for that, is answered
Rules of access control and deliveries have watchers of their own: `rule_changes.py`,
`deliveries.py`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ledgermq.protocol.group_keys import split_group_key
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.queue_progress import QueueProgress
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import TopicConfig
from ledgermq.testing.simulation.deliveries import DeliveryWatch
from ledgermq.testing.simulation.formats import FormatWatch
from ledgermq.testing.simulation.invariants import demand
from ledgermq.testing.simulation.next_format import members_of
from ledgermq.testing.simulation.rule_changes import RulesWatch

Config = TopicConfig | SubscriptionGroup


class _Known(NamedTuple):
    """What the log says of one name."""

    # Of the record that said so last.
    entry_index: int
    value: Any


class TableWatch:
    """The tables as the committed log has them."""

    def __init__(self, hit: Callable[[str], None], formats: FormatWatch) -> None:
        """The tables are empty; `formats` is told of the versions of records."""
        self._hit = hit
        self._formats = formats
        self.rules = RulesWatch(hit)
        self.deliveries = DeliveryWatch(hit)
        # topic@group, queue -> the record and its offset.
        self._offsets: dict[tuple[str, int], _Known] = {}
        # Those that went with their topic, with the record that said so last: it removed the topic,
        # or swept over the pair.
        self._forgotten: dict[tuple[str, int], int] = {}
        # "topics" or "groups", name -> the record and the configuration.
        self._configs: dict[tuple[str, str], _Known] = {}
        # Those that somebody was told of as made, and does not want to remove.
        self._acked: dict[tuple[str, str], Config] = {}
        # Those that somebody was told of as removed, with the record that said so last: it removed
        # it, or swept over the name. A member whose log begins behind the one knows the other.
        self._removed: dict[tuple[str, str], int] = {}
        # The record and the changes of the tables up to it.
        self._versions: dict[str, _Known] = {}
        # The state behind each record, and the member that had it first.
        self._states: dict[int, tuple[str, str]] = {}
        # The last record that each member has applied.
        self._reached: dict[str, int] = {}

    def on_record(self, index: int, body: bytes) -> None:
        """A record of the state is committed."""
        value = members_of(body)
        self._formats.on_record(index, value["v"])
        kind = value["kind"]
        table = value.get("table", kind)
        if table in ("topics", "groups"):
            self._take_sweep(index, table, value)
            self._take_configs(index, table, value["put"], value.get("removed", ()))
            self._take_version(index, table, value["version"])
        elif table == "offsets":
            self._take_sweep_of_offsets(index, value)
            self._take_offsets(index, value["put"])
        self.rules.on_record(index, value)
        self.deliveries.on_record(index, value)
        self.on_expired(index, value)

    def on_expired(self, index: int, value: Mapping[str, Any]) -> None:
        """A record is committed, or applied by the first member: every member forgets offsets that
        it lets go (I40). Whether that was right the leader was asked (I44).
        """
        if value["kind"] == "expired":
            gone = value["put"]
            self._offsets = {
                place: known
                for place, known in self._offsets.items()
                if place[0] not in gone or known.entry_index > index
            }

    def _take_sweep(self, index: int, table: str, value: Mapping[str, Any]) -> None:
        after, upto = value.get("after"), value.get("upto")
        if value["kind"] == "sweep" and after is not None:
            for place in self._removed:
                if place[0] == table and place[1] > after and (upto is None or place[1] <= upto):
                    self._removed[place] = index

    def _take_sweep_of_offsets(self, index: int, value: Mapping[str, Any]) -> None:
        if value["kind"] != "sweep":
            return
        after, upto = value.get("after"), value.get("upto")
        if value.get("goes_on"):
            self._hit("part of a snapshot's entry that goes on")
        if after is None:
            self._hit("later part of a snapshot's entry")
            return
        for place in self._forgotten:
            if place[0] > after and (upto is None or place[0] <= upto):
                self._forgotten[place] = index

    def _take_configs(
        self, index: int, table: str, put: Mapping[str, Any], removed: Iterable[str]
    ) -> None:
        for name, entry in put.items():
            self._configs[table, name] = _Known(index, entry)
            if self._removed.pop((table, name), None) is not None:
                self._hit("removed configuration came back")
        for name in removed:
            self._configs[table, name] = _Known(index, None)
            if table == "topics":
                self._forget_offsets(index, name)

    def _forget_offsets(self, index: int, topic: str) -> None:
        for place in [place for place in self._offsets if split_group_key(place[0])[0] == topic]:
            del self._offsets[place]
            self._forgotten[place] = index
            self._hit("offset forgotten with its topic")

    def _take_version(self, index: int, table: str, version: Mapping[str, int]) -> None:
        known = self._versions.get(table)
        counter = version["counter"]
        is_later = known is None or counter >= known.value
        demand(is_later, "I26 version goes back", table, index, known, counter)
        self._versions[table] = _Known(index, counter)

    def _take_offsets(self, index: int, put: Mapping[str, Mapping[str, int]]) -> None:
        for key, queues in put.items():
            for queue_id, offset in queues.items():
                self._offsets[key, int(queue_id)] = _Known(index, offset)
                self._forgotten.pop((key, int(queue_id)), None)

    def on_offset_acked(self, key: str, queue_id: int, offset: int) -> None:
        """A consumer was told that an offset is stored."""
        known = self._offsets.get((key, queue_id))
        is_stored = known is not None and known.value >= offset
        demand(is_stored, "I39 offset answered and not committed", key, queue_id, offset, known)
        self._hit("offset acknowledged")

    def on_acked(self, config: Config) -> None:
        """Somebody was told that a topic or group is made now."""
        table = _table_of(config)
        known = self._configs.get((table, config.name))
        demand(known is not None, "I26 acknowledged and not committed", table, config.name)
        assert known is not None
        demand(known.value == config.to_json(), "I26 another one is committed", config, known)
        self._acked[table, config.name] = config
        self._hit("configuration acknowledged")

    def on_removing(self, config: Config) -> None:
        """Somebody asks for a removal: from now on it may be there or not."""
        self._acked.pop((_table_of(config), config.name), None)

    def on_removed(self, config: Config) -> None:
        """Somebody was told that a topic or group is not there any more."""
        place = (_table_of(config), config.name)
        known = self._configs.get(place)
        is_gone = known is not None and known.value is None
        demand(is_gone, "I26 removal acknowledged and not committed", place, known)
        assert known is not None
        self._removed[place] = known.entry_index
        self._hit("configuration removed")

    def on_serving(self, member_id: str, state: BrokerState, known_index: int) -> None:
        """A leader begins to serve: it knows all that was committed up to its term."""
        for _ in {key for key, _ in self._offsets}:
            self._hit("consumer offset read from new leader")
        self.check(member_id, state, known_index)

    def on_applied(self, member_id: str, state: BrokerState, index: int) -> None:
        """I40: a member that knows all of the log has applied the record at an index."""
        if index <= self._reached.get(member_id, -1):
            # Applied once more after a restart: the files may have what came later.
            return
        self._reached[member_id] = index
        tables = (state.topics, state.groups, state.offsets, state.locks, state.access_record)
        known = [*(table.document().whole() for table in tables), state.formats.applied]
        known.append(_worked_off(state.progress, index))
        text = json.dumps(known, sort_keys=True)
        first, expected = self._states.setdefault(index, (member_id, text))
        demand(text == expected, "I40 states differ", index, member_id, text, first, expected)
        if first != member_id:
            self._hit("same state on two members")

    def check(self, member_id: str, state: BrokerState, applied_index: int | None) -> None:
        """I25, I26 of one member.

        Args:
            member_id: names it.
            state: its tables.
            applied_index: last entry that they show for certain; None: all that is committed.
        """
        self.rules.check(member_id, state, applied_index)
        found = state.offsets.all()
        for (key, queue_id), known in self._offsets.items():
            if applied_index is None or known.entry_index <= applied_index:
                offset = found.get(key, {}).get(queue_id, -1)
                facts = (member_id, key, queue_id, offset, known)
                demand(offset >= known.value, "I25 group offset forgotten", *facts)
        for (key, queue_id), index in self._forgotten.items():
            if applied_index is None or index <= applied_index:
                is_gone = queue_id not in found.get(key, {})
                demand(is_gone, "I25 offset of a removed topic", member_id, key, queue_id, index)
        self.deliveries.check(member_id, state.progress, applied_index)
        for (table, name), config in self._acked.items():
            index = self._configs[table, name].entry_index
            if applied_index is None or index <= applied_index:
                entry = state.topics.find(name) if table == "topics" else state.groups.find(name)
                demand(entry == config, "I26 configuration lost", member_id, config, entry)
        for (table, name), index in self._removed.items():
            if applied_index is None or index <= applied_index:
                entry = state.topics.find(name) if table == "topics" else state.groups.find(name)
                demand(entry is None, "I26 removed and there", member_id, table, name, entry)
        for table, known in self._versions.items():
            if applied_index is None or known.entry_index <= applied_index:
                version = state.topics.version if table == "topics" else state.groups.version
                is_there = version.counter >= known.value
                demand(is_there, "I26 version lost", member_id, table, version, known)


def _worked_off(progress: QueueProgress, index: int) -> dict[str, Any]:
    """What the entries before one say of internal queues, however many of them a member has seen in
    one turn.
    """
    twin = QueueProgress()
    twin.attach(progress._term_at, lambda: index)
    twin.load_json(progress.to_json())
    return twin.to_json()


def _table_of(config: Config) -> str:
    return "topics" if isinstance(config, TopicConfig) else "groups"
