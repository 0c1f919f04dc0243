"""ByteIndexedLog: a plain commit log as the message store sees a ledger.

A plain log has no entries, terms or indexes. Here each byte counts as one index: a record that
begins at offset p and has n bytes takes the indexes p to p + n - 1, its name is p, and "all up to
index i is dispatched" means all bytes before i + 1. So what is written for a ledger (dispatch in
order, checkpoints, state that knows up to where it was applied) holds for a plain log as it is. The
term is always 0.
"""

from collections.abc import Sequence
from typing import NoReturn

from ledgermq.commitlog.plain_log import PlainCommitLog
from ledgermq.dledger.disk_job import DiskJob
from ledgermq.dledger.entry import ENTRY_MAGIC, EntryHead, EntrySlice


class ByteIndexedLog:
    """The reading half of a LedgerStore over a plain log."""

    def __init__(self, log: PlainCommitLog) -> None:
        self._log = log
        self.segment_bytes = log.segment_bytes

    @property
    def first_index(self) -> int:
        """First byte that is still there."""
        return self._log.min_offset

    @property
    def last_index(self) -> int:
        """Last byte of the last whole record, or of the blank behind it."""
        return self._log.whole_offset - 1

    @property
    def last_term(self) -> int:
        """0, and -1 for an empty log."""
        return 0 if self.last_index >= self.first_index else -1

    @property
    def last_chain_crc(self) -> int:
        """Not filled."""
        return 0

    @property
    def first_position(self) -> int:
        """First byte that is still there."""
        return self._log.min_offset

    @property
    def end_position(self) -> int:
        """Behind the last whole record."""
        return self._log.whole_offset

    def term_at(self, index: int) -> int:
        """All records have the term 0."""
        return 0

    def position_at(self, index: int) -> int:
        """The record's name is its place."""
        return index

    def head_at(self, index: int) -> EntryHead:
        """Returns a head whose entry ends behind byte `index`, for whoever asks where that is.

        Its size is -1 where no record ends: no checkpoint can be meant.
        """
        size = 1 if self._log.is_boundary(index + 1) else -1
        return EntryHead(ENTRY_MAGIC, size, index, 0, index, 0, 0, 0, 0)

    def begin_drop(self, position: int) -> DiskJob | None:
        """Begins to remove whole segments below a position."""
        return self._log.begin_drop(position)

    def read_checkpoint(self) -> int:
        """Last byte of what readers may see."""
        return self._log.confirmed_offset - 1

    def begin_sync(self) -> DiskJob | None:
        """Begins to make all that was appended durable."""
        return self._log.begin_sync()

    def close(self) -> None:
        """Closes the log."""
        self._log.close()

    # A ledger's member writes and reads entries; nobody does here.

    def read(self, first_index: int, bytes_max: int) -> EntrySlice:
        """There are no entries."""
        self._refuse()

    def read_cached(self, first_index: int, bytes_max: int) -> EntrySlice:
        """There are no entries."""
        self._refuse()

    def read_verified(self, first_index: int, bytes_max: int) -> EntrySlice:
        """There are no entries."""
        self._refuse()

    @property
    def wants_ahead(self) -> bool:
        """The log's own member asks for segments."""
        return False

    def has_room(self, runs: Sequence[EntrySlice]) -> bool:
        """There are no entries."""
        self._refuse()

    def begin_room(self, runs: Sequence[EntrySlice]) -> DiskJob | None:
        """There are no entries."""
        self._refuse()

    def begin_ahead(self) -> DiskJob | None:
        """There are no entries."""
        self._refuse()

    def append(self, entries: EntrySlice) -> None:
        """There are no entries."""
        self._refuse()

    def begin_truncate(self, from_index: int) -> DiskJob | None:
        """A plain log is cut by its recovery alone."""
        self._refuse()

    def begin_reset(self, first_index: int, position: int) -> DiskJob | None:
        """A plain log is never begun afresh."""
        self._refuse()

    def write_checkpoint(self, commit_index: int) -> None:
        """What is confirmed is known from the log itself."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise TypeError("a plain log has no entries")
