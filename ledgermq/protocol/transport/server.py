"""CommandServer: a listening port and its connections."""

from typing import Any, Final

from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory
from twisted.logger import Logger

from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.networks import network_of
from ledgermq.protocol.rate_limit import RateLimit
from ledgermq.protocol.tls.contexts import ServerTls
from ledgermq.protocol.transport.budgets import ReceiveBudget, SendBudget
from ledgermq.protocol.transport.command_protocol import CommandProtocol
from ledgermq.protocol.transport.limits import ConnectionLimits
from ledgermq.protocol.transport.receiver import Receiver
from ledgermq.protocol.transport.tls_link import TlsLink
from ledgermq.protocol.transport.turn import DelayedCall, TurnOutput
from ledgermq.protocol.transport.turn_shares import TurnShares

# Java's server backlog.
_BACKLOG: Final = 1024
# How often the times of the connections are checked.
_CHECK_INTERVAL_S: Final = 1.0
# So many of them in one turn, and when the next ones are.
_CHECKED_MAX: Final = 200
_CHECK_PAUSE_S: Final = 0.01
# How long a stopping server waits for answers to go out.
_STOP_TIMEOUT_S: Final = 2.0
# One line in the log for all connections refused in this time.
_REFUSAL_LOG_INTERVAL_S: Final = 60.0

_log = Logger()


class _CommandFactory(Factory):
    """Makes a CommandProtocol for each connection that is let in, behind TLS where that is on."""

    # Twisted would log each start and stop of the port.
    noisy = False

    def __init__(self, server: "CommandServer", tls: ServerTls | None) -> None:
        self._server = server
        self._tls = tls

    def buildProtocol(self, addr: IAddress | None) -> CommandProtocol | TlsLink | None:
        protocol = self._server.admit(str(getattr(addr, "host", "")))
        if protocol is None or self._tls is None:
            return protocol
        return TlsLink(protocol, server=self._tls)


