"""An outgoing connection for each peer, and the dialect that is spoken on it.

    connecting -> greeting -> binary     HELLO was answered, and PROOF where both have a secret:
                                         frames of wire_binary, both ways
                           -> json       the peer does not know HELLO: DLedger's requests
                           -> refused    wrong group, member, secret or segment size, or formats
                                         that one of the two does not read: logged, unused

What comes before that is not looked at. In a closed group a peer must prove that it knows the
secret before it is told anything else, and JSON is spoken only with members that the configuration
names.

At each heart beat the link is looked at: what was asked on it must have brought something. HELLO
asks, each heart beat a PING in the binary dialect, and DLedger's requests in the other one. A link
that is silent for a few heart beats is ended and made anew at once, as TCP would wait for the
network for as long again as it was gone (see LinkWatch). A peer that is not reached for ten seconds
is told in the log, and when it is reached again: one that reaches this member all the same is seen
by nobody else.

After a loss Twisted's ClientService connects again, waiting a little longer each time until a HELLO
was answered. What is sent while a connection is not ready, or while too much waits for its socket,
is dropped: the core sends again what matters. On one connection messages keep their order.
"""

from collections.abc import Callable
from functools import partial
from random import random
from typing import Any, Final, NamedTuple, Protocol, cast

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from ledgermq.dledger.bounds import excess_of
from ledgermq.dledger.entry import EntryCodec
from ledgermq.dledger.formats import GroupFormats
from ledgermq.dledger.membership import Cluster, find_mismatch
from ledgermq.dledger.messages import (
    BirthReport,
    DLedgerCode,
    LinkMessage,
    PeerDialect,
    ReadMessage,
    VoteRequest,
)
from ledgermq.dledger.replica import wire_binary, wire_json
from ledgermq.dledger.replica.admission import (
    ANOTHER_SECRET,
    GREETING_BYTES_MAX,
    GREETING_S_MAX,
    NO_SECRET,
    Admission,
)
from ledgermq.dledger.replica.clock_exchange import ClockExchange
from ledgermq.dledger.replica.config import ReplicaConfig
from ledgermq.dledger.replica.flush_modes import FlushModes
from ledgermq.dledger.replica.greeting_bodies import (
    Hello,
    decode_hello_answer,
    encode_hello,
    encode_proof,
)
from ledgermq.dledger.replica.link_watch import LinkWatch
from ledgermq.dledger.replica.wire_binary import BinaryCode
from ledgermq.dledger.replica.wire_json import MemberRequest
from ledgermq.protocol.codes import LanguageCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import ProtocolError, RemoteProtocolError
from ledgermq.protocol.member_proof import Side, draw_nonce, is_nonce
from ledgermq.protocol.tcp_times import MEMBER_TIMES
from ledgermq.protocol.transport import (
    CommandClient,
    CommandProtocol,
    ConnectionLimits,
    TurnOutput,
)
from ledgermq.protocol.transport.refusals import Refusals

# RemotingSysResponseCode: what a Java server answers to HELLO. SYSTEM_ERROR covers one with a
# processor for all codes that fails on it.
_SUCCESS: Final = 0
_NOT_KNOWN: Final = frozenset({1, 3})
# The peer does not take this member for one of its group.
_MEMBERSHIP_CODES: Final = frozenset({DLedgerCode.UNKNOWN_MEMBER, DLedgerCode.UNEXPECTED_MEMBER})
# The silence of a connection ends the wait for HELLO's answer long before this.
_HELLO_TIMEOUT_MS: Final = 60_000
# Without a way to a peer: much longer than a start or a change of the program takes.
_UNREACHED_MS: Final = 10_000
_LIMITS: Final = ConnectionLimits(first_frame_timeout_s=0, tcp_times=MEMBER_TIMES)

_log = Logger()


class _Mismatch(NamedTuple):
    """Why a peer and this member do not work together."""

    reason: str
    # They have different member lists or cluster ids.
    is_membership: bool = False


