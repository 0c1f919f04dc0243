"""Woken pulls are run in the lines of those they are for: who has many waits behind their own."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from ledgermq.broker.pulls.long_polling import WokenPulls
from ledgermq.broker.pulls.parked_rows import Asked, ParkedPull, ParkedRows
from ledgermq.broker.pulls.woken_lines import WokenLines


def connection_of(account: str | None, host: str = "10.0.0.1") -> Any:
    return SimpleNamespace(account=account, peer_host=host)


def pulls_of(connection: Any, count: int) -> list[ParkedPull]:
    return [
        ParkedPull(connection, None, "T", 0, number, None, 0.0, number) for number in range(count)
    ]


def rows_of(*pulls: ParkedPull) -> ParkedRows:
    rows, asked = ParkedRows("T", 0), dict[int, Asked]()
    for pull in pulls:
        rows.append(asked.setdefault(id(pull.connection), Asked(pull)), pull)
    return rows


class Bench:
    """Lines, and a clock that goes on by what each account's pulls take."""

    def __init__(self, **costs_ms: float) -> None:
        self.clock_ms = 0.0
        self.costs_ms = costs_ms
        self.lines = WokenLines(lambda: self.clock_ms)
        # Whose pull was run, and its number.
        self.ran: list[tuple[str, int]] = []

    def add(self, *pieces: Any) -> None:
        self.lines.add(WokenPulls(pieces))

    def turn(self, has_ms: float = 2.0) -> list[str]:
        """Returns whose pulls were run."""
        first = len(self.ran)
        self.lines.run(self._run, self.clock_ms + has_ms)
        return [name for name, _ in self.ran[first:]]

    def _run(self, pull: ParkedPull) -> None:
        name = pull.connection.account or pull.connection.peer_host
        self.clock_ms += self.costs_ms.get(name, 0.01)
        self.ran.append((name, pull.opaque))


def test_pulls_of_one_are_run_in_their_order_and_a_turn_ends() -> None:
    bench = Bench(a=0.1)
    bench.add(pulls_of(connection_of("a"), 50), rows_of(*pulls_of(connection_of("a"), 10)))
    assert 20 <= len(bench.turn()) <= 21
    while bench.lines:
        assert bench.turn()
    assert bench.ran == [("a", number) for number in (*range(50), *range(10))]
    assert bench.turn() == []


def test_one_pull_at_least_is_run() -> None:
    bench = Bench(a=5.0)
    bench.add(pulls_of(connection_of("a"), 2))
    assert bench.turn() == ["a"] and bench.lines
    assert bench.turn(0.0) == ["a"]
    assert bench.turn(0.0) == [] and not bench.lines


def test_a_few_quick_pulls_do_not_wait_for_many_slow_ones() -> None:
    bench = Bench(slow=2.0, quick=0.02)
    bench.add(*[rows_of(*pulls_of(connection_of("slow"), 1000)) for _ in range(100)])
    for _ in range(3):
        bench.turn()
    bench.add(pulls_of(connection_of("quick"), 20))
    begun_ms = bench.clock_ms
    while ("quick", 19) not in bench.ran:
        bench.turn()
    assert bench.clock_ms - begun_ms < 5.0


def test_many_lines_are_served_in_one_turn() -> None:
    bench = Bench()
    for number in range(7):
        bench.add(pulls_of(connection_of(f"a{number}"), 1000))
    assert set(bench.turn()) == {f"a{number}" for number in range(7)}


def test_time_is_shared_alike_however_long_each_takes() -> None:
    bench = Bench(a=2.0, b=0.02, c=0.3)
    for account, count in (("a", 1000), ("b", 50_000), ("c", 5000)):
        bench.add(pulls_of(connection_of(account), count))
    for _ in range(300):
        bench.turn()
    used_ms = {
        name: count * bench.costs_ms[name]
        for name, count in Counter(name for name, _ in bench.ran).items()
    }
    assert max(used_ms.values()) - min(used_ms.values()) < 5.0


def test_who_begins_late_has_no_more_than_the_others_from_then_on() -> None:
    bench = Bench(a=0.1, b=0.1)
    bench.add(pulls_of(connection_of("a"), 2000))
    for _ in range(50):
        bench.turn()
    bench.add(pulls_of(connection_of("b"), 2000))
    turn = [name for _ in range(10) for name in bench.turn()]
    assert abs(turn.count("a") - turn.count("b")) <= 10


def test_a_block_is_parted_among_a_few_and_shared_by_many() -> None:
    bench = Bench()
    few = [connection_of(name) for name in "ab"]
    mixed = [
        pull for pair in zip(*(pulls_of(one, 30) for one in few), strict=True) for pull in pair
    ]
    bench.add(rows_of(*mixed))
    while bench.lines:
        bench.turn()
    for name in "ab":
        assert [number for own, number in bench.ran if own == name] == list(range(30))
    bench.ran.clear()
    many = [connection_of(None, f"10.0.0.{host}") for host in range(20)]
    bench.add(rows_of(*(pull for one in many for pull in pulls_of(one, 2))), pulls_of(many[0], 1))
    while bench.lines:
        bench.turn()
    assert Counter(name for name, _ in bench.ran) == {
        f"10.0.0.{host}": 3 if host == 0 else 2 for host in range(20)
    }


def test_pulls_that_are_woken_while_others_are_run_are_run_too() -> None:
    bench = Bench()
    again = pulls_of(connection_of("a"), 3)

    def run(pull: ParkedPull) -> None:
        bench.ran.append(("a", pull.opaque))
        if again:
            bench.add([again.pop()])

    bench.add(pulls_of(connection_of("a"), 1))
    bench.lines.run(run, 1.0)
    assert [number for _, number in bench.ran] == [0, 2, 1, 0] and not bench.lines


def test_a_pull_that_fails_keeps_no_other_one_back() -> None:
    bench = Bench()

    def run(pull: ParkedPull) -> None:
        if pull.opaque == 1:
            raise RuntimeError("planted")
        bench.ran.append((pull.connection.account, pull.opaque))

    bench.add(pulls_of(connection_of("a"), 3), pulls_of(connection_of("b"), 1))
    with pytest.raises(RuntimeError):
        bench.lines.run(run, 1.0)
    bench.lines.run(run, 1.0)
    assert sorted(bench.ran) == [("a", 0), ("a", 2), ("b", 0)] and not bench.lines


def test_all_are_taken() -> None:
    bench = Bench()
    bench.add(pulls_of(connection_of("a"), 3), pulls_of(connection_of("b"), 2))
    bench.turn(0.0)
    assert sorted(pull.opaque for pull in bench.lines.take_all()) == [0, 1, 1, 2]
    assert not bench.lines and bench.turn() == []
