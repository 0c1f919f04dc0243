"""Exchange: one request and its reply on a connection of HttpPort; twisted.web's side of both."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

from twisted.python.failure import Failure
from twisted.web import http

from ledgermq.http.application import refusal
from ledgermq.http.outlets import PartsOutlet, StreamOutlet
from ledgermq.http.replies import Reply, RequestError
from ledgermq.http.requests import Request, read_target

# A body that is too large is read to its end, so that the refusal can be; beyond this it is cut.
_DISCARDED_BYTES_MAX: Final = 8 << 20
# A body up to this size is taken, or given, whatever others hold: connections are bounded, too.
_SMALL_BODY_BYTES: Final = 16_384


def reason_of(status: int) -> str:
    """Returns what the status line says besides the number."""
    return http.RESPONSES.get(status, b"Error").decode()


class Exchange(http.Request):
    """One request and its reply."""

    channel: Any

    def __init__(self, channel: Any, queued: object = False) -> None:
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
        size = len(reply.body) if isinstance(reply.body, bytes) else 0
        if size > _SMALL_BODY_BYTES and not self.channel.make_room_for(size):
            limit = self._port.limits.answers_bytes_max
            message = "answers that were not read use all memory that there is for them"
            reply = RequestError(503, message, field="answers", limit=limit).reply()
        self.setResponseCode(reply.status, reason_of(reply.status).encode())
        self.responseHeaders.setRawHeaders("Content-Type", [reply.content_type])
        for name, value in reply.headers:
            self.responseHeaders.addRawHeader(name, value)
        body, port = reply.body, self._port
        if isinstance(body, bytes):
            if reply.status not in http.NO_BODY_CODES:
                self.responseHeaders.setRawHeaders("Content-Length", [str(len(body))])
            self.write(b"" if self.method == b"HEAD" else body)
            self.channel.hold(size)
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
