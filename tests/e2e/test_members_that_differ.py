"""A group whose members differ: in their clocks, in their flush modes."""

import tempfile
from pathlib import Path
from typing import Any

from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import gatherResults
from twisted.trial.unittest import TestCase

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.broker.service import BrokerService
from ledgermq.broker.service.ground import wall_clock_ms
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.transport import CommandClient
from tests.e2e.test_broker_service import send_request, split, until
from tests.free_ports import free_ports
from tests.processes import SMALL_STORE

reactor: Any = installed_reactor
YEAR_MS = 365 * 86_400_000


class MembersThatDifferTest(TestCase):
    timeout = 120

    def setUp(self) -> None:
        self.ahead_ms = [0, 0, 0]
        folder = tempfile.TemporaryDirectory(prefix="ledgermq-clocks-")
        self.addCleanup(folder.cleanup)
        ports = free_ports(3)
        peers = ";".join(f"n{i}-127.0.0.1:{port}" for i, port in enumerate(ports))
        self.members = [self.new_member(Path(folder.name), i, peers) for i in range(3)]

    def new_member(self, folder: Path, number: int, peers: str) -> BrokerService:
        config = load_broker_config(
            None,
            {
                "brokerIP1": "127.0.0.1",
                "brokerName": "clocks",
                "listenPort": "0",
                "enableDLegerCommitLog": "true",
                "dLegerGroup": "clocks",
                "dLegerSelfId": f"n{number}",
                "dLegerPeers": peers,
                "storePathRootDir": str(folder / f"n{number}"),
                "flushDiskType": "ASYNC_FLUSH" if number == 2 else "SYNC_FLUSH",
                **dict(setting.split("=") for setting in SMALL_STORE),
            },
        )
        return BrokerService(
            config, reactor, now_ms=lambda: wall_clock_ms() + self.ahead_ms[number]
        )

    def serving(self) -> int | None:
        """Number of the member that takes messages."""
        for number, member in enumerate(self.members):
            if member.leadership.takes_messages:
                return number
        return None

    async def send(self, number: int) -> RemotingCommand:
        client = CommandClient(reactor, *split(self.members[number].address))
        answer = await client.request(send_request("T"), 5000)
        await client.stop()
        return answer

    async def test_leader_whose_clock_jumps_hands_over_and_pins_no_store_time(self) -> None:
        await gatherResults([member.start() for member in self.members])
        try:
            await until(lambda: self.serving() is not None, "a leader serves")
            first = self.serving()
            assert first is not None
            self.assertEqual((await self.send(first)).code, 0)
            self.ahead_ms[first] = YEAR_MS
            # Taken before the broker has looked at the clocks, refused after that.
            self.assertIn((await self.send(first)).code, (0, ResponseCode.SERVICE_NOT_AVAILABLE))
            await until(lambda: self.serving() not in (None, first), "another member serves")
            alarm = self.members[first].leadership.clock_alarm
            self.assertIn("s ahead of a majority of the group's", alarm)
            second = self.serving()
            assert second is not None
            self.assertEqual((await self.send(second)).code, 0)
            leadership = self.members[second].leadership
            await until(lambda: leadership.clock_alarm, "a report of the first one's clock")
            self.assertLess(leadership.log_ahead_ms, 30_000)
        finally:
            await gatherResults([member.stop() for member in self.members])

    async def test_flush_modes_that_differ_are_reported_by_all_members(self) -> None:
        await gatherResults([member.start() for member in self.members])
        try:
            for number, member in enumerate(self.members):
                leadership = member.leadership
                await until(lambda of=leadership: of.settings_difference, f"n{number} reports it")
                self.assertIn("n2 ASYNC_FLUSH", leadership.settings_difference)
        finally:
            await gatherResults([member.stop() for member in self.members])
