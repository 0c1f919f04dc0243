"""The job ``audit``: checks the ledgers of many stores, compares replicas, makes queues anew.

Each segment file is a task: checksums, chain, order, places, the link to the next file, and the
units that consume queues must have, light queues included. The files of the consume queues are
compared with those units, and what all replicas of a group have committed is compared byte for
byte; checksums of entries, which Java leaves empty, may be in one of them only. Exit code 0: no
defect; 1: the report names each with file and place. Nothing is changed; --rebuild writes
elsewhere.

Stores of many groups are audited in one run: GROUP=DIR says to which group those at DIR belong.
"""

import argparse
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from ledgermq.commitlog.config import DEFAULT_DELAYS_MS
from ledgermq.commitlog.layout import QUEUE_UNIT_BYTES
from ledgermq.spark.errors import OptionError, SparkSourceError
from ledgermq.spark.jobs.audit_page import audit_page
from ledgermq.spark.jobs.audit_report import print_audit
from ledgermq.spark.jobs.running import positive_number, run_job
from ledgermq.spark.jobs.store_audit import StoreAudit
from ledgermq.spark.paths import check_seen, file_size, local_path
from ledgermq.spark.queue_files import (
    MergedQueues,
    compare_queue,
    merged,
    write_key_index,
    write_queues,
)
from ledgermq.spark.segment_audit import (
    PIECE_BYTES,
    SegmentFindings,
    audit_segment,
    entry_checksums,
    piece_checksums,
)
from ledgermq.spark.segment_plan import SegmentRange, find_log, find_members, plan_segments

# A name, as brokers' names are, before a path.
_GROUP: Final = re.compile(r"([\w.%|-]+)=(.+)", re.ASCII)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "directories",
        nargs="+",
        metavar="[GROUP=]DIR",
        help="stores, or parents of some; those of one group are replicas of each other",
    )
    parser.add_argument(
        "--separate", action="store_true", help="the stores are not replicas of each other"
    )
    parser.add_argument("--rebuild", metavar="DIR", help="write consumequeue/ and index/ of each")
    parser.add_argument("--json", action="store_true", help="the report as lines of JSON")
    parser.add_argument("--html", metavar="FILE", help="write the report as a page, too")
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
    stores = _members(options.directories)
    check_seen(spark.sparkContext, "DIR", [store.directory for store in stores])
    _plan(stores)
    _walk(spark, stores, wants_keys=options.rebuild is not None)
    for store in stores:
        found = merged(store.findings)
        store.queues = found.queues
        store.defects += found.gaps
        _compare_queues(store, found)
    if not options.separate:
        for group in sorted({store.group for store in stores}):
            _compare_replicas(spark, [store for store in stores if store.group == group])
    if options.rebuild is not None:
        _rebuild(stores, options)
    print_audit(stores, as_json=options.json)
    if options.html is not None:
        page = audit_page(stores, datetime.now(UTC))
        local_path("--html", options.html).write_text(page, encoding="utf-8")
    return 1 if any(store.defects for store in stores) else 0


def _members(words: list[str]) -> list[StoreAudit]:
    stores: list[StoreAudit] = []
    for word in words:
        named = _GROUP.fullmatch(word)
        group, text = ("", word) if named is None else (named[1], named[2])
        found = find_members(text)
        if not found:
            raise OptionError("DIR", text, "stores with dledger-<id>/data")
        stores += [StoreAudit(directory=path, group=group) for path in found]
    seen: dict[Path, str] = {}
    for store in stores:
        if store.directory in seen:
            raise OptionError("DIR", str(store.directory), "each store once")
        seen[store.directory] = store.group
    return stores


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


def _compare_queues(store: StoreAudit, found: MergedQueues) -> None:
    parts = [*found.before_gaps, *found.queues.items()]
    for name, units in sorted(parts, key=lambda part: (part[0], part[1].first_offset)):
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
    differing = {
        number: frozenset(at for at in pieces[0] if pieces[number].get(at) != pieces[0][at])
        for number in range(1, len(stores))
    }
    alike = _alike_but_for_checksums(spark, stores, differing)
    for number, at in differing.items():
        if not at:
            continue
        store = stores[number]
        what = f"{store.directory} differs from {stores[0].directory} in {len(at)} pieces"
        if number in alike:
            store.notes.append(f"{what}, but not in what entries hold: only in their checksums")
            continue
        store.defects.append(f"{what}, first between position {min(at)} and the next MiB")


def _alike_but_for_checksums(
    spark: SparkSession, stores: list[StoreAudit], differing: dict[int, frozenset[int]]
) -> set[int]:
    """Returns which stores differ from the first one in the checksums of entries alone."""
    pieces = frozenset[int]().union(*differing.values())
    grid = frozenset(at - at % PIECE_BYTES for at in pieces)
    numbers = [0, *(number for number, at in differing.items() if at)]
    work = [
        (number, part)
        for number in numbers
        for part in stores[number].segments
        if any(part.position <= at < part.position + file_size(part.path) for at in pieces)
    ]
    if not pieces or not work:
        return set()

    def checksums(item: tuple[int, SegmentRange]) -> tuple[int, str, dict[int, int]]:
        number, part = item
        return number, Path(part.path).name, entry_checksums(part, grid)

    found: dict[int, dict[str, dict[int, int]]] = {number: {} for number in numbers}
    for number, name, sums in (
        spark.sparkContext.parallelize(work, len(work)).map(checksums).collect()
    ):
        found[number][name] = sums
    return {number for number in numbers[1:] if found[number] == found[0]}


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


if __name__ == "__main__":
    sys.exit(run_job(add_arguments, run))
