"""``ledgermq log dump|verify|stat DIR...``: look into a store, LedgerMQ's or Java's, from outside.

``dump`` prints entries as JSON lines; ``verify`` checks log, index and queues, and with several
directories that the replicas are byte-identical as far as all have committed; ``stat`` prints
numbers by topic. A store may be looked at while its broker runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from ledgermq.cli.failure import fail
from ledgermq.cli.replica_compare import compare_replicas
from ledgermq.cli.store_check import StoreReport, check_store
from ledgermq.cli.store_walk import StoreDirectory, StoreWalk, find_stores
from ledgermq.protocol.errors import RemoteProtocolError
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
        stores = [store for path in options.directories for store in find_stores(path)]
        if options.action == "dump":
            return _dump(stores, options)
        return _verify(stores, options) if options.action == "verify" else _stat(stores, options)
    except OSError as error:
        return fail(str(error))


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


def _verify(stores: list[StoreDirectory], options: argparse.Namespace) -> int:
    reports = [check_store(store) for store in stores]
    start, end, differences = compare_replicas([report.extent for report in reports])
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
            print("\n".join(differences) or outcome)
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
    print(
        f"{report.directory}: entries {report.first_index}..{report.last_index} "
        f"(term {report.last_term}), committed {report.committed_index}, "
        f"{report.data_bytes} bytes, {report.queues} queues with {report.queue_units} messages, "
        f"{report.unfilled_checksums} entries without checksums"
    )
    for text in report.notes:
        print(f"  note: {text}")
    for text in report.defects:
        print(f"  DEFECT: {text}")
    if report.defect_count > len(report.defects):
        print(f"  and {report.defect_count - len(report.defects)} more defects")


def _stat(stores: list[StoreDirectory], options: argparse.Namespace) -> int:
    documents = []
    for store in stores:
        topics: dict[str, list[int]] = {}
        walk = StoreWalk(store)
        for slice_ in walk.runs():
            for body in slice_.bodies():
                try:
                    head = decode_record_head(bytes(body))
                except RemoteProtocolError:
                    continue
                counts = topics.setdefault(head.topic.decode(errors="replace"), [0, 0])
                counts[0] += 1
                counts[1] += head.size_bytes
        documents.append({"directory": str(store.ledger), "topics": topics, "defect": walk.defect})
        if not options.json:
            print(f"{store.ledger}: term {store.term()}, committed {store.checkpoint()}")
            for topic, (count, size) in sorted(topics.items()):
                print(f"  {topic:<40} {count:>12} records {size:>16} bytes")
    if options.json:
        print(json.dumps(documents, indent=1))
    return 0
