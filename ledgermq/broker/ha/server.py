"""HaServer: the port of a master where its slaves connect.

Each connection has a MasterLink that decides; here bytes come and go. What waits in memory for a
slave is bounded: frames are made only while its transport takes them, so a slow slave holds up
nothing but itself, and costs a buffer of the transport and one frame. Where a slave has to say who
it is (`greetings.py`), it has little time for that, and strangers are few.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList, fail, maybeDeferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IPushProducer
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.tcp import Connection
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from ledgermq.broker.ha.acknowledgements import Acknowledgements
from ledgermq.broker.ha.errors import ReplicationError
from ledgermq.broker.ha.greetings import HaAdmission, MasterGreeting
from ledgermq.broker.ha.master_link import MasterLink
from ledgermq.broker.ha.replicated_log import ReplicatedLog
from ledgermq.broker.ha.settings import HaSettings
from ledgermq.protocol.networks import network_of
from ledgermq.protocol.rate_limit import RateLimit
from ledgermq.protocol.tcp_times import CLIENT_TIMES, set_tcp_times
from ledgermq.protocol.tls.contexts import ServerTls
from ledgermq.protocol.transport.refusals import Refusals
from ledgermq.protocol.transport.tls_link import TlsLink

# Slaves of one master; further connections are refused.
SLAVES_MAX: Final = 32
# New connections a second of one address, or network: a slave tries again each few seconds.
_NEW_PER_S: Final = 32
# Frames that one slave gets before the reactor may do something else.
_FRAMES_PER_TURN: Final = 16

_log = Logger()


@implementer(IPushProducer)
class SlaveConnection(Protocol):
    """One slave's connection."""

    # Twisted's interfaces know neither producers nor an end at once.
    transport: Any

    def __init__(self, server: "HaServer") -> None:
        self._server = server
        self._link: MasterLink | None = None
        # Until it is done, nothing that comes is a report; None where nobody asks.
        self.greeting: MasterGreeting | None = None
        self.is_refused = False
        self._is_paused = False
        # The call that goes on with frames after a turn's share; None when none waits.
        self._next_turn: Any = None
        self.host = self.peer = "?"
        # Fires when the connection is gone.
        self.closed: Deferred[None] = Deferred()

    @property
    def link(self) -> MasterLink:
        """What is known of the slave."""
        assert self._link is not None, "a connection that was not made is asked"
        return self._link

    # Called by Twisted.

    def connectionMade(self) -> None:
        address = self.transport.getPeer()
        self.host = str(getattr(address, "host", "?"))
        self.peer = f"{self.host}:{getattr(address, 'port', 0)}"
        self._link = self._server.new_link()
        self.greeting = self._server.new_greeting(self.host, self._binding)
        self.transport.registerProducer(self, True)
        if isinstance(self.transport, TlsLink):
            self.transport.set_tcp_times(CLIENT_TIMES)
        elif isinstance(self.transport, Connection):
            # What is appended goes out in pieces, and senders wait for the last one.
            self.transport.setTcpNoDelay(True)
            set_tcp_times(self.transport.getHandle(), CLIENT_TIMES)
        self._server.connection_made(self)

    def _binding(self) -> str:
        return self.transport.binding if isinstance(self.transport, TlsLink) else ""

    # Called by TlsLink.

    def use(self, transport: Any) -> None:
        """Goes on without TLS: the slave did not begin with it."""
        self.transport = transport

    def close(self, reason: str) -> None:
        """TLS ended, or cannot go on."""
        if self.greeting is not None and not self.is_refused:
            self.refuse_stranger(reason)
        else:
            self.abort()

    def dataReceived(self, data: bytes) -> None:
        greeting = self.greeting
        if greeting is not None:
            try:
                answer, data = greeting.feed(data)
            except ReplicationError as error:
                self.refuse_stranger(str(error))
                return
            if answer:
                self.transport.write(answer)
            if not greeting.is_done:
                return
            self.greeting = None
            if not self._server.greeted(self, greeting.doubt):
                self.abort()
                return
        self._receive(data)

    def _receive(self, data: bytes) -> None:
        is_first = self.link.acknowledged_offset is None
        try:
            is_report = self.link.receive(data, self._server.now_ms())
        except ReplicationError as error:
            self._refuse(error)
            return
        if is_report:
            self._server.reported(self, is_first)
            self.send_frames()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None
        self._is_paused = True
        self._server.connection_lost(self, reason.getErrorMessage())
        self.closed.callback(None)

    def pauseProducing(self) -> None:
        self._is_paused = True

    def resumeProducing(self) -> None:
        self._is_paused = False
        self.send_frames()

    def stopProducing(self) -> None:
        self._is_paused = True

    # Called by the server.

    def send_frames(self) -> None:
        """Sends what the slave lacks, as far as its transport takes it now."""
        if self._next_turn is not None:
            return
        for _ in range(_FRAMES_PER_TURN):
            if self._is_paused:
                return
            try:
                frame = self.link.take_frame(self._server.now_ms())
            except ReplicationError as error:
                self._refuse(error)
                return
            if frame is None:
                return
            self.transport.write(frame)
        self._next_turn = self._server.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._next_turn = None
        self.send_frames()

    def abort(self) -> None:
        """Closes the connection without waiting for the slave to read."""
        self._is_paused = True
        self.transport.abortConnection()

    def refuse_stranger(self, reason: str) -> None:
        """Ends a connection of which it is not known whose it is."""
        self.is_refused = True
        self._server.refusals.note("a slave", self.host, reason)
        self.abort()

    def _refuse(self, error: ReplicationError) -> None:
        _log.error("slave {peer} is refused: {reason}", peer=self.peer, reason=str(error))
        self.abort()


