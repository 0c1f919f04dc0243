"""Sending rows to topics exactly once, over any number of starts of a job.

Before the first row is sent, the ends of the target topics are written to a state file. Each row
has an id of its own, which it takes along as a property. A later start reads the targets from those
ends on, and sends only the rows whose ids are not there. What counts as sent is what is committed;
so a killed job that is started again leaves each row once, as long as one job at a time sends with
this state file.

Each task of a write opens connections of its own, so there is one for each core, whatever number of
pieces the rows come in. Rows are put in order last: leaving out what was sent shuffles them.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from ledgermq.spark.errors import UnknownTopicError
from ledgermq.spark.jobs.cluster_arguments import ClusterArguments
from ledgermq.spark.offsets import to_document

ROW_ID = "SPARK_ROW_ID"


def send_once(
    spark: SparkSession,
    rows: DataFrame,
    *,
    cluster: ClusterArguments,
    state: Path,
    rows_per_second: int | None,
    sorted_by: Sequence[str] = (),
) -> int:
    """Sends the rows that are not yet in their topics.

    Args:
        spark: runs the job.
        rows: columns of a write, with topic and rowId, and those to sort by.
        cluster: of the targets.
        state: file that remembers where the targets ended before the first start.
        rows_per_second: of all tasks together; None as fast as it goes.
        sorted_by: columns; the first must be queueKey: rows of one key are sent in the order of the
            others. Empty: in any order.

    Returns:
        How many rows were sent now.
    """
    topics = sorted(row.topic for row in rows.select("topic").distinct().collect())
    is_first = not state.is_file()
    starts = _starts(state, cluster, topics)
    left = rows
    for topic in [] if is_first else topics:
        found = _sent_ids(spark, cluster, topic, starts)
        if found is not None:
            left = left.join(found, "rowId", "left_anti")
    cores = spark.sparkContext.defaultParallelism
    if sorted_by:
        left = left.repartition(cores, sorted_by[0]).sortWithinPartitions(*sorted_by)
        left = left.drop(*sorted_by[1:])
    else:
        left = left.coalesce(cores)
    left = left.cache()
    try:
        count = left.count()
        if count:
            writer = left.write.format("rocketmq").mode("append")
            writer = writer.options(**cluster.source_options(), rowIdProperty=ROW_ID)
            if rows_per_second is not None:
                tasks = max(1, left.rdd.getNumPartitions())
                writer = writer.option("rowsPerSecond", max(1, rows_per_second // tasks))
            writer.save()
    finally:
        left.unpersist()
    return count


def _starts(state: Path, arguments: ClusterArguments, topics: list[str]) -> dict[str, object]:
    """Returns where each target ended before the first start, and writes it down at that one."""
    if state.is_file():
        found: dict[str, object] = json.loads(state.read_text())["topics"]
        return found
    ends = {}
    with arguments.open() as cluster:
        for topic in topics:
            try:
                # One that is just being made is read from its beginning, which is right as well.
                queues = cluster.queues([topic], unknown_s=0)
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
    spark: SparkSession, arguments: ClusterArguments, topic: str, starts: dict[str, object]
) -> DataFrame | None:
    """Returns the ids of the rows that are in a topic already; None where there is no topic yet.

    Raises:
        UnknownTopicError: there was one at the first start.
    """
    with arguments.open() as cluster:
        try:
            # Rows that are taken for unsent are sent twice: better to wait.
            cluster.queues([topic], unknown_s=cluster.timeout_s)
        except UnknownTopicError:
            if topic in starts:
                raise
            return None
    reader = spark.read.format("rocketmq").options(**arguments.source_options())
    reader = reader.options(topic=topic, columns="properties")
    if topic in starts:
        reader = reader.option("startingOffsets", json.dumps({topic: starts[topic]}))
    return reader.load().select(col("properties")[ROW_ID].alias("rowId")).where("rowId is not null")
