"""Members of a group that has not met yet, which are started and stopped one after the other."""

import tempfile
from pathlib import Path

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from tests.fault.bit_flips import StoreGroup
from tests.free_ports import free_ports


class NewGroupTest(TestCase):
    timeout = 200

    async def test_members_that_were_stopped_before_they_met_elect_a_leader(self) -> None:
        """A checkpoint of an empty log told of a lost vote: nobody voted, for ever."""
        with tempfile.TemporaryDirectory() as folder:
            group = StoreGroup(reactor, Path(folder), free_ports(3))
            for member in group.members:
                await member.start()
                await member.stop()
            await group.start()
            try:
                await group.send([b"%d" % number for number in range(20)])
                await group.wait_until_equal()
            finally:
                await group.stop()
