"""PlainMessageStore: the MessageStore of a broker without a ledger.

Run as `store.MessageStore` says, with a plain commit log in place of the ledger: `attach` is not
needed, and `committed` is given ranges of bytes, up to what the log calls confirmed.
"""

from collections.abc import Callable
from typing import Final

from ledgermq.commitlog.byte_indexed_log import ByteIndexedLog
from ledgermq.commitlog.config import StoreConfig
from ledgermq.commitlog.dispatch import Dispatcher
from ledgermq.commitlog.plain_dispatch import PlainDispatcher
from ledgermq.commitlog.plain_log import PlainCommitLog
from ledgermq.commitlog.plain_scrub import PlainScrub
from ledgermq.commitlog.plain_writer import PlainWriter
from ledgermq.commitlog.reading import no_segment
from ledgermq.commitlog.store import MessageStore
from ledgermq.dledger.disk_job import DiskJob
from ledgermq.dledger.store.filesystem import FileSystem

_NO_END: Final = 1 << 63


class PlainMessageStore(MessageStore):
    """Messages by queue, key, time and place, on a plain commit log."""

    def __init__(
        self,
        config: StoreConfig,
        log: PlainCommitLog,
        file_system: FileSystem,
        clock_ms: Callable[[], int],
    ) -> None:
        """Build the parts; see MessageStore. The log may be opened later, before `open`."""
        self.log = log
        super().__init__(
            config,
            ByteIndexedLog(log),
            file_system,
            clock_ms,
            log.read_bytes,
            segment_at=no_segment,
            mode=log.files.mode,
            plain_end=_NO_END,
        )
        self._commit_log = PlainWriter(
            log,
            self._queue_offsets,
            self.store_times,
            config,
            self._row_maker,
            self._plain_dispatcher.appended_plain,
        )

    def _new_dispatcher(self) -> Dispatcher:
        self._plain_dispatcher = PlainDispatcher(
            self.log,
            self._row_maker,
            self._key_index,
            self._files,
            self._clock_ms,
            pending_records_max=self._config.pending_records_max,
        )
        return self._plain_dispatcher

    @property
    def durable_offset(self) -> int | None:
        """Up to where the log was on the disk at the last checkpoint; None when nobody knows."""
        mark = self.checkpoints.read()
        if mark is None or mark.index + 1 != mark.end_position:
            return None
        return mark.end_position

    @property
    def failure(self) -> Exception | None:
        """What ended dispatch or the log for good, None while both work."""
        return super().failure or self.log.failure

    def begin_log_sync(self) -> DiskJob | None:
        """What the checkpoint names must be on the disk: recovery tells damage by it."""
        return self.log.begin_sync()

    def make_scrub(self) -> PlainScrub:
        """Return a scrub of this store's log and of what derives from it."""
        return PlainScrub(self.log, self._dispatcher, self._row_maker, self._key_index)
