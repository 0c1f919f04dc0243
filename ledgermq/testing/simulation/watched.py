"""The product's stores, with somebody told of each change of log and vote."""

from collections.abc import Callable

from ledgermq.dledger.disk_job import DiskJob
from ledgermq.dledger.entry import EntrySlice
from ledgermq.dledger.storage import HardState
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.dledger.store.vote_file import VoteFile

# Told of a change of the log: what, its first index, and the run that was appended.
Watch = Callable[[str, int, EntrySlice | None], None]


class WatchedStore(DLedgerMmapFileStore):
    """The product's file store, with somebody told of each change before it is made."""

    watch: Watch

    def append(self, entries: EntrySlice) -> None:
        """Tells before the append: the machine may stop in the middle of it."""
        self.watch("append", entries.first_index, entries)
        super().append(entries)

    def begin_truncate(self, from_index: int) -> DiskJob:
        """Tells before the cut."""
        self.watch("truncate", from_index, None)
        return super().begin_truncate(from_index)

    def begin_reset(self, first_index: int, position: int) -> DiskJob:
        """Tells before the log is begun anew."""
        self.watch("reset", first_index, None)
        return super().begin_reset(first_index, position)


class WatchedVotes:
    """The product's vote file, with somebody told of each state when it is durable."""

    def __init__(self, votes: VoteFile, watch: Callable[[HardState], None]) -> None:
        self._votes = votes
        self._watch = watch

    def load(self) -> HardState | None:
        """As in VoteStore."""
        return self._votes.load()

    def save(self, state: HardState) -> None:
        """Tells of it before it is spoken of."""
        self._votes.save(state)
        self._watch(state)
