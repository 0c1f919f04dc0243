"""Archives of plain Parquet files: killed anywhere, read meanwhile, and two jobs at once."""

import os
import re
import shutil
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.functions import col, to_date
from pyspark.sql.types import StructType

from ledgermq.spark.errors import OptionError
from ledgermq.spark.jobs import archive, archive_files, replay
from ledgermq.spark.jobs.archive_files import batch_path, batches, compact, read_archive
from ledgermq.spark.jobs.job_lock import only_job
from ledgermq.spark.schema import COLUMN_NAMES, message_schema
from tests.e2e.up_cluster import UpCluster
from tests.spark.test_jobs import run

pytestmark = pytest.mark.timeout(900)
_STORED = datetime(2026, 5, 1, 12, 0, 0, 0, UTC)


class Killed(BaseException):
    """What ends a driver at a moment of a test's choice."""


def messages(spark: Any, *offsets: int) -> Any:
    """Rows as a stream gives them."""
    schema: StructType = message_schema(COLUMN_NAMES)
    known = {"topic": "T", "queueId": 0, "brokerName": "b", "storeTimestamp": _STORED}
    rows = [
        tuple({**known, "queueOffset": offset}.get(name) for name in schema.names)
        for offset in offsets
    ]
    return spark.createDataFrame(rows, schema).coalesce(1)


def make_archive(spark: Any, path: Path, count: int) -> None:
    """Batches of two messages each, all of them done by the checkpoint."""
    for number in range(count):
        archive_files.write_batch(messages(spark, 2 * number, 2 * number + 1), path, number)
    commits = path / archive_files.CHECKPOINT / "commits"
    commits.mkdir(parents=True)
    (commits / str(count - 1)).write_text("v1\n{}")


def offsets_in(spark: Any, path: Path) -> list[int]:
    """What an archive holds."""
    return sorted(row.queueOffset for row in read_archive(spark, str(path)).collect())


@pytest.fixture(scope="module")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of three batches, not to be changed."""
    path = tmp_path_factory.mktemp("made") / "archive"
    make_archive(spark, path, 3)
    return path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of it."""
    yield Path(shutil.copytree(made, tmp_path / "archive"))


def test_tasks_that_outlive_their_driver_write_into_no_batch_of_the_next_one(
    spark: Any, path: Path
) -> None:
    """A task may be allowed its commit when its driver dies, and make it when another one writes.

    Spark takes all that is committed below the directory of a write for tasks of that write.
    """
    done = path / "batch=00000000000000000000" / "topic=T"
    (file,) = done.rglob("*.parquet")
    place = batch_path(path, 3) / "_temporary" / "0" / "task_202605011200_0007_m_000009"

    def outlive(rows: Any) -> Any:
        late = place / "topic=T" / "date=2026-05-01"
        os.makedirs(late, exist_ok=True)
        shutil.copy(file, late / "part-00009-of-another-driver.parquet")
        return rows

    frame = messages(spark, 6, 7)
    late = spark.createDataFrame(frame.rdd.mapPartitions(outlive), frame.schema)
    archive_files.write_batch(late, path, 3)
    assert offsets_in(spark, path) == list(range(8))


def test_a_batch_that_is_there_is_not_written_again(spark: Any, path: Path) -> None:
    """Its driver was killed before the checkpoint knew of it."""
    before = sorted(batch_path(path, 2).rglob("*.parquet"))
    archive_files.write_batch(messages(spark, 4, 5), path, 2)
    assert sorted(batch_path(path, 2).rglob("*.parquet")) == before
    # And one that was cut off, by a version that wrote it in its place, is.
    (batch_path(path, 2) / "_SUCCESS").unlink()
    assert offsets_in(spark, path) == [0, 1, 2, 3]
    archive_files.write_batch(messages(spark, 4, 5), path, 2)
    assert offsets_in(spark, path) == list(range(6))


