"""The batch read: ranges are planned once, on the driver; each is read where Spark runs its task.

The end of every queue is fixed by the plan, so a task that runs again gives the same rows.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from ledgermq.spark.batches import arrow_schema, range_batches
from ledgermq.spark.cluster import Cluster
from ledgermq.spark.filters import can_judge, whole_tags
from ledgermq.spark.options import ReadOptions, with_tags
from ledgermq.spark.partitions import QueueRange, check_order, split
from ledgermq.spark.paths import naming_worker
from ledgermq.spark.planning import end_offsets, find_queues, is_by_time, narrowed, start_offsets
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
        # Conditions of the query that were taken over; rows that do not pass are not handed on.
        self._filters: tuple[Filter, ...] = ()
        # Whether nothing can pass.
        self._is_empty = False

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
            if is_by_time(options):
                # The clocks of two leaders may differ: what is before the start is no error.
                starts = {queue: min(start, ends[queue]) for queue, start in starts.items()}
            check_order(starts, ends)
            if self._is_empty:
                return []
            if self._filters:
                starts, ends = narrowed(cluster, options, starts, ends, self._filters)
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
            with naming_worker():
                yield from range_batches(
                    partition, self._options, arrow_schema(self._schema), self._plan, self._filters
                )


class FilteringReader(RangeReader):
    """A batch read that takes over conditions of the query; filters.py says which, and how.

    Store times leave out offsets only where the option `timeSlackMs` says how far they may be out
    of order: after a change of leader they need not rise, and a search by time could miss rows.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes conditions over; yields those that Spark still has to apply."""
        taken = []
        for wanted in filters:
            if can_judge(wanted):
                taken.append(wanted)
            else:
                yield wanted
        self._filters = tuple(taken)
        tags = whole_tags(taken)
        if tags is not None:
            chosen = tags & self._options.tags if self._options.tags else tags
            self._is_empty = not chosen
            if chosen:
                self._options = with_tags(self._options, chosen)
