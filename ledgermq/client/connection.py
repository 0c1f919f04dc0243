"""One connection, and requests over it.

A connection is an asyncio protocol over FrameDecoder and RequestTable: it knows frames, deadlines
and who waits for which answer, and nothing of what a request means. Frames written in one turn of
the loop leave in one write.

A request that runs out of time is given up, and nothing else: its answer may come late all the
same, and is then given to whoever still has a use for it. A connection is given up for its own
silence alone (see silence.py): requests wait, nothing at all comes, and a question that every
living server answers is not answered either.

Requests of the server are given to a function, whose answer may come later; one that nobody knows
is answered so.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from ledgermq.client.errors import UnreachableError
from ledgermq.client.silence import Silence, Verdict
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
from ledgermq.protocol.signature import Credentials, ends_of
from ledgermq.protocol.tls.engine import is_distrust

_PYTHON: Final = int(LanguageCode.PYTHON)
# A deadline is met this much late at most, to save timers.
_TIMER_GRAIN_S: Final = 0.02
# Requests that ran out of time, and whose answer would still be of use.
_LATE_MAX: Final = 4096
# The kernel ends a connection whose peer acknowledges nothing of what was written for this many
# times the longest silence. Where no request waits (one-way sends) nothing else would.
_UNACKNOWLEDGED_SILENCES: Final = 2

_log = logging.getLogger("ledgermq.client")

# The answer to a request of the server, now or when a task has it; None when the code is unknown.
Answer: TypeAlias = RemotingCommand | asyncio.Task[RemotingCommand] | None
# Gets the server's address and its request.
OnRequest: TypeAlias = Callable[[str, RemotingCommand], Answer]
# Makes a request that whoever listens at an address answers as long as it lives.
Question: TypeAlias = Callable[[str], RemotingCommand]
# An opaque, and what takes the answer to it that comes after its request had run out of time.
Late: TypeAlias = tuple[int, Callable[[RemotingCommand], None]]


class AnswerSink(Protocol):
    """What waits for an answer; exactly one of the two is called, once."""

    def answered(self, answer: RemotingCommand) -> None:
        """The answer is here, whatever its code."""

    def failed(self, error: ProtocolError) -> Late | None:
        """No answer has come in time, or none will come.

        Returns:
            What takes the answer, should it come all the same; None when it is of no use.
        """


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
        on_doubt: Callable[["Connection"], None],
        *,
        question: Question,
        silence_max_s: float,
        credentials: Credentials | None = None,
    ) -> None:
        self.address = address
        # What requests are signed for.
        self.signed_for = address
        self._question = question
        self._silence_max_ms = int(silence_max_s * 1000)
        self._credentials = credentials
        self._loop = loop
        self._on_request = on_request
        self._on_lost = on_lost
        # Told while a question has no answer, again and again.
        self._on_doubt = on_doubt
        self._decoder = FrameDecoder()
        # What waits, when it was sent in ms, and its code.
        self._waiting: RequestTable[tuple[AnswerSink, int, int]] = RequestTable()
        # By opaque, the oldest first: what takes answers that come late.
        self._late: dict[int, Callable[[RemotingCommand], None]] = {}
        self._transport: asyncio.Transport | None = None
        # Frames of this turn of the loop.
        self._unsent: list[bytes] = []
        self._silence = Silence(self._silence_max_ms, 0)
        self._is_proven = False
        # For the next deadline of a request.
        self._timer: asyncio.TimerHandle | None = None
        # Which that is; counts while there is a timer.
        self._timer_ms = 0
        # For the next look at the silence; None while no request waits.
        self._watch: asyncio.TimerHandle | None = None
        # For the next doubt; None while the other end answers.
        self._doubt: asyncio.TimerHandle | None = None
        self._reason = "closed by this client"
        # Set while the kernel does not take what is written.
        self._drained: asyncio.Future[None] | None = None

    @property
    def is_open(self) -> bool:
        """False from the moment on when the connection is lost or closed."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_proven(self) -> bool:
        """True when the other end has said anything: a stopped process connects all the same."""
        return self._is_proven

    @property
    def is_doubted(self) -> bool:
        """True when the other end was asked whether it lives, and has not said so yet."""
        return self.is_open and self._silence.is_open(self._now_ms())

    @property
    def waiting_count(self) -> int:
        """Requests that wait for their answer."""
        return len(self._waiting)

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
        if self._timer is None or self._timer_ms > now_ms + timeout_ms:
            self._set_timer(now_ms + timeout_ms)
        if self._watch is None:
            self._silence.begin(now_ms)
            self._set_watch()
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
            command.ext_fields = self._credentials.signed(
                command.ext_fields, command.body, command.code, self.signed_for
            )

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

    def abort(self, reason: str = "closed by this client") -> None:
        """Closes without waiting for the peer; whoever waits for an answer is told."""
        if self._transport is not None:
            self._reason = reason
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.signed_for = ends_of(self.address, transport.get_extra_info("peername"))
        self._silence.heard_ms = self._now_ms()
        link = transport.get_extra_info("socket")
        if link is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            unacknowledged_ms = _UNACKNOWLEDGED_SILENCES * self._silence_max_ms
            # No socket of TCP has it, nor every system.
            with contextlib.suppress(OSError):
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unacknowledged_ms)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio with whatever came."""
        self._silence.heard_ms = self._now_ms()
        self._is_proven = True
        try:
            for frame in self._decoder.feed(data):
                command = decode(frame)
                if command.is_response:
                    waiting = self._waiting.resolve(command)
                    if waiting is not None:
                        waiting[0].answered(command)
                    elif (late := self._late.pop(command.opaque, None)) is not None:
                        late(command)
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
        self._late.clear()
        for handle in (self._timer, self._watch, self._doubt):
            if handle is not None:
                handle.cancel()
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
        try:
            answer = self._on_request(self.address, request)
        except Exception as error:
            # What one request meets must not cost all others their connection.
            _log.exception("%s asked for %d, and that failed", self.address, request.code)
            remark = f"{type(error).__name__}: {error}"
            answer = request.response(ResponseCode.SYSTEM_ERROR, remark)
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
        self._timer_ms = deadline_ms
        self._timer = self._loop.call_at(deadline_ms / 1000 + _TIMER_GRAIN_S, self._expire)

    def _expire(self) -> None:
        """Gives up the requests whose time is over; the connection itself is not judged by them."""
        self._timer = None
        now_ms = self._now_ms()
        for sink, sent_ms, code in self._waiting.expire(now_ms):
            late = sink.failed(RequestTimeoutError(self.address, code, now_ms - sent_ms))
            if late is not None:
                if len(self._late) >= _LATE_MAX:
                    del self._late[next(iter(self._late))]
                self._late[late[0]] = late[1]
        deadline_ms = self._waiting.deadline_ms()
        if deadline_ms is not None and self._transport is not None:
            self._set_timer(deadline_ms)

    def _set_watch(self) -> None:
        # Not a fraction of a ms early.
        self._watch = self._loop.call_at((self._silence.due_ms + 1) / 1000, self._look)

    def _look(self) -> None:
        """Looks whether the other end still lives, as long as requests wait."""
        self._watch = None
        transport = self._transport
        if transport is None or transport.is_closing() or not len(self._waiting):
            return
        match self._silence.judge(self._now_ms(), transport.get_write_buffer_size()):
            case Verdict.GONE:
                self.abort("it no longer answers")
                return
            case Verdict.ASK:
                self._set_watch()
                self._set_doubt()
                # A table of requests that is full asks by itself.
                with contextlib.suppress(UnreachableError):
                    self.send(self._question(self.address), NOBODY, self._silence_max_ms / 1000)
            case Verdict.WAIT:
                self._set_watch()

    def _set_doubt(self) -> None:
        if self._doubt is not None:
            self._doubt.cancel()
        self._doubt = self._loop.call_later((self._silence.doubt_ms + 1) / 1000, self._look_again)

    def _look_again(self) -> None:
        """Tells of a question without an answer, for as long as there is none."""
        self._doubt = None
        if self.is_doubted:
            self._set_doubt()
            self._on_doubt(self)
