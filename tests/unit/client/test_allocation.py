"""How queues are divided among the members of a group."""

import pytest

from ledgermq.client.allocation import allocate
from ledgermq.protocol.bodies import MessageQueue


def queues_of(count: int) -> list[MessageQueue]:
    return [MessageQueue("T", f"broker-{i % 3}", i) for i in range(count)]


@pytest.mark.parametrize("queue_count", range(12))
@pytest.mark.parametrize("member_count", range(1, 6))
def test_every_queue_has_exactly_one_member(queue_count: int, member_count: int) -> None:
    queues = queues_of(queue_count)
    members = [f"10.0.0.{i}@1" for i in range(member_count)]
    parts = [allocate(queues, members, member) for member in members]
    assert sorted(queue for part in parts for queue in part) == sorted(queues)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert [len(part) for part in parts] == sorted(map(len, parts), reverse=True)


def test_order_of_the_lists_does_not_matter() -> None:
    queues = queues_of(7)
    assert allocate(queues, ["b", "a"], "a") == allocate(queues[::-1], ["a", "b", "a"], "a")


def test_blocks_are_contiguous_as_java_members_expect() -> None:
    """The Java client's AllocateMessageQueueAveragely gives 3 + 2 of five queues."""
    queues = [MessageQueue("T", "b", i) for i in range(5)]
    assert allocate(queues, ["x", "y"], "x") == queues[:3]
    assert allocate(queues, ["x", "y"], "y") == queues[3:]


def test_stranger_gets_nothing() -> None:
    assert allocate(queues_of(4), ["a"], "b") == []
    assert allocate(queues_of(4), [], "b") == []
