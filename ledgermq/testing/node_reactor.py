"""NodeReactor: what a node of a cluster gets for its reactor.

All nodes of a cluster run on one real reactor. Each sees it through an object of its own, by which
the node can be treated as a machine is treated in the field:

    pause     no call of it runs, nothing is read or sent; all goes on with `resume` (SIGSTOP)
    isolate   its connections, or only those to other nodes, are silent until `heal` (a cut cable)
    kill      calls, ports and connections are gone, at once and without a word (SIGKILL)
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

from twisted.internet.base import DelayedCall
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.protocol import ClientFactory, Factory
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from ledgermq.testing.gate import Gate
from ledgermq.testing.ports import ReservedPort

# A call that is held up is moved so far.
_HELD_S: Final = 1e9
# Calls that are over are forgotten when so many more than before are known.
_CALLS_STEP: Final = 500


class Side(Enum):
    """Who is at the other end of a connection."""

    # Another node of the cluster, its name server among them.
    NODES = "nodes"
    CLIENTS = "clients"


class _GateFactory(Factory):
    """Puts a gate before each protocol that a node's factory makes."""

    noisy = False

    def __init__(self, owner: "NodeReactor", factory: Any, side: Side) -> None:
        self.owner = owner
        self.factory = factory
        self.side = side

    def buildProtocol(self, addr: Any) -> Any:
        protocol = self.factory.buildProtocol(addr)
        return None if protocol is None else self.owner.add_gate(protocol, self.side)

    def doStart(self) -> None:
        self.factory.doStart()

    def doStop(self) -> None:
        self.factory.doStop()


class _Attempt:
    """An attempt of a node to connect, as far as the node knows of it.

    The real one may be over: what came of it then waits behind a gate that is shut.
    """

    def __init__(self, connector: Any) -> None:
        self._connector = connector
        # Set with the connection.
        self.gate: Gate | None = None

    def getDestination(self) -> Any:
        """Where to."""
        return self._connector.getDestination()

    def stopConnecting(self) -> None:
        """Gives the attempt up."""
        if self.gate is not None:
            self.gate.kill()
        elif self._connector.state == "connecting":
            self._connector.stopConnecting()


class _ClientGateFactory(_GateFactory, ClientFactory):
    """The same for outgoing connections; one for each attempt."""

    _attempt: _Attempt | None = None

    def startedConnecting(self, connector: Any) -> None:
        self._attempt = _Attempt(connector)
        self.factory.startedConnecting(self._attempt)

    def buildProtocol(self, addr: Any) -> Any:
        gate = super().buildProtocol(addr)
        if self._attempt is not None:
            self._attempt.gate = gate
        return gate

    def clientConnectionFailed(self, connector: Any, reason: Failure) -> None:
        self.owner.tell(lambda: self.factory.clientConnectionFailed(connector, reason))

    def clientConnectionLost(self, connector: Any, reason: Failure) -> None:
        self.owner.tell(lambda: self.factory.clientConnectionLost(connector, reason))


