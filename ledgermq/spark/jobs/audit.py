"""The job ``audit``: checks the ledgers of many stores, compares replicas, makes queues anew.

Each segment file is a task: checksums, chain, order, places, the link to the next file, and the
units that consume queues must have. The files of the consume queues are compared with those units,
and what all replicas have committed is compared byte for byte. Exit code 0: no defect; 1: the
report names each with file and place. Nothing is changed; --rebuild writes elsewhere.
"""

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from ledgermq.commitlog.config import DEFAULT_DELAYS_MS
from ledgermq.commitlog.layout import QUEUE_UNIT_BYTES
from ledgermq.spark.errors import OptionError, SparkSourceError
from ledgermq.spark.jobs.running import positive_number, run_job
from ledgermq.spark.paths import check_seen, local_path
from ledgermq.spark.queue_files import (
    QueueName,
    compare_queue,
    merged,
    write_key_index,
    write_queues,
)
from ledgermq.spark.segment_audit import (
    QueueUnits,
    SegmentFindings,
    audit_segment,
    piece_checksums,
)
from ledgermq.spark.segment_plan import SegmentRange, find_log, find_members, plan_segments

_SHOWN_MAX: Final = 100


@dataclass(slots=True, kw_only=True)
class StoreAudit:
    """What was found in one store."""

    # The member's directory with data/.
    directory: Path
    segments: list[SegmentRange] = field(default_factory=list)
    findings: list[SegmentFindings] = field(default_factory=list)
    queues: dict[QueueName, QueueUnits] = field(default_factory=dict)
    defects: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def first_position(self) -> int:
        """Where the checked entries begin; 0 when there are none."""
        return min((f.first_position for f in self.findings if f.first_index >= 0), default=0)

    @property
    def end_position(self) -> int:
        """Behind the last checked entry; 0 when there are none."""
        return max((f.end_position for f in self.findings), default=0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("directories", nargs="+", metavar="DIR", help="stores, or parents of some")
    parser.add_argument(
        "--separate", action="store_true", help="the stores are not replicas of each other"
    )
    parser.add_argument("--rebuild", metavar="DIR", help="write consumequeue/ and index/ of each")
    parser.add_argument("--queue-file-bytes", type=positive_number, default=6_000_000, metavar="N")
    parser.add_argument("--index-slots", type=positive_number, default=5_000_000, metavar="N")
    parser.add_argument("--index-entries", type=positive_number, default=20_000_000, metavar="N")


def run(spark: SparkSession, options: argparse.Namespace) -> int:
    """Audits the stores and prints the report.

    Raises:
        OptionError: a directory holds no ledger, or a worker does not see it, or files of queues
            cannot have that size.
    """
    if options.queue_file_bytes % QUEUE_UNIT_BYTES:
        allowed = f"a multiple of {QUEUE_UNIT_BYTES}"
        raise OptionError("--queue-file-bytes", str(options.queue_file_bytes), allowed)
    stores = [StoreAudit(directory=path) for path in _members(options.directories)]
    check_seen(spark.sparkContext, "DIR", [store.directory for store in stores])
    _plan(stores)
    _walk(spark, stores, wants_keys=options.rebuild is not None)
    for store in stores:
        store.queues, gaps = merged(store.findings)
        store.defects += gaps
        _compare_queues(store)
    if not options.separate and len(stores) > 1:
        _compare_replicas(spark, stores)
    if options.rebuild is not None:
        _rebuild(stores, options)
    return _report(stores)


def _members(directories: list[str]) -> list[Path]:
    members: list[Path] = []
    for text in directories:
        found = find_members(text)
        if not found:
            raise OptionError("DIR", text, "stores with dledger-<id>/data")
        members += found
    return members


def _plan(stores: list[StoreAudit]) -> None:
    for store in stores:
        try:
            log = find_log(str(store.directory))
            store.segments = plan_segments(log, reads_open_segment=True)
        except SparkSourceError as error:
            store.defects.append(str(error))


def _walk(spark: SparkSession, stores: list[StoreAudit], *, wants_keys: bool) -> None:
    """Audits every file in a task of its own."""
    work = [(i, part) for i, store in enumerate(stores) for part in store.segments]
    if not work:
        return

    def audit(item: tuple[int, SegmentRange]) -> tuple[int, SegmentFindings]:
        return item[0], audit_segment(item[1], DEFAULT_DELAYS_MS, wants_keys=wants_keys)

    for i, found in spark.sparkContext.parallelize(work, len(work)).map(audit).collect():
        stores[i].findings.append(found)
    for store in stores:
        store.findings.sort(key=lambda found: found.path)
        for found in store.findings:
            store.defects += [found.defect] if found.defect else []
            store.defects += found.gaps


def _compare_queues(store: StoreAudit) -> None:
    for name, units in sorted(store.queues.items()):
        defect, note = compare_queue(store.directory.parent, name, units)
        store.defects += [defect] if defect else []
        store.notes += [note] if note else []


def _compare_replicas(spark: SparkSession, stores: list[StoreAudit]) -> None:
    """Compares what all have committed and could be checked, piece by piece."""
    stores = [store for store in stores if store.end_position]
    if len(stores) < 2:
        return
    start = max(store.first_position for store in stores)
    end = min(store.end_position for store in stores)
    work = [(i, part.path, start, end) for i, store in enumerate(stores) for part in store.segments]
    if start >= end or not work:
        stores[0].notes.append("the stores have no committed range in common")
        return

    def checksums(item: tuple[int, str, int, int]) -> tuple[int, dict[int, int]]:
        return item[0], piece_checksums(item[1], item[2], item[3])

    pieces: list[dict[int, int]] = [{} for _ in stores]
    for i, found in spark.sparkContext.parallelize(work, len(work)).map(checksums).collect():
        pieces[i].update(found)
    for store, own in zip(stores[1:], pieces[1:], strict=True):
        differing = sorted(at for at in pieces[0] if own.get(at) != pieces[0][at])
        if differing:
            store.defects.append(
                f"{store.directory} differs from {stores[0].directory} in {len(differing)} pieces,"
                f" first between position {differing[0]} and the next MiB"
            )


def _rebuild(stores: list[StoreAudit], options: argparse.Namespace) -> None:
    for store in stores:
        target = local_path("--rebuild", options.rebuild) / store.directory.name
        if target.exists():
            raise OptionError("--rebuild", str(target), "a directory that is not there yet")
        units = write_queues(target, store.queues, options.queue_file_bytes)
        keys = write_key_index(
            target,
            (key for found in store.findings for key in found.keys),
            options.index_slots,
            options.index_entries,
        )
        store.notes.append(f"wrote {units} units and {keys} keys to {target}")


def _report(stores: list[StoreAudit]) -> int:
    write = sys.stdout.write
    for store in stores:
        good = [found for found in store.findings if found.first_index >= 0]
        entries = sum(found.last_index - found.first_index + 1 for found in good)
        size = sum(found.byte_count for found in store.findings)
        write(
            f"{store.directory}: {entries} entries, {size} bytes in {len(store.segments)} files,"
            f" {len(store.queues)} queues, {len(store.defects)} defects\n"
        )
        for text in store.defects[:_SHOWN_MAX]:
            write(f"  defect: {text}\n")
        for text in store.notes[:_SHOWN_MAX]:
            write(f"  note: {text}\n")
    return 1 if any(store.defects for store in stores) else 0


if __name__ == "__main__":
    sys.exit(run_job(add_arguments, run))
