"""The records of a stopped store, plain, on a ledger, or mixed: read from outside, in log order.

Nothing in the source is opened for writing. Every record is decoded, its CRC and its own word about
its place are compared; an end that a kill tore off is told, anything else that is wrong ends the
reading with an error.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Self

from ledgermq.cli.segment_files import segment_paths
from ledgermq.cli.store_walk import StoreDirectory, StoreWalk
from ledgermq.commitlog.plain_records import Walk, walk_records
from ledgermq.dledger.entry import HEAD_BYTES
from ledgermq.dledger.store.errors import UnreadableError
from ledgermq.dledger.store.outside_files import OutsideFile, regular_size
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.record import RECORD_MAGIC, body_is_intact, decode_record

PLAIN: Final = "plain"
LEDGER: Final = "ledger"
MIXED: Final = "mixed"

QUEUE_UNIT_BYTES: Final = 20
_READ_BYTES: Final = 1 << 20
# Of a plain log, read at once.
_BLOCK_BYTES: Final = 4 << 20
_MAGIC: Final = RECORD_MAGIC.to_bytes(4, "big")


class ConvertError(Exception):
    """A store cannot be converted; the text says why, and the source is as it was."""


class SourceRecord(NamedTuple):
    """One record, and where it stands."""

    physical_offset: int
    data: bytes


class StoreSource:
    """One store that no broker uses: it is locked against one as long as this is open."""

    def __init__(self, root: Path) -> None:
        """Finds out what is there.

        Raises:
            ConvertError: there is no store, or more than one.
        """
        self.root = root
        self.plain_files = segment_paths(root / "commitlog")
        ledgers = [path.parent for path in sorted(root.glob("dledger-*/data"))]
        ledgers = [path for path in ledgers if segment_paths(path / "data")]
        if len(ledgers) > 1:
            raise ConvertError(f"{root} holds the ledgers of several members")
        self.ledger = StoreDirectory(ledgers[0]) if ledgers else None
        if not self.plain_files and self.ledger is None:
            raise ConvertError(f"{root} holds neither commitlog/ nor dledger-<id>/data/ with files")
        # What a person wants to know about this reading; filled by `records`.
        self.notes: list[str] = []
        self._lock = -1

    @property
    def kind(self) -> str:
        """PLAIN, LEDGER, or MIXED."""
        if self.ledger is None:
            return PLAIN
        return MIXED if self.plain_files else LEDGER

    @property
    def segment_bytes(self) -> int:
        """Size of a file of the log."""
        files = self.plain_files or (self.ledger.segments() if self.ledger is not None else [])
        return files[0].stat().st_size

    @property
    def queue_segment_bytes(self) -> int | None:
        """Size of a consume queue file, None when there is none."""
        found = next(queue_files(self.root), None)
        return regular_size(found) if found is not None else None

    def __enter__(self) -> Self:
        """Locks the store, without a change to it.

        Raises:
            ConvertError: a broker runs on it, or did not stop cleanly.
        """
        try:
            # A pipe is no reason to wait.
            self._lock = os.open(self.root / "lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            fcntl.lockf(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 0)
        except FileNotFoundError:
            self._lock = -1
        except OSError as error:
            self._unlock()
            raise ConvertError(f"a broker runs on {self.root}: stop it first") from error
        if (self.root / "abort").exists():
            self._unlock()
            raise ConvertError(
                f"the broker on {self.root} did not stop cleanly: start it and stop it once, so"
                " that its topics and offsets are as new as its log"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def queue_ends(self) -> dict[tuple[str, int], int]:
        """Returns the offset behind the last unit of each queue, as its last file says."""
        ends: dict[tuple[str, int], int] = {}
        for path in queue_files(self.root):
            # A unit has a size other than zero, so what ends in zeros may be one, or nothing.
            count = -(-_written_bytes(path) // QUEUE_UNIT_BYTES)
            key = (path.parts[-3], int(path.parts[-2]))
            end = int(path.name) // QUEUE_UNIT_BYTES + count
            ends[key] = max(ends.get(key, 0), end)
        return ends

    def records(self) -> Iterator[SourceRecord]:
        """Yields all records, checked, oldest first.

        Raises:
            ConvertError: one is damaged.
        """
        self.notes.clear()
        if self.plain_files:
            yield from self.plain_records()
        if self.ledger is not None:
            yield from self._ledger_records(self.ledger)

    def plain_records(self) -> Iterator[SourceRecord]:
        """Yields the records of the plain log alone: see `records`."""
        expected: int | None = None
        for number, path in enumerate(self.plain_files):
            start, size = int(path.name), path.stat().st_size
            if size == 0 and path == self.plain_files[-1]:
                return
            if size != self.segment_bytes or (expected is not None and start != expected):
                raise ConvertError(
                    f"{path}: {size} bytes from {start}, expected {self.segment_bytes} from"
                    f" {expected}"
                )
            expected = start + size
            with OutsideFile(path) as data:
                try:
                    walk = yield from _records_of(data, start)
                    if walk.blank_end is None:
                        self._judge_end(path, walk.end, walk.stopped_because, data, number)
                        return
                except UnreadableError as error:
                    raise ConvertError(str(error)) from error

    def _judge_end(self, path: Path, end: int, reason: str, data: OutsideFile, number: int) -> None:
        """The log ends without a blank: that must be its end."""
        at = end - int(path.name)
        place = data.find(_MAGIC, at + 5)
        while place >= 0:
            claimed = data[place + 24 : place + 32]
            if claimed == (int(path.name) + place - 4).to_bytes(8, "big"):
                raise ConvertError(
                    f"{path}: no good record at {at} ({reason}), but one at {place - 4}"
                )
            place = data.find(_MAGIC, place + 1)
        for later in self.plain_files[number + 1 :]:
            with open(later, "rb") as file:
                if file.read(4096).strip(b"\0"):
                    raise ConvertError(
                        f"{path}: no good record at {at} ({reason}); {later} goes on"
                    )
        if self.ledger is not None:
            raise ConvertError(f"{path}: the plain part of a mixed store has no blank at {at}")
        if reason:
            self.notes.append(f"{path}: left out what a kill tore off at {at}: {reason}")

    def _ledger_records(self, ledger: StoreDirectory) -> Iterator[SourceRecord]:
        walk = StoreWalk(ledger)
        for run in walk.runs():
            for start, body in zip(run.starts, run.bodies(), strict=True):
                place = run.position + start + HEAD_BYTES
                data = bytes(body)
                reason = _what_is_wrong(data, place)
                if reason:
                    raise ConvertError(f"{ledger.ledger}: the record at {place}: {reason}")
                yield SourceRecord(place, data)
        last = walk.last_id.index if walk.last_id is not None else -1
        committed = ledger.checkpoint()
        if committed is not None and committed > last:
            raise ConvertError(
                f"{ledger.ledger}: entries up to {committed} are committed, the log ends at {last}:"
                f" {walk.defect or walk.end_place}"
            )
        if walk.defect is not None:
            self.notes.append(f"left out what is behind the last good entry: {walk.defect}")


def queue_files(root: Path) -> Iterator[Path]:
    """Yields the consume queue files of a store."""
    return (root / "consumequeue").glob("*/*/" + "[0-9]" * 20)


def _written_bytes(path: Path) -> int:
    """Returns where the last byte of a file stands that is not zero, plus one."""
    end = regular_size(path)
    with open(path, "rb") as file:
        while end > 0:
            start = max(0, end - _READ_BYTES)
            file.seek(start)
            written = file.read(end - start).rstrip(b"\0")
            if written:
                return start + len(written)
            end = start
    return 0


def _records_of(data: OutsideFile, start: int) -> Generator[SourceRecord, None, Walk]:
    """Yields the records of one file, read block by block; returns how the last block ended."""
    size, offset, block_bytes = len(data), 0, _BLOCK_BYTES
    while True:
        block = data[offset : offset + block_bytes]
        begin = start + offset
        walk = walk_records(block, begin, size, verify=True)
        for at, stop in zip(walk.starts, walk.stops, strict=True):
            yield SourceRecord(at, block[at - begin : stop - begin])
        is_end = offset + len(block) >= size
        if walk.blank_end is not None or is_end or not walk.needs_more:
            return walk
        # What stands there is longer than what was read of it.
        block_bytes = _BLOCK_BYTES if walk.starts else 2 * len(block)
        offset = walk.end - start


def _what_is_wrong(data: bytes, place: int) -> str:
    try:
        record = decode_record(data)
    except RemoteProtocolError as error:
        return str(error)
    if record.size_bytes != len(data):
        return f"its fields take {record.size_bytes} bytes of {len(data)}"
    if record.physical_offset != place:
        return f"it says that it stands at {record.physical_offset}"
    return "" if body_is_intact(record) else "its body has another CRC"
