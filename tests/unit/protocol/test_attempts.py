"""Attempts to connect end in time and begin anew at once, whatever became of their first packet."""

from typing import Any

from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import ConnectionClosedError
from ledgermq.protocol.transport import CommandClient

# Of the transport of memory.
PEER_HOST = "192.168.1.1"


class Rig:
    """A client whose attempts the test decides about."""

    def __init__(self, host: str = "10.0.0.9", **changes: Any) -> None:
        self.clock = MemoryReactorClock()
        self.client = CommandClient(self.clock, host, 1, **changes)

    @property
    def attempt_count(self) -> int:
        return len(self.clock.tcpClients)

    def pass_s(self, seconds: float) -> None:
        for _ in range(round(seconds * 100)):
            self.clock.advance(0.01)

    def accept(self) -> None:
        """The newest attempt reaches its peer."""
        factory: Any = self.clock.tcpClients[-1][2]
        self.protocol = factory.buildProtocol(None)
        self.protocol.makeConnection(StringTransport())

    def lose(self) -> None:
        self.protocol.connectionLost(Failure(ConnectionDone()))

    def refuse(self) -> None:
        factory: Any = self.clock.tcpClients[-1][2]
        factory.clientConnectionFailed(None, Failure(ConnectionRefusedError()))


def test_attempt_without_an_answer_is_given_up_and_made_anew_at_once() -> None:
    rig = Rig(connect_timeout_ms=1000, back_off=lambda count: 1.0)
    rig.client.start()
    rig.pass_s(0.99)
    assert rig.attempt_count == 1
    rig.pass_s(0.05)
    assert rig.attempt_count == 2
    assert rig.clock.connectors[0].stoppedConnecting
    rig.pass_s(10)
    assert 9 <= rig.attempt_count - 2 <= 10
    rig.accept()
    assert rig.client.is_connected


def test_attempt_that_failed_at_once_is_made_anew_after_the_whole_back_off() -> None:
    rig = Rig(connect_timeout_ms=1000, back_off=lambda count: 1.0)
    rig.client.start()
    rig.refuse()
    rig.pass_s(0.9)
    assert rig.attempt_count == 1
    rig.pass_s(0.2)
    assert rig.attempt_count == 2


def test_time_that_an_attempt_took_counts_as_waited() -> None:
    rig = Rig(connect_timeout_ms=1000, back_off=lambda count: 1.0)
    rig.client.start()
    rig.pass_s(0.6)
    rig.refuse()
    rig.pass_s(0.35)
    assert rig.attempt_count == 1
    rig.pass_s(0.1)
    assert rig.attempt_count == 2


def test_process_that_was_held_up_itself_finds_that_it_is_connected() -> None:
    """Timers come before sockets in a turn: the one of an attempt must not be the last word."""
    rig = Rig(connect_timeout_ms=1000)
    rig.client.start()
    rig.clock.advance(60)
    rig.accept()
    assert rig.client.is_connected
    rig.pass_s(60)
    assert rig.attempt_count == 1


def test_who_waits_for_an_attempt_that_is_given_up_hears_why() -> None:
    rig = Rig(connect_timeout_ms=1000)
    failures: list[Failure] = []
    request = RemotingCommand(code=RequestCode.GET_BROKER_CONFIG)
    rig.client.request(request, 5000).addErrback(failures.append)
    rig.pass_s(1.1)
    assert isinstance(failures[0].value, ConnectionClosedError)
    assert "no answer in 1 s" in str(failures[0].value)


def test_attempt_of_a_client_that_stops_leaves_no_timer() -> None:
    rig = Rig()
    rig.client.start()
    rig.pass_s(2)
    stopped = rig.client.stop()
    assert stopped.called
    assert rig.clock.getDelayedCalls() == []


def test_every_other_attempt_goes_where_the_last_connection_led() -> None:
    """Names cannot be looked up while the network is gone that leads to who knows them."""
    rig = Rig(host="broker-b", connect_timeout_ms=1000, remembers_address=True)
    rig.client.start()
    rig.pass_s(3.1)
    assert {host for host, *_ in rig.clock.tcpClients} == {"broker-b"}
    rig.accept()
    rig.lose()
    begun = len(rig.clock.tcpClients)
    rig.pass_s(4.3)
    hosts = [host for host, *_ in rig.clock.tcpClients[begun:]]
    assert hosts[:4] == ["broker-b", PEER_HOST, "broker-b", PEER_HOST]


def test_name_alone_counts_for_those_who_cannot_tell_whom_they_reached() -> None:
    rig = Rig(host="broker-b", connect_timeout_ms=1000)
    rig.client.start()
    rig.accept()
    rig.lose()
    rig.pass_s(5)
    assert {host for host, *_ in rig.clock.tcpClients} == {"broker-b"}
