"""``ledgermq store convert SOURCE TARGET --to plain|ledger``: change what a stopped store's log is.
``ledgermq store accept-state STORE``: have the next start take the state's files as they are.

A store of a plain commit log (LedgerMQ's or Java's) becomes one of a ledger, and back; a mixed one
becomes either. The source is only read. TARGET appears when every record has been compared and
every message was found by its queue offset; an attempt that was stopped goes on where it was when
the command is given again. Queue offsets stay, so consumers go on where they were; physical
offsets, and with them the ids that brokers give to messages, change.

Sizes of files are those of the source unless the broker's file (-c) or a key=value says otherwise;
give the file with which the broker will run on TARGET. Each member of a group gets a copy of TARGET
in which dledger-n0 has the member's own id.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

from ledgermq.broker.config.broker_config import BrokerConfig, load_broker_config
from ledgermq.broker.storage.acceptance import Acceptance
from ledgermq.broker.storage.state_tables import STATE_FILE_NAMES
from ledgermq.cli.convert import Conversion, work_directory
from ledgermq.cli.convert_source import LEDGER, PLAIN, ConvertError, StoreSource
from ledgermq.cli.convert_target import LedgerTarget, PlainTarget, Target
from ledgermq.cli.failure import fail
from ledgermq.cli.private_files import use_private_files
from ledgermq.cli.progress import Progress
from ledgermq.commitlog import CommitLogError, StoreLock
from ledgermq.dledger.errors import LedgerError
from ledgermq.dledger.store import RealFileSystem
from ledgermq.protocol.plain_text import escaped
from ledgermq.protocol.properties_file import parse_properties_file
from ledgermq.state.errors import BrokerError

_MB: Final = 1_000_000
# Of the source; the broker's file may say otherwise.
_SIZE_KEYS: Final = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    summary = "make a ledger of a plain commit log, or the other way round"
    action = actions.add_parser("convert", help=summary, description=summary)
    action.add_argument("source", type=Path, metavar="SOURCE", help="storePathRootDir, stopped")
    action.add_argument("target", type=Path, metavar="TARGET", help="a directory to be made")
    action.add_argument("--to", required=True, choices=(PLAIN, LEDGER), help="kind of the target")
    action.add_argument("-c", "--config", type=Path, metavar="FILE", help="of the future broker")
    action.add_argument("--json", action="store_true", help="print the report as JSON")
    action.add_argument("settings", nargs="*", metavar="key=value", help="over those of the file")
    summary = "have the next start take topics, groups and offsets from the files as they are"
    action = actions.add_parser("accept-state", help=summary, description=summary)
    action.add_argument("store", type=Path, metavar="STORE", help="storePathRootDir, stopped")


def run(options: argparse.Namespace) -> int:
    """Converts a store, or accepts its state."""
    try:
        return _accept(options) if options.action == "accept-state" else _convert(options)
    except (ConvertError, BrokerError, LedgerError, CommitLogError, OSError, ValueError) as error:
        return fail(str(error))


def _accept(options: argparse.Namespace) -> int:
    root: Path = options.store.absolute()
    if not (root / "lock").is_file():
        raise ConvertError(f"cannot accept the state of {root}: no broker has run there")
    use_private_files()
    lock = StoreLock(str(root))
    was_clean = lock.take()
    try:
        acceptance = Acceptance(root / "config")
        found = acceptance.write(STATE_FILE_NAMES)
    finally:
        lock.release(is_clean=was_clean)
    for name, checksum in found.items():
        print(f"{escaped(name)}: {checksum}")
    print(
        f"the next start of a broker on {root} takes these files as they are, with all that they"
        f" lack; to take this back, remove {acceptance.path}"
    )
    return 0


def _convert(options: argparse.Namespace) -> int:
    begun_s = time.perf_counter()
    target_root: Path = options.target.absolute()
    if target_root.exists():
        raise ConvertError(f"{target_root} exists")
    source = StoreSource(options.source.absolute())
    if source.kind == options.to:
        raise ConvertError(f"{source.root} is a {source.kind} store already")
    use_private_files()
    work = work_directory(target_root)
    if source.root in (work, *work.parents):
        raise ConvertError(f"{target_root} lies in {source.root}, which stays as it is")
    config = _config(options, source, work)
    target: Target = LedgerTarget(config) if options.to == LEDGER else PlainTarget(config)
    progress = Progress("converted")
    lock = StoreLock(str(work))
    with source:
        lock.take()
        try:
            conversion = Conversion(source, target, work, progress.add_many)
            conversion.run()
        except BaseException:
            lock.release(is_clean=False)
            raise
        lock.release(is_clean=True)
    work.rename(target_root)
    RealFileSystem().sync_directory(str(target_root.parent))
    progress.clear()
    report = conversion.report
    seconds = time.perf_counter() - begun_s
    if options.json:
        document = {
            "source": str(source.root),
            "target": str(target_root),
            "from": source.kind,
            "to": options.to,
            "seconds": round(seconds, 3),
            **asdict(report),
        }
        print(json.dumps(document, indent=1))
        return 0
    for note in report.notes:
        print(f"note: {escaped(note)}")
    print(
        f"{target_root}: {report.records:,} records ({report.size_bytes / _MB:,.1f} MB) of the"
        f" {source.kind} store {source.root} are a {options.to} store now; {report.messages:,}"
        f" messages in {report.queues:,} queues were found by their queue offsets, in"
        f" {seconds:.1f} s"
    )
    return 0


def _config(options: argparse.Namespace, source: StoreSource, work: Path) -> BrokerConfig:
    sizes = (source.segment_bytes, source.queue_segment_bytes)
    entries = {
        key: str(size) for key, size in zip(_SIZE_KEYS, sizes, strict=True) if size is not None
    }
    if options.config is not None:
        entries |= parse_properties_file(options.config.read_bytes())
    for text in options.settings:
        key, separator, value = text.partition("=")
        if not separator:
            raise ConvertError(f"{text} is no key=value")
        entries[key] = value
    entries["storePathRootDir"] = str(work)
    return load_broker_config(None, entries)
