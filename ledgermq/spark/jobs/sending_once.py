"""Sending rows to topics exactly once, over any number of starts of a job.

Before the first row is sent, the ends of the target topics are written to a state file. Each row
has an id of its own, which it takes along as a property. A later start reads the targets from those
ends on, and sends only the rows whose ids are not there. What counts as sent is what is committed;
so a killed job that is started again leaves each row once, as long as one job at a time sends with
this state file.
"""

import json
import os
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from ledgermq.spark.cluster import Cluster
from ledgermq.spark.errors import UnknownTopicError
from ledgermq.spark.offsets import to_document

ROW_ID = "SPARK_ROW_ID"
_TIMEOUT_S = 30.0


def send_once(
    spark: SparkSession,
    rows: DataFrame,
    *,
    name_server: str,
    state: Path,
    rows_per_second: int | None,
) -> int:
    """Sends the rows that are not yet in their topics.

    Args:
        spark: runs the job.
        rows: columns of a write, with topic and rowId.
        name_server: of the targets.
        state: file that remembers where the targets ended before the first start.
        rows_per_second: of all tasks together; None as fast as it goes.

    Returns:
        How many rows were sent now.
    """
    topics = sorted(row.topic for row in rows.select("topic").distinct().collect())
    starts = _starts(state, name_server, topics)
    left = rows
    for topic in topics:
        found = _sent_ids(spark, name_server, topic, starts)
        if found is not None:
            left = left.join(found, "rowId", "left_anti")
    left = left.cache()
    try:
        count = left.count()
        if count:
            writer = left.write.format("rocketmq").mode("append")
            writer = writer.options(nameServer=name_server, rowIdProperty=ROW_ID)
            if rows_per_second is not None:
                tasks = max(1, left.rdd.getNumPartitions())
                writer = writer.option("rowsPerSecond", max(1, rows_per_second // tasks))
            writer.save()
    finally:
        left.unpersist()
    return count


def _starts(state: Path, name_server: str, topics: list[str]) -> dict[str, object]:
    """Returns where each target ended before the first start, and writes it down at that one."""
    if state.is_file():
        found: dict[str, object] = json.loads(state.read_text())["topics"]
        return found
    ends = {}
    with Cluster(tuple(name_server.split(";")), _TIMEOUT_S) as cluster:
        for topic in topics:
            try:
                queues = cluster.queues([topic])
            except UnknownTopicError:
                continue
            ends.update({queue: cluster.max_offset(queue) for queue in queues})
    document = to_document(ends)
    state.parent.mkdir(parents=True, exist_ok=True)
    temporary = state.with_name(state.name + ".tmp")
    with open(temporary, "w") as file:
        json.dump(document, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(state)
    topics_of: dict[str, object] = document["topics"]
    return topics_of


def _sent_ids(
    spark: SparkSession, name_server: str, topic: str, starts: dict[str, object]
) -> DataFrame | None:
    """Returns the ids of the rows that are in a topic already; None where there is no topic yet."""
    with Cluster(tuple(name_server.split(";")), _TIMEOUT_S) as cluster:
        try:
            cluster.queues([topic])
        except UnknownTopicError:
            return None
    reader = spark.read.format("rocketmq").option("nameServer", name_server)
    reader = reader.options(topic=topic, columns="properties")
    if topic in starts:
        reader = reader.option("startingOffsets", json.dumps({topic: starts[topic]}))
    return reader.load().select(col("properties")[ROW_ID].alias("rowId")).where("rowId is not null")
