"""The job ``traffic``: how much goes through topics, how large it is, which keys are hot, who lags.

One pass over what the topics hold, or over a time of it. With --follow a line for each topic and
minute as messages come, until the job is stopped or --seconds are over.
"""

import argparse
import sys
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from ledgermq.client import ConsumerConfig
from ledgermq.client.blocking import PullConsumer
from ledgermq.spark.jobs.cluster_arguments import (
    add_cluster_arguments,
    add_topic_arguments,
    cluster_of,
    topic_option,
)
from ledgermq.spark.jobs.reports import print_report, print_rows
from ledgermq.spark.jobs.running import positive_number, run_job

_COLUMNS = "topic,brokerName,queueId,queueOffset,storeTimestamp,keys,body"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_cluster_arguments(parser)
    add_topic_arguments(parser)
    parser.add_argument("--since", help="only messages stored then or later: ms or ISO 8601")
    parser.add_argument("-g", "--group", help="tell the lag of a consumer group, too")
    parser.add_argument(
        "--top", type=positive_number, default=10, metavar="N", help="how many hot keys"
    )
    parser.add_argument("--follow", action="store_true", help="minute by minute, as they come")
    parser.add_argument(
        "--seconds", type=positive_number, metavar="N", help="end --follow after this time"
    )
    parser.add_argument("--json", action="store_true")


def run(spark: SparkSession, options: argparse.Namespace) -> int:
    """Prints the tables."""
    if options.follow:
        _follow(spark, options)
        return 0
    frame = _sized(spark.read.format("rocketmq").options(**_source(options)).load()).cache()
    by_topic = frame.groupBy("topic").agg(
        fn.count(fn.lit(1)).alias("messages"),
        fn.sum("bytes").alias("bytes"),
        fn.percentile_approx("bytes", 0.5).alias("p50_bytes"),
        fn.percentile_approx("bytes", 0.99).alias("p99_bytes"),
        fn.max("bytes").alias("max_bytes"),
        fn.countDistinct("brokerName", "queueId").alias("queues"),
        fn.min("storeTimestamp").alias("first"),
        fn.max("storeTimestamp").alias("last"),
    )
    print_report("topics", by_topic.orderBy("topic"), as_json=options.json)
    rates = _by_minute(frame).groupBy("topic")
    peaks = rates.agg(
        fn.max("messages").alias("peak_messages_a_minute"),
        fn.avg("messages").alias("mean_messages_a_minute"),
        fn.max("bytes").alias("peak_bytes_a_minute"),
    )
    print_report("throughput", peaks.orderBy("topic"), as_json=options.json)
    keys = frame.select("topic", fn.explode(fn.split("keys", " ")).alias("key")).where("key <> ''")
    hot = keys.groupBy("topic", "key").agg(fn.count(fn.lit(1)).alias("messages"))
    hot = hot.orderBy(fn.desc("messages"), "topic", "key").limit(options.top)
    print_report("hot keys", hot, as_json=options.json)
    if options.group:
        topics = sorted(row.topic for row in frame.select("topic").distinct().collect())
        _print_lag(options, topics)
    frame.unpersist()
    return 0


def _source(options: argparse.Namespace) -> Mapping[str, str]:
    """Returns the options of the source."""
    found = {**cluster_of(options).source_options(), **topic_option(options), "columns": _COLUMNS}
    if options.since:
        found["startingTimestamp"] = options.since
    return found


def _sized(frame: DataFrame) -> DataFrame:
    return frame.withColumn("bytes", fn.length("body")).drop("body")


def _by_minute(frame: DataFrame) -> DataFrame:
    minute = fn.date_trunc("minute", fn.col("storeTimestamp")).alias("minute")
    return frame.groupBy("topic", minute).agg(
        fn.count(fn.lit(1)).alias("messages"), fn.sum("bytes").alias("bytes")
    )


def _print_lag(options: argparse.Namespace, topics: list[str]) -> None:
    rows = []
    cluster = cluster_of(options)
    config = ConsumerConfig(client=cluster.access.client_config())
    with PullConsumer(cluster.name_server, options.group, config=config) as consumer:
        for topic in topics:
            for queue in consumer.queues(topic):
                end, offset = consumer.max_offset(queue), consumer.committed(queue)
                begun = consumer.min_offset(queue) if offset is None else offset
                rows.append((topic, queue.broker_name, queue.queue_id, offset, end, end - begun))
    columns = ("topic", "broker", "queue", "committed", "end", "lag")
    print_rows(f"lag of {options.group}", columns, rows, as_json=options.json)


def _follow(spark: SparkSession, options: argparse.Namespace) -> None:
    frame = _sized(spark.readStream.format("rocketmq").options(**_source(options)).load())

    def show(rows: DataFrame, _batch_id: int) -> None:
        latest = _by_minute(rows).orderBy("minute", "topic")
        print_report("traffic", latest, as_json=options.json)
        sys.stdout.flush()

    query = frame.writeStream.foreachBatch(show).start()
    query.awaitTermination(options.seconds)
    query.stop()


if __name__ == "__main__":
    sys.exit(run_job(add_arguments, run))
