"""PlainDispatcher: the records of a plain log become consume queue units and key index entries.

As the ledger's dispatcher in all but one point: an index is that of a byte (`ByteIndexedLog`), so
rows come with the offset behind each record. A blank is passed like a record without a row.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ledgermq.commitlog.byte_indexed_log import ByteIndexedLog
from ledgermq.commitlog.consume_queue import ConsumeQueue
from ledgermq.commitlog.derived_files import DerivedFiles
from ledgermq.commitlog.dispatch import READ_BYTES, ROWS_MAX, Dispatcher, rows_for
from ledgermq.commitlog.errors import DamagedFileError
from ledgermq.commitlog.key_index import KeyIndex
from ledgermq.commitlog.plain_log import PlainCommitLog
from ledgermq.commitlog.plain_records import PLAIN_BLANK_BYTES
from ledgermq.commitlog.row import Arrival, Row
from ledgermq.commitlog.rows import RowMaker
from ledgermq.dledger.errors import LedgerError


class PlainRun(NamedTuple):
    """Rows of records that this master appended, waiting to be confirmed."""

    rows: list[Row]
    # Absolute offset of each record, and the one behind the last.
    starts: list[int]
    end: int


class PlainDispatcher(Dispatcher):
    """Advances the derived files along a plain log."""

    def __init__(
        self,
        log: PlainCommitLog,
        row_maker: RowMaker,
        key_index: KeyIndex,
        files: DerivedFiles,
        clock_ms: Callable[[], int],
        *,
        pending_records_max: int,
    ) -> None:
        super().__init__(
            ByteIndexedLog(log),
            row_maker,
            key_index,
            files,
            clock_ms,
            pending_records_max=pending_records_max,
        )
        self._log = log
        self._plain_runs: list[PlainRun] = []
        # Name of each row that `_rows_from` gave last, and the offset to go on from.
        self._starts: Sequence[int] = ()
        self._next = 0

    def appended_plain(self, run: PlainRun) -> None:
        """Keep the rows of records that this master just appended."""
        if self._pending_records + len(run.rows) <= self._pending_records_max:
            self._plain_runs.append(run)
            self._pending_records += len(run.rows)

    def forget_appended(self) -> None:
        self._plain_runs.clear()
        super().forget_appended()

    def rebuild(self, queues: set[ConsumeQueue], *, with_keys: bool, end_index: int) -> None:
        row_maker = self._row_maker if with_keys else self._row_maker.without_keys()
        offset = self._log.min_offset
        while offset < end_index:
            rows, starts, offset = self._read_rows(row_maker, offset, end_index)
            if with_keys:
                self._key_index.add([key for row in rows for key in row[4]], self._clock_ms())
            wanted = rows_for(rows, queues)
            self._apply(wanted, starts[0] if starts else offset, None, with_keys=False)
            if self._reached is not None:
                self._reached(offset)

    def _rows_from(self, first: int, end_index: int) -> Sequence[Row]:
        """Return the rows of the next records; none when only a blank is there."""
        runs = self._plain_runs
        while runs and runs[0].end <= first:
            self._pending_records -= len(runs.pop(0).rows)
        if runs and runs[0].end <= end_index and self._is_next(first, runs[0].starts[0]):
            rows, self._starts, self._next = runs.pop(0)
            self._pending_records -= len(rows)
            return rows
        if runs and first < runs[0].starts[0] < end_index:
            end_index = runs[0].starts[0]
        made, self._starts, self._next = self._read_rows(self._row_maker, first, end_index)
        return made

    def _is_next(self, first: int, start: int) -> bool:
        """Whether nothing but a blank is between two offsets."""
        if first == start:
            return True
        is_near = start % self._log.segment_bytes == 0 and start - first < self._log.segment_bytes
        return is_near and not self._log.records(first, PLAIN_BLANK_BYTES)[1].starts

    def _read_rows(
        self, row_maker: RowMaker, offset: int, end: int
    ) -> tuple[Sequence[Row], Sequence[int], int]:
        """Return the rows of whole records from an offset on, their names, and where to go on.

        Raises:
            DamagedFileError: no record stands where one must.
        """
        data, walk = self._log.records(offset, min(READ_BYTES, end - offset))
        starts = walk.starts[:ROWS_MAX]
        if not starts and walk.blank_end is None:
            what = walk.stopped_because or "there is none"
            raise DamagedFileError("log", f"record at {offset}", "a record", what)
        stops = walk.stops[: len(starts)]
        rows = row_maker.rows_between(
            data, [start - offset for start in starts], [stop - offset for stop in stops], 0
        )
        is_whole = len(starts) == len(walk.starts)
        return rows, starts, walk.next_offset if is_whole else stops[-1]

    def _find_damage(self, first: int) -> LedgerError | None:
        """What is wrong with a plain log is told by the walk through it."""
        return None

    def _apply_parts(self, rows: Sequence[Row], first: int, arrivals: list[Arrival] | None) -> None:
        starts, behind, start = self._starts, self._next, 0
        if self.watchers:
            for at, row in enumerate(rows):
                if row[5] is not None:
                    self._apply(rows[start : at + 1], starts[start], arrivals)
                    end = starts[at + 1] if at + 1 < len(rows) else behind
                    self._advance_to(end, at + 1 - start)
                    start = at + 1
                    topic, body = row[5]
                    self._hand_over(topic, body, starts[at])
        if start < len(rows):
            self._apply(rows[start:] if start else rows, starts[start], arrivals)
            self._advance_to(behind, len(rows) - start)
        elif not rows:
            self._advance_to(behind, 0)

    def _go_back_before(self, index: int) -> None:
        self._advance_to(index, 0)

    def _advance_to(self, offset: int, count: int) -> None:
        self.dispatched_index = offset - 1
        self.dispatched_term = 0
        self.dispatched_position = offset
        self.unflushed_records += count
