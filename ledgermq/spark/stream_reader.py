"""The streaming read: how far the topics reach, how much of that a micro-batch takes, and its rows.

The offset of a stream says for each queue which message comes next. A queue that appears later is
first entered with its oldest message, in a batch of its own, and read from the next one on: so the
checkpoint says where it began, whatever retention does. A batch that is planned again after a crash
has the same start and end, and gives the same rows.

Of a batch Spark keeps the end only; the start is the end of the one before. A query that begins at
the latest messages has none before its first batch, and "latest" has moved on when Spark asks again
after a crash. Such a query's first batch is therefore empty, and its end says where it begins:
{"v": 1, "topics": ..., "is_start": true}. From the moment at which Spark has written that down,
before it runs the batch, the start is fixed.
"""

import threading
import time
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ledgermq.client import MessageQueue
from ledgermq.spark.batches import arrow_schema, mean_record_bytes, range_batches
from ledgermq.spark.cluster import Cluster, PassingError, Patience
from ledgermq.spark.errors import ClusterError, UnknownTopicError
from ledgermq.spark.filters import INT64_MAX
from ledgermq.spark.idle import IdlePauses
from ledgermq.spark.offsets import backlog, from_document, limited, to_document
from ledgermq.spark.options import ReadOptions
from ledgermq.spark.partitions import QueueRange, queue_name, split
from ledgermq.spark.paths import naming_worker
from ledgermq.spark.planning import find_queues, start_offsets
from ledgermq.spark.schema import check_read_schema
from ledgermq.spark.values.schemas import ValuePlan

