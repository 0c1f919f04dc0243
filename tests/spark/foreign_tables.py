"""Tables, read by programs that share no code with the libraries that committed them.

    python -m tests.spark.foreign_tables [--readers delta-spark,iceberg-spark,duckdb]

    delta-spark     Delta Lake's own module for Spark, on the PySpark that it is made for
    iceberg-spark   Iceberg's own runtime for Spark, on the newest PySpark that it is made for
    duckdb          DuckDB's own reader of Iceberg

Each has an environment of its own below `tests/interop/.build`, which is made once, from PyPI; what
runs in Java comes from Maven Central. Each reads what is there after several batches, a column that
came later and a join of files, and the version before the join. Exit code 0: all find the messages
that were sent, each once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from ledgermq.client import Message
from ledgermq.spark.jobs import archive
from ledgermq.spark.jobs.running import what_is_missing
from tests.e2e.up_cluster import UpCluster
from tests.interop.builds import build_lock, is_fresh, run_tool, write_stamp
from tests.spark.session import small_session
from tests.spark.test_jobs import run as run_job
from tests.spark.topics import send_all

_PYTHON_PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "delta-spark": ("pyspark==4.2.0", "pyarrow"),
    "iceberg-spark": ("pyspark==4.1.1", "pyarrow"),
    "duckdb": ("duckdb==1.4.4", "duckdb-ext-iceberg", "duckdb-ext-avro"),
}
_DELTA_PACKAGES: Final = "io.delta:delta-spark_4.2_2.13:4.4.0"
_ICEBERG_PACKAGES: Final = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,org.xerial:sqlite-jdbc:3.50.3.0"
)
_TOPIC: Final = "Foreign"
_COUNT: Final = 300
# Settings of a session, a table, and a query for its versions with the last one first; prints what
# is in the last one and in the one before.
_SPARK_QUERY: Final = """
import json, sys
from pyspark.sql import SparkSession

settings, table, history = sys.argv[1:]
builder = SparkSession.builder.master("local[2]")
for name, value in json.loads(settings).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
versions = [row[0] for row in spark.sql(history).collect()]
def found(version):
    counted = spark.sql(
        "select count(*), count(distinct brokerName, queueId, queueOffset), sum(crc32(body)),"
        f" count_if(property_shop = 'north') from {table} version as of {version}"
    )
    return list(counted.first())
print(json.dumps([found(version) for version in versions[:2]]))
"""
_SESSION: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_DUCKDB_QUERY: Final = """
import json, sys, zlib
from pathlib import Path
import duckdb, duckdb_ext

database = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for name in ("avro", "iceberg"):
    for file in Path(duckdb_ext.__path__[0]).rglob(f"{name}.duckdb_extension"):
        database.sql(f"load '{file}'")
def found(metadata):
    scan = f"from iceberg_scan('{metadata}')"
    counted = database.sql(
        "select count(*), count(distinct (brokerName, queueId, queueOffset)),"
        f" count_if(property_shop = 'north') {scan}"
    )
    count, places, named = counted.fetchone()
    bodies = database.sql(f"select body {scan}").fetchall()
    return [count, places, sum(zlib.crc32(body) for (body,) in bodies), named]
