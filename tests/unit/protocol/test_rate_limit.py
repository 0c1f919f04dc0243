"""So many events a second, with a burst; keys that are idle are forgotten."""

import pytest

from ledgermq.protocol import rate_limit as module
from ledgermq.protocol.rate_limit import RateLimit


def taken(limit: RateLimit, key: str, now_s: float, tries: int) -> int:
    return sum(limit.take(key, now_s) for _ in range(tries))


def test_a_burst_passes_and_then_so_many_a_second() -> None:
    limit = RateLimit(10, 20)
    assert taken(limit, "a", 5.0, 100) == 20
    assert taken(limit, "a", 5.5, 100) == 5
    assert taken(limit, "a", 6.5, 100) == 10
    assert taken(limit, "a", 1000.0, 100) == 20


def test_keys_do_not_take_from_one_another() -> None:
    limit = RateLimit(1, 1)
    assert [limit.take(key, 0.0) for key in "abab"] == [True, True, False, False]


def test_refused_tries_cost_nothing() -> None:
    limit = RateLimit(1, 1)
    assert [limit.take("a", now / 10) for now in range(21)].count(True) == 3


def test_table_forgets_keys_that_are_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEYS_MAX", 3)
    limit = RateLimit(10, 10)
    for number in range(3):
        limit.take(number, 0.0)
    limit.take("late", 0.9)
    assert len(limit) == 4
    limit.take("later", 2.0)
    assert len(limit) == 1


def test_clock_that_is_set_back_holds_nobody_up() -> None:
    limit = RateLimit(10, 10)
    while limit.take("a", 7200.0):
        pass
    assert not limit.take("a", 0.0)
    assert not limit.take("a", 0.05)
    assert limit.take("a", 0.1)
