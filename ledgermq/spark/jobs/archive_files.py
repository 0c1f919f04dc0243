"""The files of an archive: batches as directories, and their compaction, safe at any crash.

    <path>/batch=00000000000000000007/topic=T/date=D/*.parquet     one micro-batch
    <path>/batch=<first>-<last>/topic=T/date=D/*.parquet           several, compacted
    <path>/_writing/<uuid>/                                        being written
    <path>/_checkpoint/                                            of the streaming query
    <path>/_lock                                                   of the job that writes

A batch is written into a directory that no other try knows: tasks may outlive their driver, and
what they still write must not get into the batch of the next one. It comes into its place by one
rename; a batch that runs again finds it there, and leaves it.

Compaction takes only batches that the checkpoint has as done. Its result comes into its place by a
rename, too, which is its commit: what a complete directory holds counts no more in those that it
covers, and they are removed, now or at the next start. Who looks at all directories while that
happens sees rows twice; read_archive does not, and changes nothing.

Versions before put results into <path>/_compacting, whence they are taken still.
"""

import re
import shutil
import uuid
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, to_date
from pyspark.sql.types import DateType, StringType, StructField, StructType

from ledgermq.spark.jobs.job_lock import only_job
from ledgermq.spark.paths import check_seen, literal, local_path, spark_path
from ledgermq.spark.schema import COLUMN_NAMES, message_schema

CHECKPOINT: Final = "_checkpoint"
LOCK: Final = "_lock"
_WRITING: Final = "_writing"
# Of versions before.
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
    """Returns the complete batches of an archive that count, in order."""
    found = _complete(path)
    # It is renamed while others are removed: a list that was begun before may have neither.
    while found != (again := _complete(path)):
        found = again
    return [batch for batch in found if not _is_covered(batch, found)]


def _complete(path: Path) -> list[BatchDirectory]:
    return [batch for batch in _named(path) if (batch.path / _DONE).is_file()]


def _named(path: Path) -> list[BatchDirectory]:
    """Returns the directories that are called as batches are, also those that are cut off."""
    found = []
    for directory in path.iterdir() if path.is_dir() else ():
        name = _BATCH.fullmatch(directory.name)
        if name:
            first = int(name[1])
            found.append(BatchDirectory(first, int(name[2] or first), directory))
    return sorted(found)


def _is_covered(batch: BatchDirectory, found: list[BatchDirectory]) -> bool:
    """Tells whether another directory holds the rows of one, and more."""
    return any(
        other != batch and other.first <= batch.first and batch.last <= other.last
        for other in found
    )


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """Returns all rows of an archive, with the columns of a message, date and batch.

    A job may archive meanwhile. When it joins batches that are being read, the read fails.

    Raises:
        FileNotFoundError: there is no archive.
        OptionError: the path is on another kind of file system, or a worker does not see it.
    """
    root = local_path("path", path)
    if any((root / _COMPACTING).glob(f"*/{_DONE}")):
        with only_job("path", root, root / LOCK):
            finish_compaction(root)
    found = [literal(spark_path(batch.path)) for batch in batches(root)]
    if not found:
        raise FileNotFoundError(f"{root} holds no complete batch of an archive")
    check_seen(spark.sparkContext, "path", [root])
    reader = spark.read.schema(ARCHIVE_SCHEMA).option("basePath", spark_path(root))
    return reader.parquet(*found)


def write_batch(rows: DataFrame, path: Path, batch_id: int) -> None:
    """Writes the messages of a micro-batch, unless a try before has done so.

    Args:
        rows: columns of a message.
        path: of the archive; nobody else writes to it meanwhile.
        batch_id: by which the checkpoint knows them.
    """
    place = batch_path(path, batch_id)
    if not (place / _DONE).is_file():
        _write(rows.withColumn("date", to_date(col("storeTimestamp"))), path, place)


def _write(dated: DataFrame, path: Path, place: Path) -> None:
    """Writes rows into a directory of their own, which then comes into its place."""
    written = path / _WRITING / uuid.uuid4().hex
    dated.write.mode("error").partitionBy("topic", "date").parquet(spark_path(written))
    if place.exists():
        # It was cut off.
        shutil.rmtree(place)
    written.rename(place)


def finish_compaction(path: Path) -> None:
    """Removes what is cut off, and batches whose rows are in larger ones."""
    before = path / _COMPACTING
    for result in sorted(before.glob(f"*/{_DONE}")):
        shutil.rmtree(path / result.parent.name, ignore_errors=True)
        result.parent.rename(path / result.parent.name)
    found = _complete(path)
    for batch in _named(path):
        if _is_covered(batch, found):
            # From now on it is cut off, wherever this ends.
            (batch.path / _DONE).unlink(missing_ok=True)
            shutil.rmtree(batch.path)
    for folder in (before, path / _WRITING):
        # Tasks that outlived their driver may write there still.
        shutil.rmtree(folder, ignore_errors=True)


def compact(spark: SparkSession, path: Path, target_bytes: int) -> int:
    """Joins neighboring small batches until each has about the target size.

    Args:
        spark: runs the copying.
        path: of the archive; nobody else writes to it meanwhile.
        target_bytes: batches of this size and more are left alone.

    Returns:
        How many batches went into larger ones.
    """
    committed = {int(file.name) for file in (path / CHECKPOINT / "commits").glob("[0-9]*")}
    done = [batch for batch in batches(path) if batch.last <= max(committed, default=-1)]
    count = 0
    for group in _groups(done, target_bytes):
        first, last = group[0].first, group[-1].last
        reader = spark.read.schema(ARCHIVE_SCHEMA).option("basePath", spark_path(path))
        places = [literal(spark_path(batch.path)) for batch in group]
        frame = reader.parquet(*places).drop("batch")
        _write(frame.coalesce(1), path, path / f"batch={first:020d}-{last:020d}")
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
