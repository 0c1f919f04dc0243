"""Record batches: runs of records become what Spark takes, row for row and column for column."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import Filter
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from ledgermq.client import MessageQueue
from ledgermq.protocol import properties as names
from ledgermq.spark.cluster import Cluster
from ledgermq.spark.errors import CorruptDataError
from ledgermq.spark.filters import PLACES, column_of, passing
from ledgermq.spark.options import ReadOptions
from ledgermq.spark.partitions import QueueRange, queue_name
from ledgermq.spark.planning import moment_of
from ledgermq.spark.property_columns import Int64s
from ledgermq.spark.pulling import RangePull, Run
from ledgermq.spark.record_columns import RecordColumns, is_one_of, record_starts
from ledgermq.spark.record_fields import Booleans
from ledgermq.spark.schema import BODY, VALUE, VALUE_COLUMNS
from ledgermq.spark.values.columns import BodyReader
from ledgermq.spark.values.schemas import ValuePlan

# In whose name brokers answer when the user gives no group.
DEFAULT_GROUP: Final = "ledgermq_spark"
# Columns that are read without looking at texts.
_HEAD_COLUMNS: Final = ("queueOffset", "bornTimestamp", "storeTimestamp", "reconsumeTimes")
_SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
_SYSTEM_PREFIX: Final = "rmq_sys_"
# The years 1 to 9999: what Python and SQL have dates for.
_FIRST_MS: Final = -62_135_596_800_000
_LAST_MS: Final = 253_402_300_799_999
# Messages whose size is taken for that of all.
_SAMPLE_COUNT: Final = 32


# Tells which records pass; None: all do.
_Judge = Callable[[RecordColumns], Booleans | None]


def arrow_schema(schema: StructType) -> Any:
    """Returns the Arrow schema that Spark compares batches with."""
    return to_arrow_schema(schema, timezone="UTC")


def _times(ms: Int64s) -> Any:
    """Returns times; null where no calendar has one, for producers tell what they like."""
    kind = pa.timestamp("us", "UTC")
    is_good = (ms >= _FIRST_MS) & (ms <= _LAST_MS)
    if is_good.all():
        return pa.Array.from_buffers(kind, len(ms), [None, pa.py_buffer(ms * 1000)])
    return pa.array(np.where(is_good, ms, 0) * 1000, kind, mask=~is_good)


# A column from records and its Arrow type; those that are not here are constants of the read.
_MAKERS: Final[dict[str, Callable[[RecordColumns, Any], Any]]] = {
    "topic": lambda records, _: records.topics,
    "queueId": lambda records, _: pa.array(records.queue_ids),
    "queueOffset": lambda records, _: pa.array(records.queue_offsets),
    "msgId": lambda records, _: records.message_ids,
    "bornTimestamp": lambda records, _: _times(records.born_ms),
    "storeTimestamp": lambda records, _: _times(records.store_ms),
    "tags": lambda records, _: records.find_property(names.TAGS),
    "keys": lambda records, _: records.find_property(names.KEYS),
    "body": lambda records, _: records.bodies,
    "properties": lambda records, kind: records.property_maps(kind),
    "reconsumeTimes": lambda records, _: pa.array(records.reconsume_times),
}


def to_batch(
    records: RecordColumns,
    schema: Any,
    constants: Mapping[str, str | None],
    values: tuple[Any, Any] | None = None,
) -> Any:
    """Returns records as a batch.

    Args:
        records: the rows.
        schema: the Arrow schema; its columns are made, no others.
        constants: texts of columns that are the same in each row.
        values: the values and their errors, where the schema has them.

    Raises:
        CorruptDataError: a body cannot be decompressed.
    """
    arrays = []
    for field in schema:
        if field.name in constants:
            value = pa.scalar(constants[field.name], pa.string())
            arrays.append(pa.repeat(value, len(records)))
        elif field.name in VALUE_COLUMNS:
            assert values is not None, "a schema with values is read with a plan for them"
            arrays.append(values[VALUE_COLUMNS.index(field.name)])
        else:
            arrays.append(_MAKERS[field.name](records, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def range_batches(
    wanted: QueueRange,
    options: ReadOptions,
    schema: Any,
    plan: ValuePlan | None = None,
    filters: Sequence[Filter] = (),
) -> Iterator[Any]:
    """Reads a range of a queue; opens its own connections and closes them.

    Args:
        wanted: the range.
        options: of the read.
        schema: the Arrow schema of the batches.
        plan: how values are decoded; None: there are none.
        filters: conditions of the query that were taken over; those of places hold already.

    Raises:
        SparkSourceError: the range cannot be read whole.
    """
    has_values = any(name in VALUE_COLUMNS for name in schema.names)
    reader = BodyReader(plan) if plan is not None and has_values else None
    constants = {"topic": wanted.topic, "brokerName": wanted.broker_name}
    tags: frozenset[str] = frozenset() if _has_other_codes(wanted.topic) else options.tags
    of_bodies = [condition for condition in filters if column_of(condition) == BODY]
    judges = _judges(wanted.queue, options, filters)
    body_judges = [partial(_filter_mask, filters=of_bodies)] if of_bodies else []
    needs_bodies = bool(BODY in schema.names or reader or of_bodies)
    with Cluster(options.name_servers, options.timeout_s, options.access) as cluster:
        pull = RangePull(
            cluster,
            wanted,
            group=options.group or DEFAULT_GROUP,
            tags=tags,
            fetch_bytes=options.fetch_bytes,
            fails_on_data_loss=options.fails_on_data_loss,
            bytes_per_second=options.fetch_bytes_per_second,
            read_from=options.read_from,
        )
        for run in pull.runs():
            records = _judged(records_of(wanted, run, is_whole=not tags), judges)
            for part in records.parts(options.body_bytes_max) if needs_bodies else (records,):
                rows = _judged(part, body_judges)
                if len(rows) and reader is None:
                    yield to_batch(rows, schema, constants)
                elif len(rows) and reader is not None:
                    yield from _with_values(wanted, rows, schema, constants, reader)


def _judged(records: RecordColumns, judges: Sequence[_Judge]) -> RecordColumns:
    """Returns the records that pass."""
    for judge in judges:
        mask = judge(records)
        if mask is not None and len(records):
            records = records.select(mask)
    return records


def _namer(wanted: QueueRange, offsets: Int64s) -> Callable[[int], str]:
    """Returns what names a row in an error."""
    return lambda row: f"{queue_name(wanted.queue)} at {offsets[row]}"


def _with_values(
    wanted: QueueRange,
    records: RecordColumns,
    schema: Any,
    constants: Mapping[str, str | None],
    reader: BodyReader,
) -> Iterator[Any]:
    """Yields records as batches with values, each of as much as the reader allows."""
    rows, bodies = np.arange(len(records)), records.bodies
    kind = arrow_schema(StructType([StructField(VALUE, reader.spark_type)])).field(0).type
    for first, end in reader.parts(bodies):
        part = records.select((rows >= first) & (rows < end))
        values = reader.columns(
            bodies.slice(first, end - first), kind, _namer(wanted, part.queue_offsets)
        )
        yield to_batch(part, schema, constants, values)


def mean_record_bytes(
    cluster: Cluster, queue: MessageQueue, start_offset: int, end_offset: int, options: ReadOptions
) -> float:
    """Returns the mean size of the first messages of a range, at least 1."""
    wanted = QueueRange(
        topic=queue.topic,
        broker_name=queue.broker_name,
        queue_id=queue.queue_id,
        start_offset=start_offset,
        end_offset=min(start_offset + _SAMPLE_COUNT, end_offset),
    )
    pull = RangePull(
        cluster,
        wanted,
        group=options.group or DEFAULT_GROUP,
        tags=frozenset(),
        fetch_bytes=options.fetch_bytes,
        fails_on_data_loss=options.fails_on_data_loss,
    )
    size = sum(len(run.records) for run in pull.runs())
    return max(1.0, size / max(1, wanted.count))


def records_of(wanted: QueueRange, run: Run, *, is_whole: bool) -> RecordColumns:
    """Returns the records of a run that belong to the range, which must be all of them."""
    name = queue_name(wanted.queue)

    def place(at: int) -> str:
        return f"{name}, byte {at} of the records from offset {run.start_offset} on"

    records = RecordColumns(run.records, record_starts(run.records, place), place)
    end = min(run.end_offset, wanted.end_offset)
    offsets = records.queue_offsets
    is_inside = (offsets >= run.start_offset) & (offsets < end)
    if not is_inside.all():
        records = records.select(is_inside)
        offsets = records.queue_offsets
    # No more of them than came: the end is a number that a broker says.
    expected = np.arange(run.start_offset, min(end, run.start_offset + len(offsets) + 1))
    if is_whole and not np.array_equal(offsets, expected):
        raise CorruptDataError(
            name,
            f"offsets {run.start_offset} to {end} were read, {len(offsets)} messages came,"
            f" the first other than expected has {_first_other(offsets, expected)}"
            f"{' (a batch queue of 5.x is not read)' if records.say_inner_batches else ''}",
        )
    return records


def _first_other(offsets: Int64s, expected: Int64s) -> str:
    count = min(len(offsets), len(expected))
    others = np.flatnonzero(offsets[:count] != expected[:count])
    at = int(others[0]) if len(others) else count
    return f"offset {offsets[at]}" if at < len(offsets) else "no offset: it is missing"


def _has_other_codes(topic: str) -> bool:
    """Tells whether a topic's consume queues may hold something other than the hashes of tags.

    Delayed messages wait with the time of their delivery there: no broker can select by tags.
    """
    return topic == _SCHEDULE_TOPIC or topic.startswith(_SYSTEM_PREFIX)


def _judges(queue: MessageQueue, options: ReadOptions, filters: Sequence[Filter]) -> list[_Judge]:
    """Returns what tells which records are rows, the cheap ones first, without their bodies."""
    of_rows = [wanted for wanted in filters if column_of(wanted) not in (*PLACES, BODY)]
    of_heads = [wanted for wanted in of_rows if column_of(wanted) in _HEAD_COLUMNS]
    of_texts = [wanted for wanted in of_rows if column_of(wanted) not in _HEAD_COLUMNS]
    judges: list[_Judge] = []
    if of_heads:
        judges.append(lambda records: _filter_mask(records, of_heads))
    judges.append(lambda records: row_mask(records, options, queue))
    if of_texts:
        judges.append(lambda records: _filter_mask(records, of_texts))
    return judges


def _filter_mask(records: RecordColumns, filters: Sequence[Filter]) -> Booleans:
    """Tells which records pass conditions of the query."""

    @cache
    def column(name: str) -> Any:
        return _MAKERS[name](records, None)

    mask: Booleans = passing(filters, column, len(records)).to_numpy(zero_copy_only=False)
    return mask


def row_mask(records: RecordColumns, options: ReadOptions, queue: MessageQueue) -> Booleans | None:
    """Tells which records of a queue the options want, None when they want all.

    A broker compares hashes of tags and finds times by search; here both are exact.
    """
    masks: list[Booleans] = []
    if options.tags:
        masks.append(is_one_of(records.find_property(names.TAGS), options.tags))
    if options.keys:
        masks.append(_has_key(records.find_property(names.KEYS), options.keys))
    starting_ms = moment_of(options.starting_ms, queue)
    if starting_ms is not None:
        masks.append(records.store_ms >= starting_ms)
    ending_ms = moment_of(options.ending_ms, queue)
    if ending_ms is not None:
        masks.append(records.store_ms < ending_ms)
    if not masks:
        return None
    mask: Booleans = np.logical_and.reduce(masks)
    return mask


def _has_key(texts: Any, wanted: frozenset[str]) -> Booleans:
    """Tells which texts have one of the keys among their words."""
    lists = pc.split_pattern(pc.fill_null(texts, ""), " ")
    borders = lists.offsets.to_numpy().astype(np.int64)
    words = lists.values.slice(int(borders[0]), int(borders[-1] - borders[0]))
    rows = np.repeat(np.arange(len(texts)), np.diff(borders))
    mask = np.zeros(len(texts), np.bool_)
    mask[rows[is_one_of(words, wanted)]] = True
    return mask
