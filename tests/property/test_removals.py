"""A removal of many offsets is complete at once for every reader, and is worked off in pieces."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest

from ledgermq.state.consumer_offsets import ConsumerOffsetTable
from ledgermq.state.pull_offsets import PullOffsets

TOPICS = ("a", "a!", "aA", "b", "%RETRY%g")
GROUPS = ("g", "g!", "%LMQ%g", "h")
KEYS = [f"{topic}@{group}" for topic, group in product(TOPICS, GROUPS)]
Model = dict[str, dict[int, int]]


def new_table(*, knows_light_queues: bool) -> ConsumerOffsetTable:
    """A table that drops one pair at once, and eight in a turn."""
    return ConsumerOffsetTable(1000, knows_light_queues=knows_light_queues, dropped_max=8)


def check_readers(table: ConsumerOffsetTable, model: Model, rng: Random) -> None:
    assert table.all() == model
    assert dict(table.behind("")) == model
    after = rng.choice([*KEYS, "", "a@", "zz"])
    assert [key for key, _ in table.behind(after)] == sorted(key for key in model if key > after)
    for key in KEYS:
        topic, _, group = key.rpartition("@")
        assert (key in table) == (key in model)
        assert table.of_key(key) == table.of_topic(group, topic) == model.get(key, {})
        assert table.find(group, topic, 1) == model.get(key, {}).get(1)
    for topic in TOPICS:
        groups = sorted(key.rpartition("@")[2] for key in model if key.startswith(topic + "@"))
        assert list(table.groups_behind(topic)) == groups
    for group in GROUPS:
        topics = sorted(key.rpartition("@")[0] for key in model if key.endswith("@" + group))
        assert table.topics_of(group) == topics


def change(table: ConsumerOffsetTable, model: Model, rng: Random) -> None:
    """Makes one change of both."""
    kind = rng.randrange(10)
    some = {key: {rng.randrange(2): rng.randrange(9)} for key in rng.sample(KEYS, 4)}
    if kind < 4:
        table.put(some)
        for key, queues in some.items():
            model.setdefault(key, {}).update(queues)
    elif kind == 4:
        begin, end = sorted(rng.sample(["", *KEYS], 2))
        put = {key: queues for key, queues in some.items() if begin < key <= end}
        table.replace_range(begin, end, put)
        for key in [key for key in model if begin < key <= end]:
            del model[key]
        model.update(put)
    elif kind == 5:
        table.remove(some)
        for key in some:
            model.pop(key, None)
    elif kind < 8:
        topic = rng.choice(TOPICS)
        table.remove_topic(topic)
        for key in [key for key in model if key.startswith(topic + "@")]:
            del model[key]
    else:
        group = rng.choice(GROUPS)
        table.remove_group(group)
        for key in [key for key in model if key.endswith("@" + group)]:
            del model[key]


@pytest.mark.parametrize("seed", range(60))
def test_readers_see_removals_at_once_and_nothing_comes_back(seed: int) -> None:
    rng, model = Random(seed), Model()
    is_light = seed % 2 == 1
    table = new_table(knows_light_queues=is_light)
    for _ in range(100):
        change(table, model, rng)
        if rng.random() < 0.3:
            assert table.drop_some() <= 8
        check_readers(table, model, rng)
    while table.drop_some():
        check_readers(table, model, rng)
    # What is left in memory, and counted, is what a table has that never had more.
    fresh = new_table(knows_light_queues=is_light)
    fresh.put({key: dict(queues) for key, queues in model.items()})
    assert (len(table), table.json_bytes) == (len(fresh), fresh.json_bytes)
    assert table.document().whole() == fresh.document().whole()


def many(count: int) -> tuple[ConsumerOffsetTable, dict[str, Any]]:
    """Returns a table, and what each kind of removal has to leave of it."""
    table = ConsumerOffsetTable(10**6)
    table.put({f"orders@group-{number:06}": {0: number} for number in range(count)})
    table.put({f"topic-{number:06}@one": {0: number} for number in range(count)})
    return table, dict(table.all())


@pytest.mark.parametrize("kind", ["topic", "group"])
def test_no_turn_drops_more_than_a_thousand_pairs(kind: str) -> None:
    table, former = many(20_000)
    if kind == "topic":
        table.remove_topic("orders")
        left = {key: queues for key, queues in former.items() if key.endswith("@one")}
    else:
        table.remove_group("one")
        left = {key: queues for key, queues in former.items() if key.startswith("orders@")}
    # Nothing was dropped by the command, and nothing of it is to be seen.
    assert len(table) == 40_000 and table.all() == left
    turns = 0
    while dropped := table.drop_some():
        turns += 1
        assert dropped <= 1000 and len(table) == 40_000 - min(1000 * turns, 20_000)
    assert turns == 20 and table.all() == left


def test_a_hundred_small_removals_share_a_turn() -> None:
    table = ConsumerOffsetTable(10**6)
    for topic in range(100):
        table.put({f"topic-{topic}@group-{number}": {0: 1} for number in range(300)})
    for topic in range(100):
        table.remove_topic(f"topic-{topic}")
    assert len(table) == 30_000 and table.all() == {}
    assert table.drop_some() == 1000


def test_a_removed_topic_is_hidden_from_pulls_among_many_groups() -> None:
    pulled = PullOffsets()
    for number in range(25_000):
        pulled.of(f"g{number}", "T")[0] = 5
        pulled.of(f"g{number}", "U")[0] = 6
    kept = pulled.of("g7", "U")
    pulled.remove_topic("T")
    assert pulled.find("g7", "T", 0) == 0 and pulled.find("g7", "U", 0) == 6
    # The topic comes back, is pulled from, and is removed once more.
    pulled.of("g7", "T")[0] = 1
    pulled.of("g24999", "T")[0] = 2
    assert (pulled.find("g7", "T", 0), pulled.find("g8", "T", 0)) == (1, 0)
    pulled.remove_topic("T")
    assert pulled.find("g7", "T", 0) == 0
    pulled.of("g7", "T")[0] = 3
    for _ in range(4):
        pulled.forget_unknown(lambda group: True)
        assert (pulled.find("g7", "T", 0), pulled.find("g24999", "T", 0)) == (3, 0)
    assert pulled.of("g7", "U") is kept and pulled.of("g7", "T") == {0: 3}
    assert "T" not in pulled._groups["g8"] and pulled._pairs == 25_001
