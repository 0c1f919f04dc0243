"""Reads one segment file: entry by entry what is committed, every check that is there to make.

    ledger   heads in order (index, term, position), checksums of body and chain, the link to the
             first entry of the next file, and that the log reaches its committed index
    plain    the CRC of each body, and that the log goes on up to the next file
    both     that each record says its own size and place

A file is read in windows of some MiB; the run in each becomes columns at once. What does not fit
raises CorruptDataError with file and offset: no row behind it is given, and none is left out.
"""

import zlib
from collections.abc import Iterator
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
from ledgermq.spark.property_columns import Int64s
from ledgermq.spark.record_columns import RecordColumns
from ledgermq.spark.segment_files import SegmentBytes, files_of
from ledgermq.spark.segment_plan import SegmentRange
from ledgermq.spark.tables.storage import StoreKeys

_NO_KEYS: Final = StoreKeys()
# Behind the last record of a plain segment: 4 bytes left, 4 this magic.
_PLAIN_BLANK_MAGIC: Final = 0xCBD43194
_SIZE_AND_MAGIC: Final = Struct(">iI")
# Of what stands where an entry is missed.
_SHOWN_BYTES: Final = 16


def read_segment(
    wanted: SegmentRange, *, verifies: bool, keys: StoreKeys = _NO_KEYS
) -> Iterator[RecordColumns]:
    """Yields the committed records of a file, some MiB at a time.

    Args:
        wanted: the file.
        verifies: False leaves checksums aside; lengths, order and places are checked always.
        keys: of the object store, where it is in one.

    Raises:
        CorruptDataError: something in the file is not what it must be.
        ObjectStoreError: the store does not give it.
        PathNotSeenError: it is not there.
    """
    with files_of(wanted.path, keys).opened(wanted.path) as data:
        if data.size == 0:
            raise CorruptDataError(wanted.path, "the file is empty")
        if wanted.is_ledger:
            segment = _LedgerSegment(wanted, data, keys, verifies=verifies)
            for run in segment.runs():
                yield segment.records(run)
        else:
            yield from _plain_runs(wanted, data, verifies=verifies)


def read_entries(
    wanted: SegmentRange, keys: StoreKeys = _NO_KEYS
) -> Iterator[tuple[EntrySlice, RecordColumns]]:
    """Yields the committed entries of a file and their records, with every check.

    Args:
        wanted: the file.
        keys: of the object store, where it is in one.

    Raises:
        CorruptDataError: something in the file is not what it must be.
        ObjectStoreError: the store does not give it.
        PathNotSeenError: it is not there.
    """
    with files_of(wanted.path, keys).opened(wanted.path) as data:
        segment = _LedgerSegment(wanted, data, keys, verifies=True)
        for run in segment.runs():
            yield run, segment.records(run)


