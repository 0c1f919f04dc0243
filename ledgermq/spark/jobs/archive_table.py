"""The job ``archive`` with a table of Delta Lake or Iceberg as its target.

The checkpoint lies beside the table, not in it: ``<path>_checkpoint``, or where --checkpoint says.
How a batch gets into the table exactly once is told in ledgermq/spark/tables.
"""

import argparse
import sys
import uuid
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ledgermq.spark.jobs.table_arguments import table_place
from ledgermq.spark.jobs.table_checkpoint import check_belongs, checkpoint_place
from ledgermq.spark.tables import ArchiveTable, Storage, open_table
from ledgermq.spark.tables.files import join_small, write_rows
from ledgermq.spark.tables.formats import check_properties

_MIB = 1024 * 1024
_QUERY_ID = "sql.streaming.queryId"


def run_table(spark: SparkSession, options: argparse.Namespace, frame: DataFrame) -> int:
    """Archives the rows of a stream into a table and prints what it holds now.

    Args:
        spark: runs the job.
        options: of the job.
        frame: a stream of messages.

    Raises:
        OptionError: the place or the name of a property is not allowed, or the checkpoint is not
            that of the table.
        TableCommitError: a commit failed; the job goes on when it is started again.
    """
    place = table_place(spark, options)
    storage = place.storage
    check_properties("--add-property", options.add_property)
    storage.prepare(spark.sparkContext)
    table = open_table(place, create=True)
    properties = tuple(dict.fromkeys([*table.properties(), *options.add_property]))
    check_properties("--add-property", properties)
    table.widen(properties)
    checkpoint = checkpoint_place(storage, options.checkpoint)
    check_belongs(table, checkpoint, options)
    # Times as all engines read them; Spark's own default is a form of its past.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    added = 0

    def write(rows: DataFrame, batch_id: int) -> None:
        nonlocal added
        added += _write_once(table, storage, rows, batch_id, properties)

    writer = frame.writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", checkpoint.spark_root)
    if not options.follow:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()
    joined = 0
    if options.compact_mib:
        target_bytes = options.compact_mib * _MIB
        old, new = join_small(spark, storage, table.files(), properties, target_bytes)
        if old:
            table.replace(old, new)
        joined = len(old)
    found = table.files()
    sys.stdout.write(
        f"archived {added} messages, joined {joined} files; {table.described()}, holds"
        f" {sum(file.rows for file in found)} messages in {len(found)} files of"
        f" {sum(file.size_bytes for file in found)} bytes\n"
    )
    return 0


def _write_once(
    table: ArchiveTable,
    storage: Storage,
    rows: DataFrame,
    batch_id: int,
    properties: tuple[str, ...],
) -> int:
    """Puts a batch into the table, where it is not in it already; returns how many messages."""
    context: Any = rows.sparkSession.sparkContext
    writer = context.getLocalProperty(_QUERY_ID)
    if table.holds(writer, batch_id):
        return 0
    folder = f"data/{writer}-{batch_id:020d}-{uuid.uuid4().hex[:8]}"
    files = write_rows(rows, storage, folder, properties)
    is_added = table.add(writer, batch_id, files)
    return sum(file.rows for file in files) if is_added else 0
