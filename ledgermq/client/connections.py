"""One connection for each address, and requests over it.

A connection is an asyncio protocol over FrameDecoder and RequestTable: it knows frames, deadlines
and who waits for which answer, and nothing of what a request means. Frames written in one turn of
the loop leave in one write. A request that runs out of time on a connection over which nothing at
all has come since ends the connection: it is half open.

Requests of the server are given to a function, whose answer may come later; one that nobody knows
is answered so.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import ClosedError, UnreachableError
from ledgermq.protocol.codes import LanguageCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.connection import RequestTable
from ledgermq.protocol.errors import (
    ConnectionClosedError,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    RequestTimeoutError,
)
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.signature import Credentials
from ledgermq.protocol.tls.engine import is_distrust

_PYTHON: Final = int(LanguageCode.PYTHON)
# A deadline is met this much late at most, to save timers.
_TIMER_GRAIN_S: Final = 0.02
# How long a client that closes waits for the good-byes of its peers.
_TLS_END_S: Final = 1.0

# The answer to a request of the server, now or when a task has it; None when the code is unknown.
Answer: TypeAlias = RemotingCommand | asyncio.Task[RemotingCommand] | None
# Gets the server's address and its request.
OnRequest: TypeAlias = Callable[[str, RemotingCommand], Answer]
# Gets a new connection before anyone else uses it.
OnConnected: TypeAlias = Callable[["Connection"], None]


class AnswerSink(Protocol):
    """What waits for an answer; exactly one of the two is called, once."""

    def answered(self, answer: RemotingCommand) -> None:
        """The answer is here, whatever its code."""

    def failed(self, error: ProtocolError) -> None:
        """No answer will come."""


class _FutureSink:
    """An answer for one coroutine."""

    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[RemotingCommand]) -> None:
        self.future = future

    def answered(self, answer: RemotingCommand) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def failed(self, error: ProtocolError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class _NobodySink:
    """For a request whose answer does not matter."""

    def answered(self, answer: RemotingCommand) -> None:
        """Ignores it."""

    def failed(self, error: ProtocolError) -> None:
        """Ignores it."""


NOBODY: Final = _NobodySink()


class Connection(asyncio.Protocol):
    """One open connection; made by Connections."""

    def __init__(
        self,
        address: str,
        loop: asyncio.AbstractEventLoop,
        on_request: OnRequest,
        on_lost: Callable[["Connection"], None],
        credentials: Credentials | None = None,
    ) -> None:
        self.address = address
        self._credentials = credentials
        self._loop = loop
        self._on_request = on_request
        self._on_lost = on_lost
        self._decoder = FrameDecoder()
        # What waits, and when it was sent and for how long it waits, in ms.
        self._waiting: RequestTable[tuple[AnswerSink, int, int]] = RequestTable()
        self._transport: asyncio.Transport | None = None
        # Frames of this turn of the loop.
        self._unsent: list[bytes] = []
        self._received_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        self._reason = "closed by this client"
        # Set while the kernel does not take what is written.
        self._drained: asyncio.Future[None] | None = None

    @property
    def is_open(self) -> bool:
        """False from the moment on when the connection is lost or closed."""
        return self._transport is not None and not self._transport.is_closing()

    def expect(self, code: int, sink: AnswerSink, timeout_s: float) -> int:
        """Notes a request that is about to be written.

        Returns:
            The opaque to send it with.

        Raises:
            UnreachableError: the connection is closed, or too many requests wait on it.
        """
        if not self.is_open:
            raise UnreachableError(self._reason, retriable=True, broker=self.address)
        now_ms = self._now_ms()
        timeout_ms = int(timeout_s * 1000)
        try:
            opaque = self._waiting.register(None, now_ms + timeout_ms, (sink, now_ms, code))
        except LocalProtocolError as error:
            raise UnreachableError(str(error), retriable=True, broker=self.address) from error
        if self._timer is None or self._timer.when() > self._loop.time() + timeout_s:
            self._set_timer(now_ms + timeout_ms)
        return opaque

    def write(self, frame: bytes) -> None:
        """Sends a whole frame, together with all others of this turn of the loop."""
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(frame)

    def send(self, command: RemotingCommand, sink: AnswerSink, timeout_s: float) -> None:
        """Sends a request that is to be answered.

        Raises:
            UnreachableError: as for expect.
            LocalProtocolError: the command does not fit in a frame.
        """
        self._complete(command)
        command.opaque = self.expect(command.code, sink, timeout_s)
        try:
            frame = encode(command)
        except LocalProtocolError:
            self._waiting.forget(command.opaque)
            raise
        self.write(frame)

    async def request(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Sends a request and returns its answer, whatever its code.

        Raises:
            UnreachableError: no answer came in time, or the connection was lost.
        """
        future: asyncio.Future[RemotingCommand] = self._loop.create_future()
        self.send(command, _FutureSink(future), timeout_s)
        try:
            return await future
        except ProtocolError as error:
            retriable = not is_distrust(error.__cause__)
            raise UnreachableError(str(error), retriable=retriable, broker=self.address) from error

    def send_one_way(self, command: RemotingCommand) -> None:
        """Sends a request that nobody answers."""
        self._complete(command)
        self.write(encode(command))

    def _complete(self, command: RemotingCommand) -> None:
        """Says who asks."""
        command.language = _PYTHON
        if self._credentials is not None:
            command.ext_fields = self._credentials.signed(command.ext_fields, command.body)

    async def drained(self) -> None:
        """Returns when the kernel takes what is written, or the connection is lost."""
        self._flush()
        if self._drained is not None:
            await asyncio.shield(self._drained)

    def close(self, reason: str = "closed by this client") -> None:
        """Closes at once; whoever waits for an answer is told."""
        if self.is_open:
            self._reason = reason
            assert self._transport is not None
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        """Closes without waiting for the peer."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received_ms = self._now_ms()

    def data_received(self, data: bytes) -> None:
        """Called by asyncio with whatever came."""
        self._received_ms = self._now_ms()
        try:
            for frame in self._decoder.feed(data):
                command = decode(frame)
                if command.is_response:
                    waiting = self._waiting.resolve(command)
                    if waiting is not None:
                        waiting[0].answered(command)
                else:
                    self._answer(command)
        except RemoteProtocolError as error:
            self.close(f"it broke the protocol: {error}")

    def pause_writing(self) -> None:
        """Called by asyncio above its high-water mark."""
        self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        """Called by asyncio below its low-water mark."""
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    def connection_lost(self, error: Exception | None) -> None:
        """Called by asyncio, once."""
        self._transport = None
        self._unsent.clear()
        if self._timer is not None:
            self._timer.cancel()
        if error is not None:
            self._reason = str(error) or type(error).__name__
        elif self._reason == "closed by this client":
            self._reason = "the connection was closed"
        self.resume_writing()
        # First, so that whoever is told of a failure does not find this connection again.
        self._on_lost(self)
        for sink, _, _ in self._waiting.fail_all():
            closed = ConnectionClosedError(self.address, self._reason)
            closed.__cause__ = error
            sink.failed(closed)

    def _flush(self) -> None:
        if self._unsent and self._transport is not None:
            frames, self._unsent = self._unsent, []
            self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def _answer(self, request: RemotingCommand) -> None:
        answer = self._on_request(self.address, request)
        if request.is_one_way:
            return
        if answer is None:
            remark = f"request type {request.code} not supported"
            answer = request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        if isinstance(answer, asyncio.Task):
            answer.add_done_callback(lambda task: self._answer_late(request, task))
        else:
            self._write_answer(answer)

    def _answer_late(self, request: RemotingCommand, task: asyncio.Task[RemotingCommand]) -> None:
        if task.cancelled() or not self.is_open:
            return
        error = task.exception()
        if error is not None:
            remark = f"{type(error).__name__}: {error}"
            self._write_answer(request.response(ResponseCode.SYSTEM_ERROR, remark))
        else:
            self._write_answer(task.result())

    def _write_answer(self, answer: RemotingCommand) -> None:
        answer.language = _PYTHON
        self.write(encode(answer))

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _set_timer(self, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline_ms / 1000 + _TIMER_GRAIN_S, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        is_silent = False
        for sink, sent_ms, code in self._waiting.expire(now_ms):
            is_silent = is_silent or self._received_ms <= sent_ms
            sink.failed(RequestTimeoutError(self.address, code, now_ms - sent_ms))
        if is_silent and self._transport is not None:
            self._reason = "it no longer answers"
            self._transport.abort()
            return
        deadline_ms = self._waiting.deadline_ms()
        if deadline_ms is not None:
            self._set_timer(deadline_ms)


class Connections:
    """The open connections of a client, by address."""

    def __init__(
        self, config: ClientConfig, on_request: OnRequest, on_connected: OnConnected
    ) -> None:
        """Opens nothing yet.

        Args:
            config: how long to wait for a connection, how to sign and to encrypt.
            on_request: gets the requests of servers.
            on_connected: gets each new connection; what it writes is what the server reads first.
        """
        self._connect_timeout_s = config.connect_timeout_s
        self._credentials = config.credentials
        self._tls = config.tls
        self._on_request = on_request
        self._on_connected = on_connected
        self._open: dict[str, Connection] = {}
        self._opening: dict[str, asyncio.Task[Connection]] = {}
        # All that were opened and are not lost, also those that are being closed.
        self._living: set[Connection] = set()
        # Set when the last of them is lost, while that is waited for.
        self._last_lost: asyncio.Future[None] | None = None
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """True when nothing can be opened any more."""
        return self._is_closed

    def find(self, address: str) -> Connection | None:
        """Returns the connection to an address when it is open."""
        return self._open.get(address)

    async def open(self, address: str) -> Connection:
        """Returns the connection to an address; those who ask at the same time share one.

        Raises:
            UnreachableError: it cannot be made.
            ClosedError: the client is closed.
        """
        found = self._open.get(address)
        if found is not None:
            return found
        if self._is_closed:
            raise ClosedError("this client is closed", broker=address)
        task = self._opening.get(address)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._connect(address))
            self._opening[address] = task
            task.add_done_callback(lambda done: self._connected(address, done))
        return await asyncio.shield(task)

    async def request(
        self, address: str, command: RemotingCommand, timeout_s: float
    ) -> RemotingCommand:
        """Sends a request to an address and returns its answer, whatever its code.

        Raises:
            UnreachableError: no connection, or no answer in time.
        """
        return await (await self.open(address)).request(command, timeout_s)

    async def close(self) -> None:
        """Closes all connections and ends what is being opened."""
        self._is_closed = True
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        for connection in list(self._open.values()):
            connection.close()
        if opening:
            await asyncio.wait(opening)
        if self._tls is not None and self._living:
            # Both ends say good-bye in TLS.
            self._last_lost = asyncio.get_running_loop().create_future()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._last_lost, _TLS_END_S)
            for connection in list(self._living):
                connection.abort()
        # One turn of the loop lets the transports close their sockets.
        await asyncio.sleep(0)

    async def _connect(self, address: str) -> Connection:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()

        def make() -> Connection:
            return Connection(address, loop, self._on_request, self._lost, self._credentials)

        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, connection = await loop.create_connection(
                    make, host.strip("[]"), int(port), ssl=self._tls
                )
        except TimeoutError as error:
            reason = f"no connection in {self._connect_timeout_s:g} s"
            raise UnreachableError(reason, retriable=True, broker=address) from error
        except (OSError, ValueError) as error:
            reason, retriable = f"no connection: {error}", not is_distrust(error)
            raise UnreachableError(reason, retriable=retriable, broker=address) from error
        self._living.add(connection)
        self._open[address] = connection
        self._on_connected(connection)
        return connection

    def _connected(self, address: str, task: asyncio.Task[Connection]) -> None:
        self._opening.pop(address, None)
        with contextlib.suppress(asyncio.CancelledError):
            # Asked for here too, because all who waited for it may have gone.
            task.exception()

    def _lost(self, connection: Connection) -> None:
        if self._open.get(connection.address) is connection:
            del self._open[connection.address]
        self._living.discard(connection)
        if self._last_lost is not None and not self._living and not self._last_lost.done():
            self._last_lost.set_result(None)
