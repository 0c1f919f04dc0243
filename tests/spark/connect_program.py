"""A program with Spark Connect that writes to a topic and reads it, as a table and as a stream.

python -m tests.spark.connect_program NAMESRV FOLDER [URL]

URL is that of a server (sc://...); without, one runs in a process of its own meanwhile. Prints, as
JSON, how many rows each way gave. It has a process of its own: a process has sessions of one kind
only.
"""

import json
import sys

from pyspark.sql import SparkSession

from ledgermq.spark import RocketMQDataSource
from tests.spark import direct
from tests.spark.session import patiently


def main() -> int:
    """Runs all three ways."""
    name_server, folder, *server = sys.argv[1:]
    if server:
        builder = SparkSession.builder.remote(server[0])
    else:
        builder = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    spark.dataSource.register(RocketMQDataSource)
    options = {"nameServer": name_server, "topic": "OverConnect"}
    frame = spark.range(20).selectExpr("concat('row ', id) as body", "'A' as tags")
    frame.write.format("rocketmq").mode("append").options(**options).save()
    found = {"stored": len(direct.read_written(options))}
    found["table"] = spark.read.format("rocketmq").options(**options).load().count()
    reader = spark.readStream.format("rocketmq").options(**options, startingOffsets="earliest")
    writer = reader.load().writeStream.format("parquet").option("path", f"{folder}/rows")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    assert patiently(lambda: writer.start().awaitTermination(200))
    found["stream"] = spark.read.parquet(f"{folder}/rows").count()
    spark.stop()
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
