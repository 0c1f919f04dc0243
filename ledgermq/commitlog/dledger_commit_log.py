"""DLedgerCommitLog: the records of one reactor turn become entries by one proposal.

The physical offset of a record is written by the ledger's codec when it knows the entry's position
(it is that position + 48).
Source: DLedgerCommitLog.java of 4.9.3 (asyncPutMessage, asyncPutMessages).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ledgermq.commitlog import row_loops
from ledgermq.commitlog.config import StoreConfig
from ledgermq.commitlog.encoding import AppendMessage
from ledgermq.commitlog.light_queues import MULTI_MARK
from ledgermq.commitlog.message_writer import AppendResult, MessageWriter
from ledgermq.commitlog.queue_offsets import QueueOffsets
from ledgermq.commitlog.row import Row, TopicQueue
from ledgermq.commitlog.rows import RowMaker
from ledgermq.commitlog.store_times import StoreTimes
from ledgermq.dledger.entry import HEAD_BYTES, EntrySlice
from ledgermq.dledger.storage import LedgerStore


class Ledger(Protocol):
    """What is needed of the replicated ledger."""

    @property
    def commit_index(self) -> int:
        """Index of the last committed entry, -1 when none is known."""

    @property
    def store(self) -> LedgerStore:
        """The log of this member."""

    def propose(self, bodies: Sequence[bytes]) -> list[EntrySlice]:
        """Append bodies as entries; raises and appends nothing when this member may not."""


class AppendedRun(NamedTuple):
    """Rows of consecutive entries that this leader appended, waiting to be committed."""

    first_index: int
    term: int
    # Position of the first entry, to recognize the run by.
    position: int
    rows: list[Row]


class DLedgerCommitLog(MessageWriter):
    """The writing side of a store on a ledger."""

    def __init__(
        self,
        ledger: Ledger,
        queue_offsets: QueueOffsets,
        store_times: StoreTimes,
        limits: StoreConfig,
        row_maker: RowMaker,
        appended: Callable[[AppendedRun], None],
    ) -> None:
        """Bind the parts: see MessageWriter.

        Args:
            appended: gets it, once for each run of entries, before `append` returns.
        """
        super().__init__(queue_offsets, store_times, limits, row_maker)
        self._ledger = ledger
        self._appended = appended

    def _segment(self, offset: int | None = None) -> int:
        store = self._ledger.store
        return (store.end_position if offset is None else offset) // store.segment_bytes

    def _append_records(
        self,
        records: list[bytes],
        messages: Sequence[AppendMessage],
        numbers: list[tuple[TopicQueue, int]],
        timestamp: int,
    ) -> list[AppendResult]:
        slices = self._ledger.propose(records)
        return self._results(slices, messages, records, numbers, timestamp)

    def _results(
        self,
        slices: list[EntrySlice],
        messages: Sequence[AppendMessage],
        records: list[bytes],
        numbers: list[tuple[TopicQueue, int]],
        timestamp: int,
    ) -> list[AppendResult]:
        """Hand the rows to dispatch and return the results; neither can fail."""
        results: list[AppendResult] = []
        for entries in slices:
            if row_loops.COMPILED:
                rows = row_loops.appended_rows(
                    entries,
                    records,
                    messages,
                    numbers,
                    timestamp,
                    self._row_maker,
                    self._rare_row,
                    results,
                    AppendResult,
                )
            else:
                rows = self._rows(entries, messages, records, numbers, timestamp, results)
            self._appended(
                AppendedRun(entries.first_index, entries.last_term, entries.position, rows)
            )
        return results

    def _rows(
        self,
        entries: EntrySlice,
        messages: Sequence[AppendMessage],
        records: list[bytes],
        numbers: list[tuple[TopicQueue, int]],
        timestamp: int,
        results: list[AppendResult],
    ) -> list[Row]:
        """Return the rows of one run and add its results; as `appended_rows` does."""
        make_row, has_light = self._row_maker.row, self._has_light_queues
        rows: list[Row] = []
        at = len(results)
        base = entries.position + HEAD_BYTES
        index = entries.first_index
        for start in entries.starts:
            topic_queue, queue_offset = numbers[at]
            message = messages[at]
            record_bytes = len(records[at])
            physical_offset = base + start
            row = make_row(
                topic_queue,
                message[3],
                queue_offset,
                physical_offset,
                record_bytes,
                timestamp,
                message[10],
                message[9],
            )
            if has_light and MULTI_MARK in message[10]:
                row = self._row_maker.with_light(row, topic_queue, message[10])
            rows.append(row)
            fields = (index, physical_offset, record_bytes, queue_offset, timestamp)
            results.append(_new_tuple(AppendResult, fields))
            at += 1
            index += 1
        return rows

    def _rare_row(
        self,
        message: AppendMessage,
        topic_queue: TopicQueue,
        queue_offset: int,
        physical_offset: int,
        record_bytes: int,
        timestamp: int,
    ) -> Row:
        row = self._row_maker.row(
            topic_queue,
            message.sys_flag,
            queue_offset,
            physical_offset,
            record_bytes,
            timestamp,
            message.properties,
            message.body,
        )
        if self._has_light_queues and MULTI_MARK in message.properties:
            row = self._row_maker.with_light(row, topic_queue, message.properties)
        return row


_new_tuple = tuple.__new__
