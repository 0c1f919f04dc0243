"""Conditions of a query: judged as Spark judges them, and what they leave of ranges."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as of_spark
from pyspark.sql.datasource import Filter

from ledgermq.client import MessageQueue
from ledgermq.spark.filters import (
    INT64_MAX,
    INT64_MIN,
    can_judge,
    judged,
    offset_bounds,
    passing_queues,
    time_bounds_ms,
    whole_tags,
)

TEXTS = ["", "A", "B", "Ä", "AB", "a", None]
MOMENT = datetime(2026, 1, 31, 12, 0, 0, 1500, UTC)


def plainly(wanted: Filter, value: Any) -> bool | None:
    """What SQL says of one value; None where it is unknown."""
    match wanted:
        case of_spark.Not(child):
            inner = plainly(child, value)
            return None if inner is None else not inner
        case of_spark.IsNull():
            return value is None
        case of_spark.IsNotNull():
            return value is not None
        case of_spark.EqualNullSafe(_, other):
            return bool(value == other)
    if value is None:
        return None
    match wanted:
        case of_spark.EqualTo(_, other):
            return bool(value == other)
        case of_spark.In(_, several):
            return value in several
        case of_spark.LessThan(_, other):
            return bool(value.encode() < other.encode())
        case of_spark.GreaterThanOrEqual(_, other):
            return bool(value.encode() >= other.encode())
        case of_spark.StringStartsWith(_, other):
            return bool(value.startswith(other))
        case of_spark.StringEndsWith(_, other):
            return bool(value.endswith(other))
        case of_spark.StringContains(_, other):
            return other in value
    raise AssertionError(wanted)


def random_condition(draws: random.Random) -> Filter:
    """A condition on tags that Spark may push down."""
    text = draws.choice(TEXTS[:-1])
    binary = (
        of_spark.EqualTo,
        of_spark.EqualNullSafe,
        of_spark.LessThan,
        of_spark.GreaterThanOrEqual,
        of_spark.StringStartsWith,
        of_spark.StringEndsWith,
        of_spark.StringContains,
    )
    found: Filter = draws.choice(
        [
            *(kind(("tags",), text) for kind in binary),
            of_spark.In(("tags",), tuple(draws.sample(TEXTS[:-1], 2))),
            of_spark.IsNull(("tags",)),
            of_spark.IsNotNull(("tags",)),
            of_spark.EqualNullSafe(("tags",), None),
        ]
    )
    return of_spark.Not(found) if draws.random() < 0.4 else found


def test_conditions_are_judged_as_one_value_after_the_other_would_be() -> None:
    draws = random.Random(7)
    column = pa.array(TEXTS, pa.string())
    for _ in range(400):
        wanted = random_condition(draws)
        assert can_judge(wanted)
        assert judged(wanted, column).to_pylist() == [plainly(wanted, text) for text in TEXTS]


@pytest.mark.parametrize(
    "wanted",
    [
        of_spark.EqualTo(("tags",), None),
        of_spark.EqualTo(("tags",), 1),
        of_spark.EqualTo(("queueId",), "1"),
        of_spark.EqualTo(("queueId",), True),
        of_spark.EqualTo(("queueId",), 2**40),
        of_spark.EqualTo(("queueOffset",), 1.5),
        of_spark.In(("tags",), ("A", None)),
        of_spark.In(("tags",), ()),
        of_spark.EqualTo(("value", "amount"), 1),
        of_spark.EqualTo(("value_error",), "x"),
        of_spark.IsNull(("properties",)),
        of_spark.EqualTo(("storeTimestamp",), datetime(2026, 1, 31)),
        of_spark.EqualTo(("tags",), "\ud800"),
    ],
)
def test_what_is_not_of_the_columns_type_stays_with_spark(wanted: Filter) -> None:
    assert not can_judge(wanted) and not can_judge(of_spark.Not(wanted))


def test_offsets_and_times_are_bounded() -> None:
    offset, stored = ("queueOffset",), ("storeTimestamp",)
    some = [of_spark.GreaterThan(offset, 4), of_spark.LessThanOrEqual(offset, 9)]
    assert offset_bounds(some) == (5, 10)
    assert offset_bounds([*some, of_spark.In(offset, (7, 2, 8))]) == (5, 9)
    assert offset_bounds([*some, of_spark.EqualTo(offset, 30)]) == (30, 30)
    assert offset_bounds([of_spark.Not(of_spark.EqualTo(offset, 3))]) == (INT64_MIN, INT64_MAX)
    assert time_bounds_ms(some) == (None, None)
    ms = 1_769_860_800_001
    assert time_bounds_ms([of_spark.EqualTo(stored, MOMENT)]) == (ms, ms + 1)
    whole = MOMENT - timedelta(microseconds=500)
    assert time_bounds_ms([of_spark.LessThan(stored, whole)]) == (None, ms)
    assert time_bounds_ms([of_spark.LessThan(stored, MOMENT)]) == (None, ms + 1)
    assert time_bounds_ms([of_spark.GreaterThanOrEqual(stored, MOMENT)]) == (ms, None)


def test_queues_are_left_out_by_their_places() -> None:
    queues = [MessageQueue("T", broker, number) for broker in "ab" for number in range(3)]
    kept = passing_queues(
        [
            of_spark.Not(of_spark.EqualTo(("queueId",), 1)),
            of_spark.StringStartsWith(("brokerName",), "b"),
            of_spark.EqualTo(("tags",), "A"),
        ],
        queues,
    )
    assert kept == {MessageQueue("T", "b", 0), MessageQueue("T", "b", 2)}


def test_a_broker_is_asked_for_whole_tags_that_an_expression_can_say() -> None:
    tags = ("tags",)
    both = of_spark.In(tags, ("A", "B"))
    assert whole_tags([both]) == {"A", "B"}
    assert whole_tags([both, of_spark.EqualNullSafe(tags, "B")]) == {"B"}
    assert whole_tags([both, of_spark.EqualTo(tags, "C")]) == set()
    assert whole_tags([of_spark.StringStartsWith(tags, "A"), of_spark.Not(both)]) is None
    for odd in ("", " A", "*", "A || B", "A|B"):
        assert whole_tags([of_spark.EqualTo(tags, odd)]) is None
    assert whole_tags([of_spark.In(tags, tuple(map(str, range(65))))]) is None
