"""Conditions of a query that Spark hands to a batch read: which rows pass, what need not be read.

A condition is taken over only where it is judged here as Spark would: on one column of a message,
with a value of that column's type. What is unknown, as a comparison with a null, passes no row.
The columns that are judged are the very arrays that Spark would be given. All else stays Spark's.

    topic, brokerName, queueId    judged when the read is planned, once for each queue
    queueOffset                   leaves a part of each range
    storeTimestamp                leaves a part of each range, where the user says how far times
                                  may be out of order
    tags                          whole ones are asked of the broker, too, which compares hashes

Everything here is a pure function.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from ledgermq.client import MessageQueue

# The columns that are the same in all rows of a range.
PLACES: Final = ("topic", "brokerName", "queueId")
INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
# More tags than these are judged here alone: each request would carry them all.
_TAGS_COUNT_MAX: Final = 64


class _Kind(NamedTuple):
    """What the values of a column are, in Python and in Arrow."""

    python: type
    arrow: Any


_TEXT: Final = _Kind(str, pa.string())
_MOMENT: Final = _Kind(datetime, pa.timestamp("us", "UTC"))
_INT32: Final = _Kind(int, pa.int32())
# The columns on which conditions are judged.
_KINDS: Final[Mapping[str, _Kind]] = {
    "topic": _TEXT,
    "queueId": _INT32,
    "brokerName": _TEXT,
    "queueOffset": _Kind(int, pa.int64()),
    "msgId": _TEXT,
    "bornTimestamp": _MOMENT,
    "storeTimestamp": _MOMENT,
    "tags": _TEXT,
    "keys": _TEXT,
    "body": _Kind(bytes, pa.binary()),
    "reconsumeTimes": _INT32,
}
_COMPARISONS: Final[Mapping[type[Filter], Callable[[Any, Any], Any]]] = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
}
_TEXT_TESTS: Final[Mapping[type[Filter], Callable[..., Any]]] = {
    StringStartsWith: pc.starts_with,
    StringEndsWith: pc.ends_with,
    StringContains: pc.match_substring,
}
# Which numbers a comparison lets pass: from the value to (first, end).
_BOUNDS: Final[Mapping[type[Filter], Callable[[int], tuple[int, int]]]] = {
    EqualTo: lambda value: (value, value + 1),
    EqualNullSafe: lambda value: (value, value + 1),
    GreaterThan: lambda value: (value + 1, INT64_MAX),
    GreaterThanOrEqual: lambda value: (value, INT64_MAX),
    LessThan: lambda value: (INT64_MIN, value),
    LessThanOrEqual: lambda value: (INT64_MIN, value + 1),
}


def column_of(wanted: Filter) -> str:
    """Returns the column that a condition is about; "" where it is about no whole column."""
    inner = wanted.child if isinstance(wanted, Not) else wanted
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _value_of(wanted: Filter) -> Any:
    """Returns what a condition compares its column with."""
    return getattr(wanted, "value", None)


def can_judge(wanted: Filter) -> bool:
    """Tells whether `judged` finds what Spark would find."""
    kind = _KINDS.get(column_of(wanted))
    if kind is None:
        return False
    match wanted:
        case Not(child):
            return not isinstance(child, Not) and can_judge(child)
        case IsNull() | IsNotNull() | EqualNullSafe(_, None):
            return True
        case In(_, values):
            return bool(values) and all(_fits(value, kind) for value in values)
        case StringStartsWith() | StringEndsWith() | StringContains():
            return kind is _TEXT and _fits(wanted.value, kind)
        case EqualNullSafe(_, value):
            return _fits(value, kind)
        case _:
            return type(wanted) in _COMPARISONS and _fits(_value_of(wanted), kind)


def _fits(value: object, kind: _Kind) -> bool:
    """Tells whether a value is one of a column's; a time without a zone is not."""
    if type(value) is not kind.python:
        return False
    if isinstance(value, datetime) and value.tzinfo is None:
        return False
    try:
        pa.scalar(value, kind.arrow)
    except (pa.ArrowException, OverflowError, UnicodeError):
        return False
    return True


