"""Writes: rows become messages, all of them acknowledged before a task says that it is done.

At least once, unless a batch write has the option `once` (ledgermq.spark.once): a task that fails
is run again and sends its rows again, with the same ids. The id of
a row (a property) is made of the write, the partition and what the row says (`RowNames`); of a
stream, of query, batch, partition and row, so that also a batch that is run again after a crash
repeats its ids. Who must not see a message twice drops those whose id it has seen.
"""

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

from ledgermq.client import ClientError, MessageError, Producer, ProducerConfig
from ledgermq.spark.cluster import Cluster
from ledgermq.spark.errors import ClusterError, OptionError, RowError
from ledgermq.spark.message_rows import RowNames, messages_of
from ledgermq.spark.once.plan import OncePlan
from ledgermq.spark.once.sender import OnceSender, producer_config
from ledgermq.spark.once.stored_rows import StoredRows
from ledgermq.spark.once.turn import Turn, turn_name
from ledgermq.spark.options import WriteOptions
from ledgermq.spark.paths import naming_worker
from ledgermq.spark.schema import VALUE, check_write_schema
from ledgermq.spark.values.rows import BodyWriter, check_value_column
from ledgermq.spark.values.schemas import ValuePlan

# How Spark tells a task which query and batch it belongs to.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
# With a limit of rows per second, a pause is made about so often.
_PACES_PER_SECOND: Final = 10


@dataclass(slots=True, frozen=True)
class SentRows(WriterCommitMessage):
    """What a task has sent, all of it acknowledged."""

    count: int


def check_write(
    schema: StructType, options: WriteOptions, plan: ValuePlan | None, *, overwrite: bool
) -> None:
    """Checks what a write is told before anything is sent.

    Args:
        schema: of the rows.
        options: of the write.
        plan: how values are encoded; None: rows have bodies.
        overwrite: whether it is to replace what the topic holds.

    Raises:
        OptionError: it is to replace what a topic holds.
        RowSchemaError: a column is unknown, missing or of another type.
    """
    if overwrite:
        raise OptionError("mode", "overwrite", "append: a topic cannot be replaced")
    content = "body" if plan is None else VALUE
    check_write_schema(schema, has_topic_option=options.topic is not None, content=content)
    if plan is not None:
        check_value_column(plan, schema[VALUE].dataType)


@dataclass(slots=True, frozen=True)
class Contents:
    """What of a row is sent, and how that becomes a body; it travels to the tasks."""

    schema: StructType
    # None: a row has its body.
    plan: ValuePlan | None

    def encoder(self) -> BodyWriter | None:
        """Returns what encodes values; None where a row has its body."""
        if self.plan is None:
            return None
        return BodyWriter(self.plan, self.schema[VALUE].dataType)


class RowWriter(DataSourceArrowWriter):
    """A batch write."""

    def __init__(
        self,
        options: WriteOptions,
        schema: StructType,
        plan: ValuePlan | None = None,
        once: OncePlan | None = None,
    ) -> None:
        """Gives the write its id; made once, on the driver.

        Args:
            options: of the write.
            schema: of the rows.
            plan: how values are encoded; None: rows have bodies.
            once: by which each row is stored once; None: at least once.
        """
        self._options = options
        self._contents = Contents(schema, plan)
        self._once = once
        self._write_id = uuid.uuid4().hex if once is None else once.write_id

    def write(self, iterator: Iterator[Any]) -> SentRows:
        """Sends the rows of one task.

        Raises:
            RowError: a row is no message.
            ClusterError: a message was not acknowledged in time.
        """
        task = _task().partitionId()
        prefix = f"{self._write_id}-{task}"
        with naming_worker():
            if self._once is not None:
                sending = _send_once(iterator, self._options, self._contents, self._once, task)
                return SentRows(asyncio.run(sending))
            return SentRows(asyncio.run(_send(iterator, self._options, self._contents, prefix)))


