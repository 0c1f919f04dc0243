"""The job ``copy-store``: the log of a store to where every worker sees it.

It runs on the broker's machine, whose disks no other machine sees, and beside the broker. What is
committed is noted first, so all that the copy's marks name is in the copy. A copy that was cut off
says so itself, and is refused by who reads it. Files are those of the log alone; consume
queues and key index are made anew from it.

Started again, the job brings the copy up to date, or finishes one that was cut off. Files are
written in their order, so each but the last in the copy was whole and committed when the next one
was begun, and changes no more: it is left as it is when its size, beginning and end are those of
the store's. Where they are not, it is the copy of another log, which is refused. The last one is
written anew, with all that follow. What the store's retention has removed stays in the copy.
"""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath

from pyspark.sql import SparkSession

from ledgermq.dledger.entry import HEAD_BYTES
from ledgermq.dledger.store.marks import CHECKPOINT, DURABLE, START
from ledgermq.spark.errors import CorruptDataError
from ledgermq.spark.jobs.running import run_job
from ledgermq.spark.segment_files import SegmentFiles, files_of
from ledgermq.spark.segment_plan import COPY_MARK, SegmentRange, find_log, plan_segments
from ledgermq.spark.tables.storage import Storage, store_keys

_MARKS = (START, DURABLE, CHECKPOINT, f"{CHECKPOINT}.bak")
_PIECE_BYTES = 8 * 1024 * 1024
# Of the beginning and of the end of a file, by which it is known again.
_LOOK_BYTES = 64 * 1024
# Of files; an object store takes its time for each.
_LOOKS_AT_ONCE = 16


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
    copied = _copied(target, folder)
    kept = _kept(log.files, parts, files_of(target.spark_root, target.keys), copied)
    _write(target, COPY_MARK, b"")
    for part in parts:
        if PurePosixPath(part.path).name not in kept:
            _copy(log.files, part.path, target, f"{folder}/{PurePosixPath(part.path).name}")
    for name, data in marks.items():
        _write(target, name, data)
    target.files.delete_file(f"{target.directory}/{COPY_MARK}")
    plan_segments(find_log(options.target, target.keys), reads_open_segment=True)
    count = len(parts) - len(kept)
    more = f"; {len(kept)} were there already" if copied else ""
    sys.stdout.write(f"copied {count} files to {target.spark_root}{more}\n")
    return 0


def _copied(target: Storage, folder: str) -> list[str]:
    """Returns the paths of the files that a copy has, in order.

    Raises:
        CorruptDataError: there is something else.
    """
    other = {"data": "commitlog", "commitlog": "data"}[folder]
    if target.names(other):
        reason = f"a copy with {other}/ is there, and the store has {folder}/; remove it first"
        raise CorruptDataError(target.spark_root, reason)
    root = target.spark_root if not target.is_local else target.directory
    return [f"{root}/{folder}/{name}" for name in sorted(target.names(folder))]


def _kept(
    files: SegmentFiles, parts: Sequence[SegmentRange], target: SegmentFiles, copied: list[str]
) -> set[str]:
    """Returns the names of the files that need not be copied again.

    Raises:
        CorruptDataError: the copy is one of another log.
    """
    if not copied:
        return set()
    by_name = {PurePosixPath(part.path).name: part for part in parts}
    last = copied[-1]
    if PurePosixPath(last).name not in by_name:
        reason = (
            f"the copy ends with it, and the store has {min(by_name)} to {max(by_name)}; remove the"
            " copy first"
        )
        raise CorruptDataError(last, reason)
    # What the store has no more is left alone.
    both = [path for path in copied if PurePosixPath(path).name in by_name]

    def check(path: str) -> None:
        part = by_name[PurePosixPath(path).name]
        if not _is_alike(files, part, target, path, is_last=path == last):
            reason = f"it is not a copy of {part.path}; remove the copy first"
            raise CorruptDataError(path, reason)

    with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
        for _ in pool.map(check, both):
            pass
    return {PurePosixPath(path).name for path in both if path != last}


def _is_alike(
    files: SegmentFiles, part: SegmentRange, target: SegmentFiles, path: str, *, is_last: bool
) -> bool:
    """Tells whether a file may be a copy of one of the log; the last one may be cut short, or have
    been written on since.
    """
    size = target.size(path)
    if is_last:
        first = target.head(path, part.start_offset, HEAD_BYTES)
        return files.head(part.path, part.start_offset, len(first)) == first
    if size != files.size(part.path):
        return False
    return all(
        target.head(path, at, _LOOK_BYTES) == files.head(part.path, at, _LOOK_BYTES)
        for at in (part.start_offset, max(part.start_offset, size - _LOOK_BYTES))
    )


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
