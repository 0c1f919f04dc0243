"""What a stream to which nothing comes costs, beside a session without one and an empty source.

The same session in turns: nothing runs; a stream of a topic of four queues to which nothing comes;
a stream whose Python source says without asking anybody that there is nothing new, which is what
Spark's own part costs. Processor time of the driver, Java and Python, and of the broker.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from bench.cluster import Running
from bench.processes import tree_own_seconds
from ledgermq.spark.idle import PAUSE_MAX_S

TOPIC = "Idle"
SETTLE_S = 12.0


class SilentReader(DataSourceStreamReader):
    """Has nothing, and asks nobody."""

    def initialOffset(self) -> dict[str, int]:
        """The only one."""
        return {"offset": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        """As late as ours."""
        threading.Event().wait(PAUSE_MAX_S)
        return {"offset": 0}

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        """None."""
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Nothing."""
        return iter(())


class SilentSource(DataSource):
    """A source that has nothing."""

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return "silent"

    def schema(self) -> str:
        """A column."""
        return "a string"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Its stream."""
        return SilentReader()


def idle_lines(spark: SparkSession, running: Running, seconds: float, rounds: int) -> list[str]:
    """Fills the topic, measures in turns; lines of a table."""
    spark.dataSource.register(SilentSource)
    running.create_topic(TOPIC, 4)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    java = gateway.proc.pid
    ways: dict[str, Callable[[], AbstractContextManager[None]]] = {
        "no stream": lambda: stream(spark, "", {}),
        "a source without anything to ask": lambda: stream(spark, "silent", {}),
        "a topic of four queues": lambda: stream(
            spark, "rocketmq", {"nameServer": running.namesrv, "topic": TOPIC}
        ),
    }
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            with way():
                threading.Event().wait(SETTLE_S)
                before = spent(running)
                threading.Event().wait(seconds)
                after = spent(running)
            found[name].append(used(before, after, java, seconds))
    lines = ["| % of a core | driver | of it Java | broker |", "|---|---|---|---|"]
    for name, costs in found.items():
        middle = [statistics.median(cost[i] for cost in costs) for i in range(3)]
        lines.append(f"| {name} | {middle[0]:.2f} | {middle[1]:.2f} | {middle[2]:.2f} |")
    return lines


def spent(running: Running) -> tuple[dict[int, float], float]:
    """Processor seconds of each process of the driver, and of the broker."""
    [broker] = [int(str(broker["pid"])) for broker in running.brokers()]
    times = tree_own_seconds(os.getpid())
    others = tree_own_seconds(running.up.up.pid)
    return {pid: time_s for pid, time_s in times.items() if pid not in others}, others[broker]


def used(
    before: tuple[dict[int, float], float],
    after: tuple[dict[int, float], float],
    java: int,
    seconds: float,
) -> tuple[float, float, float]:
    """What was used in between, in per cent of a core: by the driver with all below it, its Java,
    and the broker. A process that ended meanwhile is left out.
    """
    times = {pid: late - before[0].get(pid, 0.0) for pid, late in after[0].items()}
    shares = [sum(times.values()), times[java], after[1] - before[1]]
    all_used, of_java, of_broker = (share / seconds * 100 for share in shares)
    return all_used, of_java, of_broker


@contextmanager
def stream(spark: SparkSession, source: str, options: dict[str, str]) -> Iterator[None]:
    """A query that runs in the `with` block; none where there is no source."""
    if not source:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="ledgermq-bench-") as folder:
        rows = spark.readStream.format(source).options(**options).load()
        query = rows.writeStream.format("noop").option("checkpointLocation", f"{folder}/c").start()
        try:
            yield
            if query.exception() is not None:
                raise RuntimeError(str(query.exception()))
        finally:
            query.stop()
