"""What senders to a master hear, and which master a slave follows."""

from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock, StringTransport

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.broker.ha.frames import encode_report
from ledgermq.broker.ha.replication import (
    MasterReplication,
    SlaveReplication,
    check_interval_ms,
)
from ledgermq.protocol.codes import ResponseCode
from tests.unit.broker.ha.memory_log import MemoryLog

OK = 0
NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT


class Senders:
    """Notes who was answered what."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int]] = []
        self.told_here: list[int] = []
        self.remarks: list[str] = []

    def committed(self, end_index: int) -> None:
        self.told.append((end_index, OK))

    def committed_here(self, end_index: int) -> None:
        self.told_here.append(end_index)

    def stored(self, end_index: int, code: ResponseCode, remark: str) -> None:
        self.told.append((end_index, code))
        self.remarks.append(remark)


class Master:
    """A master on a clock of the test, and a slave that the test plays."""

    def __init__(self, role: str) -> None:
        config = load_broker_config(
            None,
            {
                "brokerRole": role,
                "brokerIP1": "127.0.0.1",
                "slaveTimeout": "500",
                "haSlaveFallbehindMax": "1000",
            },
        )
        self.reactor: Any = MemoryReactorClock()
        self.log = MemoryLog(segment_bytes=4096)
        self.senders = Senders()
        self.replication = MasterReplication(config, self.reactor, self.log, self.senders)
        self.replication.start()

    def connect_slave(self) -> Any:
        factory = self.reactor.tcpServers[0][1]
        slave = factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 5555))
        slave.makeConnection(StringTransport())
        slave.dataReceived(encode_report(self.log.max_offset))
        return slave

    def append(self, size: int) -> None:
        self.log.append(bytes(size))
        self.replication.log_advanced()
        self.replication.confirmed(self.log.max_offset)


def test_port_and_address_are_beside_those_of_clients() -> None:
    master = Master("ASYNC_MASTER")
    assert master.reactor.tcpServers[0][0] == 10912
    assert master.reactor.tcpServers[0][3] == "127.0.0.1"


def test_an_async_master_waits_for_nobody() -> None:
    master = Master("ASYNC_MASTER")
    master.append(10)
    assert master.senders.told == [(10, OK)]


def test_a_sync_master_answers_when_its_slave_has_the_message() -> None:
    master = Master("SYNC_MASTER")
    slave = master.connect_slave()
    master.append(10)
    assert master.senders.told == []
    slave.dataReceived(encode_report(10))
    assert master.senders.told == [(10, OK)]


def test_a_sync_master_without_a_slave_says_so() -> None:
    master = Master("SYNC_MASTER")
    master.append(10)
    assert master.senders.told == [(10, NOT_AVAILABLE)]
    assert "0 slaves are connected" in master.senders.remarks[0]


def test_a_slave_far_behind_is_not_waited_for() -> None:
    master = Master("SYNC_MASTER")
    master.connect_slave()
    master.append(999)
    assert master.senders.told == []
    master.append(1)
    assert master.senders.told == [(1000, NOT_AVAILABLE)]
    assert "1000 bytes behind" in master.senders.remarks[0]
    assert "haSlaveFallbehindMax" in master.senders.remarks[0]


def test_a_slave_too_slow_is_waited_for_no_longer_than_its_time() -> None:
    master = Master("SYNC_MASTER")
    slave = master.connect_slave()
    master.append(10)
    master.reactor.advance(0.4)
    master.replication.check()
    assert master.senders.told == []
    master.reactor.advance(0.1)
    master.replication.check()
    assert master.senders.told == [(10, TIMEOUT)]
    assert "500 ms (key slaveTimeout)" in master.senders.remarks[0]
    slave.dataReceived(encode_report(10))
    assert master.senders.told == [(10, TIMEOUT)]


@pytest.mark.parametrize(("heart_beat", "expected"), [("5000", 200), ("500", 100), ("20", 10)])
def test_checks_come_several_times_in_a_heart_beat(heart_beat: str, expected: int) -> None:
    config = load_broker_config(None, {"haSendHeartbeatInterval": heart_beat})
    assert check_interval_ms(config) == expected


def followed(reactor: Any) -> list[tuple[str, int]]:
    return [(host, port) for host, port, *_ in reactor.tcpClients]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, ("10.0.0.1", 10912)), ({"haMasterAddress": "10.0.0.2:99"}, ("10.0.0.2", 99))],
)
def test_a_slave_follows_the_configured_master_or_the_one_it_is_told(
    settings: dict[str, str], expected: tuple[str, int]
) -> None:
    reactor: Any = MemoryReactorClock()
    config = load_broker_config(None, settings)
    slave = SlaveReplication(config, reactor, MemoryLog(), lambda: "10.0.0.1:10912", Deferred)
    slave.check()
    slave.check()
    assert followed(reactor) == [expected]
    slave.stop()


def test_a_slave_stays_with_a_master_that_name_servers_forgot() -> None:
    reactor: Any = MemoryReactorClock()
    told: list[str | None] = [None, "10.0.0.1:10912", None]
    slave = SlaveReplication(
        load_broker_config(None), reactor, MemoryLog(), lambda: told.pop(0), Deferred
    )
    slave.check()
    assert followed(reactor) == []
    slave.check()
    slave.check()
    assert followed(reactor) == [("10.0.0.1", 10912)]
    slave.stop()


def test_a_sync_master_tells_at_once_who_does_not_wait_for_slaves() -> None:
    master = Master("SYNC_MASTER")
    slave = master.connect_slave()
    master.append(10)
    assert (master.senders.told_here, master.senders.told) == ([10], [])
    slave.dataReceived(encode_report(10))
    assert master.senders.told == [(10, OK)]
