"""Tables, read by programs that share no code with the libraries that committed them.

    python -m tests.spark.foreign_tables [--python PROGRAM [--packages MAVEN,...]]
        [--duckdb PROGRAM]

With --python delta-spark, which comes from Maven Central, reads a table of Delta Lake. PROGRAM is
the Python of an environment with the PySpark that the packages are for: 4.2.0 for those that are
taken without a word. With --duckdb DuckDB's own reader reads a table of Iceberg. PROGRAM is the
Python of an environment with `pip install duckdb==1.4.4 duckdb-ext-iceberg duckdb-ext-avro`.

Each reads what is there after several batches, a column that came later and a join of files, and
the version before the join. Exit code 0: it finds the messages that were sent, each once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any, Final

from ledgermq.client import Message
from ledgermq.spark.jobs import archive
from ledgermq.spark.jobs.running import what_is_missing
from tests.e2e.up_cluster import UpCluster
from tests.spark.session import small_session
from tests.spark.test_jobs import run as run_job
from tests.spark.topics import send_all

DELTA_PACKAGES: Final = "io.delta:delta-spark_4.2_2.13:4.4.0"
_TOPIC: Final = "Foreign"
_COUNT: Final = 300
_QUERY: Final = """
import json, sys
from pyspark.sql import SparkSession

path, packages = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars.packages", packages)
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.ui.enabled", "false")
    .config("spark.log.level", "ERROR")
    .getOrCreate()
)
def found(reader):
    rows = reader.load(path)
    counted = rows.selectExpr(
        "count(*) as n",
        "count(distinct brokerName, queueId, queueOffset) as places",
        "sum(crc32(body)) as checksum",
        "count_if(property_shop = 'north') as named",
    ).first()
    return list(counted)
last = spark.sql(f"describe history delta.`{path}`").selectExpr("max(version)").first()[0]
reader = spark.read.format("delta")
print(json.dumps([found(reader), found(reader.option("versionAsOf", last - 1)), last]))
"""


_DUCKDB_QUERY: Final = """
import json, sys
from pathlib import Path
import duckdb, duckdb_ext

database = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for name in ("avro", "iceberg"):
    for file in Path(duckdb_ext.__path__[0]).rglob(f"{name}.duckdb_extension"):
        database.sql(f"load '{file}'")
def found(metadata):
    counted = database.sql(
        "select count(*), count(distinct (brokerName, queueId, queueOffset)),"
        " count(distinct body), count_if(property_shop = 'north')"
        f" from iceberg_scan('{metadata}')"
    )
    return list(counted.fetchone())
print(json.dumps([found(metadata) for metadata in sys.argv[1:]]))
"""


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


def read_by_duckdb(python: str, path: Path) -> list[Any]:
    """What DuckDB finds: now, and before the files were joined."""
    files = sorted((path / "metadata").glob("*.metadata.json"))
    command = [python, "-c", _DUCKDB_QUERY, str(files[-1]), str(files[-2])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[:6000])
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def read_by_delta_spark(python: str, path: Path, packages: str) -> list[Any]:
    """What a session with delta-spark finds: now, a version before, and the last version."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    command = [python, "-c", _QUERY, str(path), packages]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr[:6000])
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run(python: str | None, packages: str, duckdb: str | None, folder: Path) -> int:
    """Makes tables and has them read; returns the exit code."""
    kinds = [kind for kind, program in (("delta", python), ("iceberg", duckdb)) if program]
    with UpCluster(folder / "up", node_count=1) as cluster:
        session = small_session(folder / "warehouse")
        spark = next(session)
        for kind in kinds:
            (folder / kind).mkdir()
            make_table(kind, cluster.name_server, folder / kind / "lake", spark, cluster)
        for _ in session:
            pass
    held = True
    if python:
        checksum = sum(zlib.crc32(f"body {number}".encode()) for number in range(_COUNT))
        now, before, last = read_by_delta_spark(python, folder / "delta" / "lake", packages)
        wanted = [_COUNT, _COUNT, checksum, _COUNT // 2]
        held &= told(
            "delta-spark", f"{now} at version {last}, {before} before", wanted, now, before
        )
    if duckdb:
        now, before = read_by_duckdb(duckdb, folder / "iceberg" / "lake")
        wanted = [_COUNT, _COUNT, _COUNT, _COUNT // 2]
        held &= told("duckdb", f"{now}, {before} before", wanted, now, before)
    return 0 if held else 1


def told(reader: str, text: str, wanted: list[int], *found: list[int]) -> bool:
    """Prints what a reader found, and returns whether it is what was sent."""
    holds = all(one == wanted for one in found)
    sys.stdout.write(
        f"{reader} {'holds' if holds else 'BROKEN'}: {text}, sent {wanted} (rows, places, checksum"
        " or bodies, rows with the later column)\n"
    )
    return holds


def main() -> int:
    """Parses the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", metavar="PROGRAM")
    parser.add_argument("--packages", default=DELTA_PACKAGES)
    parser.add_argument("--duckdb", metavar="PROGRAM")
    options = parser.parse_args()
    missing = what_is_missing()
    if not options.python and not options.duckdb:
        missing = "which program is to read: --python, --duckdb or both"
    if missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    with tempfile.TemporaryDirectory(prefix="ledgermq-foreign-") as folder:
        return run(options.python, options.packages, options.duckdb, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
