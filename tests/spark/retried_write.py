"""A write whose tasks fail at first, with or without the option `once`:

    python -m tests.spark.retried_write NAME_SERVER TOPIC FAILURE WAREHOUSE ONCE

The rows of a task come in another order at each try, as after a shuffle. FAILURE is `kill` (the
Python process that makes the rows is killed when half of them are in the topic) or `refuse` (half
of them are followed by one that is no message). Spark tries a task again in a cluster only, or when
its local master is told so, as here.
"""

import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pyspark.taskcontext import TaskContext

from ledgermq.client.blocking import PullConsumer
from ledgermq.spark.jobs.running import make_session
from tests.waiting import wait_until

TASKS = 2
# Of each task; each body stands in two rows of it.
ROWS = 40
# More than what lies in buffers between two processes of a task.
BODY_BYTES = 100_000
SCHEMA = "body string, keys string"


def rows_of(task: int) -> list[tuple[str, str]]:
    """Body and keys of the rows of a task, in the order of its first try."""
    return [
        (f"task {task} row {row // 2} ".ljust(BODY_BYTES, "."), f"key-{row // 2}")
        for row in range(ROWS)
    ]


def make_rows(
    _: Iterator[int], name_server: str, topic: str, failure: str
) -> Iterator[tuple[str | None, str]]:
    """Makes the rows of a task; its first try ends after half of them."""
    context = TaskContext.get()
    assert context is not None
    rows = rows_of(context.partitionId())
    if context.attemptNumber() > 0:
        yield from reversed(rows)
        return
    yield from rows[: ROWS // 2]
    if failure == "kill":
        wait_until(partial(holds_some, name_server, topic), what="rows", deadline_s=120)
        os.kill(os.getpid(), signal.SIGKILL)
    yield None, "no body"


def holds_some(name_server: str, topic: str) -> bool:
    """Whether some rows have arrived: at this try nobody else can have sent them."""
    with PullConsumer(name_server) as consumer:
        queues = consumer.queues(topic)
        return sum(consumer.max_offset(queue) for queue in queues) >= ROWS // 4


def main(name_server: str, topic: str, failure: str, warehouse: Path, once: str) -> None:
    spark = make_session(
        {
            # Two cores, and two tries for each task.
            "spark.master": f"local[{TASKS},2]",
            "spark.sql.warehouse.dir": str(warehouse),
            # Each row is handed on as it is made.
            "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
    )
    make = partial(make_rows, name_server=name_server, topic=topic, failure=failure)
    rows = spark.sparkContext.parallelize(range(TASKS), TASKS).mapPartitions(make)
    frame = spark.createDataFrame(rows, SCHEMA)
    writer = frame.write.format("rocketmq").mode("append")
    writer.options(nameServer=name_server, topic=topic, once=once).save()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), sys.argv[5])
