"""What passes a gate, and what waits before it."""

from typing import Any

from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from ledgermq.testing.gate import Gate


class Transport(StringTransport):
    """A socket of memory with the one option that is set."""

    is_aborted = False

    def abortConnection(self) -> None:
        self.is_aborted = True

    def setTcpNoDelay(self, enabled: bool) -> None:
        assert enabled


class Node(Protocol):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.link: Any = None

    def connectionMade(self) -> None:
        self.link = self.transport
        self.told.append("made")

    def dataReceived(self, data: bytes) -> None:
        self.told.append(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.told.append(reason.type)


class Scene:
    """A gate between a node and a transport."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.node = Node()
        self.transport = Transport()
        self.lost: list[Gate] = []
        self.later: list[Any] = []
        self.gate = Gate(
            self.node, is_open=is_open, soon=self.later.append, on_lost=self.lost.append
        )
        self.gate.makeConnection(self.transport)

    def take_sent(self) -> bytes:
        sent = self.transport.value()
        self.transport.clear()
        return sent


def test_open_gate_lets_everything_through() -> None:
    scene = Scene()
    scene.gate.dataReceived(b"in")
    scene.node.link.write(b"out")
    assert scene.node.told == ["made", b"in"]
    assert scene.take_sent() == b"out"
    scene.gate.connectionLost(Failure(ConnectionLost()))
    assert scene.node.told[-1] is ConnectionLost
    assert scene.lost == [scene.gate]


def test_shut_gate_keeps_what_comes_and_goes_in_order() -> None:
    scene = Scene()
    scene.gate.set_open(False)
    assert scene.transport.producerState == "paused"
    # Read before it was shut.
    scene.gate.dataReceived(b"1")
    scene.node.link.write(b"a")
    scene.node.link.write(b"b")
    scene.gate.dataReceived(b"2")
    assert (scene.node.told, scene.take_sent()) == (["made"], b"")
    scene.gate.set_open(True)
    assert (scene.node.told, scene.take_sent()) == (["made", b"1", b"2"], b"ab")
    assert scene.transport.producerState == "producing"


def test_connection_through_a_shut_gate_is_made_when_it_opens() -> None:
    scene = Scene(is_open=False)
    assert scene.transport.producerState == "paused"
    assert scene.node.told == []
    scene.gate.set_open(True)
    assert scene.node.told == ["made"]


def test_end_of_a_connection_waits_before_a_shut_gate() -> None:
    scene = Scene()
    scene.gate.set_open(False)
    scene.gate.connectionLost(Failure(ConnectionLost()))
    assert scene.lost == [scene.gate]
    assert scene.node.told == ["made"]
    scene.gate.set_open(True)
    assert scene.node.told == ["made", ConnectionLost]


def test_node_that_paused_its_reading_is_not_read_for_when_the_gate_opens() -> None:
    scene = Scene()
    scene.node.link.pauseProducing()
    scene.gate.set_open(False)
    scene.gate.set_open(True)
    assert scene.transport.producerState == "paused"
    scene.node.link.resumeProducing()
    assert scene.transport.producerState == "producing"


def test_node_may_leave_a_connection_whose_gate_is_shut() -> None:
    """For the node it is over at once, the peer hears of it, and of what was sent, later."""
    scene = Scene()
    scene.gate.set_open(False)
    scene.node.link.write(b"farewell")
    scene.node.link.loseConnection()
    assert not scene.transport.disconnecting
    [end] = scene.later
    end()
    assert scene.node.told == ["made", ConnectionDone]
    scene.gate.dataReceived(b"late")
    scene.gate.set_open(True)
    assert scene.take_sent() == b"farewell"
    assert scene.transport.disconnecting
    assert scene.node.told == ["made", ConnectionDone]


def test_abort_behind_a_shut_gate_drops_what_was_to_be_sent() -> None:
    scene = Scene()
    scene.gate.set_open(False)
    scene.node.link.write(b"lost")
    scene.node.link.loseConnection()
    scene.node.link.abortConnection()
    assert len(scene.later) == 1
    scene.gate.set_open(True)
    assert scene.take_sent() == b""
    assert scene.transport.is_aborted


def test_abort_tells_the_node_that_it_was_one() -> None:
    scene = Scene()
    scene.gate.set_open(False)
    scene.node.link.abortConnection()
    scene.later[0]()
    assert scene.node.told == ["made", ConnectionAborted]


def test_dead_node_hears_nothing_more() -> None:
    scene = Scene()
    scene.gate.kill()
    assert scene.transport.is_aborted
    scene.gate.dataReceived(b"late")
    scene.gate.connectionLost(Failure(ConnectionAborted()))
    assert scene.node.told == ["made"]
    assert scene.lost == [scene.gate]
