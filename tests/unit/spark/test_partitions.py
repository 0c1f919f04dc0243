"""Ranges of queues, split into partitions."""

import pickle
import random

import pytest

from ledgermq.client import MessageQueue
from ledgermq.spark.errors import OffsetRangeError
from ledgermq.spark.partitions import QueueRange, split

Q0, Q1 = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)


def test_a_range_survives_pickling() -> None:
    one = QueueRange(topic="T", broker_name="a", queue_id=3, start_offset=5, end_offset=9)
    assert pickle.loads(pickle.dumps(one)) == one
    assert (one.count, one.queue) == (4, MessageQueue("T", "a", 3))


def test_parts_lie_side_by_side_and_none_is_too_long() -> None:
    draws = random.Random(1)
    for _ in range(200):
        start = {Q0: draws.randint(0, 50), Q1: draws.randint(0, 50)}
        end = {queue: offset + draws.randint(0, 300) for queue, offset in start.items()}
        rows, parts = draws.randint(1, 100), draws.choice([0, 1, 7])
        ranges = split(start, end, rows_per_partition=rows, min_partitions=parts)
        for queue in (Q0, Q1):
            own = [part for part in ranges if part.queue == queue]
            borders = [start[queue], *(part.end_offset for part in own)]
            assert [part.start_offset for part in own] == borders[:-1]
            assert borders[-1] == end[queue]
        assert all(0 < part.count <= rows for part in ranges)
        assert len(ranges) >= min(parts, sum(end.values()) - sum(start.values()))


def test_a_start_behind_its_end_is_named() -> None:
    with pytest.raises(OffsetRangeError, match="5 to 4 of queue 1 of topic T on a"):
        split({Q0: 0, Q1: 5}, {Q0: 3, Q1: 4}, rows_per_partition=10, min_partitions=0)
