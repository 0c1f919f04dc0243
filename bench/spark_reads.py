"""What reading through Spark costs, against the limits of the same machine.

Each way reads all messages, one way after the other in every round, so that ratios compare what ran
close in time. A way's cost is the processor time of all its processes, those of the broker apart,
whatever else the machine does; Spark's Java machine is told apart from the rest, which is Python.
The sink is Spark's `noop`, which takes rows and does nothing. What a query over no rows costs is
told first, and left out of the figures of the queries after it.

    page cache      the records as a file, read in pieces of 4 MiB
    client loop     the source's own requests, in this process; what comes is thrown away
    PullConsumer    the blocking client, one request after the other, each message an object
    tuples          a source with the same requests that decodes record by record and yields tuples;
                    with the source's columns and types, and with times as plain numbers
    floor           the source's own batches, made before: what is left is Spark's
    source          spark.read.format("rocketmq"), as Arrow batches
    segments        the same messages from the broker's files, checksums compared

"above the floor" compares what is left of two ways when the floor of the same columns is taken off.
"""

from __future__ import annotations

import json
import os
import statistics
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bench.bench_columns import tuples
from bench.cluster import Running
from bench.processes import own_cpu_seconds, tree_cpu_seconds
from ledgermq.client.blocking import PullConsumer
from ledgermq.spark import RocketMQDataSource
from ledgermq.spark.batches import arrow_schema, range_batches
from ledgermq.spark.cluster import Cluster
from ledgermq.spark.options import read_options
from ledgermq.spark.partitions import QueueRange
from ledgermq.spark.pulling import RangePull
from ledgermq.spark.schema import COLUMN_NAMES

# The system counts processor time in hundredths of a second.
COST_S_MIN = 0.5
PIECE_BYTES = 4 * 1024 * 1024
# Columns of the ways, by what is said of them.
COLUMNS = {
    "all columns": ",".join(COLUMN_NAMES),
    "without properties": ",".join(name for name in COLUMN_NAMES if name != "properties"),
    "offset, time and body": "queueOffset,storeTimestamp,body",
}
EMPTY = "query over no rows"
SLOW = "tuples, all columns"
Ways = dict[str, Callable[[], object]]


class Cost(NamedTuple):
    """Processor seconds of a way."""

    all_s: float
    # Of Spark's Java machine.
    java_s: float

    def minus(self, other: Cost) -> Cost:
        """What one way costs more than another."""
        return Cost(self.all_s - other.all_s, self.java_s - other.java_s)


class TupleReader(DataSourceReader):
    """The way of a source without Arrow: the same requests, rows decoded one by one."""

    def __init__(self, options: dict[str, str], schema: StructType, *, has_moments: bool) -> None:
        self._options = options
        self._schema = schema
        self._has_moments = has_moments

    def partitions(self) -> list[InputPartition]:
        """The same ranges."""
        return list(RocketMQDataSource(self._options).reader(self._schema).partitions())

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yields rows of the source's columns."""
        assert isinstance(partition, QueueRange)
        for records in pulled(self._options, partition):
            if not self._has_moments:
                yield from tuples(records)
                continue
            for row in tuples(records):
                yield (*row[:5], moment(row[5]), moment(row[6]), *row[7:])


def moment(ms: int) -> datetime:
    """A time as Spark wants it of a tuple."""
    return datetime.fromtimestamp(ms / 1000, UTC)


class TupleDataSource(RocketMQDataSource):
    """A source that yields tuples of the same types."""

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return "tuples"

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        return TupleReader(dict(self.options), schema, has_moments=True)


class NumberDataSource(RocketMQDataSource):
    """A source that yields tuples whose times are numbers, which is cheaper."""

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return "tuples.numbers"

    def schema(self) -> StructType:
        """All columns."""
        text = super().schema().json().replace('"timestamp"', '"long"')
        return StructType.fromJson(json.loads(text))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        return TupleReader(dict(self.options), super().schema(), has_moments=False)


class MadeReader(DataSourceReader):
    """Hands on batches that were made before."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def partitions(self) -> list[InputPartition]:
        """One for each file."""
        return [InputPartition(str(path)) for path in sorted(Path(self._folder).glob("*.arrow"))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yields what the file holds, which is in the page cache."""
        with pa.memory_map(partition.value) as file:
            yield from pa.ipc.open_stream(file)


class MadeDataSource(RocketMQDataSource):
    """The floor: Spark's own cost for the same bytes."""

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return "made"

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        return MadeReader(self.options["folder"])


def pulled(options: dict[str, str], wanted: QueueRange) -> Iterator[bytes]:
    """Yields the records of a range as they come."""
    read = read_options(options, is_stream=False)
    with Cluster(read.name_servers, read.timeout_s) as found:
        pull = RangePull(
            found,
            wanted,
            group="bench",
            tags=frozenset(),
            fetch_bytes=read.fetch_bytes,
            fails_on_data_loss=True,
        )
        for run in pull.runs():
            yield run.records


