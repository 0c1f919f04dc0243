"""A table of Delta Lake, read by delta-spark, which comes from Maven Central.

    python -m tests.spark.foreign_tables --python PROGRAM [--packages MAVEN,...]

PROGRAM is the Python of an environment with the PySpark that the packages are for: 4.2.0 for those
that are taken without a word. It reads what is there after several batches, a column that came
later and a join of files, and the version before the join. Exit code 0: it finds the messages that
were sent, each once.
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


def make_table(name_server: str, path: Path, spark: Any, cluster: UpCluster) -> list[int]:
    """Archives a topic in several batches; returns what a query of it has to find."""
    words = ("-t", _TOPIC, "--path", path, "--format", "delta", "--rows-per-batch", 70)
    for first, properties in ((0, {}), (_COUNT // 2, {"shop": "north"})):
        messages = [
            Message(_TOPIC, f"body {number}".encode(), properties=dict(properties))
            for number in range(first, first + _COUNT // 2)
        ]
        send_all(name_server, messages)
        more = ("--add-property", "shop") if properties else ("--compact-mib", 0)
        run_job(archive, spark, cluster, *words, *more)
    checksum = sum(zlib.crc32(f"body {number}".encode()) for number in range(_COUNT))
    return [_COUNT, _COUNT, checksum, _COUNT // 2]


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


def run(python: str, packages: str, folder: Path) -> int:
    """Makes a table and has it read; returns the exit code."""
    path = folder / "lake" / "delta"
    path.parent.mkdir()
    with UpCluster(folder / "up", node_count=1) as cluster:
        session = small_session(folder / "warehouse")
        wanted = make_table(cluster.name_server, path, next(session), cluster)
        for _ in session:
            pass
    now, before, last = read_by_delta_spark(python, path, packages)
    holds = now == before == wanted
    sys.stdout.write(
        f"delta-spark {'holds' if holds else 'BROKEN'}: {now} at version {last}, {before} before,"
        f" sent {wanted} (rows, places, checksum, rows with the later column)\n"
    )
    return 0 if holds else 1


def main() -> int:
    """Parses the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", required=True, metavar="PROGRAM")
    parser.add_argument("--packages", default=DELTA_PACKAGES)
    options = parser.parse_args()
    missing = what_is_missing()
    if missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    with tempfile.TemporaryDirectory(prefix="ledgermq-foreign-") as folder:
        return run(options.python, options.packages, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
