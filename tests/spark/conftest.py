"""One Spark session and one small cluster for all tests of this directory; both always stop."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.up_cluster import UpCluster

JAVA_MIN = 17
WHAT_IS_MISSING = (
    f"Spark needs Java {JAVA_MIN} or newer, which is not here;"
    f" on Debian: apt install openjdk-{JAVA_MIN}-jre-headless"
)


def java_version() -> int:
    """The version of the Java that Spark would start; 0 when there is none."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        return 0
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else 0


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A local session with two cores; skips, with the package to install, where Java is missing."""
    if java_version() < JAVA_MIN:
        pytest.skip(WHAT_IS_MISSING)
    sql = pytest.importorskip("pyspark.sql", reason="pip install 'ledgermq[spark]'")
    sources = pytest.importorskip("ledgermq.spark")
    root = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        sql.SparkSession.builder.master("local[2]")
        .appName("ledgermq-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.log.level", "ERROR")
        # A short life: start quickly rather than run fast.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    session.dataSource.register(sources.RocketMQDataSource)
    session.dataSource.register(sources.SegmentsDataSource)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpCluster]:
    """A name server and one broker."""
    with UpCluster(tmp_path_factory.mktemp("up"), node_count=1) as up:
        yield up
