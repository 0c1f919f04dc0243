"""Reads and writes as Spark does them, in this process, without a session: planning, pickling.

A query of a real session costs about a second; what needs no session is tested without one.
"""

import contextlib
import pickle
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource, Filter
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark.taskcontext import TaskContext

from ledgermq.client.blocking import PullConsumer
from ledgermq.spark import RocketMQDataSource, SegmentsDataSource
from ledgermq.spark.cluster import Cluster
from ledgermq.spark.errors import UnknownTopicError
from ledgermq.spark.options import read_options
from tests.waiting import wait_until


def source_of(options: Mapping[str, object]) -> RocketMQDataSource:
    """The source with some options, as Spark makes it."""
    texts = {name: str(value) for name, value in options.items()}
    return RocketMQDataSource(CaseInsensitiveDict(texts))


def read_rows(
    options: Mapping[str, object], filters: list[Filter] | None = None
) -> list[dict[str, Any]]:
    """The rows of a batch read, in order of their partitions.

    Args:
        options: of the source.
        filters: pushed down before it is planned; those that are left are not applied.
    """
    return rows_of(source_of(options), filters)


def read_written(options: Mapping[str, object]) -> list[dict[str, Any]]:
    """The rows of a topic that was written to just now: its name server may not know it yet."""
    texts = {name: str(value) for name, value in options.items()}
    read = read_options(texts, is_stream=False)
    with Cluster(read.name_servers, read.timeout_s, read.access) as cluster:

        def is_known() -> bool:
            with contextlib.suppress(UnknownTopicError):
                return bool(cluster.queues(read.topics, unknown_s=0))
            return False

        wait_until(is_known, what="a route to the new topic", deadline_s=120)
    return read_rows(options)


def read_segments(options: Mapping[str, object]) -> list[dict[str, Any]]:
    """The rows of a read of segment files, in order of the files."""
    texts = {name: str(value) for name, value in options.items()}
    return rows_of(SegmentsDataSource(CaseInsensitiveDict(texts)), None)


def rows_of(source: DataSource, filters: list[Filter] | None) -> list[dict[str, Any]]:
    """The rows of a batch read of a source."""
    reader = source.reader(source.schema())
    if filters is not None:
        list(reader.pushFilters(filters))
    rows: list[dict[str, Any]] = []
    for part in reader.partitions():
        task = pickle.loads(pickle.dumps(reader))
        for batch in task.read(pickle.loads(pickle.dumps(part))):
            rows += batch.to_pylist()
    return rows


def write_rows(options: Mapping[str, object], bodies: Sequence[bytes]) -> None:
    """Writes rows that have a body only, in one task."""
    schema = StructType([StructField("body", BinaryType())])
    writer = source_of(options).writer(schema, overwrite=False)
    batch = pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})
    with mock.patch.object(TaskContext, "get", lambda: SimpleNamespace(partitionId=lambda: 0)):
        pickle.loads(pickle.dumps(writer)).write(iter([batch]))


def committed(name_server: str, group: str, topic: str) -> int:
    """The sum of the offsets that a group has committed for a topic."""
    with PullConsumer(name_server, group) as consumer:
        return sum(consumer.committed(queue) or 0 for queue in consumer.queues(topic))
