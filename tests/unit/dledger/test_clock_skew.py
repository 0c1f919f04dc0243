"""Which clock of a group is wrong, by what its members' clocks say."""

from collections.abc import Sequence

import pytest

from ledgermq.dledger.clock_skew import ClockVerdict, GroupClocks

AGREES, OUTLIER = ClockVerdict.AGREES, ClockVerdict.OUTLIER
UNDECIDED = ClockVerdict.UNDECIDED
NOW_MS, MONOTONIC_MS = 1_700_000_000_000, 5_000.0
LIMIT_MS = 60_000
YEAR_MS = 365 * 86_400_000


def clocks_of(member_count: int, peers_ms: Sequence[int], limit_ms: int = LIMIT_MS) -> GroupClocks:
    """Peers whose clocks are so far ahead of ours, each measured over 20 ms."""
    clocks = GroupClocks(member_count // 2 + 1, limit_ms)
    for number, ahead_ms in enumerate(peers_ms, 1):
        wall_ms = NOW_MS + ahead_ms
        clocks.measured(f"n{number}", wall_ms, MONOTONIC_MS - 10, MONOTONIC_MS + 10)
    return clocks


@pytest.mark.parametrize(
    ("member_count", "peers_ms", "verdict", "difference_ms"),
    [
        (1, [], UNDECIDED, 0),
        (2, [500], AGREES, -500),
        (2, [YEAR_MS], UNDECIDED, -YEAR_MS),
        (3, [0, 0], AGREES, 0),
        (3, [YEAR_MS, 0], AGREES, 0),
        (3, [YEAR_MS, YEAR_MS], OUTLIER, -YEAR_MS),
        (3, [-YEAR_MS, -YEAR_MS - 5], OUTLIER, YEAR_MS),
        (3, [YEAR_MS, -YEAR_MS], UNDECIDED, 0),
        (3, [YEAR_MS], UNDECIDED, -YEAR_MS),
        (3, [0], AGREES, 0),
        (3, [], UNDECIDED, 0),
        (5, [0, 0, YEAR_MS, YEAR_MS], AGREES, 0),
        (5, [YEAR_MS, YEAR_MS, YEAR_MS, 0], OUTLIER, -YEAR_MS),
        (5, [0, YEAR_MS, YEAR_MS], UNDECIDED, -YEAR_MS),
        (3, [LIMIT_MS + 10, LIMIT_MS + 10], AGREES, -LIMIT_MS - 10),
        (3, [LIMIT_MS + 11, LIMIT_MS + 11], OUTLIER, -LIMIT_MS - 11),
    ],
)
def test_majority_decides_which_clock_is_wrong(
    member_count: int, peers_ms: Sequence[int], verdict: ClockVerdict, difference_ms: int
) -> None:
    finding = clocks_of(member_count, peers_ms).judge(NOW_MS, MONOTONIC_MS)
    assert (finding.verdict, finding.difference_ms) == (verdict, difference_ms)


def test_jump_of_the_own_clock_shows_at_once() -> None:
    """Peers were measured before it."""
    clocks = clocks_of(3, [0, 0])
    assert clocks.judge(NOW_MS + 10_000, MONOTONIC_MS + 10_000).verdict is AGREES
    finding = clocks.judge(NOW_MS + YEAR_MS, MONOTONIC_MS)
    assert finding.verdict is OUTLIER
    assert finding.apart == {"n1": -YEAR_MS, "n2": -YEAR_MS}


def test_long_round_trip_says_nothing() -> None:
    clocks = clocks_of(3, [0, 0])
    clocks.measured("n1", NOW_MS + YEAR_MS, MONOTONIC_MS, MONOTONIC_MS + LIMIT_MS + 2)
    assert clocks.judge(NOW_MS, MONOTONIC_MS).apart == {}


def test_clock_within_the_error_of_its_measurement_agrees() -> None:
    """The answer took 40 s: the peer's clock may be 20 s further away."""
    clocks = GroupClocks(2, LIMIT_MS)
    clocks.measured("n1", NOW_MS + 75_000, MONOTONIC_MS - 20_000, MONOTONIC_MS + 20_000)
    assert clocks.judge(NOW_MS, MONOTONIC_MS).verdict is AGREES


def test_peer_that_is_gone_and_limit_0_decide_nothing() -> None:
    clocks = clocks_of(3, [YEAR_MS, YEAR_MS])
    clocks.forget("n1")
    assert clocks.judge(NOW_MS, MONOTONIC_MS).verdict is UNDECIDED
    unlimited = clocks_of(3, [YEAR_MS, YEAR_MS], limit_ms=0)
    assert unlimited.judge(NOW_MS, MONOTONIC_MS).verdict is UNDECIDED
