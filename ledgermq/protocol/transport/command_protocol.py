"""CommandProtocol: one TCP connection as a stream of commands in both directions.

Way in: chunk -> FrameDecoder -> decode -> answers to own requests are given to their Deferreds, all
else to the receiver in one call for each chunk. Way out: frames gather in an Outbox until the turn
ends, then go straight to the socket; what it does not take is given to Twisted piece by piece as
the socket becomes writable.

- Unsent bytes: above pause_bytes reading pauses, below half of it it resumes, and above
  unsent_bytes_max the connection is aborted as a slow peer.
- Bad bytes: a frame that cannot be cut, or a header that cannot be read, closes the connection with
  one line in the log. A bad ext field is the processor's business and harms nobody.
- Silence: `check`, called about once a second by the owner, applies the times of ConnectionLimits.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final
from typing import Protocol as TypingProtocol

from twisted.internet.defer import Deferred, fail
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.tcp import Connection
from twisted.logger import Logger
from twisted.python.failure import Failure

from ledgermq.protocol.codes import ONE_WAY_FLAG, RESPONSE_FLAG
from ledgermq.protocol.command import RemotingCommand, decode, encode, encode_parts
from ledgermq.protocol.errors import ConnectionClosedError, LocalProtocolError, RemoteProtocolError
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.tcp_times import set_tcp_times
from ledgermq.protocol.transport.limits import ConnectionLimits
from ledgermq.protocol.transport.outbox import Outbox, Part, StreamSocket
from ledgermq.protocol.transport.requests import PendingRequests
from ledgermq.protocol.transport.tls_link import TlsLink
from ledgermq.protocol.transport.turn import Clock, TurnOutput

# Twisted's 64 KiB a read costs a fifth of the throughput.
_READ_BYTES: Final = 262_144
# What Twisted gets of unsent bytes at a time; the rest waits in the outbox.
_HANDED_BYTES: Final = 65_536
# Unsent bytes at which a turn's end is not waited for.
_EAGER_BYTES: Final = 262_144

_log = Logger()


class Receiver(TypingProtocol):
    """What a connection tells its owner."""

    def connection_made(self, connection: "CommandProtocol") -> None:
        """The connection is open; called once, before anything else."""

    def commands_received(
        self, connection: "CommandProtocol", commands: list[RemotingCommand]
    ) -> None:
        """Requests of the peer, in order; never empty, never answers to own requests."""

    def connection_lost(self, connection: "CommandProtocol", reason: str) -> None:
        """The connection is gone; called once, after everything else."""


class CommandProtocol(Protocol):
    """One connection.

    Invariants: `_is_blocked` exactly while Twisted holds bytes of ours; nothing is sent on the
    socket meanwhile.
    """

    def __init__(
        self,
        clock: Clock,
        receiver: Receiver,
        *,
        limits: ConnectionLimits | None = None,
        output: TurnOutput | None = None,
    ) -> None:
        """Waits for its transport.

        Args:
            clock: the reactor.
            receiver: who gets the commands.
            limits: None for the defaults.
            output: shared by the connections of one reactor; None for one of its own.
        """
        self._clock = clock
        self._receiver = receiver
        self._limits = limits or ConnectionLimits()
        self._output = output or TurnOutput(clock)
        self._owns_output = output is None
        # "ip:port" of the peer, its ip, and that of this end; empty before the connection is made.
        self.peer = ""
        self.peer_host = ""
        self.own_host = ""
        # Seconds on the clock.
        self.connected_at = 0.0
        # Whatever the owner keeps for this connection.
        self.context: Any = None
        # Who signed the request that is worked on, as the owner found out; None: nobody knows.
        self.account: str | None = None
        # Set by an owner that has a quicker road for some frames: it gets those of each chunk and
        # says how many it has taken from their front.
        self.take_frames: Callable[[CommandProtocol, list[bytes]], int] | None = None
        # Times that something came, if only a part of a frame.
        self.received_count = 0
        # Answers that no request waited for.
        self.unmatched_responses_count = 0
        self._eager_bytes = min(_EAGER_BYTES, self._limits.pause_bytes)
        self._decoder = FrameDecoder(self._limits.frame_bytes_max)
        self._requests = PendingRequests(clock, self.peer, self._limits.outstanding_max)
        self._outbox = Outbox()
        # The socket when it can be written to directly; None for TLS and for transports of tests.
        self._socket: StreamSocket | None = None
        # The transport, as what it is: Twisted's interface for it lacks most of what is used here.
        self._link: Any = None
        # Whether it says when it has sent what it got.
        self._is_paced = False
        self._is_open = False
        # True before connectionMade and after connectionLost.
        self._is_lost = True
        self._is_flush_due = False
        # Twisted holds so many bytes of ours.
        self._handed_bytes = 0
        self._is_blocked = False
        self._is_registering = False
        self._is_reading_paused = False
        self._close_reason: str | None = None
        self._has_received_frame = False
        # Seconds on the clock: of the last read or write, of the first byte of an unfinished frame,
        # of the last progress of a blocked outbox.
        self._active_at = 0.0
        self._frame_begun_at: float | None = None
        self._drained_at = 0.0
        # Checks in a row that found the unfinished frame too slow.
        self._slow_checks_count = 0

    @property
    def is_open(self) -> bool:
        """True from connection_made until the connection is closed from either side."""
        return self._is_open

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were sent here and that the socket has not taken yet."""
        return self._outbox.size_bytes + self._handed_bytes

    def send(self, command: RemotingCommand) -> None:
        """Sends a command at the end of this turn; does nothing when the connection is closed.

        Raises:
            LocalProtocolError: the command does not fit on the wire; nothing is sent.
        """
        self.send_frame(encode(command))

    def send_one_way(self, command: RemotingCommand) -> None:
        """Sends a request that nobody will answer; its one-way bit is set."""
        command.flag |= ONE_WAY_FLAG
        self.send(command)

    def send_frame(self, frame: bytes) -> None:
        """Sends a whole encoded frame at the end of this turn; does nothing when closed."""
        if not self._is_open:
            return
        outbox = self._outbox
        outbox.append(frame)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._output.add(self)
        if outbox.size_bytes > self._eager_bytes:
            self._flush_early()

    def send_parts(self, parts: Sequence[Part]) -> None:
        """Sends the pieces of one frame now.

        Args:
            parts: as encode_parts gives them. Views are the caller's again when this returns: what
                the socket does not take at once is copied.
        """
        if not self._is_open:
            return
        self._outbox.extend(parts)
        self._flush_early()
        self._outbox.own()

    def flush(self) -> None:
        """Sends what has gathered; called at the end of a turn."""
        self._is_flush_due = False
        if self._is_blocked or self._is_lost or not self._outbox.size_bytes:
            return
        self._active_at = self._clock.seconds()
        if self._socket is None:
            if self._is_paced:
                self._hand_over()
            else:
                self._link.write(self._outbox.take(self._outbox.size_bytes))
            return
        try:
            if not self._outbox.send_to(self._socket):
                self._hand_over()
        except OSError as error:
            self.abort(f"write failed: {error.strerror}")

    def request(
        self,
        command: RemotingCommand,
        timeout_ms: int,
        *,
        body_parts: Sequence[Part] | None = None,
    ) -> Deferred[RemotingCommand]:
        """Sends a request and waits for its answer.

        Args:
            command: its opaque is set.
            timeout_ms: how long to wait.
            body_parts: the body in pieces, in place of the command's own; as for send_parts.

        Returns:
            A Deferred with the answer, whatever its code. It fails with RequestTimeoutError, with
            ConnectionClosedError, or with LocalProtocolError when the request cannot be sent.
            Cancelling it gives up the answer.
        """
        if not self._is_open:
            return fail(ConnectionClosedError(self.peer, self._close_reason or "not connected"))
        try:
            deferred = self._requests.add(command, timeout_ms)
        except LocalProtocolError as error:
            return fail(error)
        try:
            if body_parts is None:
                self.send_frame(encode(command))
            else:
                self.send_parts(encode_parts(command, body_parts))
        except LocalProtocolError as error:
            deferred.addErrback(lambda _: None).cancel()
            return fail(error)
        return deferred

    # Closing and pausing.

    def close(self, reason: str) -> None:
        """Sends what has gathered, then closes; `reason` reaches the receiver."""
        if not self._is_open:
            return
        self.flush()
        # A failed write has ended it meanwhile.
        if self._is_open:
            self._is_open = False
            self._close_reason = reason
            self._drained_at = self._clock.seconds()
            self._link.loseConnection()

    def abort(self, reason: str) -> None:
        """Closes at once; what has gathered is lost."""
        if self._is_lost:
            return
        self._is_open = False
        if self._close_reason is None:
            self._close_reason = reason
        self._outbox.clear()
        self._link.abortConnection()

    def limit_silence(self, idle_timeout_s: float) -> None:
        """Changes the time without a read or write that closes this one connection."""
        self._limits = replace(self._limits, idle_timeout_s=idle_timeout_s)

    def check(self, now_s: float) -> None:
        """Applies the times of ConnectionLimits; the owner calls it about once a second."""
        limits = self._limits
        if self._is_lost:
            return
        if self._is_blocked or not self._is_open:
            if _is_over(self._drained_at, now_s, limits.drain_timeout_s):
                self.abort(f"{self.unsent_bytes} bytes unsent for {limits.drain_timeout_s:g} s")
        elif _is_over(self._frame_begun_at, now_s, limits.frame_timeout_s):
            size = self._decoder.buffered_bytes
            self.abort(f"frame not whole in {limits.frame_timeout_s:g} s, {size} bytes of it came")
        elif self._is_too_slow(now_s):
            size = self._decoder.buffered_bytes
            self.abort(
                f"frame too slow, {size} bytes of it came, {limits.frame_bytes_s_min} a second are"
                " the least"
            )
        elif not self._has_received_frame and _is_over(
            self.connected_at, now_s, limits.first_frame_timeout_s
        ):
            self.close(f"no frame in {limits.first_frame_timeout_s:g} s")
        elif _is_over(self._active_at, now_s, limits.idle_timeout_s):
            self.close(f"idle for {limits.idle_timeout_s:g} s")

    # What Twisted calls.

    def connectionMade(self) -> None:
        """Takes over the transport and tells the receiver."""
        self.use(self.transport)
        address = self._link.getPeer()
        self.peer_host = str(getattr(address, "host", address))
        self.peer = f"{self.peer_host}:{getattr(address, 'port', 0)}"
        own_address = self._link.getHost()
        self.own_host = str(getattr(own_address, "host", own_address))
        self._requests = PendingRequests(self._clock, self.peer, self._limits.outstanding_max)
        self.connected_at = self._active_at = self._clock.seconds()
        self._is_open = True
        self._is_lost = False
        self._receiver.connection_made(self)

    def use(self, transport: Any) -> None:
        """Takes over a transport, in place of one on which nothing was sent if there was one."""
        self._link = transport
        self._is_paced = isinstance(transport, TlsLink)
        if isinstance(transport, TlsLink):
            transport.set_tcp_times(self._limits.tcp_times)
        elif isinstance(transport, Connection) and not transport.TLS:
            self._socket = transport.getHandle()
            set_tcp_times(transport.getHandle(), self._limits.tcp_times)
            transport.bufferSize = _READ_BYTES
            transport.setTcpNoDelay(True)

    def dataReceived(self, data: bytes) -> None:
        """Decodes a chunk and hands its commands on."""
        if not self._is_open:
            return
        self._active_at = self._clock.seconds()
        self.received_count += 1
        try:
            frames = self._decoder.feed(data)
        except RemoteProtocolError as error:
            self._refuse_bytes(error)
            return
        if not self._decoder.buffered_bytes:
            self._frame_begun_at = None
        elif frames or self._frame_begun_at is None:
            self._frame_begun_at = self._active_at
        if not frames:
            return
        self._has_received_frame = True
        # What is sent meanwhile goes out below, not at the end of the turn.
        self._is_flush_due = True
        try:
            taken = 0 if self.take_frames is None else self.take_frames(self, frames)
            commands = self._decoded(frames[taken:]) if taken < len(frames) else []
            if commands:
                self._hand_on(commands)
        except Exception:
            _log.failure("closing {peer}: receiver failed", peer=self.peer)
            self.abort("internal error")
        self.flush()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Fails what waits and tells the receiver."""
        text = self._close_reason or reason.getErrorMessage()
        self._close_reason = text
        self._is_open = False
        self._is_lost = True
        self._socket = None
        self._outbox.clear()
        self._handed_bytes = 0
        if self._owns_output:
            self._output.stop()
        self._requests.fail_all(text)
        self._receiver.connection_lost(self, text)

    def resumeProducing(self) -> None:
        """Twisted has sent what it got: the socket takes more."""
        if self._is_registering:
            return
        self._is_blocked = False
        self._handed_bytes = 0
        self._link.unregisterProducer()
        self.flush()
        if self._is_reading_paused and self.unsent_bytes < self._limits.pause_bytes // 2:
            self._is_reading_paused = False
            if not self._is_lost:
                self._link.resumeProducing()

    def stopProducing(self) -> None:
        """The connection is going away; connectionLost does the rest."""

    # Inside.

    def _is_too_slow(self, now_s: float) -> bool:
        """Tells whether a frame has trickled for some checks; one late check proves nothing, for
        what the peer sent meanwhile may still wait in the socket.
        """
        begun_at, limits = self._frame_begun_at, self._limits
        if begun_at is None or not limits.frame_bytes_s_min:
            self._slow_checks_count = 0
            return False
        is_slow = self._decoder.buffered_bytes < (now_s - begun_at) * limits.frame_bytes_s_min
        self._slow_checks_count = self._slow_checks_count + 1 if is_slow else 0
        return self._slow_checks_count >= limits.slow_checks_max

    def _decoded(self, frames: list[bytes]) -> list[RemotingCommand]:
        """Returns the commands of some frames; none, and closes, when one cannot be read."""
        try:
            return [decode(frame) for frame in frames]
        except RemoteProtocolError as error:
            self._refuse_bytes(error)
            return []

    def _refuse_bytes(self, error: RemoteProtocolError) -> None:
        _log.warn("closing {peer}: bad bytes: {error}", peer=self.peer, error=error)
        self.close(f"bad bytes: {error}")

    def _hand_on(self, commands: list[RemotingCommand]) -> None:
        requests = [command for command in commands if not command.flag & RESPONSE_FLAG]
        if len(requests) != len(commands):
            for command in commands:
                if command.flag & RESPONSE_FLAG and not self._requests.resolve(command):
                    self.unmatched_responses_count += 1
        if requests and self._is_open:
            self._receiver.commands_received(self, requests)

    def _flush_early(self) -> None:
        """Sends before the turn ends and applies the marks to what is left."""
        self.flush()
        unsent = self.unsent_bytes
        if unsent > self._limits.unsent_bytes_max:
            _log.warn(
                "closing {peer}: slow peer, {unsent_bytes} bytes unsent, limit {limit_bytes}",
                peer=self.peer,
                unsent_bytes=unsent,
                limit_bytes=self._limits.unsent_bytes_max,
            )
            self.abort(f"slow peer: {unsent} bytes unsent")
        elif unsent > self._limits.pause_bytes and not self._is_reading_paused:
            self._is_reading_paused = True
            if not self._is_lost:
                self._link.pauseProducing()

    def _hand_over(self) -> None:
        """Gives Twisted the front of the outbox, so that it says when the socket takes more."""
        piece = self._outbox.take(_HANDED_BYTES)
        self._handed_bytes = len(piece)
        self._is_blocked = True
        self._drained_at = self._clock.seconds()
        self._link.write(piece)
        # Registering asks for data at once; there is none to give before the piece has gone.
        self._is_registering = True
        self._link.registerProducer(self, False)
        self._is_registering = False


def _is_over(begun_s: float | None, now_s: float, timeout_s: float) -> bool:
    return begun_s is not None and timeout_s > 0 and now_s - begun_s >= timeout_s
