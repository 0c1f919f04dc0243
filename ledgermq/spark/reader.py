"""The batch read: ranges are planned once, on the driver; each is read where Spark runs its task.

The end of every queue is fixed by the plan, so a task that runs again gives the same rows.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from ledgermq.spark.batches import arrow_schema, range_batches
from ledgermq.spark.cluster import Cluster
from ledgermq.spark.options import ReadOptions, with_tags
from ledgermq.spark.partitions import QueueRange, split
from ledgermq.spark.planning import end_offsets, find_queues, start_offsets
from ledgermq.spark.schema import check_read_schema
from ledgermq.spark.values.schemas import ValuePlan


class RangeReader(DataSourceReader):
    """Reads topics from a start to an end; holds nothing open."""

    def __init__(
        self, options: ReadOptions, schema: StructType, plan: ValuePlan | None = None
    ) -> None:
        """Takes what the read is told.

        Raises:
            RowSchemaError: the schema is not one of messages.
        """
        check_read_schema(schema, None if plan is None else plan.spark_type)
        self._plan = plan
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Plans the ranges.

        Raises:
            SparkSourceError: a topic or an offset is not there.
        """
        options = self._options
        with Cluster(options.name_servers, options.timeout_s, options.access) as cluster:
            queues = find_queues(cluster, options)
            starts = start_offsets(cluster, options, queues)
            ends = end_offsets(cluster, options, queues)
        if options.starting_ms is not None or options.ending_ms is not None:
            # The clocks of two leaders may differ: what is before the start is no error.
            starts = {queue: min(start, ends[queue]) for queue, start in starts.items()}
        return list(
            split(
                starts,
                ends,
                rows_per_partition=options.rows_per_partition,
                min_partitions=options.min_partitions,
            )
        )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Reads one range as record batches.

        Raises:
            SparkSourceError: it cannot be read whole.
        """
        if isinstance(partition, QueueRange):
            yield from range_batches(
                partition, self._options, arrow_schema(self._schema), self._plan
            )


# Which part of a range a comparison of queueOffset leaves: from the offset to (start, end).
_INT64_MAX: Final = 2**63 - 1
_BOUNDS: Final[dict[type[Filter], Callable[[int], tuple[int, int]]]] = {
    EqualTo: lambda offset: (offset, offset + 1),
    GreaterThan: lambda offset: (offset + 1, _INT64_MAX),
    GreaterThanOrEqual: lambda offset: (offset, _INT64_MAX),
    LessThan: lambda offset: (0, offset),
    LessThanOrEqual: lambda offset: (0, offset + 1),
}


class FilteringReader(RangeReader):
    """A batch read that takes over filters of tags, and leaves out queues and offsets.

    Times are not used to leave out offsets: after a change of leader the store times of a queue
    need not rise, and a search by time could miss rows.
    """

    def __init__(
        self, options: ReadOptions, schema: StructType, plan: ValuePlan | None = None
    ) -> None:
        """Takes what the read is told; see RangeReader."""
        super().__init__(options, schema, plan)
        # Column -> what it may be.
        self._wanted: dict[str, set[Any]] = {}
        self._first_offset = 0
        self._end_offset = _INT64_MAX

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes filters over; yields those that Spark still has to apply."""
        for wanted in filters:
            if not self._take_tags(wanted):
                self._narrow(wanted)
                yield wanted

    def partitions(self) -> list[InputPartition]:
        """Plans the ranges that the filters leave."""
        left: list[InputPartition] = []
        for part in super().partitions():
            assert isinstance(part, QueueRange)
            values = {
                "topic": part.topic,
                "brokerName": part.broker_name,
                "queueId": part.queue_id,
            }
            start = max(part.start_offset, self._first_offset)
            end = min(part.end_offset, self._end_offset)
            if start < end and all(values[name] in self._wanted[name] for name in self._wanted):
                left.append(dataclasses.replace(part, start_offset=start, end_offset=end))
        return left

    def _take_tags(self, wanted: Filter) -> bool:
        """Takes over a filter of whole tags, which the read applies exactly."""
        match wanted:
            case EqualTo(("tags",), str() as tag):
                tags = frozenset({tag})
            case In(("tags",), values) if values and all(isinstance(v, str) for v in values):
                tags = frozenset(values)
            case _:
                return False
        if not all(tags):
            return False
        if self._options.tags:
            tags &= self._options.tags
            if not tags:
                return False
        self._options = with_tags(self._options, tags)
        return True

    def _narrow(self, wanted: Filter) -> None:
        """Leaves out what a filter cannot let pass."""
        match wanted:
            case EqualTo(("topic" | "brokerName" | "queueId" as name,), value):
                self._keep(name, {value})
            case In(("topic" | "brokerName" | "queueId" as name,), values):
                self._keep(name, set(values))
            case (
                EqualTo(("queueOffset",), int() as value)
                | GreaterThan(("queueOffset",), int() as value)
                | GreaterThanOrEqual(("queueOffset",), int() as value)
                | LessThan(("queueOffset",), int() as value)
                | LessThanOrEqual(("queueOffset",), int() as value)
            ):
                first, end = _BOUNDS[type(wanted)](value)
                self._first_offset = max(self._first_offset, first)
                self._end_offset = min(self._end_offset, end)
            case _:
                pass

    def _keep(self, name: str, values: set[Any]) -> None:
        self._wanted[name] = self._wanted.get(name, values) & values
