"""Which names changed since when, against a list of all changes."""

import random

from ledgermq.state.change_log import ChangeLog
from ledgermq.state.data_version import DataVersion
from ledgermq.state.topics import TopicConfig, TopicTable


def names_behind(log: ChangeLog, number: int) -> list[str]:
    return [name for _, name in log.behind(number)]


def test_each_name_stands_at_its_last_change() -> None:
    log = ChangeLog()
    assert (log.last_number, names_behind(log, -1)) == (0, [])
    for name in ("a", "b", "c", "a"):
        log.note(name)
    assert list(log.behind(0)) == [(2, "b"), (3, "c"), (4, "a")]
    assert names_behind(log, 3) == ["a"]
    log.forget("c")
    log.forget("never")
    assert names_behind(log, 1) == ["b", "a"]
    assert names_behind(log, log.last_number) == []


def test_any_run_of_changes_is_told_from_any_number() -> None:
    chance = random.Random(1)
    log, history = ChangeLog(), dict[str, int]()
    for _ in range(3000):
        name = f"n{chance.randrange(40)}"
        if chance.random() < 0.2:
            log.forget(name)
            history.pop(name, None)
        else:
            log.note(name)
            history.pop(name, None)
            history[name] = log.last_number
        number = chance.randrange(-1, log.last_number + 2)
        expected = [(n, name) for name, n in history.items() if n > number]
        assert list(log.behind(number)) == expected
        assert len(log._names) <= 2 * 40 + 64 + 1


def test_every_way_to_change_the_table_is_noted() -> None:
    table = TopicTable(10)
    changes = table.changes

    def news(number: int) -> list[str]:
        return names_behind(changes, number)

    table.put(TopicConfig("put"), 1)
    assert news(0) == ["put"]
    at = changes.last_number
    table.put(TopicConfig("put"), 2)
    assert news(at) == []
    table.follow([TopicConfig("a"), TopicConfig("b")], ["put"], DataVersion(2, 2))
    assert (news(at), news(0)) == (["a", "b"], ["a", "b"])
    at = changes.last_number
    table.replace_range("", "a", {"a": TopicConfig("a", 3, 3)})
    table.replace_range("a", None, {"c": TopicConfig("c")})
    assert (news(at), news(0)) == (["a", "c"], ["a", "c"])
    at = changes.last_number
    table.replace_all([TopicConfig("c"), TopicConfig("d")], DataVersion(3, 3))
    assert (news(at), news(0)) == (["c", "d"], ["c", "d"])
    at = changes.last_number
    table.load_json(table.to_json())
    assert news(at) == ["c", "d"]