def make_batches(options: dict[str, str], parts: list[QueueRange], folder: Path) -> None:
    """Writes the source's batches of each range to a file."""
    folder.mkdir()
    schema = arrow_schema(RocketMQDataSource(options).schema())
    for number, part in enumerate(parts):
        with pa.OSFile(str(folder / f"{number}.arrow"), "wb") as file:
            with pa.ipc.new_stream(file, schema) as stream:
                for batch in range_batches(part, read_options(options, is_stream=False), schema):
                    stream.write_batch(batch)


def read_pieces(path: Path) -> None:
    """Reads a file that is in the page cache."""
    buffer = bytearray(PIECE_BYTES)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def to_nowhere(frame: DataFrame) -> Callable[[], None]:
    """A query over all columns of a frame."""
    return lambda: frame.write.format("noop").mode("overwrite").save()


def ways(spark: SparkSession, running: Running, topic: str, folder: Path) -> Ways:
    """Each way to read all messages, by its name; those from EMPTY on are queries of Spark."""
    options = {"nameServer": running.namesrv, "topic": topic, "groupId": "bench"}
    reader = RocketMQDataSource(options).reader(RocketMQDataSource(options).schema())
    parts = [part for part in reader.partitions() if isinstance(part, QueueRange)]
    with open(folder / "records", "wb") as file:
        for part in parts:
            file.writelines(pulled(options, part))
    for source in (TupleDataSource, NumberDataSource, MadeDataSource):
        spark.dataSource.register(source)

    def client_loop() -> None:
        for part in parts:
            for _ in pulled(options, part):
                pass

    def consume() -> None:
        with PullConsumer(running.namesrv, "bench") as consumer:
            for part in parts:
                offset = part.start_offset
                while offset < part.end_offset:
                    offset = consumer.pull(part.queue, offset, count_max=1000).next_offset

    def of(name: str, **more: str) -> Callable[[], None]:
        return to_nowhere(spark.read.format(name).options(**options, **more).load())

    found: Ways = {
        "page cache": lambda: read_pieces(folder / "records"),
        "client loop, thrown away": client_loop,
        "PullConsumer, thrown away": consume,
        EMPTY: of("rocketmq", endingOffsets="earliest"),
        SLOW: of("tuples"),
        "tuples, times as numbers": of("tuples.numbers"),
    }
    for name, columns in COLUMNS.items():
        made = folder / name
        make_batches({**options, "columns": columns}, parts, made)
        found[f"floor, {name}"] = of("made", columns=columns, folder=str(made))
        found[f"source, {name}"] = of("rocketmq", columns=columns)
    (store,) = running.data.glob("*/dledger-*")
    segments = spark.read.format("rocketmq.segments").options(path=str(store), topics=topic).load()
    # The checkpoint, up to which files are read, is some seconds behind.
    while segments.count() < sum(part.count for part in parts):
        threading.Event().wait(1.0)
    found["segments, all columns"] = to_nowhere(segments)
    return found


def cost_of(way: Callable[[], object], running: Running, java_pid: int) -> Cost:
    """Costs of one go of all processes but the brokers; of many goes where one is short."""

    def spent() -> Cost:
        brokers = sum(tree_cpu_seconds(int(str(broker["pid"]))) for broker in running.brokers())
        return Cost(tree_cpu_seconds(os.getpid()) - brokers, own_cpu_seconds(java_pid))

    before, count = spent(), 0
    while not count or spent().minus(before).all_s < COST_S_MIN:
        way()
        count += 1
    cost = spent().minus(before)
    return Cost(cost.all_s / count, cost.java_s / count)


def measured(found: Ways, running: Running, java_pid: int, rounds: int) -> dict[str, list[Cost]]:
    """Costs of each way in each round; of queries, what they cost more than an empty one."""
    costs: dict[str, list[Cost]] = {name: [] for name in found}
    for number in range(rounds + 1):
        fixed = Cost(0, 0)
        for name, way in found.items():
            cost = cost_of(way, running, java_pid)
            # The first round warms up.
            if number:
                costs[name].append(cost.minus(fixed))
            if name == EMPTY:
                fixed = cost
    return costs


def read_lines(costs: dict[str, list[Cost]], size: int, count: int) -> list[str]:
    """Lines of two tables."""
    empty_s = statistics.median(cost.all_s for cost in costs[EMPTY])
    lines = [
        f"A query over no rows: {empty_s:.2f} s of processor time.",
        "",
        "| way | rows/s a core | MB/s a core | us a row | of it Java | against tuples |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in costs.items():
        if name == EMPTY:
            continue
        cost = statistics.median(cost.all_s for cost in found)
        java = statistics.median(cost.java_s for cost in found)
        ratios = [slow.all_s / one.all_s for slow, one in zip(costs[SLOW], found, strict=True)]
        lines.append(
            f"| {name} | {count / cost:,.0f} | {size / cost / 1e6:,.1f} | {cost / count * 1e6:.2f}"
            f" | {java / count * 1e6:.2f} | {spread(ratios)} |"
        )
    floors, sources = costs["floor, all columns"], costs["source, all columns"]
    above = [
        (slow.all_s - floor.all_s) / (source.all_s - floor.all_s)
        for slow, floor, source in zip(costs[SLOW], floors, sources, strict=True)
    ]
    return [*lines, "", f"Above the floor, tuples cost {spread(above)} times what the source does."]


def spread(ratios: list[float]) -> str:
    """The middle of some ratios, and how far they are apart."""
    return f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
