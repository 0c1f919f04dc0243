"""Calls of a node that is held up or dead; its connections are the gate's business."""

from typing import Any

from twisted.internet.testing import MemoryReactorClock

from ledgermq.protocol.transport import CommandClient
from ledgermq.testing.node_reactor import NodeReactor, Side
from tests.unit.protocol.wires import Recorder
from tests.unit.testing.test_gate import Transport


class Scene:
    """A node's reactor on a clock of memory, and what ran."""

    def __init__(self) -> None:
        self.clock: Any = MemoryReactorClock()
        # The clock of memory knows no threads.
        self.clock.callFromThread = lambda function, *arguments: function(*arguments)
        self.reactor = NodeReactor(self.clock, {})
        self.ran: list[str] = []

    def call(self, name: str, delay_s: float) -> Any:
        return self.reactor.callLater(delay_s, self.ran.append, name)


def test_paused_node_does_nothing_and_catches_up_in_order() -> None:
    scene = Scene()
    for name, delay_s in (("b", 2.0), ("a", 1.0), ("c", 10.0)):
        scene.call(name, delay_s)
    scene.reactor.pause()
    scene.reactor.callFromThread(scene.ran.append, "from a thread")
    scene.clock.advance(5)
    assert scene.ran == []
    scene.reactor.resume()
    assert scene.ran == ["from a thread"]
    scene.clock.advance(0)
    assert sorted(scene.ran[1:]) == ["a", "b"]
    scene.clock.advance(4.9)
    assert "c" not in scene.ran
    scene.clock.advance(0.2)
    assert scene.ran[-1] == "c"


def test_calls_of_a_paused_node_can_be_cancelled_and_made() -> None:
    scene = Scene()
    cancelled = scene.call("cancelled", 1.0)
    scene.reactor.pause()
    cancelled.cancel()
    late = scene.call("late", 1.0)
    scene.clock.advance(5)
    assert late.active()
    scene.reactor.resume()
    scene.clock.advance(0)
    assert scene.ran == ["late"]
    assert scene.clock.getDelayedCalls() == []


def test_dead_node_leaves_no_call_and_takes_none() -> None:
    scene = Scene()
    scene.call("before", 1.0)
    scene.reactor.pause()
    scene.reactor.callFromThread(scene.ran.append, "held")
    killed = scene.reactor.kill()
    scene.clock.advance(0)
    assert killed.called
    assert not scene.call("after", 0.0).active()
    scene.reactor.callFromThread(scene.ran.append, "from a thread")
    scene.reactor.resume()
    scene.clock.advance(5)
    assert scene.ran == []
    assert scene.clock.getDelayedCalls() == []


def test_calls_that_are_over_are_forgotten() -> None:
    scene = Scene()
    for _ in range(10_000):
        scene.call("x", 0.0).cancel()
    assert len(scene.reactor._calls) < 2_000


def test_attempt_that_reached_a_silent_node_may_be_given_up() -> None:
    """The real connection is there, but the node has never heard of it, and never will."""
    scene = Scene()
    scene.reactor.isolate(frozenset({Side.NODES}))
    receiver = Recorder()
    client = CommandClient(scene.reactor, "10.0.0.9", 1, receiver, connect_timeout_ms=1000)
    client.start()
    transport = Transport()
    scene.clock.tcpClients[0][2].buildProtocol(None).makeConnection(transport)
    # The clock of memory keeps no state of it.
    scene.clock.connectors[0].state = "connected"
    for _ in range(20):
        scene.clock.advance(0.1)
    assert transport.is_aborted
    assert len(scene.clock.tcpClients) == 2
    scene.reactor.heal()
    assert receiver.made == []
    scene.clock.tcpClients[1][2].buildProtocol(None).makeConnection(Transport())
    assert len(receiver.made) == 1
