"""The job ``audit``: checks the ledgers of many stores, compares replicas, makes queues anew.

Each segment file is a task: checksums, chain, order, places, the link to the next file, and the
units that consume queues must have, light queues included, against the files of these queues. What
all replicas of a group have committed is compared byte for byte; checksums of entries, which Java
leaves empty, may be in one of them only. The driver gets what was found and where queues begin and
end in each file, so its share does not grow with the messages. Exit code 0: no defect; 1: the
report names each with file and place. Nothing is changed; --rebuild writes elsewhere.

Stores of many groups are audited in one run: GROUP=DIR says to which group those at DIR belong.
Copies of logs in an object store are audited like them, but for the queues, which are not copied.
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
from ledgermq.spark.jobs.audit_replicas import compare_replicas
from ledgermq.spark.jobs.audit_report import print_audit
from ledgermq.spark.jobs.running import positive_number, run_job
from ledgermq.spark.jobs.store_audit import StoreAudit
from ledgermq.spark.paths import check_seen, local_path
from ledgermq.spark.queue_compare import compare_units, drop_units, judge_queue
from ledgermq.spark.queue_files import merged, without_units, write_key_index, write_queues
from ledgermq.spark.segment_audit import QueueName, QueueUnits, SegmentFindings, audit_segment
from ledgermq.spark.segment_files import is_in_store
from ledgermq.spark.segment_plan import SegmentRange, find_log, find_members, plan_segments
from ledgermq.spark.tables.storage import StoreKeys, store_keys

# A name, as brokers' names are, before a path.
_GROUP: Final = re.compile(r"([\w.%|-]+)=(.+)", re.ASCII)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "directories",
        nargs="+",
        metavar="[GROUP=]DIR",
        help="stores, or parents of some, also in s3a://BUCKET; those of one group are replicas",
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
    keys = StoreKeys()
    if any(is_in_store(text) for _, text in map(_named, options.directories)):
        keys = store_keys(spark)
    stores = _members(options.directories, keys)
    # A worker that does not see the queues of a store would take them for missing.
    queues = [root / "consumequeue" for store in stores if (root := store.root) is not None]
    seen = [Path(store.directory) for store in stores if store.root is not None]
    check_seen(spark.sparkContext, "DIR", seen + [path for path in queues if path.exists()])
    _plan(stores, keys)
    _walk(spark, stores, keys, is_rebuild=options.rebuild is not None)
    _judge_queues(spark, stores)
    if not options.separate:
        names = sorted({store.group for store in stores})
        groups = [[store for store in stores if store.group == name] for name in names]
        compare_replicas(spark, groups, keys)
    if options.rebuild is not None:
        _rebuild(stores, options)
    print_audit(stores, as_json=options.json)
    if options.html is not None:
        page = audit_page(stores, datetime.now(UTC))
        local_path("--html", options.html).write_text(page, encoding="utf-8")
    return 1 if any(store.defects for store in stores) else 0


def _named(word: str) -> tuple[str, str]:
    """Returns the group of a store, "" where none is told, and its path."""
    named = _GROUP.fullmatch(word)
    return ("", word) if named is None else (named[1], named[2])


def _members(words: list[str], keys: StoreKeys) -> list[StoreAudit]:
    stores: list[StoreAudit] = []
    for group, text in map(_named, words):
        found = find_members(text, keys)
        if not found:
            raise OptionError("DIR", text, "stores with dledger-<id>/data, or copies with data")
        stores += [StoreAudit(directory=path, group=group) for path in found]
    seen: set[str] = set()
    for store in stores:
        if store.directory in seen:
            raise OptionError("DIR", store.directory, "each store once")
        seen.add(store.directory)
    return stores


def _plan(stores: list[StoreAudit], keys: StoreKeys) -> None:
    for store in stores:
        try:
            log = find_log(store.directory, keys)
            store.segments = plan_segments(log, reads_open_segment=True)
        except SparkSourceError as error:
            store.defects.append(str(error))


def _walk(
    spark: SparkSession, stores: list[StoreAudit], keys: StoreKeys, *, is_rebuild: bool
) -> None:
    """Audits every file in a task of its own, and the part that each queue has in it.

    Units of queues and keys come back only where they are written anew.
    """
    work = [(i, part) for i, store in enumerate(stores) for part in store.segments]
    if not work:
        return
    roots = [store.root for store in stores]

    def audit(item: tuple[int, SegmentRange]) -> tuple[int, SegmentFindings]:
        found = audit_segment(item[1], DEFAULT_DELAYS_MS, wants_keys=is_rebuild, store_keys=keys)
        root = roots[item[0]]
        if root is not None:
            compare_units(root, found, keeps_units=is_rebuild)
        elif not is_rebuild:
            drop_units(found)
        return item[0], found

    for i, found in spark.sparkContext.parallelize(work, len(work)).map(audit).collect():
        stores[i].findings.append(found)
    for store in stores:
        if store.root is None:
            store.notes.append("a copy of the log alone: there are no queues to compare")
        store.findings.sort(key=lambda found: found.path)
        for found in store.findings:
            store.defects += [found.defect] if found.defect else []
            store.defects += found.gaps


def _judge_queues(spark: SparkSession, stores: list[StoreAudit]) -> None:
    """Puts the parts of the queues together; those that are not all alike get another look."""
    work: list[tuple[int, Path, QueueName, QueueUnits]] = []
    for i, store in enumerate(stores):
        found = merged(store.findings)
        store.queues = found.queues
        store.defects += found.gaps
        parts = [*found.before_gaps, *found.queues.items()]
        for name, log in sorted(parts, key=lambda part: (part[0], part[1].first_offset)):
            if log.unlike and store.root is not None:
                work.append((i, store.root, name, without_units(log)))
    if not work:
        return

    def judge(item: tuple[int, Path, QueueName, QueueUnits]) -> tuple[int, str, str]:
        return item[0], *judge_queue(*item[1:])

    for i, defect, note in spark.sparkContext.parallelize(work, len(work)).map(judge).collect():
        stores[i].defects += [defect] if defect else []
        stores[i].notes += [note] if note else []


def _rebuild(stores: list[StoreAudit], options: argparse.Namespace) -> None:
    for store in stores:
        target = local_path("--rebuild", options.rebuild) / store.name
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
