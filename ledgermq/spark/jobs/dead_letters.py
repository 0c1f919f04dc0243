"""The job ``dead-letters``: what consumer groups gave up on, and sending it again.

A message that a group failed to consume too often lies in the topic %DLQ%<group>. The report says
for each group and origin how many, since when, with which tags, and some keys. With --resend the
chosen ones go back to the topic they came from, each once, however often the job is started.
"""

import argparse
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from ledgermq.protocol.names import DEAD_LETTER_PREFIX
from ledgermq.protocol.properties import RETRY_TOPIC
from ledgermq.spark.errors import OptionError, UnknownTopicError
from ledgermq.spark.jobs.cluster_arguments import (
    ClusterArguments,
    add_cluster_arguments,
    cluster_of,
)
from ledgermq.spark.jobs.reports import print_report
from ledgermq.spark.jobs.running import positive_number, run_job
from ledgermq.spark.jobs.sending_once import send_once
from ledgermq.spark.paths import local_path

_SHOWN_KEYS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_cluster_arguments(parser)
    parser.add_argument("-g", "--group", help="one consumer group; default: all")
    parser.add_argument(
        "--where", help="a condition of SQL, such as: origin = 'Orders' and tags = 'A'"
    )
    parser.add_argument("--resend", action="store_true", help="send the chosen ones again")
    parser.add_argument("--state", help="with --resend: file that remembers what was sent")
    parser.add_argument("--rows-per-second", type=positive_number, metavar="N")
    parser.add_argument("--json", action="store_true")


def run(spark: SparkSession, options: argparse.Namespace) -> int:
    """Prints the report, and sends again what is asked for.

    Raises:
        OptionError: --resend without --state.
    """
    if options.resend and not options.state:
        raise OptionError("--state", None, "with --resend: a file that remembers what was sent")
    rows = read_dead_letters(spark, cluster_of(options), options.group)
    if rows is None:
        sys.stdout.write("there are no dead letters\n")
        return 0
    if options.where:
        rows = rows.where(options.where)
    report = rows.groupBy("group", "origin").agg(
        fn.count(fn.lit(1)).alias("messages"),
        fn.min("storeTimestamp").alias("first"),
        fn.max("storeTimestamp").alias("last"),
        fn.collect_set("tags").alias("tags"),
        fn.slice(fn.collect_set("keys"), 1, _SHOWN_KEYS).alias("some_keys"),
    )
    print_report("dead letters", report.orderBy("group", "origin"), as_json=options.json)
    if options.resend:
        sent = _resend(spark, rows, options)
        sys.stdout.write(f"sent {sent} messages again\n")
    return 0


def read_dead_letters(
    spark: SparkSession, arguments: ClusterArguments, group: str | None
) -> DataFrame | None:
    """Returns the dead letters with two columns more, group and origin; None when there are none.

    Args:
        spark: reads.
        arguments: where they are.
        group: of one group; None for all.
    """
    wanted = f"{DEAD_LETTER_PREFIX}{group or '.*'}"
    with arguments.open() as cluster:
        try:
            if group:
                cluster.queues([wanted], unknown_s=0)
            elif not cluster.topics((), wanted):
                return None
        except UnknownTopicError:
            return None
    reader = spark.read.format("rocketmq").options(**arguments.source_options())
    frame = reader.option("topic" if group else "topicPattern", wanted).load()
    own_name = fn.expr(f"substr(topic, {len(DEAD_LETTER_PREFIX) + 1})")
    return frame.withColumn("group", own_name).withColumn(
        "origin", fn.col("properties")[RETRY_TOPIC]
    )


def _resend(spark: SparkSession, rows: DataFrame, options: argparse.Namespace) -> int:
    """Sends rows to their origins; those without one cannot go anywhere and are told."""
    lost = rows.where("origin is null").count()
    if lost:
        sys.stdout.write(f"{lost} messages do not say where they came from: left\n")
    place = ("topic", "brokerName", "queueId", "queueOffset")
    chosen = rows.where("origin is not null").select(
        fn.concat_ws("/", *(fn.col(name) for name in place)).alias("rowId"),
        fn.col("origin").alias("topic"),
        "body",
        "tags",
        "keys",
        "properties",
    )
    return send_once(
        spark,
        chosen,
        cluster=cluster_of(options),
        state=local_path("--state", options.state),
        rows_per_second=options.rows_per_second,
    )


if __name__ == "__main__":
    sys.exit(run_job(add_arguments, run))