def judged(wanted: Filter, values: Any) -> Any:
    """Returns for each value of a column whether it passes, null where that is unknown.

    Args:
        wanted: a condition that can be judged.
        values: the Arrow array of its column.
    """
    kind = values.type
    match wanted:
        case Not(child):
            return pc.invert(judged(child, values))
        case IsNull() | EqualNullSafe(_, None):
            return pc.is_null(values)
        case IsNotNull():
            return pc.is_valid(values)
        case EqualNullSafe(_, value):
            return pc.fill_null(pc.equal(values, pa.scalar(value, kind)), False)
        case In(_, several):
            found = pc.is_in(values, value_set=pa.array(several, kind))
            return pc.if_else(pc.is_valid(values), found, pa.scalar(None, pa.bool_()))
        case StringStartsWith() | StringEndsWith() | StringContains():
            return _TEXT_TESTS[type(wanted)](values, pattern=wanted.value)
        case _:
            value = _value_of(wanted)
            return _COMPARISONS[type(wanted)](values, pa.scalar(value, kind))


def passing(filters: Sequence[Filter], column: Callable[[str], Any], count: int) -> Any:
    """Returns which rows pass all of some conditions, as an Arrow array of truths.

    Args:
        filters: conditions that can be judged.
        column: the Arrow array of a column by its name; those of no condition are not asked for.
        count: how many rows there are.
    """
    mask = pa.repeat(pa.scalar(True), count)
    for wanted in filters:
        found = pc.fill_null(judged(wanted, column(column_of(wanted))), False)
        mask = pc.and_(mask, found)
    return mask


def passing_queues(
    filters: Sequence[Filter], queues: Sequence[MessageQueue]
) -> frozenset[MessageQueue]:
    """Returns the queues that conditions on their places leave; other conditions are not judged."""
    columns = {
        "topic": pa.array([queue.topic for queue in queues], pa.string()),
        "brokerName": pa.array([queue.broker_name for queue in queues], pa.string()),
        "queueId": pa.array([queue.queue_id for queue in queues], pa.int32()),
    }
    of_places = [wanted for wanted in filters if column_of(wanted) in PLACES]
    mask = passing(of_places, columns.__getitem__, len(queues)).to_pylist()
    return frozenset(queue for queue, passes in zip(queues, mask, strict=True) if passes)


def offset_bounds(filters: Sequence[Filter]) -> tuple[int, int]:
    """Returns the first queue offset that may pass, and the one behind the last."""
    return _bounds(filters, "queueOffset", int)


def time_bounds_ms(filters: Sequence[Filter]) -> tuple[int | None, int | None]:
    """Returns the first store time that may pass and the one behind the last; None for no bound."""
    first_us, end_us = _bounds(
        filters, "storeTimestamp", lambda moment: (moment - _EPOCH) // timedelta(microseconds=1)
    )
    first_ms = None if first_us == INT64_MIN else first_us // 1000
    return first_ms, None if end_us == INT64_MAX else -(-end_us // 1000)


def _bounds(filters: Sequence[Filter], name: str, number: Callable[[Any], int]) -> tuple[int, int]:
    """Returns a half-open range outside which no number passes."""
    first, end = INT64_MIN, INT64_MAX
    for wanted in filters:
        if column_of(wanted) != name:
            continue
        match wanted:
            case In(_, values):
                low, high = min(map(number, values)), max(map(number, values)) + 1
            case IsNull() | EqualNullSafe(_, None):
                # Neither column is ever null.
                low, high = 0, 0
            case _ if type(wanted) in _BOUNDS:
                low, high = _BOUNDS[type(wanted)](number(_value_of(wanted)))
            case _:
                continue
        first, end = max(first, low), min(end, high)
    return first, max(first, end)


def whole_tags(filters: Sequence[Filter]) -> frozenset[str] | None:
    """Returns the tags that may pass, for the broker to select by; None for no such bound.

    An empty set lets nothing pass. A condition with an empty tag, or one that holds a mark by which
    an expression of tags is read, is nothing that a broker can be asked for.
    """
    found: frozenset[str] | None = None
    for wanted in filters:
        match wanted:
            case EqualTo(("tags",), str() as tag) | EqualNullSafe(("tags",), str() as tag):
                tags = frozenset({tag})
            case In(("tags",), values):
                tags = frozenset(values)
            case _:
                continue
        is_askable = all(tag.strip() == tag != "*" and tag and "|" not in tag for tag in tags)
        if is_askable and len(tags) <= _TAGS_COUNT_MAX:
            found = tags if found is None else found & tags
    return found
