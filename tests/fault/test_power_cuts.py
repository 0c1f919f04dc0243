"""A small part of `make power-cuts`, and proof that a lost message would be seen."""

from typing import Any

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from ledgermq.dledger.disk_job import DiskJob
from ledgermq.dledger.replica import FlushDiskType
from ledgermq.dledger.store.claims import Claims
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from tests.fault.power_cuts import LostMessageError, PowerCuts, loses_on_lying_disks
from tests.fault.recording_disk import RecordingDisk


class PowerCutsTest(TestCase):
    timeout = 200

    async def test_no_acknowledged_message_is_lost_when_all_members_lose_power(self) -> None:
        cuts = PowerCuts(reactor, 1, RecordingDisk)
        await cuts.run(6)
        self.assertGreater(len(cuts.acked), 10)

    async def test_disks_that_do_not_sync_are_found_out(self) -> None:
        lost = [await loses_on_lying_disks(reactor, seed) for seed in range(3)]
        self.assertIn(True, lost)

    async def test_what_was_synced_stays_where_answers_wait_for_no_sync(self) -> None:
        cuts = PowerCuts(reactor, 1, RecordingDisk, FlushDiskType.ASYNC_FLUSH)
        await cuts.run(10)
        self.assertGreater(len(cuts.acked), 10)
        self.assertGreater(cuts.let_go_count, 0)

    async def test_disks_that_do_not_sync_are_found_out_where_no_answer_waits_either(self) -> None:
        flush = FlushDiskType.ASYNC_FLUSH
        lost = [await loses_on_lying_disks(reactor, seed, flush) for seed in range(3)]
        self.assertIn(True, lost)

    async def test_a_claim_taken_after_the_sync_is_found_out_where_no_answer_waits(self) -> None:
        """A start takes the torn tail for damage then."""
        begin_sync = DLedgerMmapFileStore.begin_sync

        def begin(store: DLedgerMmapFileStore) -> DiskJob | None:
            job = begin_sync(store)
            claims: Any = store._claims
            claims.covered = lambda _: Claims.covered(claims, store.last_index)
            return job

        self.patch(DLedgerMmapFileStore, "begin_sync", begin)
        cuts = PowerCuts(reactor, 1, RecordingDisk, FlushDiskType.ASYNC_FLUSH)
        with self.assertRaises(LostMessageError) as caught:
            await cuts.run(100)
        self.assertIn("damage", str(caught.exception))

    def tearDown(self) -> None:
        # A member whose disk is off says so in its log.
        self.flushLoggedErrors()
