"""An entry that a sweep tells in several parts: whole with the last of them, and never less."""

from typing import Any

import pytest

from ledgermq.state.commands import SweepPart, command_of, sweep_body
from ledgermq.state.consumer_offsets import ConsumerOffsetTable
from ledgermq.state.formats import StateFormats
from ledgermq.state.machine import StateMachine
from ledgermq.state.queue_locks import QueueKey
from ledgermq.state.subscriptions import SubscriptionGroupTable
from ledgermq.state.topics import TopicTable

PAIR = "t@g"


def new_machine() -> StateMachine:
    return StateMachine(TopicTable(10), SubscriptionGroupTable(10), ConsumerOffsetTable(10))


def tell(machine: StateMachine, table: str, *values: Any, count: int = 9) -> None:
    """Applies the first parts of an entry, each through its record."""
    name = PAIR if table == "offsets" else "g"
    formats = StateFormats()
    for number, value in enumerate(values[:count]):
        part = SweepPart(
            "n0/1/1", number, False, table, {name: value}, None if number else "", name,
            number < len(values) - 1,
        )  # fmt: skip
        proposed = formats.read(sweep_body(part, "n0/1", formats.written.write), number)
        assert proposed is not None
        machine.apply(proposed.command, number)


def rows(*queue_ids: int, client: str = "c") -> list[tuple[str, str, int, str]]:
    return [("t", "b", queue_id, client) for queue_id in queue_ids]


def held(machine: StateMachine) -> list[int]:
    return [number for number in range(9) if machine.locks.holder("g", QueueKey("t", "b", number))]


@pytest.mark.parametrize("count", [1, 2])
def test_parts_that_never_come_forget_nothing(count: int) -> None:
    machine = new_machine()
    machine.offsets.put({PAIR: {0: 1, 1: 2, 2: 3}})
    machine.locks.put({"g": rows(0, 1, 2)})
    tell(machine, "offsets", {0: 5}, {1: 6}, {2: 7}, count=count)
    tell(machine, "locks", rows(0), rows(1), rows(2), count=count)
    assert machine.offsets.of_key(PAIR) == {0: 5, 1: 2, 2: 3, **dict([(1, 6)][: count - 1])}
    assert held(machine) == [0, 1, 2]


def test_what_no_part_has_goes_with_the_last() -> None:
    machine = new_machine()
    machine.offsets.put({PAIR: {0: 1, 1: 2, 2: 3, 7: 4}, "z@g": {0: 9}})
    machine.locks.put({"g": rows(0, 1, 7)})
    tell(machine, "offsets", {0: 5}, {1: 6}, {2: 7})
    tell(machine, "locks", rows(0), rows(1))
    assert machine.offsets.of_key(PAIR) == {0: 5, 1: 6, 2: 7}
    assert machine.offsets.of_key("z@g") == {0: 9}
    assert held(machine) == [0, 1]


def test_a_part_of_another_sweep_ends_no_entry() -> None:
    machine = new_machine()
    machine.offsets.put({PAIR: {0: 1, 7: 4}})
    tell(machine, "offsets", {0: 5}, {1: 6}, count=1)
    machine.apply(SweepPart("n1/2/1", 1, False, "offsets", {PAIR: {1: 6}}), 9)
    assert machine.offsets.of_key(PAIR) == {0: 5, 1: 6, 7: 4}


def test_a_part_that_goes_on_without_its_entry_is_a_whole_range() -> None:
    value = {"kind": "sweep", "by": "", "id": "x", "part": 0, "table": "offsets", "after": ""}
    command = command_of({**value, "upto": "zz", "goes_on": True, "put": {PAIR: {"0": 1}}})
    assert command is not None
    machine = new_machine()
    machine.offsets.put({"u@g": {0: 3}})
    machine.apply(command, 0)
    assert machine.offsets.all() == {PAIR: {0: 1}}
