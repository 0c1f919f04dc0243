"""Reads the same messages through our source and through Spark's own for Kafka, in turns.

python -m bench.spark_kafka_reads NAMESRV BOOTSTRAP TOPIC ROUNDS JARS cluster|local

bench/spark_kafka.py starts it with a Python that has PySpark 4.2. The messages are copied from our
topic to Kafka's first, with key, body, properties as headers, and the queue as the partition. The
cost of a way is the processor time of this process and all below it: the driver and, where tasks
run on a cluster, master, workers and executors, Java and Python; brokers run elsewhere. What a
query over no rows costs is taken off each.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.processes import tree_cpu_seconds
from ledgermq.spark import RocketMQDataSource
from ledgermq.spark.schema import COLUMN_NAMES
from tests.spark.standalone import DRIVER_ADDRESS, ROOT, WORKERS, SparkCluster

Ways = dict[str, Callable[[], None]]
_WARM_ROUNDS = 6
# What is compared: our columns, what of Kafka's is like them, and whether headers are among them.
PAIRS = {
    "all columns": (",".join(COLUMN_NAMES), "*", True),
    "without properties": (",".join(n for n in COLUMN_NAMES if n != "properties"), "*", False),
    "the same columns": (
        "topic,queueId,queueOffset,storeTimestamp,keys,body",
        "topic,partition,offset,timestamp,key,value",
        False,
    ),
    "offset, time and body": ("queueOffset,storeTimestamp,body", "offset,timestamp,value", False),
}


def session(jars: str, cluster: SparkCluster | None) -> SparkSession:
    """A session with both sources, on a cluster or on this machine alone.

    The Java of executors compiles as it does for users, which the cluster's tests save; the package
    with its compiled parts is on the workers.
    """
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    builder = builder.config("spark.ui.enabled", "false")
    if cluster is not None:
        os.environ.update(cluster.driver_environment(), PYTHONPATH=str(ROOT))
        builder = (
            builder.master(cluster.url)
            .config("spark.driver.host", DRIVER_ADDRESS)
            .config("spark.driver.bindAddress", DRIVER_ADDRESS)
            .config("spark.executor.memory", "512m")
            .config("spark.executor.cores", "1")
            .config("spark.scheduler.minRegisteredResourcesRatio", "1")
            .config("spark.executorEnv.PYTHONPATH", str(ROOT))
        )
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(RocketMQDataSource)
    return spark


def copy(spark: SparkSession, ours: dict[str, str], kafka: dict[str, str]) -> None:
    """Writes our topic's messages to Kafka's topic of the same name."""
    rows = spark.read.format("rocketmq").options(**ours).load()
    rows.selectExpr(
        "topic",
        "queueId as partition",
        "cast(`keys` as binary) as key",
        "body as value",
        "transform(map_entries(properties), e -> struct(e.key as key,"
        " cast(e.value as binary) as value)) as headers",
    ).write.format("kafka").options(**kafka, includeHeaders="true").save()


def to_nowhere(frame: DataFrame) -> Callable[[], None]:
    """A query over all columns of a frame."""
    return lambda: frame.write.format("noop").mode("overwrite").save()


def ways(spark: SparkSession, ours: dict[str, str], kafka: dict[str, str]) -> Ways:
    """The queries; the first two are over no rows."""
    topic = ours["topic"]
    reader = spark.read.format("kafka").options(**kafka, subscribe=topic)
    ends = reader.load().groupBy("partition").agg({"offset": "max"}).collect()
    behind = json.dumps({topic: {str(part): offset + 1 for part, offset in ends}})
    ours_reader = spark.read.format("rocketmq").options(**ours)
    found = {
        "ours, no rows": to_nowhere(ours_reader.option("endingOffsets", "earliest").load()),
        "kafka, no rows": to_nowhere(reader.option("startingOffsets", behind).load()),
    }
    for name, (columns, theirs, has_headers) in PAIRS.items():
        ours_reader = spark.read.format("rocketmq").options(**ours, columns=columns)
        found[f"ours, {name}"] = to_nowhere(ours_reader.load())
        reader = spark.read.format("kafka").options(**kafka, subscribe=topic)
        frame = reader.option("includeHeaders", str(has_headers).lower()).load()
        found[f"kafka, {name}"] = to_nowhere(frame.selectExpr(*theirs.split(",")))
    return found


def measured(found: Ways, rounds: int) -> dict[str, list[float]]:
    """Processor seconds of each way in each round but the first, which warm up."""
    costs: dict[str, list[float]] = {name: [] for name in found}
    for number in range(rounds + _WARM_ROUNDS):
        for name, way in found.items():
            before = tree_cpu_seconds(os.getpid())
            way()
            if number >= _WARM_ROUNDS:
                costs[name].append(tree_cpu_seconds(os.getpid()) - before)
    return costs


def lines(costs: dict[str, list[float]], count: int) -> list[str]:
    """The table."""
    empty = {peer: statistics.median(costs[f"{peer}, no rows"]) for peer in ("ours", "kafka")}
    found = [
        f"Queries over no rows: {empty['ours']:.2f} s (ours), {empty['kafka']:.2f} s (Kafka).",
        "",
        "| columns | ours, rows/s a core | Kafka's source, rows/s a core | ours / Kafka |",
        "|---|---|---|---|",
    ]
    for name in PAIRS:
        ours, kafka = (
            [max(cost - empty[peer], 0.01) for cost in costs[f"{peer}, {name}"]]
            for peer in ("ours", "kafka")
        )
        ratios = [theirs / own for own, theirs in zip(ours, kafka, strict=True)]
        found.append(
            f"| {name} | {count / statistics.median(ours):,.0f}"
            f" | {count / statistics.median(kafka):,.0f} | {statistics.median(ratios):.2f}"
            f" ({min(ratios):.2f} to {max(ratios):.2f}) |"
        )
    return found


def run(words: list[str], cluster: SparkCluster | None) -> None:
    """Copies, measures and prints."""
    name_server, bootstrap, topic, rounds, jars = words
    spark = session(jars, cluster)
    ours = {"nameServer": name_server, "topic": topic, "groupId": "bench"}
    kafka = {"kafka.bootstrap.servers": bootstrap}
    copy(spark, ours, kafka)
    count = spark.read.format("rocketmq").options(**ours, columns="queueId").load().count()
    where = "in this process" if cluster is None else f"on {len(WORKERS)} workers of a core each"
    title = f"PySpark {spark.version} {where}, {count} messages, load {os.getloadavg()[0]:.1f}"
    print(title, flush=True)
    print("\n".join(lines(measured(ways(spark, ours, kafka), int(rounds)), count)), flush=True)
    spark.stop()


def main() -> int:
    """Starts a cluster of Spark, where one is wanted."""
    *words, place = sys.argv[1:]
    if place == "local":
        run(words, None)
        return 0
    with (
        tempfile.TemporaryDirectory(prefix="ledgermq-bench-") as folder,
        SparkCluster(Path(folder)) as cluster,
    ):
        run(words, cluster)
    return 0


if __name__ == "__main__":
    sys.exit(main())
