"""Sending rows to topics exactly once, over any number of starts of a job and tries of its tasks.

Before the first row is sent, the ends of the target topics are written to a state file. Each row
has an id of its own, which it takes along as a property. A later start reads the targets from those
ends on, and sends only the rows whose ids are not there. What counts as sent is what is committed;
so a killed job that is started again leaves each row once. One job at a time sends with a state
file, beside which it has a lock. Tasks that Spark runs again leave out what is stored
(`ledgermq.spark.once`).

Each start notes the id of its write and the number of its tasks, too. The next one waits until
none of these tasks, which may have outlived their driver, can send any more.

Each task of a write opens connections of its own, so there is one for each core, whatever number of
pieces the rows come in. Rows are put in order last: leaving out what was sent shuffles them.
"""

import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from ledgermq.client import MessageQueue
from ledgermq.spark.cluster import Cluster
from ledgermq.spark.errors import OptionError, UnknownTopicError
from ledgermq.spark.jobs.cluster_arguments import ClusterArguments
from ledgermq.spark.jobs.job_lock import only_job
from ledgermq.spark.offsets import Offsets, from_document, to_document
from ledgermq.spark.once.plan import end_offsets_of, place_of_turns
from ledgermq.spark.once.turn import Turn, turn_name

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

    Raises:
        OptionError: another job sends with this state file, or it is none.
    """
    with only_job("--state", state, state.with_name(f"{state.name}.lock")):
        return _send(spark, rows, cluster, state, rows_per_second, sorted_by)


def _send(
    spark: SparkSession,
    rows: DataFrame,
    cluster: ClusterArguments,
    state: Path,
    rows_per_second: int | None,
    sorted_by: Sequence[str],
) -> int:
    topics = sorted(row.topic for row in rows.select("topic").distinct().collect())
    if not topics:
        return 0
    document = _read_state(state)
    with cluster.open() as opened:
        if document is not None:
            _end_former_write(opened, document)
        # Rows that are taken for unsent are sent twice: better to wait for a topic.
        unknown_s = 0 if document is None else opened.timeout_s
        since = end_offsets_of(opened, topics, unknown_s=unknown_s)
        turns_at = place_of_turns(opened, since)
    if document is None:
        document = to_document(since)
    # Rows that came into a topic of letters meanwhile may name others.
    left = rows.where(col("topic").isin(topics))
    for topic in topics:
        found = _sent_ids(spark, cluster, topic, document["topics"].get(topic), since)
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
        tasks = max(1, left.rdd.getNumPartitions())
        write_id = uuid.uuid4().hex
        at = [turns_at.topic, turns_at.broker_name, turns_at.queue_id]
        write = {"id": write_id, "tasks": tasks, "turns_at": at}
        _write_state(state, {**document, "write": write})
        if count:
            writer = left.write.format("rocketmq").mode("append")
            writer = writer.options(**cluster.source_options(), rowIdProperty=ROW_ID)
            writer = writer.options(once="true", onceTopics=",".join(topics), writeId=write_id)
            writer = writer.option("onceSince", json.dumps(to_document(since)))
            if rows_per_second is not None:
                writer = writer.option("rowsPerSecond", max(1, rows_per_second // tasks))
            writer.save()
    finally:
        left.unpersist()
    return count


def _read_state(state: Path) -> dict[str, Any] | None:
    """Returns what the starts before have noted; None at the first one.

    Raises:
        OptionError: the file is none of theirs. Without what they noted rows would be sent twice.
    """
    if not state.exists():
        return None
    try:
        found: dict[str, Any] = json.loads(state.read_text())
        from_document({"v": found["v"], "topics": found["topics"]})
    except (ValueError, KeyError, TypeError) as error:
        allowed = f"a file that this job has written, or none; in this one is {error}"
        raise OptionError("--state", str(state), allowed) from error
    return found


def _write_state(state: Path, document: dict[str, Any]) -> None:
    state.parent.mkdir(parents=True, exist_ok=True)
    temporary = state.with_name(state.name + ".tmp")
    with open(temporary, "w") as file:
        json.dump(document, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(state)


def _end_former_write(cluster: Cluster, document: dict[str, Any]) -> None:
    """Waits until no task of the start before can send any more."""
    write = document.get("write")
    if write is not None:
        for number in range(write["tasks"]):
            place = MessageQueue(*write["turns_at"])
            Turn(cluster, place, turn_name(write["id"], number)).hold()


def _sent_ids(
    spark: SparkSession,
    arguments: ClusterArguments,
    topic: str,
    first: dict[str, Any] | None,
    since: Offsets,
) -> DataFrame | None:
    """Returns the ids of the rows that are in a topic already; None where there can be none.

    Args:
        spark: reads.
        arguments: where the topic is.
        topic: its name.
        first: where it ended before the first start, by broker and queue; None: nothing is known.
        since: where the topics end now.

    Raises:
        UnknownTopicError: there was one at the first start.
    """
    ends = {queue: offset for queue, offset in since.items() if queue.topic == topic}
    starts = from_document({topic: first or {}})
    if starts == ends:
        return None
    if not ends:
        raise UnknownTopicError(topic, arguments.name_server)
    reader = spark.read.format("rocketmq").options(**arguments.source_options())
    reader = reader.options(topic=topic, columns="properties")
    reader = reader.option("endingOffsets", json.dumps(to_document(ends)))
    if starts:
        reader = reader.option("startingOffsets", json.dumps(to_document(starts)))
    return reader.load().select(col("properties")[ROW_ID].alias("rowId")).where("rowId is not null")