class MemberEvents(Protocol):
    """What connections tell the member that owns them, and what they ask."""

    @property
    def term(self) -> int:
        """The member's current term."""

    @property
    def formats(self) -> GroupFormats:
        """What the members' appliers read; connections tell it."""

    @property
    def clocks(self) -> ClockExchange:
        """The members' wall clocks; connections exchange them."""

    @property
    def flush_modes(self) -> FlushModes:
        """The members' flush modes; connections report those of the peers."""

    @property
    def cluster(self) -> Cluster:
        """What the member knows of its group; connections compare it with what peers say."""

    @property
    def refusals(self) -> Refusals:
        """Whom the member refuses, and who refuses it; connections tell it."""

    def message_received(self, message: LinkMessage) -> None:
        """A peer sent this; in order for each connection."""

    def take_turn(self) -> None:
        """All that one read brought has been told."""

    def dialect_found(self, peer_id: str, dialect: PeerDialect) -> None:
        """The way to a peer is open."""

    def peer_lost(self, peer_id: str) -> None:
        """The way to a peer is closed."""

    def peer_ended(self, peer_id: str) -> None:
        """The process of a peer has ended: it closed its connections, and nobody listens there."""


class Peer:
    """The way to one peer; the Receiver of its connection."""

    def __init__(
        self,
        reactor: Any,
        config: ReplicaConfig,
        peer_id: str,
        codec: EntryCodec,
        segment_bytes: int,
        events: MemberEvents,
        output: TurnOutput,
        on_refused: Callable[[str], None],
        *,
        chance: Callable[[], float] = random,
    ) -> None:
        """Opens nothing yet; the arguments are those of Connections.

        `on_refused` is told the peer's id when nobody listens at its address; `chance` draws from
        [0, 1), so that members that lost each other do not meet in step.
        """
        self._reactor = reactor
        self._chance = chance
        self.peer_id = peer_id
        self._config = config
        self._codec = codec
        self._events = events
        self._segment_bytes = segment_bytes
        # The last one that was sent, which its answer is compared with; None before.
        self._hello: Hello | None = None
        # How the open connection is spoken on; UNKNOWN while there is none.
        self.dialect = PeerDialect.UNKNOWN
        # Messages that were dropped because the connection was not ready or too slow.
        self.dropped_count = 0
        self._admission = Admission(config)
        # It speaks JSON and no TLS, as the configuration says.
        self._is_plain_java = self._admission.is_named_java(peer_id)
        self._tls = None if self._is_plain_java else config.tls
        # Where TLS is not required yet: whether the last connection was made with it.
        self._was_tls_tried = True
        # The peer of the open connection did not prove itself, and was let in all the same.
        self._is_doubtful = False
        # The last refusal that was logged, so that it is logged once.
        self._logged_refusal = ""
        # The open connection, whether HELLO was answered on it or not.
        self._connection: CommandProtocol | None = None
        timing = config.timing
        self._beat_s = timing.heart_beat_ms / 1000
        # One more than members bear of a leader: its heart beats travel on these links.
        self._looks_max = timing.heart_beats_missed_max + 1
        # A Java peer may take as long as DLedger allows it for an answer.
        self._java_looks_max = -(-config.request_timeout_ms // timing.heart_beat_ms) + 1
        self._watch = LinkWatch(self._looks_max)
        self._beat_call: Any = None
        # Heart beats without a way to the peer.
        self._unreached_looks = 0
        # Connections and attempts in a row that brought no answer to HELLO.
        self._fruitless_count = 0
        self._address = address = config.addresses()[peer_id]
        self._client = CommandClient(
            reactor,
            address.host,
            address.port,
            self,
            connect_timeout_ms=config.connect_timeout_ms,
            back_off=self._back_off_s,
            on_refused=partial(on_refused, peer_id),
            # HELLO tells whose address it is.
            remembers_address=True,
            limits=_LIMITS,
            output=output,
            tls=None if self._tls is None else self._tls.client,
        )

    def start(self) -> None:
        """Connects, and keeps connected."""
        self._client.start()
        self._beat_call = self._reactor.callLater(self._beat_s, self._beat)

    def stop(self) -> Deferred[None]:
        """Closes the connection; fires when it is gone."""
        self.dialect = PeerDialect.UNKNOWN
        if self._beat_call is not None:
            self._beat_call.cancel()
            self._beat_call = None
        return self._client.stop()

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent."""
        return self.dialect is not PeerDialect.UNKNOWN

    def send(self, message: LinkMessage) -> None:
        """Sends a message in the dialect of the connection, or drops it."""
        connection = self._client.connection
        if (
            connection is None
            or self.dialect is PeerDialect.UNKNOWN
            or connection.unsent_bytes > self._config.peer_unsent_bytes_max
        ):
            self.dropped_count += 1
        elif self.dialect is PeerDialect.JAVA:
            # Answers of ours travel on the peer's own connection in this dialect; what was made
            # before the dialect was known may have no meaning there.
            is_pre_vote = isinstance(message, VoteRequest) and message.pre_vote
            if not is_pre_vote and not isinstance(message, BirthReport | ReadMessage):
                self._request(connection, cast(MemberRequest, message))
        else:
            send_binary(connection, message)

    def _back_off_s(self, _: int) -> float:
        config = self._config
        doubled_ms = config.reconnect_min_ms << min(self._fruitless_count, 20)
        self._fruitless_count += 1
        return min(doubled_ms, config.reconnect_max_ms) * (1 + self._chance()) / 2000

    def _beat(self) -> None:
        """Looks at the link, and asks for the next sign of life."""
        self._beat_call = self._reactor.callLater(self._beat_s, self._beat)
        if self.dialect is PeerDialect.UNKNOWN and not self._logged_refusal:
            self._note_unreached()
        connection = self._connection
        if connection is None:
            return
        if self._watch.is_dead(connection.received_count):
            if self.dialect is not PeerDialect.UNKNOWN:
                _log.warn(
                    "{self_id}: {peer_id} is silent, connecting to it anew",
                    self_id=self._config.self_id,
                    peer_id=self.peer_id,
                )
            connection.abort("silent peer")
        elif self.dialect is PeerDialect.LEDGERMQ:
            self._ping(connection)

    def _ping(self, connection: CommandProtocol) -> None:
        """Asks for a sign of life, and for the peer's wall clock."""
        connection.send_frame(self._events.clocks.ping())
        self._watch.asked()

    @property
    def _unreached_looks_max(self) -> int:
        """After so many heart beats it is told that there is no way."""
        return -(-_UNREACHED_MS // self._config.timing.heart_beat_ms)

    def _note_unreached(self) -> None:
        """One heart beat more without a way to the peer, and without a reason that was told."""
        self._unreached_looks += 1
        if self._unreached_looks == self._unreached_looks_max:
            _log.warn(
                "{self_id}: no way to {peer_id} at {host}:{port} for some seconds; it is tried on",
                self_id=self._config.self_id,
                peer_id=self.peer_id,
                host=self._address.host,
                port=self._address.port,
            )

    def _new_hello(self) -> Hello:
        config, events = self._config, self._events
        formats, (cluster_id, members) = events.formats.own, events.cluster
        return Hello(
            group=config.group,
            sender=config.self_id,
            target=self.peer_id,
            segment_bytes=self._segment_bytes,
            cluster_id=cluster_id,
            members=members,
            reads=formats.reads,
            needs=formats.needs,
            flush_mode=config.flush_disk_type,
            nonce=draw_nonce() if self._admission.key is not None else "",
        )

    def _greet(self, connection: CommandProtocol) -> None:
        admission = self._admission
        self._is_doubtful = False
        if admission.is_closed:
            connection.begin_greeting(GREETING_S_MAX, GREETING_BYTES_MAX)
        self._hello = self._new_hello()
        self._ask(connection, BinaryCode.HELLO, encode_hello(self._hello), self._greeted)

    def _ask(
        self,
        connection: CommandProtocol,
        code: BinaryCode,
        body: bytes,
        answered: Callable[[RemotingCommand, CommandProtocol], None],
    ) -> None:
        """Sends a request of the greeting."""
        command = RemotingCommand(code=code, language=LanguageCode.PYTHON, body=body)
        answer = connection.request(command, _HELLO_TIMEOUT_MS)
        self._watch.asked()
        answer.addCallbacks(
            answered, self._not_greeted, callbackArgs=(connection,), errbackArgs=(connection,)
        )

    def _greeted(self, answer: RemotingCommand, connection: CommandProtocol) -> None:
        if answer.code != _SUCCESS and self._client.forget_address():
            # Its host has another address now, and who is at the former one is no peer.
            connection.close("somebody else's address")
            return
        refusal = self._admission.refusal_of_certificate(self.peer_id, connection)
        if refusal is not None and not self._is_plain_java:
            tls = self._admission.tls
            if tls is not None and tls.is_required:
                self._refused(connection, refusal)
                return
            self._is_doubtful = True
            refusals = self._events.refusals
            refusals.note(self.peer_id, connection.peer_host, f"let in: {refusal}")
        if answer.code in _NOT_KNOWN:
            if not self._admission.may_be_java(self.peer_id):
                self._refused(connection, "it speaks Java's JSON only (key dLegerJavaMembers)")
                return
            self._events.formats.greeted(self.peer_id, None)
            self._watch.bear(self._java_looks_max)
            self._open(connection, PeerDialect.JAVA)
            return
        if answer.code != _SUCCESS:
            self._not_taken(answer, connection, is_proven=not self._admission.is_closed)
            return
        try:
            told = decode_hello_answer(answer.body)
        except RemoteProtocolError as error:
            connection.close(str(error))
            self._refused(connection, str(error))
            return
        key, hello = self._admission.key, self._hello
        if key is None or hello is None:
            self._taken(answer, connection)
            return
        challenge = self._admission.challenge(hello.sender, hello.target, hello.nonce, told.nonce)
        is_proven = is_nonce(told.nonce) and challenge.is_proven(key, Side.ANSWERER, told.proof)
        if not is_proven:
            reason = ANOTHER_SECRET if told.nonce else NO_SECRET
            if self._admission.requires_proof:
                if self._client.forget_address():
                    connection.close("somebody else's address")
                else:
                    self._refused(connection, reason)
                return
            self._is_doubtful = True
            refusals = self._events.refusals
            refusals.note(self.peer_id, connection.peer_host, f"let in: {reason}")
        if not told.nonce:
            # It has no secret and asks for none.
            self._taken(answer, connection)
            return
        # Who did not prove itself gets no proof, either.
        proof = challenge.proof(key, Side.OPENER) if is_proven else ""
        self._ask(connection, BinaryCode.PROOF, encode_proof(proof), self._proof_answered)

    def _proof_answered(self, answer: RemotingCommand, connection: CommandProtocol) -> None:
        if answer.code == _SUCCESS:
            self._taken(answer, connection)
        else:
            self._not_taken(answer, connection, is_proven=True)

    def _not_taken(
        self, answer: RemotingCommand, connection: CommandProtocol, *, is_proven: bool
    ) -> None:
        """Notes why a peer refuses this member; what it reads counts when it has proven itself."""
        mismatch = None
        if is_proven and answer.body:
            mismatch = self._find_mismatch(answer, connection)
        is_membership = answer.code in _MEMBERSHIP_CODES
        reason = f"{answer.remark or 'no reason'} (code {answer.code})"
        self._refused(connection, *(mismatch or _Mismatch(reason, is_proven and is_membership)))
        if is_membership:
            # The peer lists a rejected member only for as long as that asks again.
            connection.close(reason)

    def _find_mismatch(
        self, answer: RemotingCommand, connection: CommandProtocol
    ) -> _Mismatch | None:
        """Takes what the peer reads and needs; says why the two do not work together, if so."""
        try:
            peer = decode_hello_answer(answer.body)
        except RemoteProtocolError as error:
            connection.close(str(error))
            return _Mismatch(str(error))
        if peer.cluster is not None:
            difference = find_mismatch(self.peer_id, peer.cluster, self._events.cluster)
            if difference is not None:
                return _Mismatch(difference, is_membership=True)
        if peer.flush_mode is not None:
            self._events.flush_modes.greeted(self.peer_id, peer.flush_mode)
        reason = self._events.formats.greeted(self.peer_id, peer.formats)
        return None if reason is None else _Mismatch(reason)

    def _taken(self, answer: RemotingCommand, connection: CommandProtocol) -> None:
        """The peer takes this member; now whether the two read what the other wrote."""
        mismatch = self._find_mismatch(answer, connection)
        if mismatch is not None:
            self._refused(connection, *mismatch)
            return
        self._watch.bear(self._looks_max)
        self._open(connection, PeerDialect.LEDGERMQ)
        # Before the first election that it takes part in.
        self._ping(connection)

    def _open(self, connection: CommandProtocol, dialect: PeerDialect) -> None:
        """Begins to speak."""
        connection.end_greeting()
        if not self._is_doubtful:
            self._events.refusals.forget(self.peer_id, connection.peer_host)
        self.dialect = dialect
        self._logged_refusal = ""
        if self._unreached_looks >= self._unreached_looks_max:
            reached = "{self_id}: {peer_id} is reached again"
            _log.info(reached, self_id=self._config.self_id, peer_id=self.peer_id)
        self._unreached_looks = 0
        self._fruitless_count = 0
        self._events.dialect_found(self.peer_id, dialect)

    def _refused(
        self, connection: CommandProtocol, reason: str, is_membership: bool = False
    ) -> None:
        """Leaves the connection open and unused: who restarts the peer to mend it closes it.

        In a closed group its time ends soon.
        """
        refusals = self._events.refusals
        host = connection.peer_host
        refusals.note(self.peer_id, host, reason, is_logged=False, is_membership=is_membership)
        if reason != self._logged_refusal:
            self._logged_refusal = reason
            _log.error(
                "{peer_id} and {self_id} do not work together: {reason}",
                peer_id=self.peer_id,
                self_id=self._config.self_id,
                reason=reason,
            )

    def _not_greeted(self, failure: Failure, connection: CommandProtocol) -> None:
        connection.close(failure.getErrorMessage())

    def _request(self, connection: CommandProtocol, message: MemberRequest) -> None:
        code, body = wire_json.encode_request(message, self._config.group)
        command = RemotingCommand(code=code, language=LanguageCode.PYTHON, body=body)
        answer = connection.request(command, self._config.request_timeout_ms)
        self._watch.asked()
        answer.addCallback(self._answered, message)
        answer.addErrback(self._not_answered)

    def _answered(self, answer: RemotingCommand, request: MemberRequest) -> None:
        message = wire_json.decode_answer(request, answer.body)
        check_bounds(message, self._events)
        self._events.message_received(message)

    def _not_answered(self, failure: Failure) -> Failure | None:
        """No answer is an answer: the core's own timers send again what matters."""
        if not isinstance(failure.value, ProtocolError):
            return failure
        if isinstance(failure.value, RemoteProtocolError):
            _log.warn(
                "{peer_id} answered what is no answer: {reason}",
                peer_id=self.peer_id,
                reason=failure.getErrorMessage(),
            )
        return None

    # Receiver of the connection.

    def connection_made(self, connection: CommandProtocol) -> None:
        """The dialect is not known before HELLO is answered."""
        self.dialect = PeerDialect.UNKNOWN
        self._connection = connection
        self._watch.opened()
        self._greet(connection)

    def commands_received(
        self, connection: CommandProtocol, commands: list[RemotingCommand]
    ) -> None:
        """Takes the answers of a LedgerMQ peer; nothing of one that was not taken for it."""
        if self.dialect is not PeerDialect.LEDGERMQ:
            return
        for command in commands:
            try:
                if command.code == BinaryCode.PING_ANSWER:
                    self._events.clocks.answered(self.peer_id, command.body)
                    continue
                message = wire_binary.decode(
                    command.code,
                    command.body,
                    sender=self.peer_id,
                    target=self._config.self_id,
                    codec=self._codec,
                    chain_crc_of=lambda _: None,
                )
                check_bounds(message, self._events)
            except RemoteProtocolError as error:
                _log.warn("closing {peer_id}: {error}", peer_id=self.peer_id, error=error)
                connection.close(str(error))
                return
            self._events.message_received(message)

    def connection_lost(self, connection: CommandProtocol, reason: str) -> None:
        """Tells the member when the way was open."""
        if self._connection is connection:
            self._connection = None
        if self._tls is not None and not self._tls.is_required:
            # What led nowhere is tried the other way; what worked, with TLS first.
            is_tls_next = self.is_open or not self._was_tls_tried
            self._client.use_tls(self._tls.client if is_tls_next else None)
            self._was_tls_tried = is_tls_next
        self._events.clocks.group.forget(self.peer_id)
        if self.dialect is not PeerDialect.UNKNOWN:
            self.dialect = PeerDialect.UNKNOWN
            self._events.peer_lost(self.peer_id)


def check_bounds(message: LinkMessage, member: MemberEvents) -> None:
    """Looks at the numbers of a message before the member hears of it.

    Raises:
        RemoteProtocolError: no member has such a number.
    """
    excess = excess_of(message, member.term)
    if excess is not None:
        raise RemoteProtocolError(excess.field, excess.value, excess.limit)


def send_binary(connection: CommandProtocol, message: LinkMessage) -> None:
    """Sends one binary frame; a run of entries goes to the socket at once and is not copied."""
    parts = wire_binary.encode(message)
    if len(parts) == 1:
        connection.send_frame(cast(bytes, parts[0]))
    else:
        connection.send_parts(parts)
