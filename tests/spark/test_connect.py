"""Sources and sinks through Spark Connect, where its packages are installed."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ledgermq.spark.jobs.running import what_is_missing
from tests.e2e.up_cluster import UpCluster

ROOT = Path(__file__).parents[2]
# What `pip install 'pyspark[connect]'` brings, by the modules that are looked for.
PACKAGES = ("grpc", "grpc_status", "google.rpc", "pandas")
pytestmark = pytest.mark.timeout(900)


def is_there(module: str) -> bool:
    """Tells whether a module can be imported, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def test_a_topic_is_written_and_read_over_spark_connect(cluster: UpCluster, tmp_path: Path) -> None:
    lacking = [module for module in PACKAGES if not is_there(module)]
    missing = what_is_missing() or (lacking and f"pip install 'pyspark[connect]': no {lacking}")
    if missing:
        pytest.skip(missing)
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_program", cluster.name_server, tmp_path],
        capture_output=True,
        text=True,
        timeout=800,
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
            "PYSPARK_PYTHON": sys.executable,
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"stored": 20, "table": 20, "stream": 20}
