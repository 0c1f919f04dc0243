"""The job ``replay``: messages of an archive back into topics, each exactly once.

Body, tags, keys and the sender's own properties are as they were; ids, times and offsets are new.
Killed and started again it sends what is missing. With --keep-order the messages of one queue go to
one queue, one after the other; without, they go to all queues at once.
"""

import argparse
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat_ws, lit

from ledgermq.spark.errors import OptionError
from ledgermq.spark.jobs.archive_files import read_archive
from ledgermq.spark.jobs.cluster_arguments import add_cluster_arguments, cluster_of
from ledgermq.spark.jobs.running import positive_number, run_job
from ledgermq.spark.jobs.sending_once import send_once
from ledgermq.spark.jobs.table_arguments import add_table_arguments, is_table, table_place
from ledgermq.spark.paths import local_path
from ledgermq.spark.tables import open_table, read_files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_cluster_arguments(parser)
    add_table_arguments(parser)
    parser.add_argument("--path", required=True, help="directory of the archive; s3a:// for tables")
    parser.add_argument("-t", "--topic", help="send all to this topic; default: each to its own")
    parser.add_argument("--where", help="a condition of SQL, such as: topic = 'A' and tags = 'B'")
    parser.add_argument("--rows-per-second", type=positive_number, metavar="N")
    parser.add_argument("--keep-order", action="store_true", help="a queue stays in its order")
    parser.add_argument(
        "--state", help="file that remembers what was sent; default: at the archive, by --topic"
    )


def run(spark: SparkSession, options: argparse.Namespace) -> int:
    """Sends what is not yet sent and prints how much that was."""
    rows, states = _read(spark, options)
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
    if options.state:
        state = local_path("--state", options.state)
    elif states is not None:
        state = states / f"{name}.json"
    else:
        raise OptionError("--state", None, "a file of this machine, for an archive in a bucket")
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


def _read(spark: SparkSession, options: argparse.Namespace) -> tuple[DataFrame, Path | None]:
    """Returns the rows of an archive, and where states of replays are kept unless one is given."""
    if not is_table(options):
        rows = read_archive(spark, options.path)
        return rows, local_path("--path", options.path) / "_replay"
    place = table_place(spark, options)
    table = open_table(place, create=False)
    storage = place.storage
    rows = read_files(spark, storage, table.files(), table.properties())
    return rows, Path(f"{storage.directory}_replay") if storage.is_local else None


if __name__ == "__main__":
    sys.exit(run_job(add_arguments, run))
