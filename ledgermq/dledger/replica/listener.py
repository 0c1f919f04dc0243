"""Incoming RPC of peers in both dialects, and of DLedger's own tools.

A connection begins to speak binary with HELLO; from then on it belongs to the member that HELLO
named. The member pings it at each heart beat; when nothing came on it for many of them, it is
closed. Answers to votes go back on the connection that asked, others on the newest one of their
member. A JSON request names its group and both ids itself, and is answered on its own connection
under its opaque.

A member is believed to be one only where it comes from an address of its own
(`member_addresses.py`): else HELLO is answered 401 and its connection closed, and a vote, heart
beat, push or hand-over in JSON is refused with 401.

Whoever names another group or an unknown member, or has a program that does not read what this one
wrote (`formats.py`), is told so (400, 401, 303) and logged once a connection;
bytes that make no sense close a binary connection and are answered 411 on a JSON one. A term or an
index that no member can have (`bounds.py`) closes either. A Java peer may have so many requests
waiting for their answers; above that the oldest is answered 421. Nothing is scheduled here.
"""

from dataclasses import replace
from typing import Final

from twisted.logger import Logger

from ledgermq.dledger.entry import EntryCodec, EntryId
from ledgermq.dledger.errors import LedgerError
from ledgermq.dledger.messages import (
    AppendRequest,
    BirthReport,
    DLedgerCode,
    HeartBeatRequest,
    HeartBeatResponse,
    JsonCode,
    PushResponse,
    TransferResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from ledgermq.dledger.replica import wire_binary, wire_json
from ledgermq.dledger.replica.client_requests import ClientRequests
from ledgermq.dledger.replica.config import ReplicaConfig
from ledgermq.dledger.replica.json_bodies import RequestBody, TransferBody
from ledgermq.dledger.replica.member_addresses import MemberAddresses
from ledgermq.dledger.replica.peers import MemberEvents, check_bounds, send_binary
from ledgermq.dledger.replica.wire_binary import PING_ANSWER_FRAME, WIRE_VERSION, BinaryCode, Hello
from ledgermq.dledger.replica.wire_json import MemberAnswer, MemberRequest
from ledgermq.dledger.storage import LedgerStore
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.transport import CommandProtocol

_SUCCESS: Final = 0
_SYSTEM_ERROR: Final = 1
_NOT_SUPPORTED: Final = 3
# The binary header has 16 bits for a code, so that 51001 arrives there as a negative number.
_CODE_MASK: Final = 0xFFFF
_BINARY_CODES: Final = frozenset(map(int, BinaryCode))
_JSON_CODES: Final = frozenset(map(int, JsonCode))
# A member has given its connection up by then, however slow it takes this one to be.
_SILENT_BEATS_MAX: Final = 30
# Known not to belong together; one more, and all are logged anew.
_REFUSED_SOURCES_MAX: Final = 256
_MEMBER_CODES: Final = frozenset({JsonCode.VOTE, JsonCode.HEART_BEAT, JsonCode.PUSH})

_log = Logger()

# Under which a waiting JSON request is found by its answer: a vote by candidate and term, all else
# by the number it was given.
_Key = tuple[str, int] | int


class _Link:
    """What is known of one connection."""

    __slots__ = ("has_complained", "last_chain_crc", "last_id", "number", "peer_id", "waiting")

    def __init__(self, number: int) -> None:
        # Of this connection, from 1.
        self.number = number
        # Member at the other end, once HELLO named it.
        self.peer_id: str | None = None
        # Last entry that came here, and its chain checksum: what the next run must continue.
        self.last_id: EntryId | None = None
        self.last_chain_crc = 0
        # JSON requests that wait for their answers, oldest first.
        self.waiting: dict[_Key, tuple[int, RemotingCommand, RequestBody]] = {}
        # A refusal was logged for this connection.
        self.has_complained = False


class Listener:
    """The Receiver of all incoming connections of one member."""

    def __init__(
        self,
        config: ReplicaConfig,
        store: LedgerStore,
        codec: EntryCodec,
        events: MemberEvents,
        clients: ClientRequests,
        sources: MemberAddresses,
    ) -> None:
        """Listens to nothing by itself: it is given to a CommandServer.

        `sources` knows from where each member may speak.
        """
        self._sources = sources
        self._config = config
        self._store = store
        self._codec = codec
        self._events = events
        self._clients = clients
        self._peer_ids = frozenset(config.addresses()) - {config.self_id}
        # The newest binary connection of each peer.
        self._connections: dict[str, CommandProtocol] = {}
        # All binary connections by their numbers.
        self._by_number: dict[int, CommandProtocol] = {}
        self._connection_count = 0
        # JSON requests that wait for their answers, and where they came from.
        self._waiting: dict[_Key, CommandProtocol] = {}
        # Numbers given to JSON requests are negative: those of LedgerMQ leaders are not.
        self._next_request_id = -1
        # Members and addresses that were logged as not belonging together.
        self._refused_sources: set[tuple[str, str]] = set()
        # The leader that is named in refusals.
        self.leader_id: str | None = None

    def answer(self, message: MemberAnswer) -> None:
        """Sends an answer to where its request came from; drops it when that is gone.

        Of answers in the binary dialect, only those to votes know; the others go to the newest
        connection of their member, for what they say is as true there.
        """
        if isinstance(message, VoteResponse) and message.asked_on:
            connection = self._by_number.get(message.asked_on)
            if connection is not None:
                send_binary(connection, message)
            return
        key = _key_of_answer(message)
        connection = self._waiting.pop(key, None)
        if connection is not None:
            code, command, request = connection.context.waiting.pop(key)
            body = wire_json.encode_answer(message, request)
            connection.send(command.response(DLedgerCode.SUCCESS, body=body))
            return
        connection = self._connections.get(message.target)
        if connection is not None:
            send_binary(connection, message)

    def tell(self, report: BirthReport) -> None:
        """Sends a report on the newest connection that its receiver has made, or drops it."""
        connection = self._connections.get(report.target)
        if connection is not None:
            send_binary(connection, report)

    def is_connected(self, peer_id: str) -> bool:
        """Whether there is a binary connection that the peer has made."""
        return peer_id in self._connections

    # Receiver of the connections.

    def connection_made(self, connection: CommandProtocol) -> None:
        """Nothing is known of it yet."""
        self._connection_count += 1
        connection.context = _Link(self._connection_count)

    def connection_lost(self, connection: CommandProtocol, reason: str) -> None:
        """Forgets what waited for it."""
        link: _Link = connection.context
        for key in link.waiting:
            del self._waiting[key]
        link.waiting.clear()
        self._by_number.pop(link.number, None)
        if link.peer_id is not None and self._connections.get(link.peer_id) is connection:
            del self._connections[link.peer_id]

    def commands_received(
        self, connection: CommandProtocol, commands: list[RemotingCommand]
    ) -> None:
        """Sorts requests by dialect."""
        for command in commands:
            code = command.code & _CODE_MASK
            if code == BinaryCode.HELLO:
                self._greet(connection, command)
            elif code in _BINARY_CODES:
                self._receive_binary(connection, code, command.body)
            elif code in _JSON_CODES:
                self._receive_json(connection, code, command)
            elif not command.is_one_way:
                remark = f"request type {command.code} not supported"
                connection.send(command.response(_NOT_SUPPORTED, remark))
            if not connection.is_open:
                break
        # A leader pushes once a turn: there is nothing more to gather.
        self._events.take_turn()

    def _greet(self, connection: CommandProtocol, command: RemotingCommand) -> None:
        config, code, reason = self._config, DLedgerCode.SUCCESS, ""
        try:
            hello = wire_binary.decode_hello(command.body)
        except RemoteProtocolError as error:
            self._complain(connection, str(error))
            connection.send(command.response(DLedgerCode.UNEXPECTED_ARGUMENT, str(error)))
            return
        if hello.group != config.group:
            code = DLedgerCode.UNKNOWN_GROUP
            reason = f"group is {hello.group!r}, here it is {config.group!r}"
        elif hello.target != config.self_id:
            code = DLedgerCode.UNKNOWN_MEMBER
            reason = f"member {hello.target!r} was asked for, here is {config.self_id!r}"
        elif hello.sender not in self._peer_ids:
            code = DLedgerCode.UNKNOWN_MEMBER
            reason = f"member {hello.sender!r} is none of {sorted(self._peer_ids)}"
        elif hello.version != WIRE_VERSION:
            code = DLedgerCode.UNSUPPORTED
            reason = f"wire version is {hello.version}, here it is {WIRE_VERSION}"
        elif hello.segment_bytes != self._store.segment_bytes:
            code = DLedgerCode.UNEXPECTED_ARGUMENT
            reason = f"segments have {hello.segment_bytes} bytes, here {self._store.segment_bytes}"
        if reason:
            self._complain(connection, reason)
            connection.send(command.response(code, reason))
        elif self._sources.may_be(hello.sender, connection):
            self._welcome(connection, command, hello)
        else:
            looked = self._sources.look_again(hello.sender)
            looked.addCallback(lambda _: self._greet_again(connection, command, hello))

    def _greet_again(
        self, connection: CommandProtocol, command: RemotingCommand, hello: Hello
    ) -> None:
        """Takes a greeting, or not, now that the names of its sender were looked up.

        A connection that is refused is closed: the sender comes again, perhaps when its name says
        where it is.
        """
        if not connection.is_open:
            return
        if self._sources.may_be(hello.sender, connection):
            self._welcome(connection, command, hello)
            return
        reason = self._sources.refusal(hello.sender, connection)
        self._complain_of_source(connection, hello.sender)
        connection.send(command.response(DLedgerCode.UNKNOWN_MEMBER, reason))
        connection.close(reason)

    def _welcome(self, connection: CommandProtocol, command: RemotingCommand, hello: Hello) -> None:
        """Takes a member for one, unless one of the two does not read what the other has."""
        config, formats = self._config, self._events.formats
        told = wire_binary.encode_hello_answer(formats.own)
        mismatch = formats.asked_by(hello.sender, hello.formats)
        if mismatch is not None:
            self._complain(connection, mismatch)
            connection.send(command.response(DLedgerCode.UNSUPPORTED, mismatch, body=told))
            return
        connection.context.peer_id = hello.sender
        connection.limit_silence(_SILENT_BEATS_MAX * config.timing.heart_beat_ms / 1000)
        self._connections[hello.sender] = connection
        self._by_number[connection.context.number] = connection
        connection.send(command.response(_SUCCESS, body=told))

    def _receive_binary(self, connection: CommandProtocol, code: int, body: bytes) -> None:
        link: _Link = connection.context
        if link.peer_id is None:
            self._complain(connection, f"frame {code} before HELLO")
            connection.close("frame before HELLO")
            return
        if code == BinaryCode.PING:
            connection.send_frame(PING_ANSWER_FRAME)
            return
        try:
            message = wire_binary.decode(
                code,
                body,
                sender=link.peer_id,
                target=self._config.self_id,
                codec=self._codec,
                chain_crc_of=lambda entry_id: self._chain_crc_of(link, entry_id),
            )
            check_bounds(message, self._events)
        except RemoteProtocolError as error:
            self._complain(connection, str(error))
            connection.close(str(error))
            return
        if isinstance(message, AppendRequest):
            link.last_id = message.entries.last_id
            link.last_chain_crc = message.entries.last_chain_crc
        elif isinstance(message, VoteRequest):
            message = replace(message, asked_on=link.number)
        self._events.message_received(message)

    def _chain_crc_of(self, link: _Link, entry_id: EntryId) -> int | None:
        if entry_id == link.last_id:
            return link.last_chain_crc
        try:
            head = self._store.head_at(entry_id.index)
        except LedgerError:
            return None
        return head.chain_crc if head.term == entry_id.term else None

    def _receive_json(
        self, connection: CommandProtocol, code: int, command: RemotingCommand
    ) -> None:
        try:
            request = wire_json.decode_request(code, command.body)
        except RemoteProtocolError as error:
            self._complain(connection, str(error))
            body = b'{"code":411,"term":-1}'
            connection.send(command.response(_SYSTEM_ERROR, str(error), body=body))
            return
        refusal = self._refusal_of(code, request)
        if refusal is None and self._is_from_elsewhere(connection, code, request):
            self._refuse(connection, code, command, request, DLedgerCode.UNKNOWN_MEMBER)
            return
        if refusal is None and not self._is_of_member(code, request):
            self._clients.receive(connection, code, command, request)
            return
        if refusal is None:
            self._next_request_id -= 1
            try:
                message = wire_json.message_of(
                    code,
                    request,
                    target=self._config.self_id,
                    codec=self._codec,
                    request_id=self._next_request_id,
                )
            except RemoteProtocolError as error:
                self._complain(connection, str(error))
                refusal = DLedgerCode.UNEXPECTED_ARGUMENT
            else:
                self._receive_bounded(connection, code, command, request, message)
                return
        self._complain(connection, f"request {code} is refused: {refusal.name}")
        self._refuse(connection, code, command, request, refusal)

    def _receive_bounded(
        self,
        connection: CommandProtocol,
        code: int,
        command: RemotingCommand,
        request: RequestBody,
        message: MemberRequest,
    ) -> None:
        """Refuses numbers that no member has, and whoever sends them."""
        try:
            check_bounds(message, self._events)
        except RemoteProtocolError as error:
            self._complain(connection, str(error))
            refusal = DLedgerCode.UNEXPECTED_ARGUMENT
            self._refuse(connection, code, command, request, refusal)
            connection.close(str(error))
        else:
            self._receive_member(connection, code, command, request, message)

    def _is_of_member(self, code: int, request: RequestBody) -> bool:
        """A leader asks whom it hands over to; a tool asks the leader, with the same code."""
        if isinstance(request, TransferBody):
            return request.transferee_id == self._config.self_id
        return code in _MEMBER_CODES

    def _is_from_elsewhere(
        self, connection: CommandProtocol, code: int, request: RequestBody
    ) -> bool:
        """Whether a request speaks for a member from an address that is not known to be its own.

        It does not wait while the name of the member is looked up: members repeat what they say.
        """
        sender = request.leader_id
        if not self._is_of_member(code, request) or sender not in self._peer_ids:
            return False
        assert isinstance(sender, str)
        if self._sources.may_be(sender, connection):
            return False
        looked = self._sources.look_again(sender)
        looked.addCallback(lambda _: self._complain_of_source(connection, sender))
        return not self._sources.may_be(sender, connection)

    def _refusal_of(self, code: int, request: RequestBody) -> DLedgerCode | None:
        """Checks ids in Java's order (DLedgerRpcNettyService, DLedgerServer)."""
        if code not in _MEMBER_CODES and code not in ClientRequests.CODES:
            return DLedgerCode.UNSUPPORTED
        if request.remote_id != self._config.self_id:
            return DLedgerCode.UNKNOWN_MEMBER
        if request.group != self._config.group:
            return DLedgerCode.UNKNOWN_GROUP
        if code == JsonCode.HEART_BEAT and request.leader_id == self._config.self_id:
            return DLedgerCode.UNEXPECTED_MEMBER
        if code == JsonCode.HEART_BEAT and request.leader_id not in self._peer_ids:
            return DLedgerCode.UNKNOWN_MEMBER
        if code == JsonCode.PUSH and request.leader_id not in self._peer_ids:
            return DLedgerCode.INCONSISTENT_LEADER
        if isinstance(request, TransferBody):
            return self._refusal_of_transfer(request)
        return None

    def _refusal_of_transfer(self, request: TransferBody) -> DLedgerCode | None:
        if request.transferee_id == self._config.self_id:
            is_peer = request.leader_id in self._peer_ids
            return None if is_peer else DLedgerCode.INCONSISTENT_LEADER
        is_here = request.transfer_id == self._config.self_id
        return None if is_here else DLedgerCode.UNEXPECTED_ARGUMENT

    def _receive_member(
        self,
        connection: CommandProtocol,
        code: int,
        command: RemotingCommand,
        request: RequestBody,
        message: MemberRequest,
    ) -> None:
        if isinstance(message, VoteRequest) and message.sender not in self._peer_ids:
            is_self = message.sender == self._config.self_id
            result = (
                VoteResult.REJECT_UNEXPECTED_LEADER if is_self else VoteResult.REJECT_UNKNOWN_LEADER
            )
            refused = VoteResponse(
                term=message.term,
                sender=message.target,
                target=message.sender,
                result=result,
                round_term=message.term,
            )
            self._complain(connection, f"candidate {message.sender!r} is no peer")
            body = wire_json.encode_answer(refused, request)
            connection.send(command.response(DLedgerCode.SUCCESS, body=body))
            return
        key = _key_of_request(message)
        former = self._waiting.pop(key, None)
        if former is not None:
            former.context.waiting.pop(key)
        link: _Link = connection.context
        if len(link.waiting) >= self._config.waiting_requests_max:
            oldest = next(iter(link.waiting))
            del self._waiting[oldest]
            oldest_code, oldest_command, oldest_request = link.waiting.pop(oldest)
            full = DLedgerCode.PUSH_REQUEST_IS_FULL
            self._refuse(connection, oldest_code, oldest_command, oldest_request, full)
        link.waiting[key] = (code, command, request)
        self._waiting[key] = connection
        self._events.message_received(message)

    def _refuse(
        self,
        connection: CommandProtocol,
        code: int,
        command: RemotingCommand,
        request: RequestBody,
        result: DLedgerCode,
    ) -> None:
        body = wire_json.encode_refusal(code, request, result, self.leader_id)
        connection.send(command.response(DLedgerCode.SUCCESS, body=body))

    def _complain_of_source(self, connection: CommandProtocol, peer_id: str) -> None:
        """Logs that a source may not be a member, if so, once however often it connects."""
        source = peer_id, connection.peer_host
        if source in self._refused_sources or self._sources.may_be(peer_id, connection):
            return
        if len(self._refused_sources) >= _REFUSED_SOURCES_MAX:
            self._refused_sources.clear()
        self._refused_sources.add(source)
        self._complain(connection, self._sources.refusal(peer_id, connection))

    def _complain(self, connection: CommandProtocol, reason: str) -> None:
        """Logs the first refusal of a connection."""
        link: _Link = connection.context
        if not link.has_complained:
            link.has_complained = True
            _log.warn(
                "{self_id}: refusing {peer}: {reason}",
                self_id=self._config.self_id,
                peer=connection.peer,
                reason=reason,
            )


def _key_of_request(message: MemberRequest) -> _Key:
    match message:
        case VoteRequest():
            return message.sender, message.term
        case HeartBeatRequest():
            return message.read_round
        case _:
            return message.request_id


def _key_of_answer(message: MemberAnswer) -> _Key:
    match message:
        case VoteResponse():
            return message.target, message.round_term
        case HeartBeatResponse():
            return message.round
        case PushResponse() | TransferResponse():
            return message.request_id
