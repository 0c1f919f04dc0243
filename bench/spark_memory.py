"""What a task of Spark needs of memory: the largest resident size of a Python worker that reads.

python -m bench.spark_memory [--queues 64] [--each 4] [--direct]

One core, so that one task reads at a time, and a topic of many queues, each of which is a task:

    small        messages of 100 bytes
    large        bodies of 4 MiB that are stored as they are
    compressed   bodies of 4 MiB that take 4 kB in the broker

Each is read with all columns by fetches of 4 MiB, as by default, and of 1 MiB. The sink is Spark's
`noop`. What a worker needs for a query over no rows is told first. With --direct no Spark runs: a
process for each line reads the same ranges, one after the other, and throws the rows away; what it
needs before the first one is told beside.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from bench.cluster import Running, cluster
from ledgermq.client import Message, Producer, ProducerConfig
from ledgermq.spark.jobs.running import make_session
from tests.spark import direct

MIB = 1024 * 1024
# The broker allows 4 MiB for a message with all that belongs to it.
LARGE_BYTES = 4 * MIB - 4096
SMALL_EACH = 2000
FETCHES = (4 * MIB, MIB)
SETTINGS = ("flushDiskType=ASYNC_FLUSH",)


def workers() -> Iterator[Path]:
    """The directories in /proc of Python workers that run tasks, of this process's session."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"pyspark.daemon\0pyspark.worker" in (path / "cmdline").read_bytes():
                environment = (path / "environ").read_bytes()
                if f"LEDGERMQ_BENCH={os.getpid()}".encode() in environment.split(b"\0"):
                    yield path


def forget_peaks() -> None:
    """Has the system count the largest size anew."""
    for path in workers():
        with contextlib.suppress(OSError):
            (path / "clear_refs").write_text("5")


def size_of(path: Path) -> float:
    """The largest resident size of a process, by its directory in /proc, in MiB."""
    lines = (path / "status").read_text().splitlines()
    (size,) = [int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
    return size / 1024


def peak_mib() -> float:
    """The largest resident size of a worker since the last time."""
    sizes = []
    for path in workers():
        with contextlib.suppress(OSError):
            sizes.append(size_of(path))
    return max(sizes)


async def fill(running: Running, topic: str, queues: int, body: bytes, each: int) -> None:
    """Sends so many messages to each queue."""
    running.create_topic(topic, queues)
    compresses_from = 10**9 if topic == "Large" else 4096
    config = ProducerConfig(timeout_s=120, compress_from_bytes=compresses_from)
    async with Producer(running.namesrv, config=config) as producer:
        for _ in range(each):
            sends = [
                await producer.submit(Message(topic, body, tags="A", keys=f"key-{number}"))
                for number in range(queues)
            ]
            await asyncio.gather(*sends)


def read(spark: SparkSession, running: Running, topic: str, **options: object) -> float:
    """Reads a topic and returns the peak."""
    forget_peaks()
    reader = spark.read.format("rocketmq").options(nameServer=running.namesrv, topic=topic)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    reader.load().write.format("noop").mode("overwrite").save()
    return peak_mib()


def read_directly(name_server: str, topic: str, fetch_bytes: int) -> None:
    """Reads a topic in this process, as a worker does, and prints its peaks."""
    options = {"nameServer": name_server, "topic": topic, "fetchBytes": fetch_bytes}
    source = direct.source_of(options)
    reader = source.reader(source.schema())
    Path("/proc/self/clear_refs").write_text("5")
    before = size_of(Path("/proc/self"))
    for part in reader.partitions():
        for _ in reader.read(part):
            # The batch is gone before the next one comes.
            continue
    peak = size_of(Path("/proc/self"))
    sys.stdout.write(f"| {topic} | {fetch_bytes // MIB} MiB | {peak:.0f}, {before:.0f} before |\n")


def main() -> int:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--queues", type=int, default=64)
    parser.add_argument("--each", type=int, default=4)
    parser.add_argument("--direct", action="store_true")
    parser.add_argument("--read", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read is not None:
        read_directly(options.read[0], options.read[1], int(options.read[2]))
        return 0
    os.environ["LEDGERMQ_BENCH"] = str(os.getpid())
    topics = {
        "Small": (b"x" * 100, SMALL_EACH),
        # What no compression makes smaller.
        "Large": (os.urandom(LARGE_BYTES), options.each),
        "Compressed": (b"x" * LARGE_BYTES, 5 * options.each),
    }
    with cluster(1, SETTINGS) as up:
        for topic, (body, each) in topics.items():
            asyncio.run(fill(up, topic, options.queues, body, each))
        if options.direct:
            for topic in topics:
                for size in FETCHES:
                    words = ["--read", up.namesrv, topic, str(size)]
                    command = [sys.executable, "-m", "bench.spark_memory", *words]
                    subprocess.run(command, check=True)
            return 0
        spark = make_session({"spark.master": "local[1]", "spark.ui.showConsoleProgress": "false"})
        read(spark, up, "Small", endingOffsets="earliest")
        base = read(spark, up, "Small", startingOffsets="latest", endingOffsets="latest")
        sys.stdout.write(f"query over no rows: {base:.0f} MiB\n| topic | fetchBytes | MiB |\n")
        for topic in topics:
            for size in FETCHES:
                peak = read(spark, up, topic, fetchBytes=size)
                sys.stdout.write(f"| {topic} | {size // MIB} MiB | {peak:.0f} |\n")
                sys.stdout.flush()
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