@pytest.mark.parametrize("step", range(6))
def test_a_join_that_is_killed_at_any_step_leaves_each_row_once(
    step: int, spark: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps are what changes names: the rename of the result, and each removal."""
    left = [step]

    def dying(real: Any) -> Any:
        def change(*words: Any, **options: Any) -> Any:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return real(*words, **options)

        return change

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", dying(shutil.rmtree))
        patch.setattr(Path, "rename", dying(Path.rename))
        with pytest.raises(Killed):
            compact(spark, path, 1 << 20)
    assert offsets_in(spark, path) == list(range(6))
    archive_files.finish_compaction(path)
    assert offsets_in(spark, path) == list(range(6))
    compact(spark, path, 1 << 20)
    (whole,) = batches(path)
    assert (whole.first, whole.last) == (0, 2)
    assert offsets_in(spark, path) == list(range(6))
    assert [found.name for found in path.glob("batch=*")] == [whole.path.name]


def test_who_reads_leaves_alone_what_a_job_is_writing(spark: Any, path: Path) -> None:
    """A replay took the half of a join away from the archive's job, which then lost its rows."""
    names = ("_compacting/batch=00000000000000000000-00000000000000000001", "_writing/0123")
    for name in names:
        (path / name / "_temporary" / "0").mkdir(parents=True)
    assert offsets_in(spark, path) == list(range(6))
    assert all((path / name / "_temporary" / "0").is_dir() for name in names)


def test_a_result_of_a_version_before_is_taken(spark: Any, path: Path) -> None:
    result = path / "_compacting" / "batch=00000000000000000000-00000000000000000001"
    dated = messages(spark, 0, 1, 2, 3).withColumn("date", to_date(col("storeTimestamp")))
    dated.write.partitionBy("topic", "date").parquet(f"file://{result}")
    # It was killed between two removals.
    shutil.rmtree(batch_path(path, 0))
    with (
        only_job("--path", path, path / archive_files.LOCK),
        pytest.raises(OptionError, match="no other job is at work"),
    ):
        read_archive(spark, str(path))
    assert offsets_in(spark, path) == list(range(6))
    assert [(batch.first, batch.last) for batch in batches(path)] == [(0, 1), (2, 2)]


@pytest.mark.parametrize("kind", ["archive", "state"])
def test_a_second_job_is_refused_with_the_host_and_process_of_the_first(
    kind: str, spark: Any, cluster: UpCluster, path: Path
) -> None:
    at_work = re.escape(f"process {os.getpid()} on {socket.gethostname()} is")
    if kind == "archive":
        (path / archive_files.CHECKPOINT / "metadata").write_text('{"id": "a"}')
        held, words = path / archive_files.LOCK, ("-t", "Twice", "--path", path)
    else:
        held, words = path / "sent.json.lock", ("-t", "Twice", "--path", path)
        words = (*words, "--state", path / "sent.json")
    job = archive if kind == "archive" else replay
    with only_job("--path", path, held), pytest.raises(OptionError, match=at_work):
        run(job, spark, cluster, *words)
    assert offsets_in(spark, path) == list(range(6))
    with only_job("--path", path, held):
        pass


@pytest.mark.parametrize("text", ["", "{", "[]", '{"v": 1}', '{"v": 9, "topics": {}}'])
def test_a_state_file_that_is_cut_or_of_others_is_refused(
    text: str, spark: Any, cluster: UpCluster, path: Path
) -> None:
    """Taken for a first start, it would let all rows be sent again."""
    state = path / "sent.json"
    state.write_text(text)
    with pytest.raises(OptionError, match="a file that this job has written, or none"):
        run(replay, spark, cluster, "-t", "Cut", "--path", path, "--state", state)
    assert state.read_text() == text


def test_a_file_of_an_archive_that_is_cut_is_named(
    spark: Any, cluster: UpCluster, path: Path
) -> None:
    file = next(iter(batch_path(path, 1).rglob("*.parquet")))
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(Exception, match=re.escape(file.name)):
        run(replay, spark, cluster, "-t", "Cut", "--path", path)