class _SlaveFactory(Factory):
    # Twisted would log each start and stop of the port.
    noisy = False

    def __init__(self, server: "HaServer") -> None:
        self._server = server

    def buildProtocol(self, addr: IAddress | None) -> SlaveConnection | TlsLink | None:
        connection, tls = self._server.admit(addr), self._server.tls
        if connection is None or tls is None:
            return connection
        return TlsLink(connection, server=tls)


class HaServer:
    """All slaves of one master.

    Attributes:
        acknowledgements: told of every report.
    """

    def __init__(
        self,
        reactor: Any,
        log: ReplicatedLog,
        settings: HaSettings,
        acknowledgements: Acknowledgements,
        *,
        host: str,
        port: int,
        admission: HaAdmission | None = None,
        refusals: Refusals | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        """Opens nothing yet.

        Args:
            reactor: gives TCP and time.
            log: what slaves copy.
            settings: sizes and times.
            acknowledgements: of the appends that wait for a slave.
            host: address to listen on; empty for all.
            port: 0 has the system choose.
            admission: what slaves have to prove; None: nothing.
            refusals: told who is not served; None for one of its own.
            tls: of the port; None: none.
        """
        self.tls = tls
        self._reactor = reactor
        self._new_connections = RateLimit(_NEW_PER_S, _NEW_PER_S)
        self._replicated_log = log
        self._settings = settings
        self.acknowledgements = acknowledgements
        self._host = host
        self._port = port
        self._listening: Any = None
        self._admission = admission
        self.refusals = refusals or Refusals("master", reactor.seconds)
        # In the order in which they were made.
        self._connections: dict[SlaveConnection, None] = {}

    def start(self) -> Deferred[int]:
        """Begins to listen; fires with the port, or fails with CannotListenError."""
        try:
            self._listening = self._reactor.listenTCP(
                self._port, _SlaveFactory(self), interface=self._host
            )
        except CannotListenError:
            return fail()
        return succeed(self._listening.getHost().port)

    def log_advanced(self) -> None:
        """Sends what was appended; called once after each turn's append."""
        for connection in list(self._connections):
            connection.send_frames()

    def check(self) -> None:
        """Sends heart beats that are due, ends silent connections and overdue waits; called
        several times in each heart beat.
        """
        now_ms = self.now_ms()
        self.acknowledgements.expire(now_ms)
        for connection in list(self._connections):
            greeting = connection.greeting
            if greeting is not None:
                if now_ms >= greeting.end_ms:
                    connection.refuse_stranger("it did not say who it is in time")
            elif connection.link.is_silent(now_ms):
                _log.warn(
                    "slave {peer} has said nothing for more than {limit} ms"
                    " (key haHousekeepingInterval): its connection is closed",
                    peer=connection.peer,
                    limit=self._settings.silence_ms_max,
                )
                connection.abort()
            else:
                connection.send_frames()

    def stop(self) -> Deferred[Any]:
        """Closes the port and all connections; fires when none is left."""
        self.acknowledgements.close()
        waiting: list[Deferred[Any]] = []
        if self._listening is not None:
            waiting.append(maybeDeferred(self._listening.stopListening))
            self._listening = None
        for connection in list(self._connections):
            waiting.append(connection.closed)
            connection.abort()
        return DeferredList(waiting, consumeErrors=True)

    # For the connections.

    def admit(self, address: IAddress | None) -> SlaveConnection | None:
        """Returns the protocol of a new connection, None when there are enough."""
        host = str(getattr(address, "host", "?"))
        if not self._new_connections.take(network_of(host), self._reactor.seconds()):
            self._refuse_new(host, f"more than {_NEW_PER_S} new connections a second")
            return None
        if self._slave_count() >= SLAVES_MAX:
            self._refuse_new(host, f"{SLAVES_MAX} slaves are connected")
            return None
        strangers = [one for one in self._connections if one.greeting and not one.is_refused]
        if len(strangers) >= SLAVES_MAX:
            # Whoever holds most of them loses its oldest one.
            (host, _), *_ = Counter(network_of(one.host) for one in strangers).most_common(1)
            next(one for one in strangers if network_of(one.host) == host).refuse_stranger(
                f"{SLAVES_MAX} connections have not said who they are"
            )
        return SlaveConnection(self)

    def _slave_count(self) -> int:
        return sum(one.greeting is None for one in self._connections)

    def _refuse_new(self, host: str, reason: str) -> None:
        # Not as the slave that may be there, too: its own reason stays to be read.
        self.refusals.note("a new connection", host, reason)

    def new_greeting(self, host: str, binding: Callable[[], str]) -> MasterGreeting | None:
        """Returns what a slave has to say first; None when that is its report."""
        admission = self._admission
        if admission is None or not admission.greets:
            return None
        return MasterGreeting(admission, host, self.now_ms(), binding)

    def greeted(self, connection: SlaveConnection, doubt: str | None) -> bool:
        """Takes a connection for a slave's; False when there are enough of them."""
        if doubt is None:
            self.refusals.forget("a slave", connection.host)
        else:
            self.refusals.note("a slave", connection.host, f"let in: {doubt}")
        if self._slave_count() > SLAVES_MAX:
            self._refuse_new(connection.host, f"{SLAVES_MAX} slaves are connected")
            return False
        return True

    def new_link(self) -> MasterLink:
        """Returns the state of a new connection."""
        return MasterLink(
            self._replicated_log,
            batch_bytes_max=self._settings.batch_bytes_max,
            heart_beat_ms=self._settings.heart_beat_ms,
            silence_ms_max=self._settings.silence_ms_max,
            now_ms=self.now_ms(),
        )

    def connection_made(self, connection: SlaveConnection) -> None:
        """Takes a new connection."""
        self._connections[connection] = None

    def reported(self, connection: SlaveConnection, is_first: bool) -> None:
        """Takes a slave's report."""
        if is_first:
            offset = connection.link.next_offset
            _log.info("slave {peer} copies from {offset} on", peer=connection.peer, offset=offset)
        self._count_slaves()

    def connection_lost(self, connection: SlaveConnection, reason: str) -> None:
        """Takes the end of a connection."""
        self._connections.pop(connection, None)
        if connection.greeting is not None:
            return
        self._count_slaves()
        _log.info(
            "slave {peer} is gone at {offset}: {reason}",
            peer=connection.peer,
            offset=connection.link.acknowledged_offset,
            reason=reason,
        )

    def _count_slaves(self) -> None:
        offsets = (one.link.acknowledged_offset for one in self._connections)
        self.acknowledgements.reported([offset for offset in offsets if offset is not None])

    def now_ms(self) -> float:
        """Returns monotonic time."""
        seconds: float = self._reactor.seconds()
        return seconds * 1000.0

    def call_soon(self, function: Any) -> Any:
        """Has a function called in a turn of its own; returns the call."""
        return self._reactor.callLater(0, function)
