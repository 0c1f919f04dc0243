"""Lists of topics are made of what they list, not of a look at all topics."""

from __future__ import annotations

from typing import Any

import pytest

from ledgermq.namesrv.errors import LimitError
from ledgermq.namesrv.registrations import Registrant, RouteLimits
from ledgermq.namesrv.topic_queues import UNIT_FLAG, UNIT_SUB_FLAG, TopicQueues
from ledgermq.protocol.route import TopicConfig

Topics = dict[str, TopicConfig]
WHO = Registrant(key="k", account="a", is_free=True)


class Unlooked(dict[str, Any]):
    """A table of all topics that must not be walked."""

    def __iter__(self) -> Any:
        raise AssertionError("all topics are looked at")

    items = keys = values = __iter__


class Compared(str):
    """A name that counts how often it is compared: a hundred thousand take long to be sorted."""

    compared_count = 0

    def __lt__(self, other: str) -> bool:
        Compared.compared_count += 1
        return str.__lt__(self, other)

    __hash__ = str.__hash__


class Counted(dict[str, Any]):
    """A table of all topics that counts looks at one of them."""

    looks_count = 0

    def __getitem__(self, name: str) -> Any:
        self.looks_count += 1
        return super().__getitem__(name)


def topics(names: list[str], flags: int = 0) -> dict[str, TopicConfig]:
    return {name: TopicConfig(topic_name=name, topic_sys_flag=flags) for name in names}


def put(table: TopicQueues, broker_name: str, who: Registrant, told: Topics) -> int:
    """Takes them over; in how many pieces."""
    return sum(1 for _ in table.putting(broker_name, who, told))


@pytest.fixture
def table() -> TopicQueues:
    made = TopicQueues(RouteLimits(topics_max=10_000, brokers_max=10))
    put(made, "large", WHO, topics([f"t{number}" for number in range(1000)]))
    put(made, "small", WHO, topics(["t1", "own"]))
    put(made, "small", WHO, topics(["unit"], UNIT_FLAG))
    put(made, "small", WHO, topics(["both"], UNIT_FLAG | UNIT_SUB_FLAG))
    put(made, "small", WHO, topics(["sub"], UNIT_SUB_FLAG))
    return made


def test_topics_of_brokers(table: TopicQueues) -> None:
    table._topics = Unlooked(table._topics)
    assert sorted(table.names_with({"small", "nobody"})) == ["both", "own", "sub", "t1", "unit"]
    assert len(table.names_with({"small", "large"})) == 1004
    assert table.names_with(set()) == []


def test_topics_with_flags(table: TopicQueues) -> None:
    table._topics = Unlooked(table._topics)
    assert sorted(table.unit_names()) == ["both", "unit"]
    assert sorted(table.unit_sub_names(also_unit=True)) == ["both", "sub"]
    assert table.unit_sub_names(also_unit=False) == ["sub"]


def test_a_list_takes_no_look_at_each_topic_and_no_sorting() -> None:
    table = TopicQueues(RouteLimits(topics_max=10_000, brokers_max=10))
    names: list[str] = [Compared(f"t{number * 7919 % 1000}") for number in range(1000)]
    put(table, "b", WHO, topics(names, UNIT_FLAG | UNIT_SUB_FLAG))
    table._topics = counted = Counted(table._topics)
    lists = [
        table.names(),
        table.names_with({"b"}),
        table.unit_names(),
        table.unit_sub_names(also_unit=True),
    ]
    assert table.unit_sub_names(also_unit=False) == []
    assert (Compared.compared_count, counted.looks_count) == (0, 0)
    assert all(set(one) == set(names) for one in lists)


def test_the_flags_of_the_broker_name_that_came_first_count(table: TopicQueues) -> None:
    put(table, "second", WHO, topics(["own"], UNIT_FLAG))
    put(table, "second", WHO, topics(["unit"]))
    assert sorted(table.unit_names()) == ["both", "unit"]
    table.drop_broker("small")
    assert table.unit_names() == ["own"]


def test_flags_that_are_taken_away_and_topics_that_go(table: TopicQueues) -> None:
    put(table, "small", WHO, topics(["unit"]))
    assert table.unit_names() == ["both"]
    table.delete("both", ["small"])
    assert table.unit_names() == []
    put(table, "large", WHO, topics(["both"]))
    assert table.unit_names() == []
    table.drop_broker("small")
    assert table.unit_sub_names(also_unit=True) == []


def count(table: TopicQueues, key: str = "k") -> tuple[int, int]:
    return table._count, table._counts.get(key, 0)


def test_many_topics_come_and_go_in_pieces() -> None:
    table = TopicQueues(RouteLimits(topics_max=10_000, brokers_max=10))
    many = topics([f"t{number:04}" for number in range(1000)])
    put(table, "other", WHO, topics(["t0001"]))
    assert put(table, "b", WHO, many) == 8 and count(table) == (1001, 1001)
    assert table.drop_broker("b") and count(table) == (1, 1)
    left = len(table.names())
    assert 800 < left < 900
    steps = 1
    while table.forget_some():
        steps += 1
        assert left - 128 <= len(table.names()) < left
        left = len(table.names())
    assert steps == 7 and table.names() == ["t0001"]
    assert list(table.of("t0001")) == ["other"] and not table.forget_some()


def test_a_broker_name_that_comes_back_keeps_what_it_brings_again() -> None:
    table = TopicQueues(RouteLimits(topics_max=10_000, brokers_max=10))
    names = [f"t{number:04}" for number in range(1000)]
    put(table, "b", WHO, topics(names))
    table.drop_broker("b")
    put(table, "b", WHO, topics(names[500:]))
    assert count(table) == (500, 500)
    # It leaves once more, before all of the first time is forgotten, and comes back with others.
    table.drop_broker("b")
    put(table, "b", WHO, topics(["new", names[0]]))
    while table.forget_some():
        assert "new" in table.names()
    assert set(table.names()) == {"new", names[0]} and count(table) == (2, 2)


def test_what_left_does_not_count_against_who_comes() -> None:
    limits = RouteLimits(topics_max=2000, brokers_max=10, topics_per_registrant_max=1000)
    table, who = TopicQueues(limits), Registrant(key="k", account="a")
    many = topics([f"t{number:04}" for number in range(1000)])
    put(table, "b", who, many)
    table.drop_broker("b")
    assert sum(1 for _ in table.checking("b", who, many)) == 8
    with pytest.raises(LimitError, match="topicsPerRegistrantMax of k: 1001 is over"):
        list(table.checking("b", who, many | topics(["more"])))


def test_what_left_is_forgotten_before_others_are_refused_for_it() -> None:
    table = TopicQueues(RouteLimits(topics_max=1000, brokers_max=10))
    put(table, "b", WHO, topics([f"old-{number}" for number in range(1000)]))
    table.drop_broker("b")
    news = topics([f"new-{number}" for number in range(1000)])
    list(table.checking("c", WHO, news))
    put(table, "c", WHO, news)
    assert set(table.names()) == set(news)
    with pytest.raises(LimitError):
        list(table.checking("d", WHO, topics(["more"])))


def test_all_that_a_broker_name_brings_again_stays() -> None:
    """It comes back while what it left is forgotten, in whatever order that is."""
    table = TopicQueues(RouteLimits(topics_max=10_000, brokers_max=10))
    many = topics([f"t{number:04}" for number in range(1000)])
    put(table, "b", WHO, many)
    table.drop_broker("b")
    put(table, "b", WHO, many)
    assert not table.forget_some()
    assert set(table.names()) == set(many) and count(table) == (1000, 1000)
