"""Reads one segment file: entry by entry what is committed, every check that is there to make.

    ledger   heads in order (index, term, position), checksums of body and chain, the link to the
             first entry of the next file, and that the log reaches its committed index
    plain    the CRC of each body, and that the log goes on up to the next file
    both     that each record says its own size and place

A file is mapped and read in runs of some MiB; each run becomes columns at once. What does not fit
raises CorruptDataError with file and offset: no row behind it is given, and none is left out.
"""

import contextlib
import mmap
import zlib
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final

import numpy as np

from ledgermq.dledger.entry import (
    BLANK_MAGIC,
    HEAD,
    HEAD_BYTES,
    EntryCodec,
    EntryId,
    EntrySlice,
)
from ledgermq.dledger.errors import CorruptEntryError
from ledgermq.dledger.store.outside_files import ENTRY_BYTES_MAX
from ledgermq.protocol.checksum import CRC32_MASK, crc32c
from ledgermq.protocol.record import RECORD_FIXED_BYTES, RECORD_MAGIC, RECORD_MAGIC_V2
from ledgermq.spark.errors import CorruptDataError
from ledgermq.spark.paths import file_size
from ledgermq.spark.property_columns import Int64s
from ledgermq.spark.record_columns import RecordColumns
from ledgermq.spark.segment_plan import SegmentRange

_RUN_BYTES: Final = 4 * 1024 * 1024
# Behind the last record of a plain segment: 4 bytes left, 4 this magic.
_PLAIN_BLANK_MAGIC: Final = 0xCBD43194
_SIZE_AND_MAGIC: Final = Struct(">iI")


def read_segment(wanted: SegmentRange, *, verifies: bool) -> Iterator[RecordColumns]:
    """Yields the committed records of a file, some MiB at a time.

    Args:
        wanted: the file.
        verifies: False leaves checksums aside; lengths, order and places are checked always.

    Raises:
        CorruptDataError: something in the file is not what it must be.
        PathNotSeenError: it is not there.
    """
    with _mapped(wanted.path) as data:
        if wanted.is_ledger:
            segment = _LedgerSegment(wanted, data, verifies=verifies)
            for run in segment.runs():
                yield segment.records(run)
        else:
            yield from _plain_runs(wanted, data, verifies=verifies)


def read_entries(wanted: SegmentRange) -> Iterator[tuple[EntrySlice, RecordColumns]]:
    """Yields the committed entries of a file and their records, with every check.

    Raises:
        CorruptDataError: something in the file is not what it must be.
        PathNotSeenError: it is not there.
    """
    with _mapped(wanted.path) as data:
        segment = _LedgerSegment(wanted, data, verifies=True)
        for run in segment.runs():
            yield run, segment.records(run)


@contextlib.contextmanager
def _mapped(path: str) -> Iterator[mmap.mmap]:
    size = file_size(path)
    if size == 0:
        raise CorruptDataError(path, "the file is empty")
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data,
    ):
        yield data


class _LedgerSegment:
    """One pass over a file of entries."""

    def __init__(self, wanted: SegmentRange, data: mmap.mmap, *, verifies: bool) -> None:
        self._wanted = wanted
        self._data = data
        self._verifies = verifies
        self._codec = EntryCodec(crc32c)
        self._last_id: EntryId | None = None
        self._chain_crc = 0

    def runs(self) -> Iterator[EntrySlice]:
        """Yields the committed entries."""
        offset, committed = self._wanted.start_offset, self._wanted.committed_index
        while self._last_id is None or self._last_id.index < committed:
            end = self._run_end(offset)
            if end == offset:
                self._check_end(offset)
                return
            run = self._parse(offset, end)
            self._last_id, self._chain_crc = run.last_id, run.last_chain_crc
            if run.last_index > committed:
                run = run.take(committed - run.first_index + 1, len(run.data))
            yield run
            offset = end

    def _run_end(self, offset: int) -> int:
        """Where about _RUN_BYTES of entries end, by their sizes; `offset` when there is none."""
        size, limit = len(self._data), offset + _RUN_BYTES
        index, committed = -1, self._wanted.committed_index
        while offset + HEAD_BYTES <= size and offset < limit and index < committed:
            magic, entry_bytes, index = HEAD.unpack_from(self._data, offset)[:3]
            if magic <= 0 or not HEAD_BYTES < entry_bytes <= ENTRY_BYTES_MAX:
                break
            if offset + entry_bytes > size:
                break
            offset += entry_bytes
        return offset

    def _parse(self, offset: int, end: int) -> EntrySlice:
        try:
            return self._codec.parse(
                self._data[offset:end],
                position=self._wanted.position + offset,
                previous=self._last_id,
                previous_chain_crc=self._chain_crc,
                verify=self._verifies,
            )
        except CorruptEntryError as error:
            at = error.position - self._wanted.position
            raise CorruptDataError(f"{self._wanted.path} at {at}", str(error)) from error

    def _check_end(self, offset: int) -> None:
        """Checks that the file may end here, and that the next one goes on where it does."""
        path, data = self._wanted.path, self._data
        last = -1 if self._last_id is None else self._last_id.index
        is_full = offset + 4 > len(data) or (
            int.from_bytes(data[offset : offset + 4], "big", signed=True) == BLANK_MAGIC
        )
        if self._last_id is None or not is_full:
            shown = data[offset : offset + 16].hex(" ", 4)
            raise CorruptDataError(
                f"{path} at {offset}",
                f"entry {last + 1 if self._last_id else '?'} is missing, found {shown}; committed"
                f" is {self._wanted.committed_index}",
            )
        if not self._wanted.next_path:
            raise CorruptDataError(
                path,
                f"the log ends with entry {last}, committed is {self._wanted.committed_index}: the"
                " next file is missing",
            )
        self._check_link()

    def _check_link(self) -> None:
        """Checks the first entry of the next file: it follows the last one here."""
        with open(self._wanted.next_path, "rb") as file:
            head = file.read(HEAD_BYTES)
            if len(head) < HEAD_BYTES:
                reason = f"it is empty, or its first entry is cut: {len(head)} bytes"
                raise CorruptDataError(self._wanted.next_path, reason)
            entry_bytes = min(HEAD.unpack(head)[1], ENTRY_BYTES_MAX)
            rest = file.read(max(0, entry_bytes - HEAD_BYTES))
        position = int(Path(self._wanted.next_path).name)
        try:
            self._codec.parse(
                head + rest,
                position=position,
                previous=self._last_id,
                previous_chain_crc=self._chain_crc,
                verify=self._verifies,
            )
        except CorruptEntryError as error:
            raise CorruptDataError(f"{self._wanted.next_path} at 0", str(error)) from error

    def records(self, run: EntrySlice) -> RecordColumns:
        """Returns the records of some entries, checked."""
        offset = run.position - self._wanted.position
        starts = np.array(run.starts, np.int64)
        ends = np.append(starts[1:], len(run.data))
        records = _columns(self._wanted, run.data, starts + HEAD_BYTES, ends, offset)
        if self._verifies and self._codec.unfilled_count:
            _check_bodies(self._wanted, records, offset)
        return records


