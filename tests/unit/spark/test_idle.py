"""How often a stream looks for messages that do not come."""

import itertools

import pytest

from ledgermq.spark.idle import PAUSE_FIRST_S, PAUSE_MAX_S, IdlePauses


def test_stream_that_finds_something_never_waits() -> None:
    pauses = IdlePauses()
    for now_s in range(10):
        assert pauses.left_s(now_s) == pytest.approx(0)
        pauses.looked(now_s, has_found=True)


def test_pauses_grow_up_to_a_bound_and_end_with_what_is_found() -> None:
    pauses, now_s = IdlePauses(), 5.0
    waits = []
    for _ in range(8):
        waits.append(pauses.left_s(now_s))
        now_s += waits[-1]
        pauses.looked(now_s, has_found=False)
    assert waits[:2] == pytest.approx([0, PAUSE_FIRST_S])
    assert all(a <= b + 1e-9 for a, b in itertools.pairwise(waits))
    assert waits[-1] == pytest.approx(PAUSE_MAX_S)
    pauses.looked(now_s, has_found=True)
    assert pauses.left_s(now_s) == 0


def test_who_asks_seldom_does_not_wait() -> None:
    pauses, now_s = IdlePauses(), 0.0
    for _ in range(8):
        pauses.looked(now_s, has_found=False)
        now_s += PAUSE_MAX_S
        assert pauses.left_s(now_s) == pytest.approx(0)
