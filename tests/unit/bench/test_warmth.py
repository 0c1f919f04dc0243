"""When a group under load counts as warm."""

from __future__ import annotations

import pytest

from bench.warmth import rises_no_more, warm


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([], False),
        # Two equal windows may be the begin of a slow climb.
        ([100, 100], False),
        ([100, 200, 300], False),
        ([100, 290, 300], True),
        # The best is long over: something else slows it now.
        ([300, 200, 200], False),
        # One slow window, and then two good ones.
        ([300, 200, 290, 290], True),
    ],
)
def test_rate_rises_no_more_when_two_windows_are_near_the_best(
    rates: list[float], expected: bool
) -> None:
    assert rises_no_more(rates) is expected


def test_what_climbs_by_steps_is_given_more_windows() -> None:
    assert rises_no_more([100, 290, 300])
    assert not rises_no_more([100, 290, 300], windows_min=4)
    rates = iter([100.0, 290, 300, 500, 490, 1])
    assert warm(lambda: next(rates), windows_min=4)["windows"] == 5


def test_warming_stops_at_the_first_flat_windows_and_tells_first_last_and_best() -> None:
    rates = iter([100.0, 400.0, 500.0, 490.0, 1.0])
    found = warm(lambda: next(rates))
    assert (found["windows"], found["first"], found["last"], found["best"]) == (4, 100, 490, 500)


def test_warming_ends_when_its_time_is_over() -> None:
    assert warm(lambda: 1.0, limit_s=1e-9)["windows"] == 1
