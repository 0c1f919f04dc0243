"""Reading a store directory from outside, LedgerMQ's or Java's: nothing is opened for writing.

A store is what lies under one member's ``dledger-<id>`` directory; the queue files stand beside it.
The walk goes over the data segments in order and yields runs of checked entries. It ends at the
first byte that is no entry; what lies behind it is for the caller to judge.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ledgermq.cli.segment_files import segment_paths
from ledgermq.dledger.entry import (
    BLANK_MAGIC,
    HEAD,
    HEAD_BYTES,
    EntryCodec,
    EntryId,
    EntrySlice,
)
from ledgermq.dledger.errors import CorruptEntryError
from ledgermq.dledger.store.errors import UnreadableError
from ledgermq.dledger.store.outside_files import ENTRY_BYTES_MAX, OutsideFile, read_small
from ledgermq.protocol.checksum import crc32c

# A run handed to the caller has about this many bytes.
RUN_BYTES: Final = 4 * 1024 * 1024
# Of an index or a term, which are of 64 bits, with a sign.
_DIGITS_MAX: Final = 20


@dataclass(slots=True, frozen=True)
class StoreDirectory:
    """Where the files of one member are."""

    # The directory that holds data/ and index/.
    ledger: Path

    @property
    def root(self) -> Path:
        """storePathRootDir: the directory of consume queues and key index."""
        return self.ledger.parent

    def segments(self, folder: str = "data") -> list[Path]:
        """Segment files of a log, in order of their start."""
        return segment_paths(self.ledger / folder)

    def checkpoint(self) -> int | None:
        """The committed index written last; None when there is no readable checkpoint."""
        return self._number("checkpoint", "committedIndex")

    def term(self) -> int | None:
        """The member's term; None when there is no readable term file."""
        return self._number("currterm", "currTerm")

    def _number(self, name: str, key: str) -> int | None:
        try:
            text = read_small(self.ledger / name).decode(errors="replace")
        except FileNotFoundError:
            return None
        found = re.search(rf"^{key}=(-?\d+)$", text, re.MULTILINE)
        return int(found[1]) if found and len(found[1]) <= _DIGITS_MAX else None


def find_stores(path: Path) -> list[StoreDirectory]:
    """Returns the stores at or below a path: a ledger directory, or one that holds some.

    Raises:
        FileNotFoundError: there is none.
    """
    if (path / "data").is_dir():
        return [StoreDirectory(path)]
    found = sorted(path.glob("dledger-*/data")) or sorted(path.glob("*/dledger-*/data"))
    if not found:
        raise FileNotFoundError(f"{path} holds no dledger-<id>/data directory")
    return [StoreDirectory(data.parent) for data in found]


