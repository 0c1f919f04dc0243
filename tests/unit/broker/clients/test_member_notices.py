"""Members are told who came or went: each group once, a few notices a turn, all groups in turns."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ledgermq.broker.clients.member_notices import NOTICES_MS, MemberNotices
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from tests.unit.broker.parts import Turn

# What one notice takes on the clock of these tests.
_NOTICE_MS = NOTICES_MS / 10


class Member:
    """A connection that notes of what it was told."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.is_open = True
        self.told: list[str] = []

    def send_one_way(self, command: RemotingCommand) -> None:
        assert command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        self.bench.clock_ms += _NOTICE_MS
        self.told.append(command.ext_fields["consumerGroup"])


class Bench:
    """Groups with members."""

    def __init__(self, **sizes: int) -> None:
        self.clock_ms = 0.0
        self.turn = Turn()
        self.members = {group: [Member(self) for _ in range(size)] for group, size in sizes.items()}
        self.notices = MemberNotices(
            lambda group: cast(Any, self.members[group]), self.turn.soon, lambda: self.clock_ms
        )

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
    bench = Bench(large=1000, small=2)
    bench.notices.tell("large")
    bench.turn.end()
    bench.notices.tell("small")
    bench.turn.end()
    bench.turn.end()
    assert bench.told("small") == [1, 1] and sum(bench.told("large")) < 100
    bench.turns()
    assert bench.told("large") == [1] * 1000


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