print(json.dumps([found(metadata) for metadata in sys.argv[1:]]))
"""


def make_python(reader: str) -> Path:
    """Makes the environment of a reader once; returns its Python."""
    packages = _PYTHON_PACKAGES[reader]
    with build_lock(f"tables-{reader}") as directory:
        python = directory / "venv" / "bin" / "python"
        stamp = directory / "stamp"
        if not is_fresh(stamp, (), repr(packages)):
            run_tool([sys.executable, "-m", "venv", str(directory / "venv")], cwd=directory)
            run_tool([str(python), "-m", "pip", "install", "-q", *packages], cwd=directory)
            write_stamp(stamp, (), repr(packages))
    return python


def make_table(kind: str, name_server: str, path: Path, spark: Any, cluster: UpCluster) -> None:
    """Archives a topic in several batches, and joins their files."""
    topic = f"{_TOPIC}-{kind}"
    words = ("-t", topic, "--path", path, "--format", kind, "--rows-per-batch", 70)
    for first, properties in ((0, {}), (_COUNT // 2, {"shop": "north"})):
        messages = [
            Message(topic, f"body {number}".encode(), properties=dict(properties))
            for number in range(first, first + _COUNT // 2)
        ]
        send_all(name_server, messages)
        more = ("--add-property", "shop") if properties else ("--compact-mib", 0)
        run_job(archive, spark, cluster, *words, *more)


def found_by(python: Path, *words: str) -> list[Any]:
    """What a program prints: of the last version, and of the one before."""
    environment = {
        name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")
    }
    environment["PYSPARK_PYTHON"] = str(python)
    done = subprocess.run(
        [python, "-c", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-6000:])
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def read_by_delta_spark(python: Path, folder: Path) -> list[Any]:
    """What a session with delta-spark finds."""
    table = f"delta.`{folder / 'delta' / 'lake'}`"
    settings = {
        **_SESSION,
        "spark.jars.packages": _DELTA_PACKAGES,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    words = (_SPARK_QUERY, json.dumps(settings), table, f"describe history {table}")
    return found_by(python, *words)


def read_by_iceberg_spark(python: Path, folder: Path) -> list[Any]:
    """What a session with Iceberg's runtime finds, by way of the catalog."""
    catalog = "spark.sql.catalog.ledgermq"
    settings = {
        **_SESSION,
        "spark.jars.packages": _ICEBERG_PACKAGES,
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        f"{catalog}.uri": f"jdbc:sqlite:{folder / 'iceberg' / 'lake_catalog.db'}",
        f"{catalog}.warehouse": f"file://{folder / 'iceberg'}",
        f"{catalog}.jdbc.schema-version": "V1",
    }
    table = "ledgermq.ledgermq.archive"
    history = f"select snapshot_id from {table}.snapshots order by committed_at desc"
    return found_by(python, _SPARK_QUERY, json.dumps(settings), table, history)


def read_by_duckdb(python: Path, folder: Path) -> list[Any]:
    """What DuckDB finds."""
    files = sorted((folder / "iceberg" / "lake" / "metadata").glob("*.metadata.json"))
    return found_by(python, _DUCKDB_QUERY, str(files[-1]), str(files[-2]))


READERS: Final[Mapping[str, tuple[str, Callable[[Path, Path], list[Any]]]]] = {
    "delta-spark": ("delta", read_by_delta_spark),
    "iceberg-spark": ("iceberg", read_by_iceberg_spark),
    "duckdb": ("iceberg", read_by_duckdb),
}


def run(readers: list[str], folder: Path) -> int:
    """Makes tables and has them read; returns the exit code."""
    pythons = {reader: make_python(reader) for reader in readers}
    with UpCluster(folder / "up", node_count=1) as cluster:
        session = small_session(folder / "warehouse")
        spark = next(session)
        for kind in sorted({READERS[reader][0] for reader in readers}):
            (folder / kind).mkdir()
            make_table(kind, cluster.name_server, folder / kind / "lake", spark, cluster)
        for _ in session:
            pass
    checksum = sum(zlib.crc32(f"body {number}".encode()) for number in range(_COUNT))
    wanted = [_COUNT, _COUNT, checksum, _COUNT // 2]
    held = True
    for reader in readers:
        now, before = READERS[reader][1](pythons[reader], folder)
        holds = now == before == wanted
        held &= holds
        sys.stdout.write(
            f"{reader:14} {'holds' if holds else 'BROKEN'}: {now}, {before} before the join, sent"
            f" {wanted} (rows, places, checksum, rows with the later column)\n"
        )
        sys.stdout.flush()
    return 0 if held else 1


def main() -> int:
    """Parses the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--readers", default=",".join(READERS))
    options = parser.parse_args()
    missing = what_is_missing()
    if missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    with tempfile.TemporaryDirectory(prefix="ledgermq-foreign-") as folder:
        return run(options.readers.split(","), Path(folder))


if __name__ == "__main__":
    sys.exit(main())
