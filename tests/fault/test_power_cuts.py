"""A small part of `make power-cuts`, and proof that a lost message would be seen."""

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from tests.fault.power_cuts import PowerCuts, loses_on_lying_disks
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

    def tearDown(self) -> None:
        # A member whose disk is off says so in its log.
        self.flushLoggedErrors()
