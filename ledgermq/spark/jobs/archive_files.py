"""The files of an archive: batches as directories, and their compaction, safe at any crash.

    <path>/batch=00000000000000000007/topic=T/date=D/*.parquet     one micro-batch
    <path>/batch=<first>-<last>/topic=T/date=D/*.parquet           several, compacted
    <path>/_compacting/batch=<first>-<last>/                       being written, or complete
    <path>/_checkpoint/                                            of the streaming query

A batch is written by replacing its directory, so a batch that runs again after a crash leaves no
row twice. Compaction takes only batches that the checkpoint has as done. It writes beside them; the
_SUCCESS of Spark is its commit point: from then on the sources go and the result takes their place,
now or at the next start. Who reads while that happens may miss rows; read_archive does not.
"""

import re
import shutil
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DateType, StringType, StructField, StructType

from ledgermq.spark.paths import check_seen, local_path, spark_path
from ledgermq.spark.schema import COLUMN_NAMES, message_schema

CHECKPOINT: Final = "_checkpoint"
_COMPACTING: Final = "_compacting"
_BATCH: Final = re.compile(r"batch=(\d{20})(?:-(\d{20}))?")
_DONE: Final = "_SUCCESS"

ARCHIVE_SCHEMA: Final = StructType(
    [
        *message_schema(COLUMN_NAMES).fields,
        StructField("date", DateType()),
        StructField("batch", StringType()),
    ]
)


class BatchDirectory(NamedTuple):
    """A directory of one or more batches."""

    first: int
    last: int
    path: Path

    @property
    def size_bytes(self) -> int:
        """Bytes of its Parquet files."""
        return sum(file.stat().st_size for file in self.path.rglob("*.parquet"))


def batch_path(path: Path, batch_id: int) -> Path:
    """Returns the directory of one batch."""
    return path / f"batch={batch_id:020d}"


def batches(path: Path) -> list[BatchDirectory]:
    """Returns the complete batches of an archive, in order."""
    found = []
    for directory in path.iterdir() if path.is_dir() else ():
        name = _BATCH.fullmatch(directory.name)
        if name and (directory / _DONE).is_file():
            first = int(name[1])
            found.append(BatchDirectory(first, int(name[2] or first), directory))
    return sorted(found)


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """Returns all rows of an archive, with the columns of a message, date and batch.

    A compaction that was interrupted is ended first.

    Raises:
        FileNotFoundError: there is no archive.
        OptionError: the path is on another kind of file system, or a worker does not see it.
    """
    root = local_path("path", path)
    finish_compaction(root)
    found = [spark_path(batch.path) for batch in batches(root)]
    if not found:
        raise FileNotFoundError(f"{root} holds no complete batch of an archive")
    check_seen(spark.sparkContext, "path", [root])
    reader = spark.read.schema(ARCHIVE_SCHEMA).option("basePath", spark_path(root))
    return reader.parquet(*found)


def finish_compaction(path: Path) -> None:
    """Puts complete results in the place of their sources and removes what is not complete."""
    waiting = path / _COMPACTING
    for result in sorted(waiting.iterdir()) if waiting.is_dir() else ():
        name = _BATCH.fullmatch(result.name)
        if name is None or not (result / _DONE).is_file():
            shutil.rmtree(result)
            continue
        first, last = int(name[1]), int(name[2])
        for batch in batches(path):
            if first <= batch.first and batch.last <= last:
                shutil.rmtree(batch.path)
        result.rename(path / result.name)
    if waiting.is_dir():
        shutil.rmtree(waiting)


def compact(spark: SparkSession, path: Path, target_bytes: int) -> int:
    """Joins neighboring small batches until each has about the target size.

    Args:
        spark: runs the copying.
        path: of the archive; nobody else writes to it meanwhile.
        target_bytes: batches of this size and more are left alone.

    Returns:
        How many batches went into larger ones.
    """
    finish_compaction(path)
    committed = {int(file.name) for file in (path / CHECKPOINT / "commits").glob("[0-9]*")}
    done = [batch for batch in batches(path) if batch.last <= max(committed, default=-1)]
    count = 0
    for group in _groups(done, target_bytes):
        first, last = group[0].first, group[-1].last
        result = path / _COMPACTING / f"batch={first:020d}-{last:020d}"
        reader = spark.read.schema(ARCHIVE_SCHEMA).option("basePath", spark_path(path))
        frame = reader.parquet(*(spark_path(batch.path) for batch in group)).drop("batch")
        writer = frame.coalesce(1).write.mode("overwrite").partitionBy("topic", "date")
        writer.parquet(spark_path(result))
        finish_compaction(path)
        count += len(group)
    return count


def _groups(found: list[BatchDirectory], target_bytes: int) -> list[list[BatchDirectory]]:
    """Returns runs of neighbors of two and more that are worth joining."""
    groups: list[list[BatchDirectory]] = []
    group: list[BatchDirectory] = []
    size = 0
    for batch in found:
        batch_bytes = batch.size_bytes
        if group and size + batch_bytes > target_bytes:
            groups.append(group)
            group, size = [], 0
        if batch_bytes < target_bytes:
            group.append(batch)
            size += batch_bytes
    groups.append(group)
    return [group for group in groups if len(group) > 1]
