"""A ledger store that is held to what its syncs covered, over all its openings."""

from typing import Any, NamedTuple

from ledgermq.dledger.disk_job import DiskJob
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.dledger.store.opening import RecoveryReport


class Synced(NamedTuple):
    """The last entry that a completed sync covers; the checksum is of all before it, too."""

    index: int
    chain_crc: int


NOTHING = Synced(-1, 0)


class SyncedLostError(AssertionError):
    """What was synced is not there."""


class Vouched:
    """What one member's disk must hold; outlives its stores."""

    def __init__(self) -> None:
        self.synced = NOTHING

    def make(self, *arguments: Any) -> DLedgerMmapFileStore:
        """Returns a store that is judged when it is opened."""
        return _SyncedStore(self, *arguments)


class _SyncedStore(DLedgerMmapFileStore):
    """Notes what is appended before a sync begins, when that has ended."""

    def __init__(self, vouched: Vouched, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._vouched = vouched

    def open(self, **keywords: Any) -> RecoveryReport:
        report = super().open(**keywords)
        wanted = self._vouched.synced
        if wanted != NOTHING and report.last_index < wanted.index:
            raise SyncedLostError(f"{wanted} was synced, the log ends with {report.last_index}")
        if wanted.index >= self.first_index:
            found = self.head_at(wanted.index).chain_crc
            if found != wanted.chain_crc:
                raise SyncedLostError(f"{wanted} was synced, found is {found}")
        return report

    def begin_sync(self) -> DiskJob | None:
        synced = Synced(self.last_index, self.last_chain_crc)
        job = super().begin_sync()
        if job is None:
            self._vouched.synced = synced
            return None

        def end() -> DiskJob | None:
            self._vouched.synced = synced
            return job.end()

        return DiskJob(job.run, end)

    def begin_truncate(self, from_index: int) -> DiskJob:
        job = super().begin_truncate(from_index)
        if from_index <= self._vouched.synced.index:
            self._vouched.synced = Synced(self.last_index, self.last_chain_crc)
        return job

    def begin_reset(self, first_index: int, position: int) -> DiskJob:
        self._vouched.synced = NOTHING
        return super().begin_reset(first_index, position)
