"""What reading through Spark costs, against the limits of the same machine; and how late rows come.

python -m bench.spark [--messages 1000000] [--rounds 3] [--seconds 40]

A broker gets messages with bodies of 100 bytes. Each way reads all of them, one way after the other
in every round, so that ratios compare what ran close in time. A way's cost is the processor time of
all its processes, those of the broker apart: rows a second of one core, whatever else the machine
does. The sink is Spark's `noop`, which takes rows and does nothing. What a query over no rows costs
is told first, and left out of the figures of the queries after it.

    page cache      the records as a file, read in pieces of 4 MiB
    client loop     the source's own requests, in this process; what comes is thrown away
    PullConsumer    the blocking client, one request after the other, each message an object
    source          spark.read.format("rocketmq"), as Arrow batches
    segments        the same messages from the broker's files, checksums compared
    tuples          a source with the same requests that decodes record by record and yields tuples

Latency: a stream of single messages; from a message's birth until `foreachBatch` has it in its
hands, and until the blocking PullConsumer has it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bench.bench_columns import tuples
from bench.cluster import Running, cluster
from bench.processes import tree_cpu_seconds
from ledgermq.client import Message, ProducerConfig
from ledgermq.client import Producer as AsyncProducer
from ledgermq.client.blocking import Producer, PullConsumer
from ledgermq.spark import RocketMQDataSource
from ledgermq.spark.cluster import Cluster
from ledgermq.spark.jobs.running import make_session
from ledgermq.spark.options import read_options
from ledgermq.spark.partitions import QueueRange
from ledgermq.spark.pulling import RangePull
from ledgermq.spark.schema import COLUMN_NAMES

TOPIC = "Orders"
# The system counts processor time in hundredths of a second.
COST_S_MIN = 0.5
LATE_TOPIC = "Late"
QUEUES = 2
# Messages that are on their way together when the topic is filled.
PART_COUNT = 5000
BODY = b"x" * 100
WITHOUT_MAP = ",".join(name for name in COLUMN_NAMES if name != "properties")
PIECE_BYTES = 4 * 1024 * 1024
# Between two sends of the test of latency.
PAUSE_S = 0.02
WARM_COUNT = 200
EMPTY = "query over no rows"


class TupleReader(DataSourceReader):
    """The way of a source without Arrow: the same requests, rows decoded one by one."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """The same ranges."""
        reader = RocketMQDataSource(self._options).reader(self._schema)
        return list(reader.partitions())

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yields rows; times as numbers, which is cheaper than what Spark wants of tuples."""
        assert isinstance(partition, QueueRange)
        for records in pulled(self._options, partition):
            yield from tuples(records)


class TupleDataSource(RocketMQDataSource):
    """A source that yields tuples."""

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return "tuples"

    def schema(self) -> StructType:
        """All columns, times as numbers."""
        text = super().schema().json().replace('"timestamp"', '"long"')
        return StructType.fromJson(json.loads(text))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        return TupleReader(dict(self.options), super().schema())


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


async def fill(running: Running, count: int) -> None:
    """Sends the messages; three properties each, as a producer makes them."""
    running.create_topic(TOPIC, QUEUES)
    config = ProducerConfig(timeout_s=120)
    async with AsyncProducer(running.namesrv, config=config) as producer:
        for first in range(0, count, PART_COUNT):
            numbers = range(first, min(first + PART_COUNT, count))
            sends = [
                await producer.submit(Message(TOPIC, BODY, tags="A", keys=f"key-{number}"))
                for number in numbers
            ]
            await asyncio.gather(*sends)


def read_pieces(path: Path) -> None:
    """Reads a file that is in the page cache."""
    buffer = bytearray(PIECE_BYTES)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def cost_of(way: Callable[[], object], running: Running) -> float:
    """CPU seconds of one go of all processes but the brokers; of many goes where one is short."""

    def spent_s() -> float:
        brokers = sum(tree_cpu_seconds(int(str(broker["pid"]))) for broker in running.brokers())
        return tree_cpu_seconds(os.getpid()) - brokers

    before_s, count = spent_s(), 0
    while not count or spent_s() - before_s < COST_S_MIN:
        way()
        count += 1
    return (spent_s() - before_s) / count


def to_nowhere(frame: DataFrame) -> Callable[[], None]:
    """A query over all columns of a frame."""
    return lambda: frame.write.format("noop").mode("overwrite").save()


def ways(spark: SparkSession, running: Running, copy: Path) -> dict[str, Callable[[], object]]:
    """Each way to read all messages, by its name; those from EMPTY on are queries of Spark."""
    options = {"nameServer": running.namesrv, "topic": TOPIC, "groupId": "bench"}
    reader = RocketMQDataSource(options).reader(RocketMQDataSource(options).schema())
    parts = [part for part in reader.partitions() if isinstance(part, QueueRange)]
    with open(copy, "wb") as file:
        for part in parts:
            file.writelines(pulled(options, part))

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

    def of(columns: str, **more: str) -> Callable[[], None]:
        source = spark.read.format("rocketmq").options(**options, **more)
        return to_nowhere(source.option("columns", columns).load())

    (store,) = running.data.glob("*/dledger-*")
    segments = spark.read.format("rocketmq.segments").options(path=str(store), topics=TOPIC)
    # The checkpoint, up to which files are read, is some seconds behind.
    while segments.load().count() < sum(part.count for part in parts):
        threading.Event().wait(1.0)
    return {
        "page cache": lambda: read_pieces(copy),
        "client loop, thrown away": client_loop,
        "PullConsumer, thrown away": consume,
        EMPTY: of(WITHOUT_MAP, endingOffsets="earliest"),
        "tuples, all columns": to_nowhere(spark.read.format("tuples").options(**options).load()),
        "source, all columns": of(",".join(COLUMN_NAMES)),
        "source, without properties": of(WITHOUT_MAP),
        "source, offset, time and body": of("queueOffset,storeTimestamp,body"),
        "segments, all columns": to_nowhere(segments.load()),
    }