class StoreWalk:
    """One pass over the entries of a store, with every checksum that is filled."""

    def __init__(self, store: StoreDirectory) -> None:
        self._store = store
        self._codec = EntryCodec(crc32c)
        self.first_id: EntryId | None = None
        self.last_id: EntryId | None = None
        # Absolute position behind the last good entry.
        self.end_position = 0
        # What ended the walk before the end of the written bytes; None when nothing did.
        self.defect: str | None = None
        # File and offset where the walk ended, and the bytes there.
        self.end_place = "there are no data files"
        self._chain_crc = 0

    @property
    def unfilled_count(self) -> int:
        """Entries without checksums (a Java leader wrote them)."""
        return self._codec.unfilled_count

    def runs(self) -> Iterator[EntrySlice]:
        """Yields runs of consecutive good entries, each within one segment."""
        expected: int | None = None
        for path in self._store.segments():
            start, size = int(path.name), path.stat().st_size
            if expected is not None and start != expected:
                self.defect = f"{path} follows where {expected:020d} is missing"
                return
            if size == 0:
                self.end_place = f"{path} is empty"
                return
            expected = start + size
            is_full = yield from self._segment_runs(path, start, size)
            if not is_full:
                return
            self.end_place = f"{path.with_name(f'{expected:020d}')} is missing"

    def _segment_runs(self, path: Path, start: int, size: int) -> Generator[EntrySlice, None, bool]:
        """Yields the runs of one segment; returns whether the log goes on in the next one."""
        with OutsideFile(path) as data:
            try:
                return (yield from self._runs_of(path, data, start))
            except UnreadableError as error:
                self.defect = self.end_place = str(error)
                return False

    def _runs_of(
        self, path: Path, data: OutsideFile, start: int
    ) -> Generator[EntrySlice, None, bool]:
        size = len(data)
        offset = self._skip_unused_front(data, size)
        is_last = False
        while not is_last:
            end, is_last = _run_end(data, offset, size)
            if end == offset:
                break
            content = _read_entries(data, offset, end)
            is_last = is_last and len(content) == end - offset
            run = self._parse(path, content, start + offset)
            if run is not None:
                self.first_id = self.first_id or run.entry_id(0)
                self.last_id, self._chain_crc = run.last_id, run.last_chain_crc
                self.end_position = run.end_position
                yield run
            if self.defect is not None:
                offset = self.end_position - start if run is not None else offset
                self.end_place = _shown_end(path, data, offset)
                return False
            offset += len(content)
        self.end_place = _shown_end(path, data, offset)
        if offset + 4 > size:
            return True
        return int.from_bytes(data[offset : offset + 4], "big", signed=True) == BLANK_MAGIC

    def _parse(self, path: Path, data: bytes, position: int) -> EntrySlice | None:
        """Returns the good entries that the bytes begin with; notes the first one that is not."""
        unfilled_count = self._codec.unfilled_count
        try:
            return self._parse_good(data, position)
        except CorruptEntryError as error:
            self.defect = f"{path}: {error}"
            self._codec.unfilled_count = unfilled_count
            good = data[: error.position - position]
            return self._parse_good(good, position) if good else None

    def _parse_good(self, data: bytes, position: int) -> EntrySlice:
        return self._codec.parse(
            data,
            position=position,
            previous=self.last_id,
            previous_chain_crc=self._chain_crc,
        )

    def _skip_unused_front(self, data: OutsideFile, size: int) -> int:
        """A store that was reset may begin inside its first file: zeros stand before the start."""
        if self.last_id is not None or data[:HEAD_BYTES] != bytes(HEAD_BYTES):
            return 0
        found = re.search(rb"[^\0]", data[: min(size, RUN_BYTES)])
        # The magic number 1 ends in the first byte that is not zero.
        return found.start() - 3 if found else 0


def _shown_end(path: Path, data: OutsideFile, offset: int) -> str:
    head = data[offset : offset + HEAD_BYTES]
    if head.strip(b"\0"):
        return f"{path} at {offset} holds no good entry but {head[:16].hex(' ', 4)}..."
    return f"{path} at {offset} holds nothing"


def _run_end(data: OutsideFile, begin: int, size: int) -> tuple[int, bool]:
    """Returns where about RUN_BYTES of entries from `begin` end, and whether nothing follows.

    Raises:
        UnreadableError: the disk does not give the head of the first one.
    """
    offset, limit = begin, begin + RUN_BYTES
    try:
        while offset + HEAD_BYTES <= size:
            magic, entry_bytes = HEAD.unpack(data[offset : offset + HEAD_BYTES])[:2]
            if magic <= 0 or not HEAD_BYTES < entry_bytes <= ENTRY_BYTES_MAX:
                return offset, True
            if offset + entry_bytes > size:
                return offset, True
            offset += entry_bytes
            if offset >= limit:
                return offset, False
    except UnreadableError:
        if offset == begin:
            raise
        return offset, False
    return offset, True


def _read_entries(data: OutsideFile, begin: int, end: int) -> bytes:
    """Returns the bytes of some entries, up to the first that cannot be read.

    Raises:
        UnreadableError: it is the first of all.
    """
    try:
        return data[begin:end]
    except UnreadableError:
        offset = begin
        while True:
            entry_bytes = HEAD.unpack(data[offset : offset + HEAD_BYTES])[1]
            try:
                assert len(data[offset : offset + entry_bytes]) == entry_bytes
            except UnreadableError:
                if offset == begin:
                    raise
                return data[begin:offset]
            offset += entry_bytes
