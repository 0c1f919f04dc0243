"""CommandProtocol: one TCP connection as a stream of commands in both directions.

Way in: chunk -> FrameDecoder -> decode -> answers to own requests are given to their Deferreds, all
else to the receiver in one call for each chunk, or each piece of a long one. Way out: frames gather
in an Outbox until the turn ends, then go straight to the socket; what it does not take is given to
Twisted piece by piece as the socket becomes writable.

- Share: requests of a chunk are worked on until the connection's share of a turn is used
  (`turn_shares.py`; there may be nothing left of the turn), its outbox is full, or it is closed.
  The rest waits, in order, and nothing more is read meanwhile; what waits at a close is dropped.
- Unsent bytes: above pause_bytes reading pauses, below half of it it resumes, and above
  unsent_bytes_max the connection is aborted as a slow peer.
- Bad bytes: a frame that cannot be cut, or a header that cannot be read, closes the connection with
  one line in the log. A bad ext field is the processor's business and harms nobody.
- Silence: `check`, called about once a second by the owner, applies the times of ConnectionLimits.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import random
from typing import Any, Final

from twisted.internet.defer import Deferred, fail
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.tcp import Connection
from twisted.logger import Logger
from twisted.python.failure import Failure

from ledgermq.protocol.codes import ONE_WAY_FLAG, ResponseCode
from ledgermq.protocol.command import RemotingCommand, decode, encode, encode_parts
from ledgermq.protocol.errors import ConnectionClosedError, LocalProtocolError, RemoteProtocolError
from ledgermq.protocol.networks import network_of
from ledgermq.protocol.tcp_times import set_tcp_times
from ledgermq.protocol.transport.budgets import ReceiveBudget, SendBudget
from ledgermq.protocol.transport.inbox import Inbox
from ledgermq.protocol.transport.limits import ConnectionLimits, is_over
from ledgermq.protocol.transport.outbox import Outbox, Part, StreamSocket
from ledgermq.protocol.transport.read_size import ReadSize
from ledgermq.protocol.transport.receiver import Receiver
from ledgermq.protocol.transport.requests import PendingRequests
from ledgermq.protocol.transport.tls_link import TlsLink
from ledgermq.protocol.transport.turn import Clock, DelayedCall, TurnOutput
from ledgermq.protocol.transport.turn_shares import Share, TurnShares, payer_of

# What Twisted gets of unsent bytes at a time; the rest waits in the outbox.
_HANDED_BYTES: Final = 65_536
# Unsent bytes at which a turn's end is not waited for.
_EAGER_BYTES: Final = 262_144
# Frames that are taken before the clock is looked at again.
_PIECE_FRAMES: Final = 128

_log = Logger()


class CommandProtocol(Protocol):
    """One connection.

    Invariants: `_is_blocked` exactly while Twisted holds bytes of ours; nothing is sent on the
    socket meanwhile. Nothing is read while requests wait.
    """

    # "ip:port" of the peer, its ip, and that of this end; empty before the connection is made.
    peer = ""
    peer_host = ""
    own_host = ""
    # Seconds on the clock.
    connected_at = 0.0
    # Whatever the owner keeps for this connection.
    context: Any = None
    # Twisted holds so many bytes of ours; the budget counted so many that are unsent.
    _handed_bytes = _counted_bytes = 0
    _is_blocked = _is_registering = False

    def __init__(
        self,
        clock: Clock,
        receiver: "Receiver[CommandProtocol]",
        *,
        limits: ConnectionLimits | None = None,
        output: TurnOutput | None = None,
        shares: TurnShares | None = None,
        budget: ReceiveBudget | None = None,
        send_budget: SendBudget | None = None,
    ) -> None:
        """Waits for its transport.

        Args:
            clock: the reactor.
            receiver: who gets the commands.
            limits: None for the defaults.
            output: shared by the connections of one reactor; None for one of its own.
            shares: the line of those who used their share of a turn; None: there are no shares.
            budget: for what was received and is not worked on; None: nobody counts.
            send_budget: for what is unsent; None for one of its own.
        """
        self._clock = clock
        self._receiver = receiver
        self._limits = limits or ConnectionLimits()
        self._output = output or TurnOutput(clock)
        self._owns_output = output is None
        # Who signed the request that is worked on, and what may be shown; None: nobody, all of it.
        self.account: str | None = None
        self.sight: Any = None
        # Whether a request proved who the peer is, where that is asked, and, until then, who looks
        # at headers of larger frames: may they come?
        self.is_trusted = not self._limits.unknown_frame_bytes_max
        self.admits_large: Callable[[CommandProtocol, RemotingCommand], bool] | None = None
        # Set by an owner that has a quicker road for some frames: it gets those of each chunk and
        # says how many it has taken from their front.
        self.take_frames: Callable[[CommandProtocol, list[bytes]], int] | None = None
        # Times that something came, if only a part of a frame.
        self.received_count = 0
        # Answers that no request waited for.
        self.unmatched_responses_count = 0
        self._eager_bytes = min(_EAGER_BYTES, self._limits.pause_bytes)
        self._inbox = Inbox(self._limits, budget)
        self._requests = PendingRequests(clock, self.peer, self._limits.outstanding_max)
        self._outbox = Outbox()
        self._send_budget = send_budget or SendBudget()
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
        # Reading is paused while the outbox is full or requests wait.
        self._is_full = self._is_reading_paused = False
        self._shares = shares
        self._read_size = ReadSize(shares)
        # Its share of a turn; whether it stands in the line.
        self._share = None if shares is None else Share(shares)
        self._is_in_line = False
        # Ends the time in which nothing of this connection is worked on.
        self._held_call: DelayedCall | None = None
        self._close_reason: str | None = None
        # Seconds on the clock: of the last read or write, of the last progress of a blocked outbox.
        self._active_at = 0.0
        self._drained_at = 0.0

    @property
    def is_open(self) -> bool:
        """True from connection_made until the connection is closed from either side."""
        return self._is_open

    @property
    def certificate_names(self) -> tuple[str, ...]:
        """Names in the peer's verified certificate; empty without TLS, and without one."""
        return self._link.certificate_names if isinstance(self._link, TlsLink) else ()

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were sent here and that the socket has not taken yet."""
        return self._outbox.size_bytes + self._handed_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes that came in and were not worked on."""
        return self._inbox.held_bytes

    @property
    def active_at(self) -> float:
        """When the last bytes came in or went out, seconds on the clock."""
        return self._active_at

    @property
    def drained_at(self) -> float:
        """When the socket last took something of what it did not take at once, likewise."""
        return self._drained_at

    def has_room(self, usual: int | None = None) -> bool:
        """Tells whether something large may be sent: the peer reads, and so do the others.

        Args:
            usual: bytes that may wait when there is enough for all; None for pause_bytes.
        """
        usual = self._limits.pause_bytes if usual is None else usual
        return self.unsent_bytes <= self._send_budget.pause_bytes(usual)

    def goes_on(self) -> bool:
        """Tells whether another request of this connection may be worked on in this turn."""
        if self._share is None:
            return self._is_open
        return (
            self._is_open
            and self._held_call is None
            and self._clock.seconds() < self._share.end_s
            and self.has_room()
        )

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

    def hold(self, seconds: float) -> None:
        """Has nothing more read, and no more requests worked on, for so long."""
        if self._is_open and self._held_call is None and self._shares is not None:
            self._held_call = self._clock.callLater(seconds, self._end_hold)

    def _end_hold(self) -> None:
        self._held_call = None
        self._pause_or_read()

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
            self._inbox.clear(self)
            self._link.loseConnection()

    def abort(self, reason: str) -> None:
        """Closes at once; what has gathered is lost."""
        if self._is_lost:
            return
        self._is_open = False
        if self._close_reason is None:
            self._close_reason = reason
        self._outbox.clear()
        self._handed_bytes = 0
        self._count_unsent()
        self._inbox.clear(self)
        self._link.abortConnection()

    def limit_silence(self, idle_timeout_s: float) -> None:
        """Changes the time without a read or write that closes this one connection."""
        self._limits = replace(self._limits, idle_timeout_s=idle_timeout_s)

    def begin_greeting(self, timeout_s: float, frame_bytes_max: int) -> None:
        """Has the peer say who it is: until `end_greeting`, frames are small, and in time it ends.

        Args:
            timeout_s: after so long the connection is closed, whatever came on it.
            frame_bytes_max: greatest frame that is read meanwhile.
        """
        self._inbox.begin_greeting(self._clock.seconds() + timeout_s, frame_bytes_max)

    def end_greeting(self) -> None:
        """Takes away the limits of `begin_greeting`: it is known who the peer is."""
        self._inbox.end_greeting()

    def check(self, now_s: float) -> None:
        """Applies the times of ConnectionLimits; the owner calls it about once a second."""
        limits = self._limits
        if self._is_lost:
            return
        if self._is_blocked or not self._is_open:
            if is_over(self._drained_at, now_s, limits.drain_timeout_s):
                self.abort(f"{self.unsent_bytes} bytes unsent for {limits.drain_timeout_s:g} s")
        elif self._is_reading_paused and not self._inbox.is_dripping:
            # It is this end that keeps the peer waiting.
            self._active_at = now_s
        elif fault := self._inbox.fault_at(now_s):
            self.abort(fault)
        elif not self._inbox.has_received_frame and is_over(
            self.connected_at, now_s, limits.first_frame_timeout_s
        ):
            self.close(f"no frame in {limits.first_frame_timeout_s:g} s")
        elif not self.is_trusted and is_over(self.connected_at, now_s, limits.unknown_timeout_s):
            self.close(f"no request that was let pass in {limits.unknown_timeout_s:g} s")
        elif is_over(self._active_at, now_s, limits.idle_timeout_s):
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
            transport.setTcpNoDelay(True)
        self._read_size.apply(transport)

    def dataReceived(self, data: bytes) -> None:
        """Decodes a chunk and hands its commands on."""
        if not self._is_open:
            return
        self._active_at = self._clock.seconds()
        self.received_count += 1
        self._read_size.count(len(data), self._link)
        # Read before reading was paused, it waits behind the rest.
        was_waiting = self._inbox.is_waiting
        try:
            is_more = self._inbox.feed(data, self._active_at)
        except RemoteProtocolError as error:
            self._refuse_bytes(error)
            return
        if is_more and not was_waiting:
            self._begin_work()
        if not self.is_trusted:
            self._judge_large()
        if self._inbox.is_dripping:
            # Not of all peers that do this in the same turn again.
            self.hold(self._inbox.rest_s * (1 + random()))
            self._pause_or_read()
        if self._is_open:
            self._inbox.count(self, self._active_at)

    def go_on(self) -> None:
        """Works on what waits for one more share; called when it is this connection's turn."""
        self._is_in_line = False
        if self._is_open and not self._is_full and self._held_call is None:
            self._active_at = self._clock.seconds()
            if self._share is not None:
                self._share.begin_anew(self._active_at)
            self._work()
            if self._is_open:
                self._inbox.count(self, self._active_at)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Fails what waits and tells the receiver."""
        text = self._close_reason or reason.getErrorMessage()
        self._close_reason = text
        self._is_open = False
        self._is_lost = True
        self._socket = None
        self._outbox.clear()
        self._handed_bytes = 0
        self._count_unsent()
        self._inbox.clear(self)
        if self._held_call is not None:
            self._held_call.cancel()
            self._held_call = None
        if self._owns_output:
            self._output.stop()
        self._requests.fail_all(text)
        self._receiver.connection_lost(self, text)
        # A transport knows its protocol: each would keep the other until cycles are collected.
        self._link = self.transport = None

    def resumeProducing(self) -> None:
        """Twisted has sent what it got: the socket takes more."""
        if self._is_registering:
            return
        self._is_blocked = False
        self._handed_bytes = 0
        self._link.unregisterProducer()
        self.flush()
        self._count_unsent()
        if self._is_full and self.has_room(self._limits.pause_bytes // 2):
            self._is_full = False
            self._pause_or_read()

    def stopProducing(self) -> None:
        """The connection is going away; connectionLost does the rest."""

    def _begin_work(self) -> None:
        """Works on what was just read, or has it wait when nothing is left of this turn."""
        if self._share is None or self._share.begin(self._active_at, self.peer_host):
            self._work()
        else:
            self._pause_or_read()

    def _work(self) -> None:
        """Works on what was read until nothing is left or the share is used."""
        inbox = self._inbox
        # What is sent meanwhile goes out below, not at the end of the turn.
        self._is_flush_due = True
        try:
            self._work_off()
        except Exception:
            _log.failure("closing {peer}: receiver failed", peer=self.peer)
            self.abort("internal error")
        before_s = self._active_at
        self.flush()
        if self._share is not None:
            # Where something was sent, the time is known.
            now_s = self._active_at if self._active_at != before_s else self._clock.seconds()
            self._share.end(now_s, payer_of(self))
        if not self._is_open:
            inbox.clear(self)
        elif inbox.is_waiting or self._is_reading_paused or self._held_call is not None:
            self._pause_or_read()

    def _work_off(self) -> None:
        inbox = self._inbox
        frames, taken = inbox.frames, 0
        piece_max = len(frames) if self._shares is None else _PIECE_FRAMES
        while True:
            if not inbox.commands:
                piece = frames[taken : taken + piece_max]
                quick = 0 if self.take_frames is None else self.take_frames(self, piece)
                taken += quick
                if quick < len(piece) and (not quick or self.goes_on()):
                    taken += len(piece) - quick
                    commands = self._decoded(piece[quick:])
                    inbox.commands, unmatched_count = self._requests.take_answers(commands)
                    self.unmatched_responses_count += unmatched_count
            if inbox.commands and self._is_open:
                count = self._receiver.commands_received(self, inbox.commands)
                inbox.commands = [] if count is None else inbox.commands[count:]
            if not inbox.commands and taken == len(frames):
                break
            if not self.goes_on():
                break
        del frames[:taken]

    def _judge_large(self) -> None:
        """Closes when an unknown peer begins a larger frame than it may."""
        try:
            head = self._inbox.find_large()
            if head is None or not self._is_open:
                return
            command = decode(head)
        except RemoteProtocolError as error:
            self._refuse_bytes(error)
            return
        if self.admits_large is not None and self.admits_large(self, command):
            self._inbox.admit_large()
            return
        size_max = self._limits.unknown_frame_bytes_max
        size = self._inbox.wanted_bytes
        refusal = RemoteProtocolError("frame length before a valid signature", size, size_max)
        if not command.is_one_way and not command.is_response:
            self.send(command.response(ResponseCode.SYSTEM_ERROR, str(refusal)))
        self._refuse_bytes(refusal)

    def _pause_or_read(self) -> None:
        """Reads on, or not, as the outbox and the requests that wait have it."""
        is_waiting = self._inbox.is_waiting
        is_held = self._held_call is not None
        if is_waiting and not self._is_full and not self._is_in_line and not is_held:
            assert self._shares is not None and self._share is not None
            self._is_in_line = True
            self._shares.wait(self, self._share)
        is_paused = self._is_full or is_waiting or is_held
        if is_paused == self._is_reading_paused or self._is_lost:
            return
        self._is_reading_paused = is_paused
        if is_paused:
            self._link.pauseProducing()
        else:
            self._inbox.begin_anew(self._clock.seconds())
            self._link.resumeProducing()

    def _decoded(self, frames: list[bytes]) -> list[RemotingCommand]:
        """Returns the commands of some frames; none, and closes, when one cannot be read."""
        try:
            return [decode(frame) for frame in frames]
        except RemoteProtocolError as error:
            self._refuse_bytes(error)
            return []

    def _refuse_bytes(self, error: RemoteProtocolError) -> None:
        self._warn("bad bytes", str(error))
        self.close(f"bad bytes: {error}")

    def _warn(self, kind: str, detail: str) -> None:
        """Says why it closes; of one address lines of a kind are equal, whatever they tell."""
        text, same = f"{kind}: {detail}", f"closing {network_of(self.peer_host)}: {kind}"
        _log.warn("closing {peer}: {text}", peer=self.peer, text=text, repeats_as=same)

    def _flush_early(self) -> None:
        """Sends before the turn ends and applies the marks to what is left."""
        self.flush()
        unsent = self.unsent_bytes
        if unsent > self._limits.unsent_bytes_max:
            limit = self._limits.unsent_bytes_max
            self._warn("slow peer", f"{unsent} bytes unsent, limit {limit}")
            self.abort(f"slow peer: {unsent} bytes unsent")
            return
        self._count_unsent()
        if self._send_budget.used_bytes > self._send_budget.bytes_max:
            self._send_budget.make_room(self._clock.seconds())
        if not self._is_full and not self.has_room():
            self._is_full = True
            self._pause_or_read()

    def _count_unsent(self) -> None:
        before, self._counted_bytes = self._counted_bytes, self.unsent_bytes
        if before != self._counted_bytes:
            self._send_budget.note(self, before, self._counted_bytes)

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
