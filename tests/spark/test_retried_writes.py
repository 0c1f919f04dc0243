"""Tasks of a write that are tried again: who drops repeats by the row's id keeps every row.

With the option `once` there are no repeats.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ledgermq.spark.jobs.running import what_is_missing
from tests.e2e.up_cluster import UpCluster
from tests.spark import direct
from tests.spark.retried_write import ROWS, TASKS, rows_of

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("once", ["false", "true"])
@pytest.mark.parametrize("failure", ["kill", "refuse"])
def test_rows_of_tasks_that_are_tried_again_in_another_order(
    cluster: UpCluster, tmp_path: Path, failure: str, once: str
) -> None:
    """Each task fails after half of its rows; the next try sends all of them, the last one first.

    Each content stands in two rows, so that an id by content alone would lose half of them, as one
    by position would lose those that had another one's place at the first try.
    """
    missing = what_is_missing()
    if missing:
        pytest.skip(missing)
    topic = f"SparkTried{failure}{once}"
    words = [cluster.name_server, topic, failure, str(tmp_path), once]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.spark.retried_write", *words]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 0, done.stderr[-4000:]
    rows = direct.read_written({"nameServer": cluster.name_server, "topic": topic})
    if once == "true":
        assert len(rows) == TASKS * ROWS, "what the first try had sent was left out"
    else:
        assert len(rows) > TASKS * ROWS, "some were sent at both tries"
    kept = {dict(row["properties"])["SPARK_ROW_ID"]: row for row in rows}
    wanted = [row for task in range(TASKS) for row in rows_of(task)]
    found = Counter((row["body"].decode(), row["keys"]) for row in kept.values())
    assert found == Counter(wanted), [f"{count} {keys}" for (_, keys), count in found.items()]
    assert max(Counter(wanted).values()) == 2
