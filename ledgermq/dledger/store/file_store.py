"""DLedgerMmapFileStore: the ledger of one member in files as upstream lays them out.

    dledger-n0/data/<20 digits>     entries back to back; a blank closes each full segment
    dledger-n0/index/<20 digits>    the 32-byte unit of entry i at byte i * 32
    dledger-n0/checkpoint, start, durable   see marks.py
    dledger-n0/torn-<20 digits>     what a recovery cut off, named by its position

An append is one write of the data and one of the index; no file is mapped. All checks, and all
files that might not fit on the disk, come before the first byte. Commit points: of an append,
the sync; of a truncation, the zeroed head; of a drop or reset, the mark `start`.

The reactor appends and reads. What waits for the disk is begun here and run by the keeper
(`disk_job.py`): `begin_room` before an append that needs a new file, `begin_ahead` so that few do,
`begin_sync`, `begin_truncate`, `begin_reset`, `begin_drop`. Each has a twin that does it at once,
for openings, tools and tests. A failed run is final: nobody knows then what is on disk, and every
later append or job is refused.
"""

import os
from collections.abc import Callable, Sequence

from ledgermq.dledger.disk_job import DiskJob, do_now, joined
from ledgermq.dledger.entry import (
    BLANK,
    BLANK_BYTES_MIN,
    BLANK_MAGIC,
    ENTRY_MAGIC,
    HEAD_BYTES,
    INDEX_UNIT_BYTES,
    EntryCodec,
    EntryHead,
    EntryId,
    EntrySlice,
    read_head,
)
from ledgermq.dledger.errors import CompactedError, CorruptEntryError, OutOfRangeError
from ledgermq.dledger.store.ahead import Ahead
from ledgermq.dledger.store.claims import Claims
from ledgermq.dledger.store.continuity import check_continues, find_wrong_unit
from ledgermq.dledger.store.entry_index import EntryIndex, IndexUnit
from ledgermq.dledger.store.errors import CorruptStoreError, DiskFullError, StoreFailedError
from ledgermq.dledger.store.filesystem import FileSystem
from ledgermq.dledger.store.marks import Marks
from ledgermq.dledger.store.opening import Opening, RecoveryReport
from ledgermq.dledger.store.opening_progress import OpeningProgress
from ledgermq.dledger.store.segment import ReadMode, Segment, segment_name
from ledgermq.dledger.store.segments import Segments