class StreamRowWriter(DataSourceStreamArrowWriter):
    """A streaming write."""

    def __init__(
        self, options: WriteOptions, schema: StructType, plan: ValuePlan | None = None
    ) -> None:
        """Takes what the write is told."""
        self._options = options
        self._contents = Contents(schema, plan)

    def write(self, iterator: Iterator[Any]) -> SentRows:
        """Sends the rows of one task of a micro-batch.

        Raises:
            RowError: a row is no message.
            ClusterError: a message was not acknowledged in time.
        """
        task = _task()
        query, batch = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(_BATCH_ID)
        prefix = f"{query}-{batch}-{task.partitionId()}"
        with naming_worker():
            return SentRows(asyncio.run(_send(iterator, self._options, self._contents, prefix)))


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "rows are written in a task of Spark"
    return task


async def _send(
    batches: Iterator[Any], options: WriteOptions, contents: Contents, id_prefix: str
) -> int:
    """Sends all rows and returns their number.

    Nothing is on its way while Spark makes the next batch: the loop stands still then. A row that
    fails ends the task when the rows before it are answered, and not only at the end of its batch.
    """
    name_servers = ";".join(options.name_servers)
    config = ProducerConfig(client=options.access.client_config(), timeout_s=options.timeout_s)
    row_names, encoder = RowNames(id_prefix), contents.encoder()
    count, started_s = 0, time.monotonic()
    pace_rows = max(1, (options.rows_per_second or 0) // _PACES_PER_SECOND)
    sends: deque[asyncio.Future[Any]] = deque()
    try:
        async with Producer(name_servers, options.producer_group, config=config) as producer:
            for batch in batches:
                for row in messages_of(
                    batch, options.topic, options.row_id_property, row_names, count, encoder
                ):
                    place = row_names.place(count)
                    sends.append(await _submit(producer, row.message, row.queue_key, place))
                    count += 1
                    while sends and sends[0].done():
                        sends.popleft().result()
                    if options.rows_per_second and count % pace_rows == 0:
                        due_s = started_s + count / options.rows_per_second
                        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                await asyncio.gather(*sends)
                sends.clear()
    except ClientError as error:
        raise ClusterError(f"rows {id_prefix}-0 to {count}", str(error)) from error
    finally:
        # The producer is closed: all have ended, and the first failure speaks for the others.
        for sent in sends:
            _ = sent.done() and not sent.cancelled() and sent.exception()
    return count


async def _send_once(
    batches: Iterator[Any], options: WriteOptions, contents: Contents, plan: OncePlan, task: int
) -> int:
    """Sends the rows that are not stored yet; returns the number of all that the task has."""
    prefix = f"{plan.write_id}-{task}"
    row_names, encoder = RowNames(prefix), contents.encoder()
    count = 0
    name_servers, group = ";".join(options.name_servers), options.producer_group
    with Cluster(options.name_servers, options.timeout_s, options.access) as cluster:
        try:
            async with Producer(name_servers, group, config=producer_config(options)) as producer:
                turn = Turn(cluster, plan.turns_at, turn_name(plan.write_id, task))
                stored = StoredRows(cluster, plan.topics, plan.since, options.row_id_property)
                sender = OnceSender(producer, turn, stored, options, plan.topics)
                try:
                    for batch in batches:
                        rows = messages_of(
                            batch, options.topic, options.row_id_property, row_names, count, encoder
                        )
                        await sender.send(rows)
                        count += batch.num_rows
                finally:
                    sender.close()
        except ClientError as error:
            raise ClusterError(f"rows {prefix}-0 to {count}", str(error)) from error
    return count


async def _submit(
    producer: Producer, message: Any, queue_key: str | None, place: str
) -> "asyncio.Future[Any]":
    try:
        return await producer.submit(message, ordering_key=queue_key)
    except MessageError as error:
        raise RowError(place, str(error)) from error
