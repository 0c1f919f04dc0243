"""The job ``replay``: messages of an archive back into topics, each exactly once.

Body, tags, keys and the sender's own properties are as they were; ids, times and offsets are new.
Killed and started again it sends what is missing. With --keep-order the messages of one queue go to
one queue, one after the other; without, they go to all queues at once.
"""

import argparse
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, concat_ws, lit

from ledgermq.spark.jobs.archive_files import read_archive
from ledgermq.spark.jobs.cluster_arguments import add_cluster_arguments, cluster_of
from ledgermq.spark.jobs.running import positive_number, run_job
from ledgermq.spark.jobs.sending_once import send_once
from ledgermq.spark.paths import local_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_cluster_arguments(parser)
    parser.add_argument("--path", required=True, help="directory of the archive")
    parser.add_argument("-t", "--topic", help="send all to this topic; default: each to its own")
    parser.add_argument("--where", help="a condition of SQL, such as: topic = 'A' and tags = 'B'")
    parser.add_argument("--rows-per-second", type=positive_number, metavar="N")
    parser.add_argument("--keep-order", action="store_true", help="a queue stays in its order")
    parser.add_argument(
        "--state", help="file that remembers what was sent; default: in the archive, by --topic"
    )


def run(spark: SparkSession, options: argparse.Namespace) -> int:
    """Sends what is not yet sent and prints how much that was."""
    rows = read_archive(spark, options.path)
    if options.where:
        rows = rows.where(options.where)
    place = ("topic", "brokerName", "queueId", "queueOffset")
    rows = rows.withColumn("rowId", concat_ws("/", *(col(name) for name in place)))
    queue_key = concat_ws("/", "topic", "brokerName", "queueId")
    rows = rows.withColumn(
        "queueKey", queue_key if options.keep_order else lit(None).cast("string")
    )
    if options.topic:
        rows = rows.withColumn("topic", lit(options.topic))
    columns = ["topic", "body", "tags", "keys", "properties", "queueKey", "rowId"]
    chosen = rows.select(*columns, *(["queueOffset"] if options.keep_order else []))
    name = options.topic or "_own_topics"
    state = local_path("--path", options.path) / "_replay" / f"{name}.json"
    if options.state:
        state = local_path("--state", options.state)
    count = send_once(
        spark,
        chosen,
        cluster=cluster_of(options),
        state=state,
        rows_per_second=options.rows_per_second,
        sorted_by=("queueKey", "queueOffset") if options.keep_order else (),
    )
    sys.stdout.write(f"replayed {count} messages of {options.path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(run_job(add_arguments, run))