def measured(
    found: dict[str, Callable[[], object]], running: Running, rounds: int
) -> dict[str, list[float]]:
    """CPU seconds of each way in each round; of queries, what they cost more than an empty one."""
    costs: dict[str, list[float]] = {name: [] for name in found}
    for number in range(rounds + 1):
        fixed = 0.0
        for name, way in found.items():
            cost = cost_of(way, running)
            # The first round warms up.
            if number:
                costs[name].append(cost - fixed)
            if name == EMPTY:
                fixed = cost
    return costs


def table(costs: dict[str, list[float]], size: int, count: int) -> list[str]:
    """Lines of a table."""
    slow = costs["tuples, all columns"]
    lines = [
        f"A query over no rows: {statistics.median(costs[EMPTY]):.2f} s of processor time.",
        "",
        "| way | rows/s a core | MB/s a core | us a row | against tuples |",
        "|---|---|---|---|---|",
    ]
    for name, seconds in costs.items():
        if name == EMPTY:
            continue
        cost = statistics.median(seconds)
        ratios = sorted(a / b for a, b in zip(slow, seconds, strict=True))
        lines.append(
            f"| {name} | {count / cost:,.0f} | {size / cost / 1e6:,.1f} | {cost / count * 1e6:.2f}"
            f" | {statistics.median(ratios):.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f}) |"
        )
    return lines


def latencies(spark: SparkSession, running: Running, seconds: float) -> list[str]:
    """Sends single messages to a stream and to a consumer; lines with how late both had them."""
    running.create_topic(LATE_TOPIC, QUEUES)
    late: dict[str, list[float]] = {"stream, foreachBatch": [], "PullConsumer": []}
    is_over = threading.Event()

    def see(rows: DataFrame, _batch_id: int) -> None:
        found = rows.selectExpr("unix_millis(bornTimestamp) as born").collect()
        now_ms = time.time() * 1000
        late["stream, foreachBatch"] += [now_ms - row.born for row in found]

    def consume() -> None:
        with PullConsumer(running.namesrv, "bench_late") as consumer:
            consumer.assign(consumer.queues(LATE_TOPIC), start="last")
            while not is_over.is_set():
                messages = consumer.poll(timeout_s=0.5)
                now_ms = time.time() * 1000
                late["PullConsumer"] += [now_ms - message.born_timestamp_ms for message in messages]

    with Producer(running.namesrv, config=ProducerConfig(timeout_s=60)) as producer:
        producer.send(Message(LATE_TOPIC, BODY))
        reader = spark.readStream.format("rocketmq").options(
            nameServer=running.namesrv, topic=LATE_TOPIC, columns="bornTimestamp,body"
        )
        query = reader.load().writeStream.foreachBatch(see).start()
        thread = threading.Thread(target=consume)
        thread.start()
        # Both have begun, and are warm.
        while min(map(len, late.values())) < WARM_COUNT:
            if not (thread.is_alive() and query.isActive):
                raise RuntimeError("the consumer or the stream has ended")
            producer.send(Message(LATE_TOPIC, BODY))
            is_over.wait(PAUSE_S)
        for found in late.values():
            found.clear()
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            producer.send(Message(LATE_TOPIC, BODY))
            is_over.wait(PAUSE_S)
        query.processAllAvailable()
        is_over.set()
        thread.join()
        query.stop()
    lines = ["| until a message is in the hands of | p50 ms | p99 ms |", "|---|---|---|"]
    for name, found in late.items():
        cuts = statistics.quantiles(found, n=100)
        lines.append(f"| {name} | {cuts[49]:.0f} | {cuts[98]:.0f} |")
    return lines


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=40.0)
    options = parser.parse_args()
    settings = (
        "flushDiskType=ASYNC_FLUSH",
        "maxTransferCountOnMessageInMemory=1000",
        "maxTransferBytesOnMessageInMemory=1048576",
    )
    with (
        tempfile.TemporaryDirectory(prefix="ledgermq-bench-") as folder,
        cluster(1, settings) as up,
    ):
        asyncio.run(fill(up, options.messages))
        spark = make_session({"spark.master": "local[2]", "spark.ui.showConsoleProgress": "false"})
        spark.dataSource.register(TupleDataSource)
        copy = Path(folder) / "records"
        found = ways(spark, up, copy)
        size = copy.stat().st_size
        print(f"{options.messages} messages, {size / 1e6:.0f} MB; load {os.getloadavg()[0]:.1f}")
        costs = measured(found, up, options.rounds)
        print("\n".join(table(costs, size, options.messages)))
        print(f"\nload {os.getloadavg()[0]:.1f}")
        print("\n".join(latencies(spark, up, options.seconds)))
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