class _LedgerSegment:
    """One pass over a file of entries."""

    def __init__(
        self, wanted: SegmentRange, data: SegmentBytes, keys: StoreKeys, *, verifies: bool
    ) -> None:
        self._wanted = wanted
        self._data = data
        self._keys = keys
        self._verifies = verifies
        self._codec = EntryCodec(crc32c)
        self._last_id: EntryId | None = None
        self._chain_crc = 0

    def runs(self) -> Iterator[EntrySlice]:
        """Yields the committed entries."""
        offset, committed = self._wanted.start_offset, self._wanted.committed_index
        while self._last_id is None or self._last_id.index < committed:
            window = self._data.window(offset, HEAD_BYTES)
            size = self._run_bytes(window)
            if size == 0 and (least := _entry_bytes(window)) > len(window):
                window = self._data.window(offset, least)
                size = self._run_bytes(window)
            if size == 0:
                self._check_end(offset)
                return
            run = self._parse(offset, memoryview(window)[:size])
            self._last_id, self._chain_crc = run.last_id, run.last_chain_crc
            if run.last_index > committed:
                run = run.take(committed - run.first_index + 1, len(run.data))
            yield run
            offset += size

    def _run_bytes(self, window: bytes | memoryview) -> int:
        """How many bytes of whole entries a window begins with, by their sizes."""
        at, index, committed = 0, -1, self._wanted.committed_index
        while at + HEAD_BYTES <= len(window) and index < committed:
            magic, entry_bytes, index = HEAD.unpack_from(window, at)[:3]
            if magic <= 0 or not HEAD_BYTES < entry_bytes <= ENTRY_BYTES_MAX:
                break
            if at + entry_bytes > len(window):
                break
            at += entry_bytes
        return at

    def _parse(self, offset: int, data: memoryview) -> EntrySlice:
        try:
            return self._codec.parse(
                data,
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
        path = self._wanted.path
        found = bytes(self._data.window(offset, _SHOWN_BYTES)[:_SHOWN_BYTES])
        last = -1 if self._last_id is None else self._last_id.index
        is_full = len(found) < 4 or int.from_bytes(found[:4], "big", signed=True) == BLANK_MAGIC
        if self._last_id is None or not is_full:
            shown = found.hex(" ", 4)
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
        path = self._wanted.next_path
        files = files_of(path, self._keys)
        head = files.head(path, 0, HEAD_BYTES)
        if len(head) < HEAD_BYTES:
            reason = f"it is empty, or its first entry is cut: {len(head)} bytes"
            raise CorruptDataError(path, reason)
        entry_bytes = min(HEAD.unpack(head)[1], ENTRY_BYTES_MAX)
        rest = files.head(path, HEAD_BYTES, max(0, entry_bytes - HEAD_BYTES))
        position = int(path.rpartition("/")[2])
        try:
            self._codec.parse(
                head + rest,
                position=position,
                previous=self._last_id,
                previous_chain_crc=self._chain_crc,
                verify=self._verifies,
            )
        except CorruptEntryError as error:
            raise CorruptDataError(f"{path} at 0", str(error)) from error

    def records(self, run: EntrySlice) -> RecordColumns:
        """Returns the records of some entries, checked."""
        offset = run.position - self._wanted.position
        starts = np.array(run.starts, np.int64)
        ends = np.append(starts[1:], len(run.data))
        records = _columns(self._wanted, run.data, starts + HEAD_BYTES, ends, offset)
        if self._verifies and self._codec.unfilled_count:
            _check_bodies(self._wanted, records, offset)
        return records


def _entry_bytes(window: bytes | memoryview) -> int:
    """Size of the entry that a window begins with, as its head has it; 0 where there is none."""
    if len(window) < HEAD_BYTES:
        return 0
    magic, entry_bytes = HEAD.unpack_from(window)[:2]
    return entry_bytes if magic > 0 and HEAD_BYTES < entry_bytes <= ENTRY_BYTES_MAX else 0


def _plain_runs(
    wanted: SegmentRange, data: SegmentBytes, *, verifies: bool
) -> Iterator[RecordColumns]:
    """Yields the records of a log without a ledger."""
    size, offset, least, is_over = data.size, wanted.start_offset, RECORD_FIXED_BYTES, False
    while not is_over and offset < size:
        window = data.window(offset, least)
        at, starts, least = 0, list[int](), RECORD_FIXED_BYTES
        while offset + at < size:
            left = size - offset - at
            if len(window) - at < min(left, 8):
                break
            record_bytes, magic = _SIZE_AND_MAGIC.unpack_from(window, at) if left >= 8 else (0, 0)
            if magic not in (RECORD_MAGIC, RECORD_MAGIC_V2):
                is_over = True
                _check_plain_end(wanted, offset + at, record_bytes, magic)
                break
            if not RECORD_FIXED_BYTES <= record_bytes <= left:
                reason = f"a record of {record_bytes} bytes, {left} are left in the file"
                raise CorruptDataError(f"{wanted.path} at {offset + at}", reason)
            if at + record_bytes > len(window):
                # The next window begins with it.
                least = record_bytes
                break
            starts.append(at)
            at += record_bytes
        if starts:
            found = np.array(starts, np.int64)
            ends = np.append(found[1:], at)
            records = _columns(wanted, memoryview(window)[:at], found, ends, offset)
            if verifies:
                _check_bodies(wanted, records, offset)
            yield records
        offset += at


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
