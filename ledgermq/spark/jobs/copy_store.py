"""The job ``copy-store``: the log of a store to where every worker sees it.

It runs on the broker's machine, whose disks no other machine sees, and beside the broker. What is
committed is noted first, so all that the copy's marks name is in the copy. A copy that was cut off
says so itself, and is refused by who reads it. Files are those of the log alone; consume
queues and key index are made anew from it.
"""

import argparse
import sys
from pathlib import PurePosixPath

from pyspark.sql import SparkSession

from ledgermq.dledger.store.marks import CHECKPOINT, DURABLE, START
from ledgermq.spark.errors import CorruptDataError
from ledgermq.spark.jobs.running import run_job
from ledgermq.spark.segment_files import SegmentFiles
from ledgermq.spark.segment_plan import COPY_MARK, find_log, plan_segments
from ledgermq.spark.tables.storage import Storage, store_keys

_MARKS = (START, DURABLE, CHECKPOINT, f"{CHECKPOINT}.bak")
_PIECE_BYTES = 8 * 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("store", metavar="STORE", help="a member's directory, or that of its log")
    parser.add_argument("target", metavar="TARGET", help="a directory, or s3a://BUCKET/PREFIX")


def run(spark: SparkSession, options: argparse.Namespace) -> int:
    """Copies, and checks that the copy can be planned.

    Raises:
        SparkSourceError: there is no log, a file of it went away meanwhile, or the target does not
            take it.
    """
    log = find_log(options.store)
    target = Storage("TARGET", options.target, store_keys(spark))
    there = log.files.names(log.directory) if log.is_ledger else []
    marks = {
        name: log.files.head(
            f"{log.directory}/{name}", 0, log.files.size(f"{log.directory}/{name}")
        )
        for name in _MARKS
        if name in there
    }
    folder = "data" if log.is_ledger else "commitlog"
    # The last file of a log without a ledger is still written, and nothing says up to where.
    parts = plan_segments(log, reads_open_segment=log.is_ledger)
    if set(target.names("")) & {COPY_MARK, *_MARKS, "data", "commitlog"}:
        raise CorruptDataError(target.spark_root, "there is a copy already; remove it first")
    _write(target, COPY_MARK, b"")
    for part in parts:
        _copy(log.files, part.path, target, f"{folder}/{PurePosixPath(part.path).name}")
    for name, data in marks.items():
        _write(target, name, data)
    target.files.delete_file(f"{target.directory}/{COPY_MARK}")
    copied = plan_segments(find_log(options.target, target.keys), reads_open_segment=True)
    sys.stdout.write(f"copied {len(copied)} files to {target.spark_root}\n")
    return 0


def _write(target: Storage, place: str, data: bytes) -> None:
    if target.is_local:
        target.files.create_dir(target.directory, recursive=True)
    with target.files.open_output_stream(f"{target.directory}/{place}") as stream:
        stream.write(data)


def _copy(files: SegmentFiles, path: str, target: Storage, place: str) -> None:
    whole = f"{target.directory}/{place}"
    if target.is_local:
        target.files.create_dir(whole.rpartition("/")[0], recursive=True)
    size, at = files.size(path), 0
    with files.opened(path) as data, target.files.open_output_stream(whole) as stream:
        while at < size:
            piece = data.window(at, _PIECE_BYTES)
            stream.write(piece)
            at += len(piece)


if __name__ == "__main__":
    raise SystemExit(run_job(add_arguments, run))
