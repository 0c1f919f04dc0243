"""What may be committed while messages are consumed in any order."""

import random

import pytest

from ledgermq.client.process_queue import ProcessQueue, offset_after_illegal
from tests.unit.client.parts import QUEUE, messages


def test_nothing_pulled_commits_the_start() -> None:
    assert ProcessQueue(QUEUE, 17).committable() == 17


def test_offset_is_committed_up_to_the_lowest_unconsumed_message() -> None:
    held = ProcessQueue(QUEUE, 10)
    pulled = held.add(messages(10, 14), 14)
    for number, expected in ((1, 10), (3, 10), (0, 12), (2, 14)):
        held.consumed(pulled[number])
        assert held.committable() == expected


def test_any_order_of_consumption_commits_what_an_obvious_count_says() -> None:
    chance = random.Random(7)
    held = ProcessQueue(QUEUE, 0)
    pulled = held.add(messages(0, 200), 200)
    chance.shuffle(pulled)
    left = set(range(200))
    for one in pulled:
        held.consumed(one)
        left.discard(one.queue_offset)
        assert held.committable() == min(left, default=200)
        assert held.pending_count == len(left)
    assert held.pending_bytes == 0


def test_messages_that_the_subscription_does_not_want_are_passed_over() -> None:
    held = ProcessQueue(QUEUE, 0)
    assert held.add([], 40) == []
    assert held.committable() == held.next_offset == 40


def test_message_is_counted_once() -> None:
    held = ProcessQueue(QUEUE, 0)
    (first, second) = held.add(messages(0, 2), 2)
    held.consumed(second)
    held.consumed(second)
    assert held.pending_count == 1
    held.consumed(first)
    held.consumed(first)
    assert (held.pending_count, held.committable()) == (0, 2)
    assert held.add(messages(0, 2), 2) == []


@pytest.mark.parametrize(("count_max", "bytes_max"), [(3, 10_000), (100, 300)])
def test_queue_is_full_at_its_count_or_its_bytes(count_max: int, bytes_max: int) -> None:
    held = ProcessQueue(QUEUE, 0)
    assert not held.is_full(count_max, bytes_max)
    pulled = held.add(messages(0, 5), 5)
    assert held.is_full(count_max, bytes_max)
    for one in pulled:
        held.consumed(one)
    assert not held.is_full(count_max, bytes_max)


def test_one_slow_message_does_not_let_the_span_grow_for_ever() -> None:
    held = ProcessQueue(QUEUE, 0)
    for one in held.add(messages(0, 20), 20)[1:]:
        held.consumed(one)
    assert held.pending_count == 1
    assert held.is_full(10, 10_000_000)


@pytest.mark.parametrize(
    ("offset", "waited_s", "expected"),
    [(3, 0.0, 10), (120, 0.0, None), (120, 60.0, 100), (0, 60.0, 10)],
)
def test_illegal_offset_moves_to_what_the_queue_has(
    offset: int, waited_s: float, expected: int | None
) -> None:
    assert offset_after_illegal(offset, 10, 100, waited_s) == expected


def test_offset_beyond_the_end_of_a_young_queue_never_goes_back_to_its_start() -> None:
    """A broker suggests 0 for it, which would consume everything again after a failover."""
    assert offset_after_illegal(120, 0, 118, 0.0) is None
    assert offset_after_illegal(120, 0, 118, 60.0) == 118
