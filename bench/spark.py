"""What Spark makes of a topic: what reading costs, how late rows come, whether an audit scales.

python -m bench.spark [reads] [latency] [idle] [audit] [--messages 1000000] [--rounds 3]
                      [--seconds 40] [--mib 256] [--pairs 5]

    reads       bench/spark_reads.py: each way to read messages with bodies of 100 bytes
    latency     a stream of single messages; from a message's birth until `foreachBatch` has it in
                its hands, and until the blocking PullConsumer has it
    idle        bench/spark_idle.py: what a stream costs to which nothing comes
    audit       bench/spark_audit.py: the same store, checked by one core and by two

Without a name all four are measured, one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.cluster import Running, cluster
from bench.spark_audit import audit_lines
from bench.spark_idle import idle_lines
from bench.spark_reads import measured, read_lines, ways
from ledgermq.client import Message, ProducerConfig
from ledgermq.client import Producer as AsyncProducer
from ledgermq.client.blocking import Producer, PullConsumer
from ledgermq.spark.jobs.running import make_session

PARTS = ("reads", "latency", "idle", "audit")
TOPIC = "Orders"
LATE_TOPIC = "Late"
QUEUES = 2
# Messages that are on their way together when the topic is filled.
PART_COUNT = 5000
BODY = b"x" * 100
# Between two sends of the test of latency.
PAUSE_S = 0.02
WARM_COUNT = 200
SETTINGS = (
    "flushDiskType=ASYNC_FLUSH",
    "maxTransferCountOnMessageInMemory=1000",
    "maxTransferBytesOnMessageInMemory=1048576",
)


async def fill(running: Running, count: int) -> None:
    """Sends the messages; three properties each, as a producer makes them."""
    running.create_topic(TOPIC, QUEUES)
    config = ProducerConfig(timeout_s=120)
    async with AsyncProducer(running.namesrv, config=config) as producer:
        for first in range(0, count, PART_COUNT):
            numbers = range(first, min(first + PART_COUNT, count))
            sends = [
                await producer.submit(Message(TOPIC, BODY, tags="A", keys=f"key-{number}"))
                for number in numbers
            ]
            await asyncio.gather(*sends)


def reads(spark: SparkSession, running: Running, count: int, rounds: int) -> list[str]:
    """Fills a topic and reads it in each way; lines of tables."""
    asyncio.run(fill(running, count))
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    with tempfile.TemporaryDirectory(prefix="ledgermq-bench-") as folder:
        found = ways(spark, running, TOPIC, Path(folder))
        size = (Path(folder) / "records").stat().st_size
        title = f"{count} messages, {size / 1e6:.0f} MB; load {os.getloadavg()[0]:.1f}"
        costs = measured(found, running, gateway.proc.pid, rounds)
    return [title, *read_lines(costs, size, count)]


def latencies(spark: SparkSession, running: Running, seconds: float) -> list[str]:
    """Sends single messages to a stream and to a consumer; lines with how late both had them."""
    running.create_topic(LATE_TOPIC, QUEUES)
    late: dict[str, list[float]] = {"stream, foreachBatch": [], "PullConsumer": []}
    is_over = threading.Event()

    def see(rows: DataFrame, _batch_id: int) -> None:
        found = rows.selectExpr("unix_millis(bornTimestamp) as born").collect()
        now_ms = time.time() * 1000
        late["stream, foreachBatch"] += [now_ms - row.born for row in found]

    def consume() -> None:
        with PullConsumer(running.namesrv, "bench_late") as consumer:
            consumer.assign(consumer.queues(LATE_TOPIC), start="last")
            while not is_over.is_set():
                messages = consumer.poll(timeout_s=0.5)
                now_ms = time.time() * 1000
                late["PullConsumer"] += [now_ms - message.born_timestamp_ms for message in messages]

    with Producer(running.namesrv, config=ProducerConfig(timeout_s=60)) as producer:
        producer.send(Message(LATE_TOPIC, BODY))
        reader = spark.readStream.format("rocketmq").options(
            nameServer=running.namesrv, topic=LATE_TOPIC, columns="bornTimestamp,body"
        )
        query = reader.load().writeStream.foreachBatch(see).start()
        thread = threading.Thread(target=consume)
        thread.start()
        # Both have begun, and are warm.
        while min(map(len, late.values())) < WARM_COUNT:
            if not (thread.is_alive() and query.isActive):
                raise RuntimeError("the consumer or the stream has ended")
            producer.send(Message(LATE_TOPIC, BODY))
            is_over.wait(PAUSE_S)
        for found in late.values():
            found.clear()
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            producer.send(Message(LATE_TOPIC, BODY))
            is_over.wait(PAUSE_S)
        query.processAllAvailable()
        is_over.set()
        thread.join()
        query.stop()
    lines = ["| until a message is in the hands of | p50 ms | p99 ms |", "|---|---|---|"]
    for name, found in late.items():
        cuts = statistics.quantiles(found, n=100)
        lines.append(f"| {name} | {cuts[49]:.0f} | {cuts[98]:.0f} |")
    return lines


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=(*PARTS, []), metavar="PART")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    parts = options.parts or PARTS
    if {"reads", "latency", "idle"} & set(parts):
        with cluster(1, SETTINGS) as up:
            spark = make_session(
                {"spark.master": "local[2]", "spark.ui.showConsoleProgress": "false"}
            )
            if "reads" in parts:
                print("\n".join(reads(spark, up, options.messages, options.rounds)), flush=True)
            if "latency" in parts:
                print(f"\nload {os.getloadavg()[0]:.1f}")
                print("\n".join(latencies(spark, up, options.seconds)), flush=True)
            if "idle" in parts:
                print(f"\nload {os.getloadavg()[0]:.1f}")
                lines = idle_lines(spark, up, options.seconds, options.rounds)
                print("\n".join(lines), flush=True)
            spark.stop()
    if "audit" in parts:
        print("\n".join(audit_lines(options.mib, options.pairs)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