class CommandServer:
    """Accepts connections on one address and hands their commands to one receiver.

    Invariant: `connections` holds exactly the connections whose receiver was told connection_made
    and not yet connection_lost; at most `connections_max`, and at most `connections_per_host_max`
    of one address.
    """

    def __init__(
        self,
        reactor: Any,
        receiver: Receiver[CommandProtocol],
        host: str,
        port: int,
        *,
        connections_max: int = 10_000,
        connections_per_host_max: int = 1_000,
        connections_per_host_rate: int = 100,
        idle_timeout_s: float = 120.0,
        limits: ConnectionLimits | None = None,
        output: TurnOutput | None = None,
        tls: ServerTls | None = None,
        shares: TurnShares | None = None,
        budget: ReceiveBudget | None = None,
        send_budget: SendBudget | None = None,
    ) -> None:
        """Opens nothing yet.

        Args:
            reactor: gives TCP and time.
            receiver: who gets the commands of all connections.
            host: address to listen on; empty for all.
            port: 0 has the system choose.
            connections_max: further ones are refused at accept.
            connections_per_host_max: the same for one peer address; of IPv6, for its /64.
            connections_per_host_rate: new connections a second of one peer address, and as many
                at once; further ones are refused at accept.
            idle_timeout_s: used when `limits` is None.
            limits: of each connection.
            output: shared with other servers and clients on this reactor; None for one of its own.
            tls: lets clients use TLS on the same port; None without.
            shares: shared with other servers whose clients count alike; None for one of its own.
            budget, send_budget: shared with others likewise.
        """
        self._reactor = reactor
        self._receiver = receiver
        self._host = host
        self._port = port
        self._tls = tls
        self._connections_max = connections_max
        self._connections_per_host_max = connections_per_host_max
        self._new_connections = RateLimit(connections_per_host_rate, connections_per_host_rate)
        self._limits = limits or ConnectionLimits(idle_timeout_s=idle_timeout_s)
        # Flushed at the end of each turn; a driver that works at the end of a turn may flush it
        # itself.
        self.output = output or TurnOutput(reactor)
        self._owns_output = output is None
        self._owns_shares = shares is None
        self._shares = shares or TurnShares(reactor)
        self._budget = budget or ReceiveBudget()
        self._send_budget = send_budget or SendBudget()
        # Open connections.
        self.connections: set[CommandProtocol] = set()
        # Connections that were refused for a limit.
        self.refused_count = 0
        self._refusal_logged_at = float("-inf")
        self._hosts: dict[str, int] = {}
        self._listening: Any = None
        # What is not closed keeps the address from who listens there next.
        self._is_port_closed = False
        self._check_call: DelayedCall | None = None
        self._stop_call: DelayedCall | None = None
        self._stopped: Deferred[None] | None = None

    def start(self) -> Deferred[int]:
        """Begins to listen.

        Returns:
            A Deferred with the port number; it fails with CannotListenError when the address is
            taken.
        """
        try:
            self._listening = self._reactor.listenTCP(
                self._port, _CommandFactory(self, self._tls), backlog=_BACKLOG, interface=self._host
            )
        except CannotListenError:
            return fail()
        self._check_call = self._reactor.callLater(_CHECK_INTERVAL_S, self._check)
        return succeed(self._listening.getHost().port)

    def stop(self) -> Deferred[None]:
        """Closes the port, lets answers that were sent go out, and closes all connections.

        Returns:
            A Deferred that fires when the port is closed and no connection is left, after two
            seconds at the latest.
        """
        if self._stopped is not None:
            return self._stopped
        self._stopped = Deferred()
        if self._check_call is not None:
            self._check_call.cancel()
            self._check_call = None
        if self._listening is None:
            self._finish()
        else:
            maybeDeferred(self._listening.stopListening).addBoth(self._close_connections)
        return self._stopped

    # For the factory.

    def admit(self, host: str) -> CommandProtocol | None:
        """Returns a protocol for a new connection, None to refuse it."""
        count = len(self.connections)
        network = network_of(host)
        host_count = self._hosts.get(network, 0)
        now_s = self._reactor.seconds()
        if (
            count < self._connections_max
            and host_count < self._connections_per_host_max
            and self._new_connections.take(network, now_s)
        ):
            return CommandProtocol(
                self._reactor,
                self,
                limits=self._limits,
                output=self.output,
                shares=self._shares,
                budget=self._budget,
                send_budget=self._send_budget,
            )
        self.refused_count += 1
        if now_s - self._refusal_logged_at >= _REFUSAL_LOG_INTERVAL_S:
            self._refusal_logged_at = now_s
            _log.warn(
                "refusing {host}: {count} connections of {limit}, {host_count} of "
                "{host_limit} from there, {rate} new ones a second; {refused} refused so far",
                host=host,
                count=count,
                limit=self._connections_max,
                host_count=host_count,
                host_limit=self._connections_per_host_max,
                rate=self._new_connections.per_second,
                refused=self.refused_count,
            )
        return None

    # Receiver of its own connections, so that it can count them.

    def connection_made(self, connection: CommandProtocol) -> None:
        self.connections.add(connection)
        host = network_of(connection.peer_host)
        self._hosts[host] = self._hosts.get(host, 0) + 1
        self._receiver.connection_made(connection)

    def commands_received(
        self, connection: CommandProtocol, commands: list[RemotingCommand]
    ) -> int | None:
        return self._receiver.commands_received(connection, commands)

    def connection_lost(self, connection: CommandProtocol, reason: str) -> None:
        self.connections.discard(connection)
        host = network_of(connection.peer_host)
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]
        try:
            self._receiver.connection_lost(connection, reason)
        finally:
            if self._is_port_closed and not self.connections:
                self._finish()

    def _check(self) -> None:
        """Checks each connection once a second; of ten thousand, some in each turn."""
        self._check_next(tuple(self.connections), self._reactor.seconds() + _CHECK_INTERVAL_S)

    def _check_next(self, connections: tuple[CommandProtocol, ...], again_at: float) -> None:
        now_s = self._reactor.seconds()
        for connection in connections[:_CHECKED_MAX]:
            connection.check(now_s)
        rest = connections[_CHECKED_MAX:]
        if rest:
            self._check_call = self._reactor.callLater(
                _CHECK_PAUSE_S, self._check_next, rest, again_at
            )
        else:
            self._check_call = self._reactor.callLater(max(again_at - now_s, 0.0), self._check)

    def _close_connections(self, _: object) -> None:
        self._is_port_closed = True
        if not self.connections:
            self._finish()
            return
        self._stop_call = self._reactor.callLater(_STOP_TIMEOUT_S, self._abort_connections)
        for connection in tuple(self.connections):
            connection.close("server stops")

    def _abort_connections(self) -> None:
        self._stop_call = None
        for connection in tuple(self.connections):
            connection.abort("server stops")

    def _finish(self) -> None:
        if self._stop_call is not None:
            self._stop_call.cancel()
            self._stop_call = None
        if self._owns_output:
            self.output.stop()
        if self._owns_shares:
            self._shares.stop()
        if self._stopped is not None and not self._stopped.called:
            self._stopped.callback(None)
