"""Lists of topics are made of what they list, not of a look at all topics."""

from __future__ import annotations

from typing import Any

import pytest

from ledgermq.namesrv.registrations import Registrant, RouteLimits
from ledgermq.namesrv.topic_queues import UNIT_FLAG, UNIT_SUB_FLAG, TopicQueues
from ledgermq.protocol.route import TopicConfig

WHO = Registrant(key="k", account="a", is_free=True)


class Unlooked(dict[str, Any]):
    """A table of all topics that must not be walked."""

    def __iter__(self) -> Any:
        raise AssertionError("all topics are looked at")

    items = keys = values = __iter__


def topics(names: list[str], flags: int = 0) -> dict[str, TopicConfig]:
    return {name: TopicConfig(topic_name=name, topic_sys_flag=flags) for name in names}


@pytest.fixture
def table() -> TopicQueues:
    made = TopicQueues(RouteLimits(topics_max=10_000, brokers_max=10))
    made.put("large", WHO, topics([f"t{number}" for number in range(1000)]))
    made.put("small", WHO, topics(["t1", "own"]))
    made.put("small", WHO, topics(["unit"], UNIT_FLAG))
    made.put("small", WHO, topics(["both"], UNIT_FLAG | UNIT_SUB_FLAG))
    made.put("small", WHO, topics(["sub"], UNIT_SUB_FLAG))
    return made


def test_topics_of_brokers(table: TopicQueues) -> None:
    table._topics = Unlooked(table._topics)
    assert table.names_with({"small", "nobody"}) == ["both", "own", "sub", "t1", "unit"]
    assert len(table.names_with({"small", "large"})) == 1004
    assert table.names_with(set()) == []


def test_topics_with_flags(table: TopicQueues) -> None:
    table._topics = Unlooked(table._topics)
    assert table.names_with_flags(unit=True, unit_sub=None) == ["both", "unit"]
    assert table.names_with_flags(unit=None, unit_sub=True) == ["both", "sub"]
    assert table.names_with_flags(unit=False, unit_sub=True) == ["sub"]


def test_flags_that_are_taken_away_and_topics_that_go(table: TopicQueues) -> None:
    table.put("small", WHO, topics(["unit"]))
    assert table.names_with_flags(unit=True, unit_sub=None) == ["both"]
    table.delete("both", ["small"])
    assert table.names_with_flags(unit=True, unit_sub=None) == []
    table.put("large", WHO, topics(["both"]))
    assert table.names_with_flags(unit=True, unit_sub=None) == []
    table.drop_broker("small")
    assert table.names_with_flags(unit=None, unit_sub=True) == []
    assert len(table.names_with_flags(unit=False, unit_sub=False)) == 1001