class NodeReactor:
    """One life of one node; a node that is started again gets another.

    Only the methods that brokers and name servers use of a reactor. All belongs into the thread of
    the real one.
    """

    def __init__(self, reactor: Any, ports: Mapping[int, tuple[ReservedPort, Side]]) -> None:
        """Nothing runs yet.

        Args:
            reactor: the real one.
            ports: by number, those that the node may listen on, and who connects to each.
        """
        self._reactor = reactor
        self._ports = ports
        self._gates: dict[Gate, Side] = {}
        self._listening: list[tuple[Any, Side]] = []
        self._connectors: list[Any] = []
        self._calls: list[DelayedCall] = []
        self._calls_max = _CALLS_STEP
        # Calls that a pause holds up, each with the time when it was due.
        self._held_calls: list[tuple[DelayedCall, float]] = []
        # What other threads and connections told a paused node.
        self._held_events: list[Callable[[], None]] = []
        self._is_paused = False
        self._silent: frozenset[Side] = frozenset()
        self._is_dead = False

    # What a node uses.

    def seconds(self) -> float:
        """Monotonic time, which a pause does not stop."""
        return float(self._reactor.seconds())

    def callLater(
        self, delay: float, callable: Callable[..., Any], *arguments: Any, **keywords: Any
    ) -> DelayedCall:
        """Calls a function after a time, unless the node has died."""
        call: DelayedCall = self._reactor.callLater(delay, callable, *arguments, **keywords)
        if self._is_dead:
            call.cancel()
        elif self._is_paused:
            self._hold(call)
        self._calls.append(call)
        if len(self._calls) > self._calls_max:
            self._calls = [call for call in self._calls if call.active()]
            self._calls_max = 2 * len(self._calls) + _CALLS_STEP
        return call

    def callFromThread(
        self, callable: Callable[..., Any], *arguments: Any, **keywords: Any
    ) -> None:
        """Calls a function in the reactor's thread."""
        self._reactor.callFromThread(self.tell, lambda: callable(*arguments, **keywords))

    def getThreadPool(self) -> Any:
        """The real reactor's: threads write on while their node is paused, as its disk would."""
        return self._reactor.getThreadPool()

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:
        """Listens on one of the node's own ports, which is kept free for it."""
        reserved, side = self._ports[port]
        gate_factory = _GateFactory(self, factory, side)
        # The real port has a socket of its own.
        with reserved.listen() as listening:
            real = self._reactor.adoptStreamPort(listening.fileno(), listening.family, gate_factory)
        self._listening.append((real, side))
        return real

    def connectTCP(
        self,
        host: str,
        port: int,
        factory: Any,
        timeout: float = 30,
        bindAddress: tuple[str, int] | None = None,
    ) -> Any:
        """Connects to another node."""
        self._connectors = [c for c in self._connectors if c.state != "disconnected"]
        gate_factory = _ClientGateFactory(self, factory, Side.NODES)
        connector = self._reactor.connectTCP(host, port, gate_factory, timeout, bindAddress)
        self._connectors.append(connector)
        return connector

    # For the connections.

    def add_gate(self, protocol: Any, side: Side) -> Gate:
        """Returns the gate before the protocol of a new connection."""
        gate = Gate(
            protocol,
            is_open=self._lets_through(side),
            soon=lambda function: self.callLater(0, function),
            on_lost=self._gates.pop,
        )
        self._gates[gate] = side
        return gate

    def tell(self, event: Callable[[], None]) -> None:
        """Lets the node take an event: now, after its pause, or never when it has died."""
        if self._is_dead:
            return
        if self._is_paused:
            self._held_events.append(event)
        else:
            event()

    # What may happen to a node.

    @property
    def is_paused(self) -> bool:
        """True between `pause` and `resume`."""
        return self._is_paused

    @property
    def is_isolated(self) -> bool:
        """True between `isolate` and `heal`."""
        return bool(self._silent)

    def pause(self) -> None:
        """Holds everything up."""
        if self._is_paused:
            return
        self._is_paused = True
        for call in self._calls:
            if call.active():
                self._hold(call)
        self._set_gates()

    def _hold(self, call: DelayedCall) -> None:
        self._held_calls.append((call, call.getTime()))
        call.reset(_HELD_S)

    def resume(self) -> None:
        """Goes on with what was held up, in its order; what is overdue comes at once."""
        if not self._is_paused:
            return
        self._is_paused = False
        now_s = self.seconds()
        held_calls, self._held_calls = self._held_calls, []
        for call, due_s in held_calls:
            if call.active():
                call.reset(max(0.0, due_s - now_s))
        events, self._held_events = self._held_events, []
        for event in events:
            event()
        self._set_gates()

    def isolate(self, silent: frozenset[Side]) -> None:
        """Lets nothing pass on the connections of these sides, old and new ones."""
        self._silent = silent
        self._set_gates()

    def heal(self) -> None:
        """Ends that."""
        self.isolate(frozenset())

    def kill(self) -> Deferred[Any]:
        """Ends everything; fires when ports and connections are closed."""
        self._is_dead = True
        self._held_calls.clear()
        self._held_events.clear()
        for call in self._calls:
            if call.active():
                call.cancel()
        self._calls.clear()
        for gate in tuple(self._gates):
            gate.kill()
        for connector in self._connectors:
            if connector.state == "connecting":
                connector.stopConnecting()
        self._connectors.clear()
        closed = [maybeDeferred(real.stopListening) for real, _ in self._listening]
        self._listening.clear()
        # Connections that are aborted end in the next turn.
        return DeferredList(closed).addBoth(lambda _: deferLater(self._reactor, 0))

    def _lets_through(self, side: Side) -> bool:
        return not self._is_paused and side not in self._silent

    def _set_gates(self) -> None:
        for gate, side in tuple(self._gates.items()):
            gate.set_open(self._lets_through(side))
        for real, side in self._listening:
            # A port that is stopped has no socket any more.
            if not real.connected:
                continue
            if self._lets_through(side):
                real.startReading()
            else:
                real.stopReading()
