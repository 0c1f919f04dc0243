"""Members are told who came or went: each of a group once, in one write, a few members a turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from ledgermq.broker.clients.member_notices import NOTICES_MS, MemberNotices
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import decode
from ledgermq.protocol.framing import FrameDecoder
from tests.unit.broker.parts import Turn

# What a write takes on the clock of these tests, and what lies between two looks at it.
_WRITE_MS = NOTICES_MS / 10
_LOOK_MS = NOTICES_MS / 40


class Member:
    """A connection that notes of what it was told."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.is_open = True
        self.writes = 0
        self.told: list[str] = []
        self.when_told: Callable[[], None] = lambda: None

    def send_parts(self, parts: list[bytes]) -> None:
        self.bench.clock_ms += _WRITE_MS
        self.writes += 1
        for command in map(decode, FrameDecoder().feed(b"".join(parts))):
            assert command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            assert command.is_one_way
            self.told.append(command.ext_fields["consumerGroup"])
        self.when_told()


class Bench:
    """Groups with members."""

    def __init__(self, **sizes: int) -> None:
        self.clock_ms = 0.0
        self.turn = Turn()
        self.members = {group: [Member(self) for _ in range(size)] for group, size in sizes.items()}
        self.notices = MemberNotices(
            lambda group: cast(Any, self.members[group]), self.turn.soon, self._look_at_clock
        )

    def _look_at_clock(self) -> float:
        self.clock_ms += _LOOK_MS
        return self.clock_ms

    def told(self, group: str) -> list[int]:
        """Returns how often each member was told."""
        return [len(member.told) for member in self.members[group]]

    def turns(self) -> int:
        """Lets turns end until nothing is left; returns how many there were."""
        count = 0
        while self.turn.waiting:
            begun_ms = self.clock_ms
            self.turn.end()
            count += 1
            # A few more may be told than there is time for.
            assert self.clock_ms - begun_ms < 3 * NOTICES_MS
        assert len(self.notices) == 0
        return count


def test_a_group_is_told_once_behind_all_that_changed_in_a_turn() -> None:
    bench = Bench(g=3, h=2)
    for _ in range(5):
        bench.notices.tell("g")
        bench.notices.tell("h")
    assert bench.told("g") == [0, 0, 0] and len(bench.turn.waiting) == 1
    assert bench.turns() == 1
    assert bench.told("g") == [1, 1, 1] and bench.told("h") == [1, 1]
    assert bench.members["g"][0].told == ["g"]
    bench.notices.tell("g")
    bench.turns()
    assert bench.told("g") == [2, 2, 2] and bench.told("h") == [1, 1]


@pytest.mark.parametrize("size", [15, 16, 17, 32, 1000])
def test_a_large_group_is_told_in_many_turns(size: int) -> None:
    bench = Bench(g=size)
    bench.notices.tell("g")
    assert bench.turns() >= size // 20
    assert bench.told("g") == [1] * size


def test_a_small_group_does_not_wait_for_all_of_a_large_one() -> None:
    """Its members are looked up between those of the large one, and wait for those before them."""
    bench = Bench(large=10_000, small=2)
    bench.notices.tell("large")
    bench.turn.end()
    bench.notices.tell("small")
    while sum(bench.told("small")) < 2:
        bench.turn.end()
    assert sum(bench.told("large")) < 1000
    bench.turns()
    assert bench.told("large") == [1] * 10_000


def test_a_member_of_many_groups_is_told_of_many_in_one_write() -> None:
    bench = Bench(one=1, crowd=50)
    [member] = bench.members["one"]
    names = [f"g{number}" for number in range(300)]
    bench.members.update({name: [*bench.members["crowd"], member] for name in names})
    for name in names:
        bench.notices.tell(name)
    bench.turns()
    assert sorted(member.told) == sorted(names) and member.writes < 20


def test_no_member_waits_for_all_that_another_one_is_told() -> None:
    bench = Bench(one=1, other=1)
    [busy] = bench.members["one"]
    names = [f"g{number}" for number in range(5000)]
    bench.members.update({name: [busy] for name in names})
    for name in (*names[:10], "other", *names[10:]):
        bench.notices.tell(name)
    bench.turn.end()
    assert bench.told("other") == [1] and len(busy.told) < 100
    bench.turns()
    assert len(busy.told) == 5000


def test_a_member_that_leaves_when_it_is_told_has_the_others_told_in_the_same_line_of_turns() -> (
    None
):
    bench = Bench(g=2, h=1)
    bench.members["g"][0].when_told = lambda: bench.notices.tell("h")
    bench.notices.tell("g")
    bench.turn.end()
    assert len(bench.turn.waiting) == 1
    bench.turns()
    assert bench.told("g") == [1, 1] and bench.told("h") == [1]


def test_who_was_told_before_the_last_change_is_told_again() -> None:
    bench = Bench(g=100)
    bench.notices.tell("g")
    bench.turn.end()
    early = [member for member in bench.members["g"] if member.told]
    assert 0 < len(early) < 100
    gone = bench.members["g"].pop()
    gone.is_open = False
    bench.notices.tell("g")
    bench.turns()
    assert all(len(member.told) == 2 for member in early)
    assert min(bench.told("g")) == 1 and gone.told == []


def test_a_notice_that_fails_keeps_no_other_one_back() -> None:
    bench = Bench(g=3, h=40)
    broken = bench.members["g"][0]
    broken.told = cast(Any, None)
    bench.notices.tell("g")
    bench.notices.tell("h")
    with pytest.raises(AttributeError):
        bench.turn.end()
    bench.turns()
    assert bench.told("h") == [1] * 40
    bench.notices.tell("h")
    bench.turns()
    assert bench.told("h") == [2] * 40


def test_a_closed_connection_is_not_told() -> None:
    bench = Bench(g=40)
    bench.notices.tell("g")
    bench.turn.end()
    last = bench.members["g"][-1]
    last.is_open = False
    bench.turns()
    assert last.told == [] and sum(bench.told("g")) == 39
