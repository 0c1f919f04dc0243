"""Whole tables are told as they are, in pieces, and written once for each version and account."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import islice
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from ledgermq.broker.admin.table_lists import TableLists
from ledgermq.broker.encoded_list import EncodedList
from ledgermq.broker.sight import pairs_of_table, topics_of_table
from ledgermq.protocol import lenient_json
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.group_settings import GroupSettings
from ledgermq.protocol.transport.sliced_answers import SLICE_MS, SlicedAnswers
from ledgermq.state.document import Document
from ledgermq.state.errors import SystemBusyError
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import TopicConfig
from tests.unit.broker.parts import ListConnection, Parts

_ASKED = RemotingCommand.request(RequestCode.GET_ALL_TOPIC_CONFIG)
# What a look at one name takes on the clock of these tests.
_NAME_MS = 0.005


class Seeing:
    """What an account sees, whose names have one letter; made anew for each request."""

    def __init__(self, key: object) -> None:
        self.key = key

    def sees_topic(self, name: str) -> bool:
        return name.startswith(str(self.key))

    def sees_group(self, name: str) -> bool:
        return name.startswith(str(self.key))


def asking(key: object = None) -> Any:
    """A connection, with an account that sees the names of one letter; None: all of them."""
    connection = ListConnection()
    connection.sight = None if key is None else Seeing(key)
    return connection


class Turns:
    """The turns of a reactor, and a clock."""

    def __init__(self) -> None:
        self.parts = Parts().lead()
        self.clock_ms = 0.0
        self.longest_ms = 0.0
        self.sliced = SlicedAnswers(self.parts.turn.soon, lambda: self.clock_ms, SystemBusyError)

    def end(self) -> None:
        begun_ms = self.clock_ms
        self.parts.turn.end()
        self.longest_ms = max(self.longest_ms, self.clock_ms - begun_ms)

    def finish(self, answer: Any) -> bytes:
        """Returns the body of an answer."""
        ends: list[Any] = []
        if not isinstance(answer, Deferred):
            ends.append(answer)
        else:
            answer.addBoth(ends.append)
        for _ in range(100_000):
            if ends:
                return cast(bytes, ends[0].body)
            self.end()
        raise AssertionError("no answer in a hundred thousand turns")


class Table:
    """Some names of two letters; counts how often it was written."""

    def __init__(self, turns: Turns, count: int = 10, *, has_versions: bool = True) -> None:
        self.turns = turns
        self.version = 1
        self.names = [f"{letter}{number:05}" for letter in "ab" for number in range(count)]
        self.written_count = 0
        self.list = EncodedList(
            self.document,
            self.shown,
            turns.sliced,
            version_of=(lambda: self.version) if has_versions else None,
            clock_s=lambda: turns.clock_ms / 1000,
        )

    def document(self) -> Document:
        self.written_count += 1
        return Document({"version": self.version}, (("names", self.behind),))

    def behind(self, after: str) -> Any:
        first = bisect_right(self.names, after)
        return ((name, self.version) for name in islice(self.names, first, None))

    def shown(self, asker: Any, entries: Mapping[str, Any]) -> Mapping[str, Any]:
        self.turns.clock_ms += len(entries) * _NAME_MS
        sight = asker.sight
        return {key: n for key, n in entries.items() if sight is None or sight.sees_topic(key)}

    def ask(self, key: object = None) -> Any:
        begun_ms = self.turns.clock_ms
        answer = self.list.answer(asking(key), _ASKED)
        took_ms = self.turns.clock_ms - begun_ms
        self.turns.longest_ms = max(self.turns.longest_ms, took_ms)
        return answer

    def body(self, key: object = None) -> bytes:
        return self.turns.finish(self.ask(key))

    def expected(self, key: str = "") -> bytes:
        names = {name: self.version for name in self.names if name.startswith(key)}
        return lenient_json.write({"version": self.version, "names": names})


def test_a_table_is_written_once_for_each_version() -> None:
    table = Table(Turns())
    assert {table.body() for _ in range(1000)} == {table.expected()}
    assert table.written_count == 1
    table.version = 2
    assert table.body() == table.expected()
    assert table.written_count == 2


def test_each_account_gets_what_it_may_see() -> None:
    table = Table(Turns())
    # Equal texts, but of different rules: an account whose rights were changed is another one.
    first, later = "".join(["a", "0"]), "".join(["a", "0"])
    assert first is not later
    for _ in range(3):
        assert table.body() == table.expected()
        assert table.body(first) == table.expected("a0")
        assert table.body("b") == table.expected("b")
    assert table.written_count == 3
    table.body(later)
    assert table.written_count == 4


def test_bodies_of_many_accounts_are_not_all_kept_but_those_of_the_last() -> None:
    table = Table(Turns())
    for number in range(1000):
        table.body(str(number))
        assert len(table.list._bodies) <= 8
    table.body()
    count = table.written_count
    for _ in range(7):
        table.body("a")
    assert table.body() == table.expected()
    assert table.written_count == count + 1


def test_a_table_in_flux_takes_a_tenth_of_the_time() -> None:
    turns = Turns()
    table = Table(turns, 200, has_versions=False)
    begun_ms = turns.clock_ms
    while turns.clock_ms < begun_ms + 1000:
        table.body()
        turns.clock_ms += 0.1
    # Two milliseconds each time: what is made so quickly is never old.
    assert table.written_count > 400
    slow = Table(turns, 20_000, has_versions=False)
    begun_ms = turns.clock_ms
    while turns.clock_ms < begun_ms + 22_000:
        slow.body()
        turns.clock_ms += 10
    assert 9 <= slow.written_count <= 11


def test_no_table_is_written_in_one_turn() -> None:
    turns = Turns()
    table = Table(turns, 5000)
    for key in (None, "a", "b", "c", *map(str, range(20))):
        table.version += 1
        assert table.body(key) == table.expected("" if key is None else key)
    assert turns.clock_ms > 1000
    assert turns.longest_ms < SLICE_MS + 32 * _NAME_MS + 0.001


def test_what_is_kept_is_told_at_once_whoever_waits() -> None:
    turns = Turns()
    table, other = Table(turns), Table(turns, 5000)
    table.body()
    waiting = other.ask()
    assert isinstance(waiting, Deferred)
    assert table.ask().body == table.expected()
    assert turns.finish(waiting) == other.expected()


def test_who_asks_behind_another_one_gets_the_same_body() -> None:
    turns = Turns()
    table = Table(turns, 2000)
    answers = [table.ask() for _ in range(10)]
    assert {turns.finish(answer) for answer in answers} == {table.expected()}
    assert table.written_count == 1
    # In the lines of two accounts it is written twice, and kept once.
    table.version += 1
    first, second = asking(), asking()
    first.account, second.account = "one", "two"
    both = [table.list.answer(connection, _ASKED) for connection in (first, second)]
    assert {turns.finish(answer) for answer in both} == {table.expected()}
    assert table.written_count == 3 and len(table.list._bodies) == 1


@pytest.mark.parametrize("turns_before", [0, 1, 7])
def test_a_change_under_way_is_in_the_next_answer(turns_before: int) -> None:
    turns = Turns()
    table = Table(turns, 2000)
    waiting = table.ask()
    for _ in range(turns_before):
        turns.end()
    table.names.insert(0, "a")
    table.names.append("c")
    table.version = 2
    # It names the version that it began with, and has what came behind where it was.
    body = lenient_json.read(turns.finish(waiting))
    assert body["version"] == 1
    assert "c" in body["names"] and "a" not in body["names"]
    assert table.body() == table.expected()
    assert table.body() == table.expected()
    assert table.written_count == 2


def test_what_was_begun_before_a_change_is_not_kept_for_who_asks_behind_it() -> None:
    turns = Turns()
    table = Table(turns, 2000)
    first, second = asking(), asking()
    first.account, second.account = "one", "two"
    old = table.list.answer(first, _ASKED)
    table.version = 2
    new = table.list.answer(second, _ASKED)
    turns.finish(old)
    assert table.body() == table.expected()
    assert turns.finish(new) == table.expected()


def test_who_asked_is_shown_what_it_may_see_whoever_asks_on_its_connection_meanwhile() -> None:
    turns = Turns()
    table = Table(turns, 2000)
    connection = asking("a")
    answer = table.list.answer(connection, _ASKED)
    connection.sight = None
    assert turns.finish(answer) == table.expected("a")


def _tables() -> Turns:
    """Tables with all that entries may have."""
    turns = Turns()
    state = turns.parts.state
    for number in range(100):
        attributes = {"message.type": "FIFO"} if number % 7 == 0 else {}
        state.put_topic(TopicConfig(f"T{number}", number, 8, attributes=attributes))
        settings = GroupSettings(consume_message_orderly=True, consume_timeout_minute=number)
        state.put_group(SubscriptionGroup(f"g{number}", settings=settings))
    state.offsets.put({"T1@g1": {queue_id: queue_id * 3 for queue_id in range(1500)}})
    state.offsets.put({f"T2@g{number}": {0: 2**62 + number} for number in range(70)})
    assert (len(state.topics), len(state.groups), len(state.offsets)) > (100, 100, 70)
    return turns


def test_the_tables_of_a_broker_are_what_they_are_in_one_piece() -> None:
    turns = _tables()
    state, lists = turns.parts.state, TableLists(turns.parts.state, turns.sliced)
    for ask, table in (
        (lists.list_topics, state.topics),
        (lists.list_groups, state.groups),
        (lists.list_offsets, state.offsets),
    ):
        body = turns.finish(ask(asking(), _ASKED))
        assert body == lenient_json.write(table.to_json())
        assert body == turns.finish(ask(asking(), _ASKED))
    state.topics.put(TopicConfig("T1", 3, 3), 1)
    state.groups.put(SubscriptionGroup("g1", retries_max=7), 1)
    for ask, changed in ((lists.list_topics, state.topics), (lists.list_groups, state.groups)):
        body = turns.finish(ask(asking(), _ASKED))
        assert body == lenient_json.write(changed.to_json())


def test_an_account_sees_its_part_of_the_tables() -> None:
    turns = _tables()
    lists = TableLists(turns.parts.state, turns.sliced)
    topics = lenient_json.read(turns.finish(lists.list_topics(asking("T1"), _ASKED)))
    assert set(topics["topicConfigTable"]) == {"T1", *(f"T1{digit}" for digit in range(10))}
    groups = lenient_json.read(turns.finish(lists.list_groups(asking("g99"), _ASKED)))
    assert set(groups["subscriptionGroupTable"]) == {"g99"}
    offsets = lenient_json.read(turns.finish(lists.list_offsets(asking("T"), _ASKED)))
    assert offsets["offsetTable"] == {}


def test_large_entries_are_told_in_pieces() -> None:
    """Offsets of a thousand queues, and settings of tens of kilobytes."""
    turns = _tables()
    state = turns.parts.state
    attributes = {"x": "y" * 20_000}
    for number in range(100):
        state.topics.put(TopicConfig(f"U{number}", 1, 1, attributes=attributes), 1)

    def encode(value: Any) -> bytes:
        text = lenient_json.write(value)
        turns.clock_ms += len(text) / 100_000
        return text

    def longest_ms(table: Any, shown: Any) -> float:
        told = EncodedList(table.document, shown, turns.sliced, encode)
        begun_ms = turns.clock_ms
        answer = told.answer(asking(), _ASKED)
        turns.longest_ms = turns.clock_ms - begun_ms
        assert turns.finish(answer) == lenient_json.write(table.to_json())
        return turns.longest_ms

    # 64 KiB and an entry more; 512 queues are 10 KB.
    assert 0 < longest_ms(state.topics, topics_of_table) < SLICE_MS + 0.9
    state.offsets.put({"T1@g1": dict.fromkeys(range(60_000), 2**62)})
    assert 0 < longest_ms(state.offsets, pairs_of_table) < SLICE_MS + 0.3
