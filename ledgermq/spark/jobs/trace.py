"""The job ``trace``: what clients wrote about their own sends and deliveries.

Stock clients with tracing send records to RMQ_SYS_TRACE_TOPIC; one message holds several:

    Pub        time, region, group, topic, id, tags, keys, store host, body bytes, cost in ms, type,
               offset id, success, client host
    SubBefore  time, region, group, request, id, retries, keys, client host
    SubAfter   request, id, cost in ms, success, keys, code, time, group

Fields are separated by 0x01, records by 0x02; later releases add fields at the end. The report has
sends by topic and group and deliveries by group; with --message the way of one message.
Source: TraceDataEncoder of 4.9.3.
"""

import argparse
import sys

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from ledgermq.spark.jobs.cluster_arguments import add_cluster_arguments, cluster_of
from ledgermq.spark.jobs.reports import print_report
from ledgermq.spark.jobs.running import run_job

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_cluster_arguments(parser)
    parser.add_argument("-t", "--topic", default=TRACE_TOPIC, help="where the traces are")
    parser.add_argument("--message", metavar="ID", help="show the way of one message")
    parser.add_argument("--json", action="store_true")


def run(spark: SparkSession, options: argparse.Namespace) -> int:
    """Prints the report."""
    reader = spark.read.format("rocketmq").options(**cluster_of(options).source_options())
    bodies = reader.options(topic=options.topic, columns="body").load()
    sends, deliveries = read_traces(bodies)
    if options.message:
        way = sends.select("id", "time", fn.lit("sent").alias("what"), "group", "cost_ms", "ok")
        came = deliveries.select(
            "id", "time", fn.lit("consumed").alias("what"), "group", "cost_ms", "ok"
        )
        found = way.unionByName(came).where(fn.col("id") == options.message)
        print_report(f"message {options.message}", found.orderBy("time"), as_json=options.json)
        return 0
    by_topic = sends.groupBy("topic", "group").agg(*_figures())
    print_report("sends", by_topic.orderBy("topic", "group"), as_json=options.json)
    by_group = deliveries.groupBy("group").agg(*_figures())
    print_report("deliveries", by_group.orderBy("group"), as_json=options.json)
    return 0


def _figures() -> tuple[Column, ...]:
    return (
        fn.count(fn.lit(1)).alias("count"),
        fn.sum((~fn.col("ok")).cast("int")).alias("failed"),
        fn.percentile_approx("cost_ms", 0.5).alias("p50_ms"),
        fn.percentile_approx("cost_ms", 0.99).alias("p99_ms"),
        fn.max("cost_ms").alias("max_ms"),
    )


def read_traces(bodies: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Returns sends and deliveries with id, time, group, cost_ms and ok; sends also with topic.

    Args:
        bodies: one column `body`, bytes.
    """
    records = bodies.select(fn.explode(fn.split(fn.decode("body", "UTF-8"), "\x02")).alias("r"))
    fields = records.select(fn.split("r", "\x01").alias("f"))

    def field(number: int) -> Column:
        return fn.get("f", fn.lit(number))

    def number_of(number: int) -> Column:
        return field(number).try_cast("bigint")

    sends = fields.where(field(0) == "Pub").select(
        field(5).alias("id"),
        number_of(1).alias("time"),
        field(3).alias("group"),
        field(4).alias("topic"),
        number_of(10).alias("cost_ms"),
        (field(13) == "true").alias("ok"),
    )
    before = fields.where(field(0) == "SubBefore").select(
        field(4).alias("request"),
        field(5).alias("id"),
        number_of(1).alias("time"),
        field(3).alias("group"),
    )
    after = fields.where(field(0) == "SubAfter").select(
        field(1).alias("request"),
        field(2).alias("id"),
        number_of(3).alias("cost_ms"),
        (field(4) == "true").alias("ok"),
    )
    return sends, before.join(after, ["request", "id"])


if __name__ == "__main__":
    sys.exit(run_job(add_arguments, run))