class DLedgerMmapFileStore:
    """A LedgerStore on a disk."""

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        segment_bytes: int,
        index_segment_bytes: int,
        codec: EntryCodec,
    ) -> None:
        """Binds the store to its directory; `open` must come before anything else.

        Args:
            file_system: the disk.
            directory: of this member (`.../dledger-n0`).
            segment_bytes: of a data segment; all members have the same (mappedFileSizeCommitLog).
            index_segment_bytes: of an index segment, a multiple of 32; INDEX_SEGMENT_BYTES
                upstream.
            codec: its checksum verifies what is found at the opening.
        """
        self._file_system = file_system
        self._codec = codec
        self.directory = directory
        self.segment_bytes = segment_bytes
        # Whether the reads of data and index may wait, and what learns of those that fail.
        self.mode = ReadMode()
        # The data log; others may read its segments, up to what they know to be committed.
        data, index = (os.path.join(directory, name) for name in ("data", "index"))
        self.data = Segments(file_system, data, segment_bytes, self.mode)
        self._index = EntryIndex(Segments(file_system, index, index_segment_bytes, self.mode))
        self._marks = Marks(file_system, directory)
        # As in LedgerStore.
        self.first_index = 0
        self.last_index = -1
        self.last_term = -1
        self.last_chain_crc = 0
        self.first_position = 0
        self.end_position = 0
        # Entries from this index to the last are of `last_term`; others may be too.
        self._last_term_from = 0
        # The data segment that `end_position` is in; None when it must be found.
        self._tail: Segment | None = None
        self._ahead_of_data = Ahead(self.data)
        self._ahead_of_index = Ahead(self._index.segments)
        # Of the keeper's thread alone.
        self._claims = Claims(self._marks, 0, -1)
        self._has_start = False
        # How many cuts and resets there were.
        self._cut_count = 0
        # That number, and the data segment, when the index was last synced: what it lacks on disk
        # are units of entries from that segment on.
        self._index_synced_at = (-1, -1)
        self._committed_index = -1
        # How many checkpoints were noted, and which of them is on disk: numbers of the reactor.
        self._noted_count = 0
        self._written_count = 0
        # Why the store takes no more writes; None while it does. Set once, by the thread in which
        # the disk failed; what the reactor still writes until it looks is never synced.
        self.failure: Exception | None = None

    def open(
        self,
        *,
        verify_all: bool = False,
        on_damage: Callable[[CorruptStoreError], None] | None = None,
        progress: OpeningProgress | None = None,
    ) -> RecoveryReport:
        """Finds the good entries, cuts a torn tail, mends the index; tells what it did.

        Args:
            verify_all: verify the checksums of all entries, not of the last ones alone.
            on_damage: called when entries that were on disk for certain are bad or gone, before
                the log is cut there. It must note durably that this member is recovering.
            progress: told how far it is.

        Raises:
            StoreFormatError: a file is not as this configuration has it.
            CorruptStoreError: there is damage, and no `on_damage`. The files are left as they are.
        """
        opening = Opening(
            self._file_system,
            self.data,
            self._index,
            self._marks,
            self._codec.crc32c,
            verify_all=verify_all,
            on_damage=on_damage,
            progress=progress or OpeningProgress(),
        )
        opened = opening.run()
        report = opened.report
        self.first_index, self.last_index = report.first_index, report.last_index
        self.first_position, self.end_position = report.first_position, report.end_position
        self.last_term, self.last_chain_crc = opened.last_term, opened.last_chain_crc
        self._last_term_from = self.last_index
        self._committed_index = report.committed_index
        durable_index = opened.durable_index if opened.durable_index is not None else -1
        self._claims = Claims(self._marks, opened.generation, durable_index)
        self._has_start = opened.has_start
        return report

    def term_at(self, index: int) -> int:
        """Returns the term of the entry.

        Raises:
            CompactedError, OutOfRangeError: it is before or behind the log.
        """
        if self._last_term_from <= index <= self.last_index:
            return self.last_term
        # By the head, that has to agree: a flipped bit in the unit would pass for another history.
        return self.head_at(index).term

    def position_at(self, index: int) -> int:
        """Returns where the entry begins. Raises as `term_at`."""
        return self._unit_at(index).position

    def head_at(self, index: int) -> EntryHead:
        """Returns the head of the entry.

        Raises:
            CompactedError, OutOfRangeError: it is before or behind the log.
            CorruptStoreError: the index and the data do not agree.
        """
        unit = self._unit_at(index)
        head = read_head(self.data.read(unit.position, HEAD_BYTES))
        self._check(unit, head)
        return head

    def read(self, first_index: int, bytes_max: int) -> EntrySlice:
        """Returns a copy of entries from `first_index` on.

        As many as fit in `bytes_max` and stand in one data segment and one index segment, but at
        least one. Checksums are not verified.

        Raises:
            CompactedError, OutOfRangeError: the first is before or behind the log.
            CorruptStoreError: the index and the data do not agree.
        """
        first = self._unit_at(first_index)
        count_max = min(self.last_index - first_index + 1, max(bytes_max, 0) // HEAD_BYTES + 1)
        units = self._index.run_from(first_index, count_max)
        begin = end = first.position
        term, limit, starts = first.term, begin + bytes_max, list[int]()
        for _, position, size, _, unit_term in units:
            if position != end or (end + size > limit and starts):
                break
            starts.append(position - begin)
            end += size
            term = unit_term
        data = self.data.read(begin, end - begin)
        self._check(first, read_head(data))
        last = read_head(data, starts[-1])
        expected = (first_index + len(starts) - 1, term, end - begin - starts[-1])
        found = (last.index, last.term, last.size)
        if found != expected:
            raise self._disagreement(begin + starts[-1], "head", expected, found, expected[0])
        return EntrySlice(
            data,
            starts,
            first_index=first_index,
            first_term=first.term,
            last_term=term,
            position=begin,
            last_chain_crc=last.chain_crc,
        )

    def read_cached(self, first_index: int, bytes_max: int) -> EntrySlice:
        """As in LedgerStore."""
        mode = self.mode
        mode.may_wait = not mode.has_reader
        try:
            return self.read(first_index, bytes_max)
        finally:
            mode.may_wait = True

    def read_verified(self, first_index: int, bytes_max: int) -> EntrySlice:
        """Returns what `read` does, when every entry of it fits its unit, its checksums and the
        entry before it.

        Raises:
            CompactedError, OutOfRangeError: the first is before or behind the log.
            CorruptStoreError: something does not fit.
        """
        entries = self.read(first_index, bytes_max)
        previous, chain_crc = None, 0
        if first_index > self.first_index:
            before = self.head_at(first_index - 1)
            previous, chain_crc = EntryId(before.term, before.index), before.chain_crc
        try:
            parsed = self._codec.parse(
                entries.data,
                position=entries.position,
                previous=previous,
                previous_chain_crc=chain_crc,
            )
        except CorruptEntryError as error:
            raise self._disagreement(
                error.position, error.field, error.expected, error.found, error.index
            ) from error
        units = self._index.run_from(first_index, parsed.count)
        flaw = find_wrong_unit(parsed, units)
        if flaw is not None:
            position, index, head, unit = flaw
            raise self._disagreement(position, "unit", head, unit, index)
        return parsed

    def append(self, entries: EntrySlice) -> None:
        """Writes entries to the page cache; they survive a kill, and after `sync` a power cut.

        Raises:
            LedgerPositionError: they do not continue the log; nothing was written.
            DiskFullError: there is no room for the next segment; nothing was written.
            StoreFailedError: a sync or a write failed, now or before; none of them is in the log.
        """
        if self.failure is not None:
            raise StoreFailedError(self.directory, str(self.failure))
        data, position = entries.data, entries.position
        size_bytes = len(data)
        check_continues(self, entries)
        try:
            self._index.reserve(entries)
            tail = self._tail
            if tail is None or position != self.end_position:
                tail = self._find_tail(position)
            self._index.write(entries)
            offset = position - tail.start_offset
            end = offset + size_bytes
            tail.write(offset, data)
        except OSError as error:
            self.failure = error
            raise StoreFailedError(self.directory, str(error)) from error
        self.end_position = position + size_bytes
        self.last_index = entries.last_index
        if entries.last_term != self.last_term:
            self.last_term = entries.last_term
            self._last_term_from = (
                entries.first_index if entries.first_term == entries.last_term else self.last_index
            )
        self.last_chain_crc = entries.last_chain_crc
        self._ahead_of_data.written(tail.start_offset, end)
        self._ahead_of_index.written(*self._index.written_before(self.last_index + 1))

    @property
    def wants_ahead(self) -> bool:
        """Whether a segment behind a last one is wanted: `begin_ahead` makes it."""
        return self._ahead_of_data.is_wanted or self._ahead_of_index.is_wanted

    def has_room(self, runs: Sequence[EntrySlice]) -> bool:
        """Tells whether an append of these runs, one after the other, has to wait for no file."""
        return all(
            self.data.has_room_at(run.position) and self._index.has_room(run) for run in runs
        )

    def begin_room(self, runs: Sequence[EntrySlice]) -> DiskJob | None:
        """Begins to make the files that an append of these runs needs and lacks.

        Args:
            runs: continue the log, one after the other.

        Returns:
            None when they are there. A run that raises DiskFullError may be tried again.
        """
        self._refuse_after_failure()
        data_starts: list[int] = []
        unit_starts: list[int] = []
        for run in runs:
            data_starts += self.data.starts_lacking(run.position, run.position + 1)
            unit_starts += self._index.starts_lacking(run.first_index, run.last_index + 1)
        start_mark = self._begin_start(runs[0].position) if runs else None
        jobs = (
            start_mark,
            self.data.begin_create(sorted(set(data_starts))),
            self._index.segments.begin_create(sorted(set(unit_starts))),
        )
        job = joined(jobs)
        return None if job is None else self._final(job)

    def begin_ahead(self) -> DiskJob | None:
        """Begins to make the segments behind the last ones; None when those wanted are there.

        Whether there is room is decided when it is needed: DiskFullError means nothing here.
        """
        if self.failure is not None:
            return None
        job = joined((self._ahead_of_data.begin(), self._ahead_of_index.begin()))
        return None if job is None else self._final(job)

    def begin_truncate(self, from_index: int) -> DiskJob:
        """Drops `from_index` and all after it; the cut is on disk after the run.

        The units go first: were the machine to stop in between, the entries would be back whole.
        Nothing may be appended before the job has ended. A run that raises DiskFullError has
        changed nothing on the disk, and may be tried again.

        Raises:
            CompactedError, OutOfRangeError: the index is before or behind the log.
            StoreFailedError: a sync or a write failed before.
        """
        self._refuse_after_failure()
        position = self.position_at(from_index)
        end, end_index = self.end_position, self.last_index + 1
        if from_index > self.first_index:
            # The next leader may place an entry in the room that a blank takes now.
            before = self._unit_at(from_index - 1)
            position = before.position + before.size
            self._last_term_from, self.last_term = from_index - 1, before.term
            head = read_head(self.data.read(before.position, HEAD_BYTES))
            self.last_chain_crc = head.chain_crc
        else:
            self._last_term_from, self.last_term, self.last_chain_crc = from_index, -1, 0
        self._forget_tail()
        self._cut_count += 1
        self.last_index = from_index - 1
        self.end_position = position
        claims, first_index, first_position = self._claims, self.first_index, self.first_position
        units = self._index.begin_truncate(from_index, end_index)
        data = self.data.begin_truncate(position, end + BLANK_BYTES_MIN)

        def run() -> None:
            durable_index = min(claims.synced_index, from_index - 1)
            claims.void(durable_index, first_index, first_position)
            units.run()
            data.run()

        return self._final(DiskJob(run))

    def truncate(self, from_index: int) -> None:
        """Does `begin_truncate` at once."""
        self.begin_truncate(from_index).do()

    def begin_reset(self, first_index: int, position: int) -> DiskJob:
        """Wipes the log; the next entry has this index and this position. Durable after the run.

        As `begin_truncate`.
        """
        self._refuse_after_failure()
        self._forget_tail()
        self._cut_count += 1
        self.first_index, self.last_index, self.last_term = first_index, first_index - 1, -1
        self._last_term_from, self.last_chain_crc = first_index, 0
        self.first_position = self.end_position = position
        self._committed_index = min(self._committed_index, first_index - 1)
        self._has_start = True
        claims = self._claims
        units, data = self._index.begin_reset(first_index), self.data.begin_reset(position)

        def run() -> None:
            claims.void(first_index - 1, first_index, position)
            claims.write_start(first_index, position)
            units.run()
            data.run()

        return self._final(DiskJob(run))

    def reset(self, first_index: int, position: int) -> None:
        """Does `begin_reset` at once."""
        self.begin_reset(first_index, position).do()

    def begin_drop(self, position: int) -> DiskJob | None:
        """Removes whole segments below `position`, never the last one; None: there are none.

        `first_index` is the new one when the mark is on disk, and only then files are removed. A
        run that raises DiskFullError has changed nothing.
        """
        self._refuse_after_failure()
        starts = [start for start in self.data.starts if start <= position]
        if self.last_index < self.first_index or not starts or starts[-1] <= self.first_position:
            return None
        start = starts[-1]
        head = read_head(self.data.read(start, HEAD_BYTES))
        if head.magic != ENTRY_MAGIC or head.position != start:
            raise self._disagreement(start, "position", start, head.position, head.index)
        claims = self._claims

        def remove() -> DiskJob | None:
            self._has_start = True
            self.first_index, self.first_position = head.index, start
            self._last_term_from = max(self._last_term_from, head.index)
            removal = joined((self.data.begin_drop(start), self._index.begin_drop(head.index)))
            return None if removal is None else self._final(removal)

        return self._final(DiskJob(lambda: claims.write_start(head.index, start), remove))

    def drop_before(self, position: int) -> int:
        """Does `begin_drop` at once; returns the new `first_index`."""
        do_now(self.begin_drop(position))
        return self.first_index

    def begin_sync(self) -> DiskJob | None:
        """Begins to bring all entries appended before this call to the disk; None: all are there.

        The entries carry all that the index says of them, and an opening makes units of the last
        segments anew; so the index is synced only when the log has come to another data segment,
        and before the durable mark moves.

        Writes the checkpoint too when one is due. A disk without room for it is not a failure: the
        entries are safe and the next sync tries again.

        Raises:
            StoreFailedError: a sync or a write failed before.
        """
        self._refuse_after_failure()
        last_index, commit_index = self.last_index, self._committed_index
        noted_count = self._noted_count
        is_due = noted_count != self._written_count
        place = (self._cut_count, self.end_position // self.segment_bytes)
        data, units = self.data.begin_sync(), None
        if is_due or place != self._index_synced_at:
            units = self._index.segments.begin_sync()
        synced = joined((data, units))
        if synced is None and not is_due:
            return None
        claims, is_written = self._claims, is_due

        def run() -> None:
            nonlocal is_written
            if synced is not None:
                synced.run()
            claims.covered(last_index)
            if is_due:
                try:
                    claims.write(commit_index)
                except DiskFullError:
                    is_written = False

        def end() -> None:
            if synced is not None:
                synced.end()
            self._index_synced_at = place if units is not None else self._index_synced_at
            if is_written:
                self._written_count = noted_count

        return self._final(DiskJob(run, end))

    def sync(self) -> None:
        """Does `begin_sync` at once.

        Raises:
            OSError: final; every later append or sync raises StoreFailedError.
            StoreFailedError: a sync failed before.
        """
        do_now(self.begin_sync())

    def read_checkpoint(self) -> int:
        """Returns the committed index that was noted last, or read at the opening; -1: none."""
        return self._committed_index

    def write_checkpoint(self, commit_index: int) -> None:
        """Notes the committed index; the next `sync` or `close` puts it on disk.

        On disk it never names more than what is on this disk for certain, so that a log which ends
        before it is known to be damaged.
        """
        self._committed_index = commit_index
        self._noted_count += 1

    def close(self) -> None:
        """Syncs, writes the checkpoint and gives all files back; after a failure it only gives
        back.

        No sync may be under way.
        """
        if self.failure is None:
            self._noted_count += int(self.last_index >= self.first_index)
            self.sync()
        self.abandon()

    def abandon(self) -> None:
        """Gives all files back as they are. No sync may be under way."""
        self._tail = None
        self.data.close()
        self._index.close()

    def _begin_start(self, position: int) -> DiskJob | None:
        """Begins to note where an empty log begins; None when that is noted."""
        if self.data.starts or (self._has_start and position == self.first_position):
            return None
        claims, first_index = self._claims, self.first_index

        def end() -> None:
            self.first_position = position
            self._has_start = True

        return DiskJob(lambda: claims.write_start(first_index, position), end)

    def _forget_tail(self) -> None:
        self._tail = None
        self._ahead_of_data.forget()
        self._ahead_of_index.forget()

    def _find_tail(self, position: int) -> Segment:
        """Returns the segment to write at `position`; closes the one before with a blank."""
        data, end = self.data, self.end_position
        if not data.starts:
            do_now(self._begin_start(position))
            data.first_position = data.end_position = position
            tail = data.roll()
        elif position >= data.starts[-1] + self.segment_bytes:
            tail = data.roll()
            before = data.segment_at(end)
            offset = end - before.start_offset
            blank = BLANK.pack(BLANK_MAGIC, self.segment_bytes - offset)
            before.write(offset, blank)
        else:
            tail = data.segment_at(position)
        self._tail = tail
        return tail

    def _unit_at(self, index: int) -> IndexUnit:
        if index < self.first_index:
            raise CompactedError(index, self.first_index)
        if index > self.last_index:
            raise OutOfRangeError(index, self.first_index, self.last_index)
        unit = self._index.find(index)
        if unit is None or unit.index != index:
            raise self._bad_unit("index", index, "nothing" if unit is None else unit.index, index)
        position, size = unit.position, unit.size
        rest = self.segment_bytes - position % self.segment_bytes
        end = min(position + rest, self.end_position)
        if position < self.first_position or size < HEAD_BYTES or position + size > end:
            place = f"at least {HEAD_BYTES} bytes of one segment, from {self.first_position} on"
            raise self._bad_unit("position and size", place, (position, size), index)
        return unit

    def _bad_unit(
        self, field: str, expected: object, found: object, index: int
    ) -> CorruptStoreError:
        offset, segments = index * INDEX_UNIT_BYTES, self._index.segments
        start = offset - offset % segments.segment_bytes
        path = os.path.join(segments.directory, segment_name(start))
        return CorruptStoreError(path, offset - start, field, expected, found, index)

    def _check(self, unit: IndexUnit, head: EntryHead) -> None:
        if unit != (head.magic, head.position, head.size, head.index, head.term):
            raise self._disagreement(unit.position, "head", tuple(unit), tuple(head), unit.index)

    def _disagreement(
        self, position: int, field: str, expected: object, found: object, index: int
    ) -> CorruptStoreError:
        segment = self.data.segment_at(position)
        offset = position - segment.start_offset
        return CorruptStoreError(segment.path, offset, field, expected, found, index)

    def _refuse_after_failure(self) -> None:
        if self.failure is not None:
            raise StoreFailedError(self.directory, str(self.failure))

    def _final(self, job: DiskJob) -> DiskJob:
        """Returns a job whose failure ends the store."""

        def run() -> None:
            self._refuse_after_failure()
            try:
                job.run()
            except OSError as error:
                self.failure = error
                raise

        return DiskJob(run, job.end)
