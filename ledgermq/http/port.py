"""HttpPort: the socket. It and `exchange.py` know twisted.web, so import it where a port opens.

When there are too many connections, one that waits for a whole request is closed for a new one, of
the address that most of these come from; when all are being answered, the new one is. Requests of
a connection come one after the other, and all of a turn together have a bounded part of it, in
which those who ask for little come first; head and body are bounded in bytes and in time. No
request is written to a log.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure
from twisted.web import http

from ledgermq.http.application import Application
from ledgermq.http.exchange import Exchange, reason_of
from ledgermq.http.limits import Limits
from ledgermq.http.replies import Reply, RequestError
from ledgermq.protocol.networks import network_of
from ledgermq.protocol.rate_limit import RateLimit
from ledgermq.protocol.tcp_times import ACCEPTED_TIMES, set_tcp_times
from ledgermq.protocol.tls.contexts import ServerTls
from ledgermq.protocol.transport.tls_link import TlsLink
from ledgermq.protocol.transport.turn_shares import Share, TurnShares

_HEAD_BYTES_MAX: Final = 16_384
_HEADERS_MAX: Final = 100
# Of the number of Content-Length; Python reads no more than 4,300.
_LENGTH_DIGITS_MAX: Final = 19
_BACKLOG: Final = 128
# Read at a time. Twisted copies what is left of it for each line of a head, so a chunk of 64 KiB
# with a thousand requests takes a third of all the time.
_READ_BYTES: Final = 8_192
# Seconds of a turn, as TurnShares takes them: a small page takes 0.2 ms, and whoever looks for
# health waits for some turns.
_SHARE_S: Final = 0.001
_TURN_S: Final = 0.002
_CROWDED_S: Final = 0.001

# Runs what a view gives back later. Under asyncio's reactor a coroutine may wait for its futures.
Run = Callable[[Awaitable[Reply]], "Deferred[Reply]"]


def run_coroutine(reply: Awaitable[Reply]) -> "Deferred[Reply]":
    """Runs a coroutine that waits for Deferreds."""
    if isinstance(reply, Deferred):
        return reply
    return Deferred.fromCoroutine(cast(Any, reply))


class HttpPort:
    """One listening socket.

    Attributes:
        port: where it listens; known after start.
        connection_count: open connections.
        refused_count: connections that were closed because there were too many, or too many a
            second.
        body_bytes: of the bodies that are held.
        unread_bytes: of the answers that are held, as their clients have not read them.
    """

    def __init__(
        self,
        reactor: Any,
        application: Application,
        *,
        host: str,
        port: int,
        limits: Limits | None = None,
        run: Run = run_coroutine,
        tls: ServerTls | None = None,
    ) -> None:
        """Opens nothing yet.

        Args:
            reactor: gives TCP and time.
            application: answers.
            host: address to bind to.
            port: 0 for any.
            limits: None for the usual ones.
            run: runs awaitables of views.
            tls: certificates; whoever connects in plain is closed. None: no TLS.
        """
        assert tls is None or tls.refuses_plain, "nobody could tell which way a request came"
        self.tls = tls
        self.reactor, self.application = reactor, application
        self.limits, self.run = limits or Limits(), run
        self._host, self.port = host, port
        self._listening: Any = None
        self._connections: set[_Connection] = set()
        # Those of them that no request is answered on, the one that waits for longest first.
        self._waiting: dict[_Connection, None] = {}
        rate = self.limits.connections_per_host_rate
        self._new_connections = RateLimit(rate, rate)
        self.refused_count = 0
        self.body_bytes = 0
        # Of answers that were not read, by whom they are for.
        self._unread: Counter[str] = Counter()
        # Connections that they wait on, the one that has them for longest first.
        self._full: dict[_Connection, None] = {}
        self.shares = TurnShares(
            reactor,
            share_s=_SHARE_S,
            turn_s=_TURN_S,
            crowded_s=_CROWDED_S,
            processor_s=time.thread_time,
        )

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    @property
    def unread_bytes(self) -> int:
        return self._unread.total()

    def make_room_for(self, payer: str, size: int) -> bool:
        """Tells whether an answer may wait for a client to read it; one alone may, whatever its
        size. Closes connections of others that hold more, those that read nothing for longest.
        """
        own, size_max = self._unread.get(payer, 0), self.limits.answers_bytes_max
        if own and own + size > size_max // 2:
            return False
        while self._unread and self.unread_bytes + size > size_max:
            most = max(self._unread, key=lambda one: self._unread[one])
            if most == payer:
                return False
            # Its loss is told in a later turn.
            longest = next(one for one in self._full if one.payer == most)
            longest.let_go()
            longest.abort()
        return True

    def hold(self, connection: "_Connection", size: int) -> None:
        """Counts an answer that waits; with a negative size, all of a connection that do no
        longer.
        """
        payer = connection.payer
        self._unread[payer] += size
        if not self._unread[payer]:
            del self._unread[payer]
        if size > 0:
            self._full.setdefault(connection)
        else:
            self._full.pop(connection, None)

    def start(self) -> None:
        """Listens.

        Raises:
            CannotListenError: the port is taken.
        """
        self._listening = self.reactor.listenTCP(
            self.port, _Factory(self), backlog=_BACKLOG, interface=self._host
        )
        self.port = self._listening.getHost().port

    def stop(self) -> "Deferred[Any]":
        """Ends all connections; fires when nobody listens any more."""
        listening, self._listening = self._listening, None
        stopped = maybeDeferred(lambda: None if listening is None else listening.stopListening())
        for connection in list(self._connections):
            connection.abort()
        self.shares.stop()
        return stopped

    def take(self, connection: "_Connection") -> None:
        """Counts a connection."""
        self._connections.add(connection)
        self._waiting[connection] = None

    def admit(self, payer: str) -> bool:
        """Tells whether one more may come from an address, or network. Closes another when there
        are as many as may be; False when all are being answered.

        Connections that say nothing, or not all, would shut out others until they are too late; and
        who opens them faster than others ask would have those closed.
        """
        if not self._new_connections.take(payer, self.reactor.seconds()):
            self.refused_count += 1
            return False
        if len(self._connections) < self.limits.connections_max:
            return True
        self.refused_count += 1
        if not self._waiting:
            return False
        [(most, _)] = Counter(one.payer for one in self._waiting).most_common(1)
        longest = next(one for one in self._waiting if one.payer == most)
        # Its loss is told in a later turn.
        self.drop(longest)
        longest.abort()
        return True

    def mark_asked(self, connection: "_Connection") -> None:
        """A whole request is there."""
        self._waiting.pop(connection, None)

    def mark_answered(self, connection: "_Connection") -> None:
        """The next request is waited for."""
        if connection in self._connections:
            self._waiting[connection] = None

    def drop(self, connection: "_Connection") -> None:
        """Forgets a connection."""
        self._connections.discard(connection)
        self._waiting.pop(connection, None)


class _Factory(Factory):
    noisy = False

    def __init__(self, port: HttpPort) -> None:
        self._port = port

    def buildProtocol(self, addr: object) -> "_Connection | TlsLink | None":
        port, payer = self._port, network_of(str(getattr(addr, "host", "")))
        if not port.admit(payer):
            return None
        connection = _Connection(port, payer)
        port.take(connection)
        return connection if port.tls is None else TlsLink(connection, server=port.tls)


class _Connection(http.HTTPChannel):
    """One connection of a client."""

    totalHeadersSize = _HEAD_BYTES_MAX
    maxHeaders = _HEADERS_MAX
    abortTimeout = 5
    transport: Any
    timeOut: Any
    callLater: Any

    def __init__(self, port: HttpPort, payer: str) -> None:
        super().__init__()
        self.port = port
        # Whose it is: of the address, or network, that it comes from.
        self.payer = payer
        self.timeOut = port.limits.idle_s
        self.callLater = port.reactor.callLater
        self.requestFactory = cast(Any, Exchange)
        # A request was begun in this turn; those behind it in the same chunk wait for the next.
        self._turn: Any = None
        self._share = Share(port.shares)
        # What stands in the line for a part of a turn; a connection has one request at a time.
        self._next: Callable[[], None] | None = None
        # The client does not read what was answered: the next request waits until it does, though
        # not for ever.
        self._is_full = False
        self._unread_bytes = 0
        self._unread: Callable[[], None] | None = None
        self._stalled: Any = None
        # Rings when a request has not arrived in time; runs from its first byte to its last.
        self._arrival: Any = None
        self.is_lost = False

    def connectionMade(self) -> None:
        if isinstance(self.transport, TlsLink):
            self.transport.set_tcp_times(ACCEPTED_TIMES)
            self.transport.limit_reads(_READ_BYTES)
        else:
            set_tcp_times(self.transport.socket, ACCEPTED_TIMES)
            self.transport.bufferSize = _READ_BYTES
        super().connectionMade()

    # What TlsLink asks for besides.

    @property
    def peer(self) -> str:
        address = self.transport.getPeer()
        return f"{address.host}:{address.port}"

    def use(self, transport: Any) -> None:
        """Nobody goes on in plain."""
        raise AssertionError("a port with TLS refuses plain connections")

    def close(self, reason: str) -> None:
        """TLS ended, or cannot go on."""
        self.loseConnection()

    def isSecure(self) -> bool:
        return self.port.tls is not None

    def dataReceived(self, data: bytes) -> None:
        if self._arrival is None and not self._handlingRequest:
            self._arrival = self.callLater(self.port.limits.request_s, self._too_slow)
        super().dataReceived(data)

    def begin(self, function: Callable[[], None]) -> None:
        """Calls a function now, or in a later turn when this connection had its share of this one,
        or all together have used it: a chunk may hold a thousand requests, and nobody else is
        served between two of a turn.
        """
        reactor = self.port.reactor
        if self._is_full:
            self._unread = function
            # Who reads nothing is no reason to refuse others.
            self.port.mark_answered(self)
            self._stalled = self.callLater(self.port.limits.stall_s, self._too_slow_to_read)
        elif self._turn is None and self._share.begin(reactor.seconds(), self.payer):
            self._call(function)
        else:
            self._next = function
            self.port.shares.wait(self, self._share)

    def make_room_for(self, size: int) -> bool:
        """Tells whether an answer may wait for this client to read it."""
        return self.port.make_room_for(self.payer, size)

    def hold(self, size: int) -> None:
        """Counts an answer that was written, if it has not gone."""
        if self._is_full:
            self._unread_bytes += size
            self.port.hold(self, size)

    def let_go(self) -> None:
        """What was written has gone."""
        if self._unread_bytes:
            self.port.hold(self, -self._unread_bytes)
            self._unread_bytes = 0

    def pauseProducing(self) -> None:
        """What was written has not gone."""
        self._is_full = True
        super().pauseProducing()

    def resumeProducing(self) -> None:
        """It has gone."""
        self._is_full = False
        self.let_go()
        super().resumeProducing()
        function = self._no_longer_stalled()
        if function is not None and not self.is_lost:
            self.port.mark_asked(self)
            self.begin(function)

    def _no_longer_stalled(self) -> Callable[[], None] | None:
        """Returns the request that waited for the client to read."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        function, self._unread = self._unread, None
        return function

    def _too_slow_to_read(self) -> None:
        self._stalled = None
        self.abort()

    def go_on(self) -> None:
        """Its turn has come, in the line."""
        function, self._next = self._next, None
        if function is not None and not self.is_lost:
            self._share.begin_anew(self.port.reactor.seconds())
            self._call(function)

    def _call(self, function: Callable[[], None]) -> None:
        if self._turn is None:
            self._turn = self.callLater(0, self._turn_over)
        function()
        self._share.end(self.port.reactor.seconds(), self.payer)

    def _turn_over(self) -> None:
        self._turn = None

    def _too_slow(self) -> None:
        self._arrival = None
        self.abort()

    def allContentReceived(self) -> None:
        self._arrived()
        self.port.mark_asked(self)
        super().allContentReceived()

    def requestDone(self, request: http.Request) -> None:
        # Before what is buffered is read, which may be a whole request.
        self.port.mark_answered(self)
        super().requestDone(request)

    def _arrived(self) -> None:
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None

    def _respondToBadRequestAndDisconnect(self) -> None:
        """What cannot even be read as a request; the name is Twisted's."""
        self.refuse(RequestError(400, "this is no HTTP request, or its head is too long"))

    def lineReceived(self, line: bytes) -> None:
        """Refuses a line that goes on with the one before it: a proxy may take it for a line of its
        own, with a length in it.
        """
        if line.startswith((b" ", b"\t")):
            self._respondToBadRequestAndDisconnect()
            return
        super().lineReceived(line)

    def headerReceived(self, line: bytes) -> bool:
        """Refuses lengths of which a proxy before this port may think otherwise: what the one takes
        for a body is a request to the other. A number without end is none, either.
        """
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t").lower()
        # Nobody who talks to this port sends bodies in chunks, and to put together one of chunks of
        # one byte takes a millisecond for each two kilobytes.
        if name == b"transfer-encoding" or (
            name == b"content-length" and len(value) > _LENGTH_DIGITS_MAX
        ):
            self._respondToBadRequestAndDisconnect()
            return False
        return bool(super().headerReceived(line))

    def lineLengthExceeded(self, line: bytes) -> None:
        self._respondToBadRequestAndDisconnect()

    def refuse(self, error: RequestError) -> None:
        """Answers in the middle of a request, and closes."""
        self._arrived()
        body = error.reply().body
        assert isinstance(body, bytes)
        status = f"{error.status} {reason_of(error.status)}"
        head = (
            f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: application/json\r\n"
            f"X-Content-Type-Options: nosniff\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.loseConnection()

    def timeoutConnection(self) -> None:
        """Nobody asked anything for a while; that is no line in the log."""
        self.abort()

    def abort(self) -> None:
        """Ends the connection without waiting for the client."""
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008
        self._arrived()
        self._no_longer_stalled()
        self.let_go()
        self.is_lost = True
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        self.port.drop(self)
        super().connectionLost(reason)