# Marks the end of a batch that only says where a query begins.
_IS_START: Final = "is_start"
# How long the ends of the topics that a look has found are told as those of now.
_SEEN_S: Final = 0.2


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream; connections are opened when they are needed, on the driver."""

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
        self._cluster = Cluster(options.name_servers, options.timeout_s, options.access)
        # Where the query begins: Spark asks twice before the first batch is done. None: not asked.
        self._initial: dict[str, Any] | None = None
        # Where a run with Trigger.AvailableNow ends; None: nowhere.
        self._target: dict[MessageQueue, int] | None = None
        # Since when messages wait for a micro-batch, by the monotonic clock; None: none do.
        self._waiting_since_s: float | None = None
        self._idle = IdlePauses()
        # Where the topics ended at the last look, and when that was, by the monotonic clock.
        self._seen: dict[MessageQueue, int] = {}
        self._seen_s = float("-inf")

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins.

        Raises:
            SparkSourceError: a topic or an offset is not there.
        """
        if self._initial is None:
            queues = find_queues(self._cluster, self._options)
            self._initial = to_document(start_offsets(self._cluster, self._options, queues))
        return self._initial

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next micro-batch goes.

        Args:
            start: where the last one ended.
            limit: how much it may read.

        Raises:
            ClusterError: a queue ends before what was already read of it.
        """
        if self._starts_at_latest and start == self._initial:
            return {**start, _IS_START: True}
        if self._target is None:
            threading.Event().wait(self._idle.left_s(time.monotonic()))
        end = self._next_end(start, limit)
        self._idle.looked(time.monotonic(), has_found=end != start)
        return end

    def _next_end(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begun = _offsets(start)
        ends = self._reach(begun)
        known = {queue: ends.get(queue, offset) for queue, offset in begun.items()}
        entered = {queue: self._cluster.min_offset(queue) for queue in ends if queue not in begun}
        if not entered and self._has_too_few(begun, known, limit):
            return start
        chosen = {**self._limited(begun, known, limit), **entered}
        # Nothing new is the same text, the mark of a start included.
        return start if chosen == begun else to_document(chosen)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of the options."""
        options = self._options
        if options.rows_per_trigger is not None:
            return ReadMaxRows(options.rows_per_trigger)
        if options.bytes_per_trigger is not None:
            return ReadMaxBytes(options.bytes_per_trigger)
        if options.min_rows_per_trigger is not None:
            return ReadMinRows(options.min_rows_per_trigger)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any]:
        """How far the topics reach now, for the progress of the query.

        Spark asks right after each look for a micro-batch: what that has found is told.
        """
        if time.monotonic() - self._seen_s < _SEEN_S:
            return to_document(self._seen)
        queues = self._await_queues(Patience(self._options.timeout_s))
        return to_document({queue: self._cluster.max_offset(queue) for queue in queues})

    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes the end of a run that reads what is there now."""
        queues = find_queues(self._cluster, self._options)
        self._target = {queue: self._cluster.max_offset(queue) for queue in queues}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plans a micro-batch.

        Raises:
            OffsetRangeError: a start lies behind its end.
        """
        begun, ends = _offsets(start), _offsets(end)
        if end.get(_IS_START):
            return []
        return list(
            split(
                # A queue that is entered in this batch is read from the next one on.
                {queue: begun.get(queue, offset) for queue, offset in ends.items()},
                ends,
                rows_per_partition=self._options.rows_per_partition,
                min_partitions=self._options.min_partitions,
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
                    partition, self._options, arrow_schema(self._schema), self._plan
                )

    def commit(self, end: dict[str, Any]) -> None:
        """Publishes the progress of the query as offsets of the group, when it has one."""
        if self._options.group is None:
            return
        for queue, offset in _offsets(end).items():
            self._cluster.publish(queue, self._options.group, offset)

    def stop(self) -> None:
        """Closes what is open."""
        self._cluster.close()

    @property
    def _starts_at_latest(self) -> bool:
        """Whether the start of a query moves from one asking to the next."""
        return self._options.starting_offsets == "latest" and self._options.starting_ms is None

    def _reach(self, begun: dict[MessageQueue, int]) -> dict[MessageQueue, int]:
        """How far the queues may be read, none less than was read already."""
        if self._target is None:
            return self._ends(begun)
        target = self._target
        if any(offset < begun.get(queue, 0) for queue, offset in target.items()):
            # Fixed before the start was, or asked of a leader that was new.
            self._ends(begun)
            target = {queue: max(offset, begun.get(queue, 0)) for queue, offset in target.items()}
        return target

    def _ends(self, begun: dict[MessageQueue, int]) -> dict[MessageQueue, int]:
        """The ends of all queues now, none before what was read of it already.

        A leader that is new may need a moment until it serves all that it has.
        """
        patience = Patience(self._options.timeout_s)
        while True:
            queues = self._await_queues(patience)
            ends = {queue: self._cluster.max_offset(queue) for queue in queues}
            behind = [queue for queue in queues if ends[queue] < begun.get(queue, 0)]
            if not behind:
                self._seen, self._seen_s = ends, time.monotonic()
                return ends
            queue = behind[0]
            patience.wait(
                queue_name(queue),
                PassingError(
                    f"it ends at {ends[queue]}, but was read up to {begun[queue]}: was the topic"
                    " deleted and made again? Then start with a new checkpoint"
                ),
            )

    def _await_queues(self, patience: Patience) -> list[MessageQueue]:
        """The queues of a stream that has begun: the only broker of a topic may be restarting."""
        while True:
            try:
                return find_queues(self._cluster, self._options)
            except UnknownTopicError as error:
                patience.wait("the topics of the stream", error)

    def _has_too_few(
        self, begun: dict[MessageQueue, int], ends: dict[MessageQueue, int], limit: ReadLimit
    ) -> bool:
        """Tells whether a micro-batch waits for more rows, which it does for the delay at most."""
        rows_min = self._options.min_rows_per_trigger
        if rows_min is None or isinstance(limit, ReadAllAvailable) or self._target is not None:
            return False
        count, now_s = backlog(begun, ends), time.monotonic()
        if count and self._waiting_since_s is None:
            self._waiting_since_s = now_s
        has_waited = (
            self._waiting_since_s is not None
            and now_s - self._waiting_since_s >= self._options.max_trigger_delay_s
        )
        if count >= rows_min or has_waited:
            self._waiting_since_s = None
            return False
        return True

    def _limited(
        self, begun: dict[MessageQueue, int], ends: dict[MessageQueue, int], limit: ReadLimit
    ) -> dict[MessageQueue, int]:
        """The end of a micro-batch that reads as much as all limits of the options allow."""
        if isinstance(limit, ReadAllAvailable) or backlog(begun, ends) == 0:
            return ends
        rows = self._options.rows_per_trigger
        size_max = self._options.bytes_per_trigger
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            size_max = limit.max_bytes
        if size_max is not None:
            queue = max(ends, key=lambda queue: (ends[queue] - begun[queue], queue))
            size = mean_record_bytes(self._cluster, queue, begun[queue], ends[queue], self._options)
            rows = min(rows or INT64_MAX, int(size_max / size))
        return ends if rows is None else limited(begun, ends, max(1, rows))


def _offsets(document: dict[str, Any]) -> dict[MessageQueue, int]:
    try:
        return from_document(document)
    except ValueError as error:
        raise ClusterError("the offsets in the checkpoint", str(error)) from error
