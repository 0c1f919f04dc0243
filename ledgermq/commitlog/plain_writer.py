"""PlainWriter: the messages of one reactor turn become records at the end of a plain log.

As `DLedgerCommitLog`, with the record's own place as its physical offset and as its index.
Source: CommitLog.asyncPutMessage of 4.9.3.
"""

from collections.abc import Callable, Sequence

from ledgermq.commitlog.config import StoreConfig
from ledgermq.commitlog.encoding import AppendMessage
from ledgermq.commitlog.message_writer import AppendResult, MessageWriter
from ledgermq.commitlog.plain_dispatch import PlainRun
from ledgermq.commitlog.plain_log import PlainCommitLog
from ledgermq.commitlog.queue_offsets import QueueOffsets
from ledgermq.commitlog.row import TopicQueue
from ledgermq.commitlog.rows import RowMaker
from ledgermq.commitlog.store_times import StoreTimes


class PlainWriter(MessageWriter):
    """The writing side of a store with a plain log."""

    def __init__(
        self,
        log: PlainCommitLog,
        queue_offsets: QueueOffsets,
        store_times: StoreTimes,
        limits: StoreConfig,
        row_maker: RowMaker,
        appended: Callable[[PlainRun], None],
    ) -> None:
        """Bind the parts; they are those of DLedgerCommitLog."""
        super().__init__(queue_offsets, store_times, limits, row_maker)
        self._log = log
        self._appended = appended

    def _segment(self, offset: int | None = None) -> int:
        return (self._log.max_offset if offset is None else offset) // self._log.segment_bytes

    def _append_records(
        self,
        records: list[bytes],
        messages: Sequence[AppendMessage],
        numbers: list[tuple[TopicQueue, int]],
        timestamp: int,
    ) -> list[AppendResult]:
        offsets = self._log.append(records)
        results, rows = [], []
        for offset, record, message, (topic_queue, queue_offset) in zip(
            offsets, records, messages, numbers, strict=True
        ):
            size = len(record)
            row = self._row_maker.row(
                topic_queue,
                message.sys_flag,
                queue_offset,
                offset,
                size,
                timestamp,
                message.properties,
                message.body,
            )
            if self._has_light_queues:
                row = self._row_maker.with_light(row, topic_queue, message.properties)
            rows.append(row)
            results.append(AppendResult(offset, offset, size, queue_offset, timestamp))
        self._appended(PlainRun(rows, offsets, offsets[-1] + len(records[-1])))
        return results
