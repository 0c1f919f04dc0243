"""A session of Spark for tests: two cores, quick to start, little of anything."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyspark.errors import PySparkException

from ledgermq.spark.jobs.running import make_session, what_is_missing

_T = TypeVar("_T")

# How Spark says that a worker of a stream took longer to start than it gives each.
SLOW_START = "Python worker failed to connect back"
STARTS_MAX = 20


def patiently(run: Callable[[], _T]) -> _T:
    """Runs a stream, and again when a busy machine started its worker too slowly.

    Spark gives that ten seconds, and no setting changes it; nothing was read or written by then.
    """
    for _ in range(STARTS_MAX):
        try:
            return run()
        except PySparkException as error:
            if SLOW_START not in str(error):
                raise
    return run()


def small_session(warehouse: Path) -> Iterator[Any]:
    """Yields a session and stops it; skips, with the package to install, where Java is missing."""
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
            "spark.sql.warehouse.dir": str(warehouse),
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
