"""A small part of `make power-cuts`, and proof that a lost message would be seen."""

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from tests.fault.power_cuts import LyingDisk, PowerCuts
from tests.fault.recording_disk import RecordingDisk


class PowerCutsTest(TestCase):
    timeout = 120

    async def test_no_acknowledged_message_is_lost_when_all_members_lose_power(self) -> None:
        cuts = PowerCuts(reactor, 1, RecordingDisk)
        await cuts.run(6)
        self.assertGreater(len(cuts.acked), 10)

    async def test_disks_that_do_not_sync_are_found_out(self) -> None:
        found = []
        for seed in range(4):
            try:
                await PowerCuts(reactor, seed, LyingDisk).run(3)
            except Exception as error:
                found.append(error)
                break
            finally:
                self.flushLoggedErrors()
        self.assertTrue(found)

    def tearDown(self) -> None:
        # A member whose disk is off says so in its log.
        self.flushLoggedErrors()
