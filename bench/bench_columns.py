"""Which way from records to rows of Spark costs how much: processor time of the Python side.

python -m bench.bench_columns

Bodies of 100 bytes, three properties, runs of 4 MiB as a broker's answers make them. The tuple way
is what a Python source costs that yields tuples: decoding, and Spark's own conversion of them. The
objects are what a pull of the client gives, without that conversion. The Java side of Spark is the
same for all, and not in the figures.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql.types import StructType
from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches

from ledgermq.client import MessageQueue
from ledgermq.client.queue_requests import decode_messages
from ledgermq.protocol.properties import decode_properties
from ledgermq.protocol.record import decode_record, encode_record
from ledgermq.spark import RocketMQDataSource
from ledgermq.spark.batches import arrow_schema, to_batch
from ledgermq.spark.record_columns import RecordColumns, record_starts
from ledgermq.spark.schema import COLUMN_NAMES, message_schema

COUNT = 16_000
ROUNDS = 5
HOST = (b"\x7f\0\0\1", 10911)


def make_run() -> bytes:
    """Records back to back."""
    return b"".join(
        encode_record(
            b"Orders", 1, 0, n, n * 250, 0, 1_700_000_000_000 + n, HOST, 1_700_000_000_001 + n,
            HOST, 0, 0, b"x" * 100,
            f"UNIQ_KEY\x017F0000010A2B{n:020d}\x02TAGS\x01A\x02KEYS\x01key-{n}\x02".encode(),
        )
        for n in range(COUNT)
    )  # fmt: skip


def place(at: int) -> str:
    """Names a byte of the run."""
    return str(at)


def vectorized(data: bytes, columns: tuple[str, ...]) -> Callable[[], object]:
    """The way of the source, with some columns."""
    schema = arrow_schema(message_schema(columns))

    def decode() -> object:
        records = RecordColumns(data, record_starts(data, place), place)
        return to_batch(records, schema, {"topic": "Orders", "brokerName": "a"})

    return decode


def tuples(data: bytes) -> Iterator[tuple[Any, ...]]:
    """Rows one by one, all columns."""
    at = 0
    while at < len(data):
        record = decode_record(data, at)
        at += record.size_bytes
        found = decode_properties(record.properties)
        yield (
            record.topic, record.queue_id, "a", record.queue_offset, found.get("UNIQ_KEY"),
            record.born_timestamp, record.store_timestamp, found.get("TAGS"), found.get("KEYS"),
            record.body, found, record.reconsume_times,
        )  # fmt: skip


def by_tuples(data: bytes) -> Callable[[], object]:
    """The way of a source that yields tuples."""
    # As plain numbers: times as Spark's would cost the tuples even more.
    text = message_schema(COLUMN_NAMES).json().replace('"timestamp"', '"long"')
    schema = StructType.fromJson(json.loads(text))
    source = RocketMQDataSource({})

    def convert() -> object:
        return list(records_to_arrow_batches(tuples(data), 10_000, schema, source))

    return convert


def microseconds_a_row(work: Callable[[], object]) -> float:
    """Processor time of the best of some rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return best / COUNT * 1e6


def main() -> None:
    """Prints a line for each way."""
    data = make_run()
    without_map = tuple(name for name in COLUMN_NAMES if name != "properties")
    slow = microseconds_a_row(by_tuples(data))
    ways = {
        "tuples, decoded one by one": slow,
        "objects of the client, no rows yet": microseconds_a_row(
            lambda: decode_messages(data, MessageQueue("Orders", "a", 1), len(data), frozenset())
        ),
        "columns, all": microseconds_a_row(vectorized(data, COLUMN_NAMES)),
        "columns, without properties": microseconds_a_row(vectorized(data, without_map)),
        "columns, offset, time and body": microseconds_a_row(
            vectorized(data, ("queueOffset", "storeTimestamp", "body"))
        ),
    }
    for name, cost in ways.items():
        rate = len(data) / COUNT / cost
        print(f"{name:34} {cost:6.2f} us a row  {rate:7.1f} MB/s  {slow / cost:5.1f} times")


if __name__ == "__main__":
    main()
