"""HttpPort: the socket. The only file that knows twisted.web, so import it where a port opens.

When there are too many connections, the one that waits for a whole request for longest is closed
for a new one; when all are being answered, the new one is. Requests of a connection come one after
the other; head and body are bounded in bytes and in time. No request is written to a log.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, cast

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure
from twisted.web import http

from ledgermq.http.application import Application, refusal
from ledgermq.http.limits import Limits
from ledgermq.http.outlets import PartsOutlet, StreamOutlet
from ledgermq.http.replies import Reply, RequestError
from ledgermq.http.requests import Request, read_target
from ledgermq.protocol.tcp_times import ACCEPTED_TIMES, set_tcp_times

_HEAD_BYTES_MAX: Final = 16_384
_HEADERS_MAX: Final = 100
# A body that is too large is read to its end, so that the refusal can be; beyond this it is cut.
_DISCARDED_BYTES_MAX: Final = 8 << 20
# A body up to this size is taken whatever others hold: connections are bounded, too.
_SMALL_BODY_BYTES: Final = 16_384
_BACKLOG: Final = 128

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
        refused_count: connections that were closed because there were too many.
        body_bytes: of the bodies that are held.
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
    ) -> None:
        """Opens nothing yet.

        Args:
            reactor: gives TCP and time.
            application: answers.
            host: address to bind to.
            port: 0 for any.
            limits: None for the usual ones.
            run: runs awaitables of views.
        """
        self.reactor, self.application = reactor, application
        self.limits, self.run = limits or Limits(), run
        self._host, self.port = host, port
        self._listening: Any = None
        self._connections: set[_Connection] = set()
        # Those of them that no request is answered on, the one that waits for longest first.
        self._waiting: dict[_Connection, None] = {}
        self.refused_count = 0
        self.body_bytes = 0

    @property
    def connection_count(self) -> int:
        return len(self._connections)

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
        return stopped

    def take(self, connection: "_Connection") -> None:
        """Counts a connection."""
        self._connections.add(connection)
        self._waiting[connection] = None

    def make_room(self) -> bool:
        """Closes a connection when there are as many as may be; False when all are being answered.

        Connections that say nothing, or not all, would shut out others until they are too late.
        """
        if len(self._connections) < self.limits.connections_max:
            return True
        self.refused_count += 1
        longest = next(iter(self._waiting), None)
        if longest is None:
            return False
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

    def buildProtocol(self, addr: object) -> "_Connection | None":
        if not self._port.make_room():
            return None
        connection = _Connection(self._port)
        self._port.take(connection)
        return connection


class _Connection(http.HTTPChannel):
    """One connection of a client."""

    totalHeadersSize = _HEAD_BYTES_MAX
    maxHeaders = _HEADERS_MAX
    abortTimeout = 5
    transport: Any
    timeOut: Any
    callLater: Any

    def __init__(self, port: HttpPort) -> None:
        super().__init__()
        self.port = port
        self.timeOut = port.limits.idle_s
        self.callLater = port.reactor.callLater
        self.requestFactory = cast(Any, _Exchange)
        # A request was begun in this turn; those behind it in the same chunk wait for the next.
        self._turn: Any = None
        # Rings when a request has not arrived in time; runs from its first byte to its last.
        self._arrival: Any = None
        self.is_lost = False

    def connectionMade(self) -> None:
        set_tcp_times(self.transport.socket, ACCEPTED_TIMES)
        super().connectionMade()

    def dataReceived(self, data: bytes) -> None:
        if self._arrival is None and not self._handlingRequest:
            self._arrival = self.callLater(self.port.limits.request_s, self._too_slow)
        super().dataReceived(data)

    def begin(self, function: Callable[[], None]) -> None:
        """Calls a function now, or in the next turn when this connection had its share of this one:
        a chunk may hold a thousand requests, and nobody else is served between two of a turn.
        """
        if self._turn is None:
            self._turn = self.callLater(0, self._turn_over)
            function()
        else:
            self.callLater(0, self._begin_later, function)

    def _begin_later(self, function: Callable[[], None]) -> None:
        if not self.is_lost:
            self.begin(function)

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

    def lineLengthExceeded(self, line: bytes) -> None:
        self._respondToBadRequestAndDisconnect()

    def refuse(self, error: RequestError) -> None:
        """Answers in the middle of a request, and closes."""
        self._arrived()
        body = error.reply().body
        assert isinstance(body, bytes)
        status = f"{error.status} {_reason(error.status)}"
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
        self.is_lost = True
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        self.port.drop(self)
        super().connectionLost(reason)


class _Exchange(http.Request):
    """One request and its reply."""

    channel: _Connection

    def __init__(self, channel: _Connection, queued: object = False) -> None:
        super().__init__(channel, queued)
        self._port = channel.port
        self._parts: list[bytes] = []
        self._body_bytes = 0
        # Of them, those that are held, here or by the view.
        self._held_bytes = 0
        self._outlet: PartsOutlet | StreamOutlet | None = None
        self._is_gone = False

    # What Twisted calls while the request arrives.

    def parseCookies(self) -> None:
        """Request reads them when it is asked."""

    def gotLength(self, length: int | None) -> None:
        """The head is there: a body that is announced as far too large is not waited for."""
        if length is not None and length > _DISCARDED_BYTES_MAX:
            self._refuse_body(length)

    def handleContentChunk(self, data: bytes) -> None:
        self._body_bytes += len(data)
        port, limits = self._port, self._port.limits
        if self._is_gone:
            return
        if self._body_bytes > limits.body_bytes_max:
            self._let_go()
            if self._body_bytes > _DISCARDED_BYTES_MAX:
                self._refuse_body(self._body_bytes)
            return
        is_small = self._body_bytes <= _SMALL_BODY_BYTES
        if not is_small and port.body_bytes + len(data) > limits.bodies_bytes_max:
            self._break_off(
                RequestError(
                    503,
                    f"bodies of requests have {port.body_bytes} bytes together; come back later",
                    field="body",
                    limit=limits.bodies_bytes_max,
                )
            )
            return
        self._parts.append(data)
        self._held_bytes += len(data)
        port.body_bytes += len(data)

    def _let_go(self) -> None:
        """The body is needed no more."""
        self._parts.clear()
        self._port.body_bytes -= self._held_bytes
        self._held_bytes = 0

    def _refuse_body(self, length: int) -> None:
        if not self._is_gone:
            self._break_off(self._too_large(length))

    def _break_off(self, error: RequestError) -> None:
        self._is_gone = True
        self._let_go()
        self.channel.refuse(error)

    def finish(self) -> None:
        self._let_go()
        super().finish()

    def _too_large(self, length: int) -> RequestError:
        limit = self._port.limits.body_bytes_max
        message = f"the body has {length} bytes, {limit} are allowed"
        return RequestError(413, message, field="body", value=length, limit=limit)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """All of it is there."""
        self.method, self.uri, self.clientproto = command, path, version
        if not self._is_gone:
            self.channel.begin(partial(self._answer, command, path))

    def _answer(self, command: bytes, path: bytes) -> None:
        request = Request(method=command.decode("latin-1"), peer_host=self.client.host)
        try:
            if self._body_bytes > self._port.limits.body_bytes_max:
                raise self._too_large(self._body_bytes)
            request = self._read(command, path)
        except RequestError as error:
            self._reply(refusal(error, request))
            return
        reply = self._port.application.answer(request)
        if isinstance(reply, Reply):
            self._reply(reply)
            return
        later = self._port.run(reply)
        later.addTimeout(self._port.limits.answer_s, self._port.reactor)
        self.notifyFinish().addErrback(lambda _: later.cancel())
        later.addCallbacks(self._reply, self._not_answered, errbackArgs=(request,))
        later.addErrback(self._not_written, request)

    def _read(self, command: bytes, path: bytes) -> Request:
        segments, query = read_target(path)
        headers = {}
        for name, values in self.requestHeaders.getAllRawHeaders():
            key = name.decode("latin-1").lower()
            if key == "host" and len(values) != 1:
                raise RequestError(400, "a request has one Host", field="Host", limit=1)
            headers[key] = ", ".join(value.decode("utf-8", "replace") for value in values)
        return Request(
            method=command.decode("latin-1"),
            segments=segments,
            query=query,
            headers=headers,
            body=b"".join(self._parts),
            peer_host=self.client.host,
            is_secure=bool(self.isSecure()),
        )

    # The reply.

    def _not_answered(self, failure: Failure, request: Request) -> None:
        self._reply(refusal(cast(Exception, failure.value), request))

    def _not_written(self, failure: Failure, request: Request) -> None:
        """A reply that cannot be written is a fault of ours."""
        refusal(cast(Exception, failure.value), request)
        self.abort()

    def _reply(self, reply: Reply) -> None:
        if self._is_gone:
            closed: Callable[[], None] = getattr(reply.body, "close", lambda: None)
            closed()
            return
        self.setResponseCode(reply.status, _reason(reply.status).encode())
        self.responseHeaders.setRawHeaders("Content-Type", [reply.content_type])
        for name, value in reply.headers:
            self.responseHeaders.addRawHeader(name, value)
        body, port = reply.body, self._port
        if isinstance(body, bytes):
            if reply.status not in http.NO_BODY_CODES:
                self.responseHeaders.setRawHeaders("Content-Length", [str(len(body))])
            self.write(b"" if self.method == b"HEAD" else body)
            self.finish()
        elif self.method == b"HEAD":
            self.write(b"")
            self.finish()
        elif hasattr(body, "opened"):
            # The head goes out before the first event.
            self.write(b"")
            self._outlet = StreamOutlet(self, port.reactor, port.limits, cast(Any, body))
        else:
            self._outlet = PartsOutlet(self, port.reactor, port.limits, cast(Any, body))

    def abort(self) -> None:
        """Ends the connection in the middle of the reply."""
        if not self._is_gone:
            self.channel.abort()

    def connectionLost(self, reason: Failure) -> None:
        self._is_gone = True
        self._let_go()
        if self._outlet is not None:
            self._outlet.lost()
        super().connectionLost(reason)


def _reason(status: int) -> str:
    return http.RESPONSES.get(status, b"Error").decode()
