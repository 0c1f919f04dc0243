"""A driver that runs jobs one after the other in one session, as spark-submit starts it.

    spark-submit ... tests/spark/cluster_driver.py STEPS RESULTS

STEPS is a JSON file: a list of [job, words...]. The first line of RESULTS says where tasks run;
each other one is what became of a step: its exit code, what it printed, its error, how long it
took, and the processor time of this process in it, which no worker can share. Besides the jobs of
the package there are `read`, `segments`, `write` and `stream`: sources and writers alone.
"""

import argparse
import contextlib
import importlib
import io
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException

from ledgermq.spark.errors import SparkSourceError
from ledgermq.spark.jobs.running import make_session, short_reason

# How Spark says that a worker of a stream took longer to start than it gives each.
SLOW_START = "Python worker failed to connect back"
STARTS_MAX = 20


def hosts(spark: Any) -> list[list[str]]:
    """Returns host name and working directory of each worker that runs tasks."""
    # Tasks of a barrier begin together: one on each worker, which have a core each.
    count = spark.sparkContext.defaultParallelism
    found = (
        spark.sparkContext.parallelize(range(count), count)
        .barrier()
        .mapPartitions(lambda _: [(socket.gethostname(), os.getcwd())])
    )
    return sorted(list(place) for place in set(found.collect()))


def read(spark: Any, name_server: str, topic: str, timeout_ms: str = "30000") -> int:
    """Prints how many rows a topic has, and the sum of the checksums of their bodies."""
    reader = spark.read.format("rocketmq").options(nameServer=name_server, topic=topic)
    reader = reader.option("readTimeoutMs", timeout_ms)
    return print_sum(reader.option("rowsPerPartition", 500).load())


def segments(spark: Any, path: str) -> int:
    """The same of the commit log at a path."""
    return print_sum(spark.read.format("rocketmq.segments").option("path", path).load())


def print_sum(rows: Any) -> int:
    (found,) = rows.selectExpr("count(*) as n", "sum(crc32(body)) as crc").collect()
    print(json.dumps([found.n, found.crc]))  # noqa: T201
    return 0


def write(spark: Any, name_server: str, topic: str, count: str, timeout_ms: str = "60000") -> int:
    """Writes numbered rows in four tasks."""
    rows = spark.range(0, int(count), 1, 4).selectExpr("concat('body ', id) as body")
    writer = rows.write.format("rocketmq").mode("append")
    writer = writer.option("sendTimeoutMs", timeout_ms)
    writer.options(nameServer=name_server, topic=topic).save()
    return 0


def stream(spark: Any, name_server: str, topic: str, target: str, checkpoint: str) -> int:
    """Takes what is in a topic to another one, in several batches."""
    reader = spark.readStream.format("rocketmq").option("nameServer", name_server)
    reader = reader.options(topic=topic, startingOffsets="earliest", maxRowsPerTrigger=2000)
    writer = reader.load().select("body").writeStream.format("rocketmq")
    writer = writer.options(nameServer=name_server, topic=target, checkpointLocation=checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    return 0


OWN_STEPS: dict[str, Callable[..., int]] = {
    "read": read,
    "segments": segments,
    "write": write,
    "stream": stream,
}


def run_step(spark: Any, name: str, words: list[str]) -> int:
    """Runs a step and returns its exit code."""
    if name in OWN_STEPS:
        return OWN_STEPS[name](spark, *words)
    job = importlib.import_module(f"ledgermq.spark.jobs.{name}")
    parser = argparse.ArgumentParser()
    job.add_arguments(parser)
    code: int = job.run(spark, parser.parse_args(words))
    return code


def result_of(spark: Any, name: str, words: list[str]) -> dict[str, Any]:
    """Runs a step, again where a busy machine started its stream too slowly; returns its result."""
    for _ in range(STARTS_MAX):
        result: dict[str, Any] = {"step": name, "code": None, "error": ""}
        out, begun_s, begun_cpu_s = io.StringIO(), time.monotonic(), time.process_time()
        try:
            with contextlib.redirect_stdout(out):
                result["code"] = run_step(spark, name, words)
        except (SparkSourceError, OSError) as error:
            result["error"] = str(error)
        except PySparkException as error:
            if SLOW_START in str(error):
                continue
            result["error"] = short_reason(str(error))
            sys.stderr.write(f"{name}: {error}\n")
        result["out"] = out.getvalue()
        result["seconds"] = time.monotonic() - begun_s
        result["driver_s"] = time.process_time() - begun_cpu_s
        break
    return result


def main() -> None:
    """Runs all steps."""
    steps = json.loads(Path(sys.argv[1]).read_text())
    spark = make_session()
    with open(sys.argv[2], "w") as results:

        def tell(line: dict[str, Any]) -> None:
            results.write(json.dumps(line) + "\n")
            results.flush()

        tell({"hosts": hosts(spark)})
        for name, *words in steps:
            tell(result_of(spark, name, words))
    spark.stop()


if __name__ == "__main__":
    main()
