"""Which events are written, and for how long a change of that holds."""

from __future__ import annotations

import pytest
from twisted.logger import LogLevel, PredicateResult

from ledgermq.logs.levels import CHANGED_S, CHANGES_MAX, LevelError, Levels


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def is_written(levels: Levels, namespace: str, level: str) -> bool:
    event = {"log_namespace": namespace, "log_level": LogLevel.levelWithName(level)}
    return levels(event) is not PredicateResult.no


def test_the_longest_namespace_decides() -> None:
    levels = Levels(Clock())
    levels.fix("ledgermq.broker", "error")
    assert is_written(levels, "ledgermq.state", "info")
    assert not is_written(levels, "ledgermq.broker.sends", "warn")
    levels.change("ledgermq.broker.sends", "debug")
    assert is_written(levels, "ledgermq.broker.sends.send", "debug")
    assert not is_written(levels, "ledgermq.broker.pulls", "warn")
    assert not is_written(levels, "ledgermq.broker.sendsmore", "warn")


def test_a_change_ends_by_itself() -> None:
    clock = Clock()
    levels = Levels(clock)
    levels.change("ledgermq", "debug")
    clock.now_s = CHANGED_S - 1
    assert is_written(levels, "ledgermq.broker", "debug")
    assert levels.changes() == {"ledgermq": ("debug", 1.0)}
    clock.now_s = CHANGED_S
    assert not is_written(levels, "ledgermq.broker", "debug")
    assert levels.changes() == {}


def test_a_second_toggle_ends_the_first() -> None:
    levels = Levels(Clock())
    assert levels.toggle("ledgermq") == "debug"
    assert levels.toggle("ledgermq") == "info"
    assert not is_written(levels, "ledgermq", "debug")


@pytest.mark.parametrize(
    ("namespace", "level", "said"),
    [
        ("ledgermq", "loud", "level is 'loud', allowed are debug, info"),
        ("", "debug", "a namespace of 0 characters"),
        ("n" * 201, "debug", "a namespace of 201 characters, allowed are 1 to 200"),
    ],
)
def test_what_is_no_level_is_refused(namespace: str, level: str, said: str) -> None:
    levels = Levels(Clock())
    with pytest.raises(LevelError, match=said):
        levels.change(namespace, level)
    assert levels.changes() == {}


def test_changes_are_bounded_and_ended_ones_do_not_count() -> None:
    clock = Clock()
    levels = Levels(clock)
    for number in range(CHANGES_MAX):
        levels.change(f"n{number}", "debug")
    levels.change("n0", "warn")
    with pytest.raises(LevelError, match=f"{CHANGES_MAX + 1} changed levels"):
        levels.change("more", "debug")
    clock.now_s = CHANGED_S
    levels.change("more", "debug")


def test_an_event_without_level_is_not_written() -> None:
    assert Levels(Clock())({"log_namespace": "x"}) is PredicateResult.no
