"""The job ``archive``: topics into Parquet files, by topic and date, each message exactly once.

Runs until all that was there at its start is archived, or with --follow until it is stopped. Its
place is kept in the checkpoint inside the archive: started again it goes on there. Read the result
with read_archive, or as Parquet files while the job does not run. With --format the files are those
of a table, which others read at any time: archive_table.py.
"""

import argparse
import re
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from ledgermq.spark.errors import OptionError
from ledgermq.spark.jobs.archive_files import (
    CHECKPOINT,
    LOCK,
    batches,
    compact,
    finish_compaction,
    write_batch,
)
from ledgermq.spark.jobs.archive_table import run_table
from ledgermq.spark.jobs.cluster_arguments import (
    add_cluster_arguments,
    add_topic_arguments,
    cluster_of,
    topic_option,
)
from ledgermq.spark.jobs.job_lock import only_job
from ledgermq.spark.jobs.running import positive_number, run_job
from ledgermq.spark.jobs.table_arguments import add_table_arguments, is_table
from ledgermq.spark.paths import check_shared, local_path, spark_path

_MIB = 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_cluster_arguments(parser)
    add_topic_arguments(parser)
    add_table_arguments(parser)
    parser.add_argument("--path", required=True, help="directory of the archive; s3a:// for tables")
    parser.add_argument("--checkpoint", help="of a table; default: beside it")
    parser.add_argument(
        "--add-property",
        action="append",
        default=[],
        metavar="NAME",
        help="of a table: a property as a column property_NAME, from now on",
    )
    parser.add_argument(
        "--from", dest="start", default="earliest", help="where a new archive begins"
    )
    parser.add_argument("--rows-per-batch", type=positive_number, default=1_000_000, metavar="N")
    parser.add_argument("--follow", action="store_true", help="go on until stopped")
    parser.add_argument(
        "--compact-mib", type=int, default=128, metavar="N", help="join small batches; 0: do not"
    )


def run(spark: SparkSession, options: argparse.Namespace) -> int:
    """Archives what there is and prints what is in the archive now.

    Raises:
        OptionError: the directory holds an archive whose checkpoint is gone, or a worker has
            another one under this path; or two arguments do not go together.
    """
    to_table = is_table(options)
    source = {**cluster_of(options).source_options(), **topic_option(options)}
    reader = spark.readStream.format("rocketmq").options(**source)
    reader = reader.options(startingOffsets=options.start, maxRowsPerTrigger=options.rows_per_batch)
    if to_table:
        return run_table(spark, options, reader.load())
    if options.checkpoint is not None:
        raise OptionError("--checkpoint", options.checkpoint, "with a table only")
    if options.add_property:
        raise OptionError("--add-property", options.add_property[0], "with a table only")
    return _run_parquet(spark, options, reader.load())


def _run_parquet(spark: SparkSession, options: argparse.Namespace, frame: DataFrame) -> int:
    path = local_path("--path", options.path)
    check_archive(path)
    check_shared(spark.sparkContext, "--path", path)
    with only_job("--path", path, path / LOCK):
        return _archive(spark, options, frame, path)


def _archive(spark: SparkSession, options: argparse.Namespace, frame: DataFrame, path: Path) -> int:
    finish_compaction(path)
    before = {batch.path for batch in batches(path)}

    def write(rows: DataFrame, batch_id: int) -> None:
        write_batch(rows, path, batch_id)

    writer = frame.writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", spark_path(path / CHECKPOINT))
    if not options.follow:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()
    added = [batch for batch in batches(path) if batch.path not in before]
    joined = compact(spark, path, options.compact_mib * _MIB) if options.compact_mib else 0
    size = sum(batch.size_bytes for batch in batches(path))
    sys.stdout.write(
        f"archived {len(added)} new batches, joined {joined}; {path} holds"
        f" {len(batches(path))} batches of {size} bytes\n"
    )
    return 0


def check_archive(path: Path) -> None:
    """Checks that an archive that is there can be gone on with.

    Raises:
        OptionError: without its checkpoint batches would begin at 0 again, and replace others.
    """
    has_batches = path.is_dir() and any(re.match(r"batch=", child.name) for child in path.iterdir())
    if has_batches and not (path / CHECKPOINT / "metadata").is_file():
        raise OptionError(
            "--path", str(path), f"a new directory, or an archive with its {CHECKPOINT}"
        )


if __name__ == "__main__":
    sys.exit(run_job(add_arguments, run))
