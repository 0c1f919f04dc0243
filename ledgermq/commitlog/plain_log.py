"""PlainCommitLog: the commit log of a broker without a ledger, byte for byte as upstream's.

    commitlog/00000000000000000000   records and a blank, see `plain_records.py`
    commitlog/00000000001073741824   ...

An offset is a position in this log in bytes, and the physical offset of the record that begins
there. A master appends records (`append`), a slave appends what its master sends (`append_raw`);
one log knows one of the two at a time. Three ends, none of which ever passes the one before:

    max_offset        all that was written; where the next byte goes
    confirmed_offset  behind the last whole record that readers may see
    flushed_offset    on the disk for certain

Whoever runs the log moves `confirmed_offset`, by `confirm`: at once, or after the flush. What
slaves have is known elsewhere. No Twisted, no thread: what waits for the disk is begun here and run
by the keeper (`begin_sync`, `begin_ahead`, `begin_room`, `begin_drop`). Where the next segment was
not made ahead, an append is refused until there is room (SegmentLackingError); only a log that a
tool has for itself makes it there and then. A write or a sync that fails is final: nobody knows
then what is on the disk, and asking it once more proves nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from struct import Struct
from typing import Final

from ledgermq.commitlog.errors import LogOffsetError, SegmentLackingError
from ledgermq.commitlog.plain_records import (
    PLAIN_BLANK,
    PLAIN_BLANK_BYTES,
    PLAIN_BLANK_MAGIC,
    RECORD_HEAD_BYTES,
    Walk,
    begins_here,
    place_records,
    walk_records,
)
from ledgermq.commitlog.plain_recovery import PlainReport, recover
from ledgermq.dledger.disk_job import DiskJob, do_now, joined
from ledgermq.dledger.errors import EntryTooLargeError
from ledgermq.dledger.store.errors import StoreFailedError, UnreadableError
from ledgermq.dledger.store.filesystem import FileSystem
from ledgermq.dledger.store.opening_progress import OpeningProgress
from ledgermq.dledger.store.segment import ReadMode
from ledgermq.dledger.store.segments import Segments
from ledgermq.protocol.record import PHYSICAL_OFFSET_OFFSET

_INT64: Final = Struct(">q")
_PAGE_BYTES: Final = 4096
# The next segment is made when this part of the present one is written.
_AHEAD_NUMERATOR, _AHEAD_DENOMINATOR = 3, 4


class PlainCommitLog:
    """Records in a contiguous run of segments.

    Invariant: min_offset <= flushed_offset, confirmed_offset <= max_offset.
    """

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        segment_bytes: int,
        mode: ReadMode | None = None,
    ) -> None:
        """Opens nothing yet.

        Args:
            directory: storePathCommitLog.
            segment_bytes: mappedFileSizeCommitLog; that of the files that are there.
            mode: of the reads; None: one of its own.
        """
        self._segments = Segments(file_system, directory, segment_bytes, mode)
        self._file_system = file_system
        self.directory = directory
        self.segment_bytes = segment_bytes
        # Behind the last whole record that was looked at; a slave's may lie before max_offset.
        self._whole_offset = 0
        self._confirmed_offset = 0
        self._flushed_offset = 0
        # Why a write or a sync failed; then nothing is written or synced any more. Set once, by the
        # thread in which the disk failed; what the reactor still writes until it looks is never
        # synced.
        self._failure: str | None = None
        # The segment behind the last one is wanted: `begin_ahead` makes it.
        self.wants_ahead = False
        # Files are made, and a log is cut, in the call that needs it; False while a member runs it:
        # `begin_room` does it then.
        self.waits_for_disk = True
        # Segments that the last append lacked, by their starts.
        self._lacking: list[int] = []
        # The end of the log has moved back, and the bytes behind it are not yet zeros.
        self._cut: DiskJob | None = None
        # Called with max_offset after each append: there is something to send.
        self.on_appended: Callable[[int], None] = lambda max_offset: None

    def open(
        self,
        *,
        durable_offset: int | None = None,
        is_clean: bool = False,
        progress: OpeningProgress | None = None,
    ) -> PlainReport:
        """Finds the end of the log; a torn tail is copied aside and cut.

        All whole records count as confirmed. The next sync writes what is behind `durable_offset`
        once more: after a sync that failed, some of it counts as written although it is not.

        Args:
            durable_offset: up to here everything was on the disk for certain; None: not known.
            is_clean: the last stop was clean, so CRCs need not be compared.
            progress: told how far it is.

        Raises:
            CorruptStoreError: a record is bad that was on the disk for certain, or that has good
                ones in later files; nothing was changed.
            StoreFormatError: the files are not those of such a log.
        """
        report = recover(
            self._segments,
            self._file_system,
            durable_offset=durable_offset,
            is_clean=is_clean,
            progress=progress or OpeningProgress(),
        )
        self._whole_offset = self._confirmed_offset = report.end_offset
        self._segments.distrust(report.end_offset if durable_offset is None else durable_offset)
        return report

    # Ends.

    @property
    def min_offset(self) -> int:
        """First offset that is still there."""
        return self._segments.first_position

    @property
    def max_offset(self) -> int:
        """Where the next byte goes; what a slave reports to its master."""
        return self._segments.end_position

    @property
    def confirmed_offset(self) -> int:
        """Behind the last whole record that readers may see."""
        return self._confirmed_offset

    @property
    def flushed_offset(self) -> int:
        """All before it is on the disk for certain."""
        return self._flushed_offset

    @property
    def whole_offset(self) -> int:
        """Behind the last whole record; max_offset itself unless a master's frame cut one."""
        return self._whole_offset

    @property
    def failure(self) -> StoreFailedError | None:
        """Why nothing is written any more; None while all is well."""
        return None if self._failure is None else StoreFailedError(self.directory, self._failure)

    def confirm(self, offset: int) -> None:
        """Lets readers see what is before `offset`, which ends a whole record."""
        assert self._confirmed_offset <= offset <= self._whole_offset, (
            f"{self._confirmed_offset} <= {offset} <= {self._whole_offset}"
        )
        self._confirmed_offset = offset

    # Writing.

    @property
    def files(self) -> Segments:
        """The files, to be measured."""
        return self._segments

    def append(self, records: Sequence[bytes]) -> list[int]:
        """Writes whole records at the end, with their physical offsets; a master's way.

        Returns:
            The offset of each.

        Raises:
            SegmentLackingError: `begin_room` makes room; nothing was written.
            EntryTooLargeError, DiskFullError: nothing was written.
            StoreFailedError: nothing of them counts.
        """
        self._check_writable()
        longest = max(map(len, records), default=0)
        if longest + PLAIN_BLANK_BYTES > self.segment_bytes:
            raise EntryTooLargeError(longest, self.segment_bytes - PLAIN_BLANK_BYTES)
        begin = self._segments.end_position
        offsets, end = place_records(list(map(len, records)), begin, self.segment_bytes)
        self._check_room(begin, end)
        data = bytearray(end - begin)
        before = begin
        for record, offset in zip(records, offsets, strict=True):
            if offset != before:
                PLAIN_BLANK.pack_into(data, before - begin, offset - before, PLAIN_BLANK_MAGIC)
            at = offset - begin
            data[at : at + len(record)] = record
            _INT64.pack_into(data, at + PHYSICAL_OFFSET_OFFSET, offset)
            before = offset + len(record)
        with self._final_write():
            self._segments.append(memoryview(data))
        self._whole_offset = end
        self._written()
        return offsets

    def append_raw(self, offset: int, data: bytes | memoryview) -> int:
        """Writes bytes of a master's log at the end, whole records or not; a slave's way.

        The end of whole records follows: `whole_offset`. Into an empty log they may go at any
        start of a segment.

        Returns:
            The new max_offset.

        Raises:
            LogOffsetError: they do not continue this log, or they are no records; nothing was
                written, or, of the second kind, max_offset is back at the last whole record.
            SegmentLackingError: `begin_room` makes room; nothing was written.
            DiskFullError, StoreFailedError: nothing of them counts.
        """
        self._check_writable()
        segments = self._segments
        if not segments.starts and offset != segments.end_position:
            if offset % self.segment_bytes:
                raise LogOffsetError("start of an empty log", "a start of a segment", offset)
            # Nothing is known of this place before there is a file.
            self._check_room(offset, offset + len(data))
            if self.waits_for_disk:
                with self._final_write():
                    segments.reset(offset)
            else:
                segments.begin_at(offset)
            self._whole_offset = self._confirmed_offset = self._flushed_offset = offset
        if offset != segments.end_position:
            raise LogOffsetError("offset of the next bytes", segments.end_position, offset)
        self._check_room(offset, offset + len(data))
        with self._final_write():
            segments.append(data)
            self._look_for_whole()
        self._written()
        return segments.end_position

    def _look_for_whole(self) -> None:
        """Moves the end of whole records on, past blanks that are there as a whole."""
        while self._whole_offset < self.max_offset:
            walk = self._walk(self._whole_offset, self.max_offset)
            self._whole_offset = walk.end
            if walk.blank_end is not None:
                if walk.blank_end > self.max_offset:
                    return
                self._whole_offset = walk.blank_end
            elif walk.needs_more:
                return
            elif walk.end < self.max_offset:
                self._begin_cut(walk.end)
                raise LogOffsetError(f"record at {walk.end}", "a record", walk.stopped_because)

    def _walk(self, offset: int, end: int) -> Walk:
        segment = self._segments.segment_at(offset)
        size = min(end, segment.start_offset + self.segment_bytes) - offset
        data = segment.lend(offset - segment.start_offset, size)
        return walk_records(memoryview(data), offset, self.segment_bytes, verify=False)

    def _written(self) -> None:
        end = self._segments.end_position
        if end % self.segment_bytes > self.segment_bytes * _AHEAD_NUMERATOR // _AHEAD_DENOMINATOR:
            self.wants_ahead = self._segments.next_start() is not None
        self.on_appended(end)

    def _check_writable(self) -> None:
        if self._failure is not None:
            raise StoreFailedError(self.directory, self._failure)

    def _check_room(self, begin: int, end: int) -> None:
        """Raises SegmentLackingError where a write would have to wait for the disk."""
        if self.waits_for_disk:
            return
        self._lacking = self._segments.starts_lacking(begin, end)
        if self._cut is not None or self._lacking:
            raise SegmentLackingError(self.directory, end)

    def _begin_cut(self, offset: int) -> None:
        """Moves the end back to `offset`; nothing is written until its job is done."""
        cut = self._segments.begin_truncate(offset)

        def end() -> None:
            self._cut = None
            # What a sync took down before may have been more.
            self._flushed_offset = min(self._flushed_offset, offset)

        self._cut = DiskJob(cut.run, end)
        if self.waits_for_disk:
            self._cut.do()

    @contextmanager
    def _final_write(self) -> Iterator[None]:
        """Makes an error of the disk final: a part of what was to be written may be there."""
        try:
            yield
        except OSError as error:
            self._failure = str(error)
            raise StoreFailedError(self.directory, self._failure) from error

    # Reading.

    def read(self, offset: int, bytes_max: int) -> memoryview:
        """Returns bytes from `offset` on, of one segment, whole records or not.

        Returns:
            At most bytes_max, up to max_offset or the end of the segment; none at max_offset.

        Raises:
            LogOffsetError: the log does not hold that offset.
            UnreadableError: the disk does not give the bytes.
        """
        end = self._segments.end_position
        if offset == end:
            return memoryview(b"")
        if not self._segments.first_position <= offset < end:
            raise LogOffsetError(
                "offset to read from", f"{self._segments.first_position} to {end}", offset
            )
        segment = self._segments.segment_at(offset)
        at = offset - segment.start_offset
        stop = min(at + bytes_max, self.segment_bytes, end - segment.start_offset)
        try:
            return memoryview(segment.lend(at, stop - at))
        except UnreadableError:
            # What stands before the page that cannot be read is good.
            return memoryview(segment.lend(at, min(stop, at - at % _PAGE_BYTES + _PAGE_BYTES) - at))

    def read_bytes(self, offset: int, bytes_max: int) -> bytes:
        """Returns a copy of bytes of one segment; what lies behind the end is zeros.

        Raises:
            IndexError: no file holds that offset.
        """
        return self._segments.read(offset, bytes_max)

    def records(self, offset: int, bytes_max: int) -> tuple[bytes, Walk]:
        """Returns whole records from a record's offset on: about bytes_max, one at least.

        Returns:
            A copy of the bytes, and what stands in them; no starts when a blank or the end of
            whole records is there. Its `next_offset` is where to go on.
        """
        end = self._whole_offset
        segment_end = offset - offset % self.segment_bytes + self.segment_bytes
        size = min(bytes_max, end - offset, segment_end - offset)
        while True:
            data = self._segments.read(offset, size)
            walk = walk_records(data, offset, self.segment_bytes, verify=False)
            whole = min(end, segment_end) - offset
            if walk.starts or walk.blank_end is not None or size >= whole:
                return data, walk
            size = min(whole, max(size * 2, PLAIN_BLANK_BYTES))

    def is_boundary(self, offset: int) -> bool:
        """Whether whole records and blanks fill the log up to `offset`: one could begin there."""
        if offset in (self.min_offset, self._whole_offset):
            return True
        if not self.min_offset < offset < self._whole_offset:
            return False
        segment = self._segments.segment_at(offset)
        head = segment.lend(offset - segment.start_offset, RECORD_HEAD_BYTES)
        return begins_here(memoryview(head), 0, offset)

    def modified_ms(self, offset: int) -> int:
        """Returns when the segment that holds `offset` was last written, on the wall clock."""
        return self._segments.modified_ms(offset - offset % self.segment_bytes)

    # Flush and retention.

    def begin_ahead(self) -> DiskJob | None:
        """Begins to make the segment behind the last one; None when it is there or not wanted."""
        start = self._segments.next_start() if self.wants_ahead else None
        self.wants_ahead = False
        job = None if start is None else self._segments.begin_create([start])
        return None if job is None else self._final(job)

    def begin_room(self) -> DiskJob | None:
        """Begins what the last SegmentLackingError, or a LogOffsetError, left to do; None: nothing.

        The run raises DiskFullError when there is no room; all is as before.
        """
        if self._cut is not None:
            return self._final(self._cut)
        segments = self._segments
        starts = [start for start in self._lacking if not segments.has_room_at(start)]
        if not starts:
            return None
        # An empty log may have wanted to begin elsewhere: no file may be left from that.
        reset = None if segments.starts else segments.begin_reset(segments.end_position)
        job = joined([reset, segments.begin_create(starts)])
        return None if job is None else self._final(job)

    def begin_sync(self) -> DiskJob | None:
        """Begins to bring all that was written before this call to the disk; None: it is there.

        The run raises OSError, which is final; nothing is written any more.

        Raises:
            StoreFailedError: a write or a sync failed before. The disk would say that all is well.
        """
        self._check_writable()
        end = self._segments.end_position
        synced = self._segments.begin_sync()

        def note() -> None:
            if synced is not None:
                synced.end()
            self._flushed_offset = max(self._flushed_offset, end)

        if synced is None:
            note()
            return None
        return self._final(DiskJob(synced.run, note))

    def sync(self) -> None:
        """Does `begin_sync` at once."""
        do_now(self.begin_sync())

    def _final(self, job: DiskJob) -> DiskJob:
        """Returns a job whose failure ends the log."""

        def run() -> None:
            self._check_writable()
            try:
                job.run()
            except OSError as error:
                self._failure = str(error)
                raise

        return DiskJob(run, job.end)

    def begin_drop(self, offset: int) -> DiskJob | None:
        """Begins to remove segments wholly below `offset`, never the last; None: there are none.

        `min_offset` is the new one at once.
        """
        job = self._segments.begin_drop(offset)
        return None if job is None else self._final(job)

    def drop_before(self, offset: int) -> int:
        """Does `begin_drop` at once; returns the new min_offset."""
        do_now(self.begin_drop(offset))
        return self.min_offset

    def begin_remove_all(self) -> DiskJob | None:
        """Begins to remove every file; the log is empty and goes on at its end."""
        if not self._segments.starts:
            return None
        return self._final(self._segments.begin_reset(self._segments.end_position))

    def close(self) -> None:
        """Closes the files without a sync."""
        self._segments.close()
