"""One Spark session and one small cluster for all tests of this directory; both always stop."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.spark.jobs.running import make_session, what_is_missing
from tests.e2e.up_cluster import UpCluster


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A local session with two cores; skips, with the package to install, where Java is missing."""
    missing = what_is_missing()
    if missing:
        pytest.skip(missing)
    root = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    session = make_session(
        {
            "spark.master": "local[2]",
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.sql.python.filterPushdown.enabled": "true",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.ui.showConsoleProgress": "false",
            # Little data: planning costs more than it gives.
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.codegen.wholeStage": "false",
            # A short life: start quickly rather than run fast.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpCluster]:
    """A name server and one broker."""
    with UpCluster(tmp_path_factory.mktemp("up"), node_count=1) as up:
        yield up