def _plain_runs(
    wanted: SegmentRange, data: mmap.mmap, *, verifies: bool
) -> Iterator[RecordColumns]:
    """Yields the records of a log without a ledger."""
    size, offset, is_over = len(data), wanted.start_offset, False
    while not is_over and offset < size:
        start, starts = offset, list[int]()
        while offset < min(size, start + _RUN_BYTES):
            left = size - offset
            record_bytes, magic = _SIZE_AND_MAGIC.unpack_from(data, offset) if left >= 8 else (0, 0)
            if magic not in (RECORD_MAGIC, RECORD_MAGIC_V2):
                is_over = True
                _check_plain_end(wanted, offset, record_bytes, magic)
                break
            if not RECORD_FIXED_BYTES <= record_bytes <= left:
                reason = f"a record of {record_bytes} bytes, {left} are left in the file"
                raise CorruptDataError(f"{wanted.path} at {offset}", reason)
            starts.append(offset - start)
            offset += record_bytes
        if starts:
            at = np.array(starts, np.int64)
            ends = np.append(at[1:], offset - start)
            records = _columns(wanted, data[start:offset], at, ends, start)
            if verifies:
                _check_bodies(wanted, records, start)
            yield records


def _check_plain_end(wanted: SegmentRange, offset: int, size: int, magic: int) -> None:
    """Checks that the written part of a file may end here."""
    if magic == _PLAIN_BLANK_MAGIC:
        return
    if not wanted.next_path and size == 0 and magic == 0:
        return
    reason = f"size {size} and magic {magic:#010x} are neither a record's nor the end of the file's"
    raise CorruptDataError(f"{wanted.path} at {offset}", reason)


def _columns(
    wanted: SegmentRange, data: bytes | memoryview, starts: Int64s, ends: Int64s, offset: int
) -> RecordColumns:
    """Returns the records of a run, each of which must say its own size and place."""

    def place(at: int) -> str:
        return f"{wanted.path} at {offset + at}"

    if (starts + RECORD_FIXED_BYTES > ends).any():
        at = int(starts[int(np.argmax(starts + RECORD_FIXED_BYTES > ends))])
        raise CorruptDataError(place(at), "the entry is too short for a record")
    records = RecordColumns(data, starts, place)
    sizes_fit = records.head["size_bytes"] == ends - starts
    places_fit = records.head["physical_offset"] == wanted.position + offset + starts
    if not (sizes_fit & places_fit).all():
        i = int(np.argmin(sizes_fit & places_fit))
        raise CorruptDataError(
            place(int(starts[i])),
            f"the record says that it has {records.head['size_bytes'][i]} bytes and stands at"
            f" {records.head['physical_offset'][i]}",
        )
    return records


def _check_bodies(wanted: SegmentRange, records: RecordColumns, offset: int) -> None:
    """Compares the bodies with the CRC in their records."""
    crc32 = zlib.crc32
    data, starts, ends = records.body_bounds()
    expected = records.head["body_crc"].tolist()
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if crc32(data[start:end]) & CRC32_MASK != expected[i]:
            at = offset + int(records.starts[i])
            raise CorruptDataError(
                f"{wanted.path} at {at}", f"the body has another CRC than {expected[i]:#010x}"
            )
