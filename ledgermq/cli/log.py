"""``ledgermq log dump|verify|stat DIR...``: look into a store, LedgerMQ's or Java's, from outside.

``dump`` prints entries as JSON lines; ``verify`` checks log, index and queues, and with several
directories that the replicas are byte-identical as far as all have committed; ``stat`` prints
numbers by topic. Plain logs and ledgers alike. A store may be looked at while its broker runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from ledgermq.cli.convert_source import ConvertError, StoreSource
from ledgermq.cli.failure import fail, failed
from ledgermq.cli.plain_check import check_plain_log, find_plain_logs
from ledgermq.cli.progress import Progress
from ledgermq.cli.replica_compare import compare_replicas
from ledgermq.cli.store_check import StoreReport, check_store
from ledgermq.cli.store_walk import StoreDirectory, StoreWalk, find_stores
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.plain_text import escaped, escaped_lines
from ledgermq.protocol.properties import decode_properties
from ledgermq.protocol.record import decode_record, decode_record_head


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, summary in (
        ("dump", "print entries as JSON lines"),
        ("verify", "check a store, or several replicas against each other"),
        ("stat", "count records and bytes by topic"),
    ):
        action = actions.add_parser(name, help=summary, description=summary)
        action.add_argument(
            "directories", nargs="+", type=Path, metavar="DIR", help="storePathRootDir of a broker"
        )
        action.add_argument("--json", action="store_true", help="print JSON; dump always does")
        if name == "dump":
            action.add_argument(
                "--from-index",
                type=int,
                default=0,
                metavar="N",
                help="default: %(default)s",
            )
            action.add_argument(
                "--count", type=int, default=sys.maxsize, metavar="N", help="print so many"
            )
            action.add_argument("--bodies", action="store_true", help="message bodies too, as text")


def run(options: argparse.Namespace) -> int:
    """Runs one of the three actions."""
    try:
        stores, plain_logs = _find(options.directories)
        if options.action == "verify":
            return _verify(stores, plain_logs, options)
        if options.action == "stat":
            return _stat(stores, plain_logs, options)
        return _dump_plain(plain_logs, options) or _dump(stores, options)
    except (OSError, ConvertError) as error:
        return failed(error)


def _find(paths: list[Path]) -> tuple[list[StoreDirectory], list[StoreSource]]:
    stores: list[StoreDirectory] = []
    plain_logs: list[StoreSource] = []
    for path in paths:
        found = find_plain_logs(path)
        plain_logs += found
        try:
            stores += find_stores(path)
        except FileNotFoundError:
            if not found:
                raise
    return stores, plain_logs


def _dump_plain(plain_logs: list[StoreSource], options: argparse.Namespace) -> int:
    for source in plain_logs:
        for place, data in source.plain_records():
            # An index of a plain log is that of a byte.
            if place < options.from_index:
                continue
            if options.count == 0:
                return 0
            options.count -= 1
            print(json.dumps({"position": place, **_describe(data, options.bodies)}))
    return 0


def _dump(stores: list[StoreDirectory], options: argparse.Namespace) -> int:
    left = options.count
    for store in stores:
        walk = StoreWalk(store)
        for slice_ in walk.runs():
            if slice_.last_index < options.from_index:
                continue
            for i, body in enumerate(slice_.bodies()):
                index = slice_.first_index + i
                if index < options.from_index:
                    continue
                if left == 0:
                    return 0
                left -= 1
                head = slice_.head_at(index)
                print(json.dumps({**head._asdict(), **_describe(bytes(body), options.bodies)}))
        if walk.defect:
            return fail(walk.defect)
    return 0


def _describe(body: bytes, with_bodies: bool) -> dict[str, object]:
    try:
        record = decode_record(body)
        properties = decode_properties(record.properties)
    except RemoteProtocolError as error:
        return {"record": None, "reason": str(error)}
    fields: dict[str, object] = {
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "physical_offset": record.physical_offset,
        "sys_flag": record.sys_flag,
        "store_timestamp": record.store_timestamp,
        "message_bytes": len(record.body),
        "properties": properties,
    }
    if with_bodies:
        fields["body"] = record.body.decode(errors="backslashreplace")
    return {"record": fields}


def _verify(
    stores: list[StoreDirectory], plain_logs: list[StoreSource], options: argparse.Namespace
) -> int:
    progress = Progress("verified", unit="entries")
    reports = [check_store(store, progress.add_many) for store in stores]
    plain = [check_plain_log(source, progress.add_many) for source in plain_logs]
    progress.clear()
    # A mixed store has one of each, in different files.
    start, end, differences = compare_replicas([r.extent for r in reports or plain])
    if reports and plain:
        differences += compare_replicas([report.extent for report in plain])[2]
    reports += plain
    is_good = not differences and not any(report.defects for report in reports)
    if options.json:
        document = {
            "good": is_good,
            "stores": [_as_dict(report) for report in reports],
            "compared": {"start_position": start, "end_position": end},
            "differences": differences,
        }
        print(json.dumps(document, indent=1))
    else:
        for report in reports:
            _print_report(report)
        if len(reports) > 1:
            outcome = "identical" if end > start else "nothing that all have committed"
            print(f"replicas compared over positions {start}..{end}: ", end="")
            print(escaped_lines("\n".join(differences) or outcome))
        print("good" if is_good else "DEFECTS FOUND")
    return 0 if is_good else fail("the store has defects")


def _as_dict(report: StoreReport) -> dict[str, object]:
    names = (
        "first_index", "last_index", "last_term", "committed_index", "committed_position",
        "entries", "data_bytes", "unfilled_checksums", "queues", "queue_units", "index_units",
        "defects", "defect_count", "notes",
    )  # fmt: skip
    return {"directory": str(report.directory), **{n: getattr(report, n) for n in names}}


def _print_report(report: StoreReport) -> None:
    if report.is_plain:
        print(
            f"{report.directory}: {report.entries} records in bytes "
            f"{report.first_position}..{report.committed_position}, "
            f"{report.queues} queues with {report.queue_units} messages"
        )
        return _print_findings(report)
    print(
        f"{report.directory}: entries {report.first_index}..{report.last_index} "
        f"(term {report.last_term}), committed {report.committed_index}, "
        f"{report.data_bytes} bytes, {report.queues} queues with {report.queue_units} messages, "
        f"{report.unfilled_checksums} entries without checksums"
    )
    _print_findings(report)


def _print_findings(report: StoreReport) -> None:
    for text in report.notes:
        print(f"  note: {escaped(text)}")
    for text in report.defects:
        print(f"  DEFECT: {escaped(text)}")
    if report.defect_count > len(report.defects):
        print(f"  and {report.defect_count - len(report.defects)} more defects")


def _stat(
    stores: list[StoreDirectory], plain_logs: list[StoreSource], options: argparse.Namespace
) -> int:
    documents = []
    for store in stores:
        walk = StoreWalk(store)
        topics = _count(bytes(body) for slice_ in walk.runs() for body in slice_.bodies())
        documents.append({"directory": str(store.ledger), "topics": topics, "defect": walk.defect})
        if not options.json:
            print(f"{store.ledger}: term {store.term()}, committed {store.checkpoint()}")
            _print_counts(topics)
    for source in plain_logs:
        topics = _count(record.data for record in source.plain_records())
        folder = str(source.root / "commitlog")
        documents.append({"directory": folder, "topics": topics, "defect": None})
        if not options.json:
            print(f"{folder}: a plain log")
            _print_counts(topics)
    if options.json:
        print(json.dumps(documents, indent=1))
    return 0


def _count(records: Iterable[bytes]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for record in records:
        try:
            head = decode_record_head(record)
        except RemoteProtocolError:
            continue
        counts = topics.setdefault(head.topic.decode(errors="replace"), [0, 0])
        counts[0] += 1
        counts[1] += head.size_bytes
    return topics


def _print_counts(topics: dict[str, list[int]]) -> None:
    for topic, (count, size) in sorted(topics.items()):
        print(f"  {escaped(topic):<40} {count:>12} records {size:>16} bytes")
