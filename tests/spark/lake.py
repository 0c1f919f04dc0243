"""A million events into tables in an object store, and back, while a worker and a leader die.

    python -m tests.spark.lake [--events N] [--formats delta,iceberg] [--unwell PERCENT]

Events of a group of three go by `archive` on a cluster of Spark into a table in a bucket; meanwhile
a worker and its executor are killed, and the leader of the group. Then Spark, the format's own
library and DuckDB count the table, and `replay` sends it to another group. Everywhere number,
places and checksums must be those of what was sent: nothing is missing, nothing is there twice.
With --unwell the store spoils so many of its answers: 503, late, resets before and after the act.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

import ledgermq
from ledgermq.client import Message, Producer, ProducerConfig
from ledgermq.spark.jobs import archive, replay
from ledgermq.spark.tables import Storage, TablePlace, open_table
from ledgermq.spark.tables.formats import FORMATS
from ledgermq.spark.tables.storage import StoreKeys
from tests.e2e.up_cluster import UpCluster
from tests.spark.object_store import BUCKET, object_store
from tests.spark.standalone import WORKERS, SparkCluster, why_no_cluster
from tests.spark.unwell_store import unwell
from tests.waiting import wait_until

TOPIC: Final = "Events"
# Of Hadoop in PySpark's jars. Of Amazon's SDK a few parts are enough: all of it are 700 MB.
_HADOOP: Final = "3.5.0"
_SDK: Final = "2.35.4"
_PACKAGES: Final = (
    f"org.apache.hadoop:hadoop-aws:{_HADOOP}",
    *(f"software.amazon.awssdk:{name}:{_SDK}" for name in ("s3", "s3-transfer-manager", "sts")),
)
_STEP_S: Final = 1800.0
_IN_FLIGHT: Final = 20_000
_BATCHES: Final = 10


class Found(NamedTuple):
    """What a table or a topic holds."""

    count: int
    # Different places of messages, or row ids.
    places: int
    # Of the bodies, added up.
    checksum: int


def body_of(number: int) -> bytes:
    """The body of an event."""
    return b'{"order": %d, "item": "sku-%d", "price": %d}' % (
        number,
        number % 997,
        number * 7 % 10_007,
    )


def send_events(name_server: str, count: int) -> Found:
    """Sends all events; returns what there must be."""
    checksum = 0

    async def play() -> None:
        nonlocal checksum
        async with Producer(name_server, config=ProducerConfig(timeout_s=120)) as producer:
            waiting: list[Any] = []
            for number in range(count):
                body = body_of(number)
                checksum += zlib.crc32(body)
                waiting.append(await producer.submit(Message(TOPIC, body)))
                if len(waiting) == _IN_FLIGHT:
                    await asyncio.gather(*waiting)
                    waiting.clear()
            await asyncio.gather(*waiting)

    asyncio.run(play())
    return Found(count, count, checksum)


class Trial:
    """One format, from the topic to the other group."""

    def __init__(
        self, kind: str, keys: StoreKeys, workers: SparkCluster, folder: Path, source: UpCluster
    ) -> None:
        self._kind = kind
        self._workers = workers
        self._source = source
        self._folder = folder
        self._path = f"s3a://{BUCKET}/{kind}/events"
        self._place = TablePlace(
            kind, Storage("--path", self._path, keys), catalog_file=folder / "catalog.db"
        )
        assert keys.endpoint is not None
        self._settings = {
            "spark.jars.packages": ",".join(_PACKAGES),
            "spark.jars.excludes": "software.amazon.awssdk:bundle",
            "spark.hadoop.fs.s3a.access.key": str(keys.access_key),
            "spark.hadoop.fs.s3a.secret.key": str(keys.secret_key),
            "spark.hadoop.fs.s3a.endpoint": keys.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": str(keys.region),
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }
        self._words = ("--format", kind, "--path", self._path)
        if kind == "iceberg":
            self._words += ("--catalog-file", str(self._place.catalog_file))

    def run(self, wanted: Found, target: str) -> bool:
        """Runs all steps and prints a line for each; tells whether all hold."""
        held = True
        begun_s = time.monotonic()
        kills = self._archive(wanted.count)
        self._told(
            "archive", f"{time.monotonic() - begun_s:.0f} s, killed {', '.join(kills)}", None
        )
        for name, look in (("library", self._by_library), ("spark", self._by_spark)):
            found = look()
            held &= found == wanted
            self._told(name, str(found), found == wanted)
        begun_s = time.monotonic()
        topic = f"{TOPIC}-{self._kind}"
        self._submit(
            Path(replay.__file__), "replay", "-n", target, "-t", topic, *self._words,
            "--state", str(self._folder / "sent.json"),
        )  # fmt: skip
        found = in_topic(target, topic)
        held &= found == wanted
        self._told("replay", f"{found}, {time.monotonic() - begun_s:.0f} s", found == wanted)
        return held

    def _told(self, step: str, text: str, holds: bool | None) -> None:
        word = {None: "", True: "holds", False: "BROKEN"}[holds]
        sys.stdout.write(f"{self._kind:8} {step:8} {word:7} {text}\n")
        sys.stdout.flush()

    def _submit(
        self, program: Path, name: str, *words: str, meanwhile: Callable[[], None] | None = None
    ) -> None:
        log = self._folder / f"{name}.log"
        with self._workers.submit(
            program, *words, folder=self._folder, log=log, settings=self._settings
        ) as running:
            if meanwhile is not None:
                meanwhile()
            assert running.wait(_STEP_S) == 0, running.log_text()[-4000:]

    def _archive(self, count: int) -> list[str]:
        kills: list[str] = []

        def files() -> int:
            try:
                return len(open_table(self._place, create=False).files())
            except FileNotFoundError:
                return 0

        def hurt() -> None:
            wait_until(files, what="a first batch", deadline_s=_STEP_S)
            leader = self._source.wait_for_leader()
            self._source.kill(leader)
            kills.append(f"leader {leader['id']}")
            seen = files()
            wait_until(lambda: files() > seen, what="one more batch", deadline_s=_STEP_S)
            self._workers.kill_worker(WORKERS[0])
            self._workers.start_worker(WORKERS[0])
            kills.append(WORKERS[0])

        self._submit(
            Path(archive.__file__), "archive", "-n", self._source.name_server, "-t", TOPIC,
            *self._words, "--rows-per-batch", str(count // _BATCHES), meanwhile=hurt,
        )  # fmt: skip
        return kills

    def _by_library(self) -> Found:
        columns = ["brokerName", "queueId", "queueOffset", "body"]
        storage = self._place.storage
        if self._kind == "delta":
            found = DeltaTable(storage.root, storage_options=storage.delta_options())
            table: Any = pa.table(found.to_pyarrow_table(columns=columns))
        else:
            uri = f"sqlite:///{self._place.catalog_file}"
            catalog = SqlCatalog("ledgermq", uri=uri, **storage.iceberg_properties())
            loaded = catalog.load_table(self._place.table)
            table = loaded.scan(selected_fields=tuple(columns)).to_arrow()
        checksum = sum(zlib.crc32(body.as_py()) for body in table.column("body"))
        query = "select count(*), count(distinct (brokerName, queueId, queueOffset)) from places"
        with duckdb.connect() as database:
            database.register("places", table.drop_columns(["body"]))
            count, places = database.sql(query).fetchall()[0]
        return Found(count, places, checksum)

    def _by_spark(self) -> Found:
        result = self._folder / "query.json"
        program = Path(__file__).with_name("lake_query.py")
        words = (self._kind, self._path, str(self._place.catalog_file), str(result))
        self._submit(program, "query", *words)
        return Found(**json.loads(result.read_text()))


def in_topic(name_server: str, topic: str) -> Found:
    """What a topic holds: its row ids are its places."""
    count, checksum, ids = 0, 0, set()
    for batch in ledgermq.read(topic, name_servers=name_server):
        count += batch.num_rows
        checksum += sum(zlib.crc32(body.as_py()) for body in batch.column("body"))
        for properties in batch.column("properties"):
            ids.add(dict(properties.as_py())["SPARK_ROW_ID"])
    return Found(count, len(ids), checksum)


def run(count: int, formats: list[str], unwell_percent: float, folder: Path) -> int:
    """Runs all trials; returns the exit code."""
    held = True
    with (
        contextlib.ExitStack() as store,
        UpCluster(folder / "up") as source,
        UpCluster(folder / "other", node_count=1) as target,
        SparkCluster(folder / "spark") as workers,
    ):
        keys, proxy = store.enter_context(object_store(folder)), None
        if unwell_percent:
            proxy, keys = store.enter_context(unwell(keys))
            proxy.share = unwell_percent / 100
        source.wait_for_all()
        begun_s = time.monotonic()
        wanted = send_events(source.name_server, count)
        sys.stdout.write(f"sent {wanted} in {time.monotonic() - begun_s:.0f} s\n")
        for kind in formats:
            here = folder / kind
            here.mkdir()
            held &= Trial(kind, keys, workers, here, source).run(wanted, target.name_server)
            if proxy is not None:
                sys.stdout.write(f"{kind:8} the store spoiled {dict(proxy.told)}\n")
    return 0 if held else 1


def main() -> int:
    """Parses the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--unwell", type=float, default=0, metavar="PERCENT", help="of answers")
    options = parser.parse_args()
    missing = why_no_cluster()
    if missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    with tempfile.TemporaryDirectory(prefix="ledgermq-lake-") as folder:
        formats = options.formats.split(",")
        return run(options.events, formats, options.unwell, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
