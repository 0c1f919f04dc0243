"""Incoming RPC of peers in both dialects, and of DLedger's own tools.

A connection begins to speak binary with HELLO (`greetings.py`); once that was taken it belongs to
the member that HELLO named. The member pings it at each heart beat; when nothing came on it for
many of them, it is closed. Answers to votes go back on the connection that asked, others on the
newest one of their member. A JSON request names its group and both ids itself, and is answered on
its own connection under its opaque.

A member is believed to be one only where it comes from an address of its own
(`member_addresses.py`): else HELLO is answered 401 and its connection closed, and a vote, heart
beat, push or hand-over in JSON is refused with 401. In a closed group, and where the configuration
says so, only some members may speak JSON, and only some tools are served (`admission.py`).

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
    ReadIndexRequest,
    ReadIndexResponse,
    TransferResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from ledgermq.dledger.replica import wire_binary, wire_json
from ledgermq.dledger.replica.admission import Admission
from ledgermq.dledger.replica.client_requests import ClientRequests
from ledgermq.dledger.replica.config import ReplicaConfig
from ledgermq.dledger.replica.greetings import Greetings, Key, Link
from ledgermq.dledger.replica.json_bodies import RequestBody, TransferBody
from ledgermq.dledger.replica.member_addresses import MemberAddresses
from ledgermq.dledger.replica.peers import MemberEvents, check_bounds, send_binary
from ledgermq.dledger.replica.wire_binary import BinaryCode
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

_LET_IN_JSON: Final = "let in: it speaks JSON, which proves nothing (key dLegerJavaMembers)"

_log = Logger()


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
        self._admission = Admission(config)
        self._greetings = Greetings(
            config, store.segment_bytes, events, sources, self._admission, self._welcome
        )
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
        self._waiting: dict[Key, CommandProtocol] = {}
        # Numbers given to JSON requests are negative: those of LedgerMQ leaders are not.
        self._next_request_id = -1
        # The leader that is named in refusals.
        self.leader_id: str | None = None

    def answer(self, message: MemberAnswer | ReadIndexResponse) -> None:
        """Sends an answer to where its request came from; drops it when that is gone.

        Of answers in the binary dialect, only those to votes and reads know; the others go to the
        newest connection of their member, for what they say is as true there.
        """
        if isinstance(message, ReadIndexResponse) or (
            isinstance(message, VoteResponse) and message.asked_on
        ):
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

    def end(self, peer_id: str, reason: str) -> None:
        """Ends all connections on which a member speaks, in both dialects."""
        speaking = [
            connection
            for connection in self._by_number.values()
            if connection.context.peer_id == peer_id
        ]
        for connection in set(self._waiting.values()):
            requests = connection.context.waiting.values()
            if any(request.leader_id == peer_id for _, _, request in requests):
                speaking.append(connection)
        for connection in speaking:
            self._events.refusals.note(peer_id, connection.peer_host, reason)
            connection.abort(reason)

    # Receiver of the connections.

    def connection_made(self, connection: CommandProtocol) -> None:
        """Nothing is known of it yet."""
        self._connection_count += 1
        connection.context = Link(self._connection_count)
        self._greetings.begin(connection)

    def connection_lost(self, connection: CommandProtocol, reason: str) -> None:
        """Forgets what waited for it."""
        link: Link = connection.context
        self._greetings.end(connection)
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
                self._greetings.hello(connection, command)
            elif code == BinaryCode.PROOF:
                self._greetings.proof(connection, command)
            elif code in _BINARY_CODES:
                self._receive_binary(connection, code, command.body)
            elif code in _JSON_CODES:
                self._receive_json(connection, code, command)
            elif self._admission.is_closed and connection.context.peer_id is None:
                self._greetings.close(connection, f"request {code} of nobody knows whom")
            elif not command.is_one_way:
                remark = f"request type {command.code} not supported"
                connection.send(command.response(_NOT_SUPPORTED, remark))
            if not connection.is_open:
                break
        # A leader pushes once a turn: there is nothing more to gather.
        self._events.take_turn()

    def _welcome(self, connection: CommandProtocol, peer_id: str) -> None:
        """Takes a connection for one of a member that was greeted."""
        link: Link = connection.context
        link.peer_id = peer_id
        connection.limit_silence(_SILENT_BEATS_MAX * self._config.timing.heart_beat_ms / 1000)
        self._connections[peer_id] = connection
        self._by_number[link.number] = connection

    def _receive_binary(self, connection: CommandProtocol, code: int, body: bytes) -> None:
        link: Link = connection.context
        if link.peer_id is None:
            self._greetings.close(connection, f"frame {code} before HELLO")
            return
        try:
            if code == BinaryCode.PING:
                connection.send_frame(self._events.clocks.answer(body))
                return
            message = wire_binary.decode(
                code,
                body,
                sender=link.peer_id,
                target=self._config.self_id,
                codec=self._codec,
                chain_crc_of=lambda entry_id: self._chain_crc_of(link, entry_id),
            )
            check_bounds(message, self._events)
            if isinstance(message, AppendRequest) and message.chain_mismatch is not None:
                _check_run_before(message, link.last_id)
        except RemoteProtocolError as error:
            self._greetings.complain(connection, str(error))
            connection.close(str(error))
            return
        if isinstance(message, AppendRequest):
            link.last_id = message.entries.last_id
            link.last_chain_crc = message.entries.last_chain_crc
        elif isinstance(message, VoteRequest | ReadIndexRequest):
            message = replace(message, asked_on=link.number)
        self._events.message_received(message)

    def _chain_crc_of(self, link: Link, entry_id: EntryId) -> int | None:
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
        link: Link = connection.context
        if link.peer_id is not None or link.hello is not None:
            self._greetings.close(connection, f"request {code} of a member that greeted")
            return
        try:
            request = wire_json.decode_request(code, command.body)
        except RemoteProtocolError as error:
            self._greetings.complain(connection, str(error))
            body = b'{"code":411,"term":-1}'
            connection.send(command.response(_SYSTEM_ERROR, str(error), body=body))
            if self._admission.is_closed:
                connection.close(str(error))
            return
        reason = self._find_reason(connection, code, request)
        if reason is not None:
            self._greetings.complain(connection, reason, self._name_of(request))
            unknown = DLedgerCode.UNKNOWN_MEMBER
            self._refuse(connection, code, command, request, unknown, names_leader=False)
            connection.close(reason)
            return
        refusal = self._refusal_of(code, request)
        if refusal is None and self._is_from_elsewhere(connection, code, request):
            self._refuse(connection, code, command, request, DLedgerCode.UNKNOWN_MEMBER)
            return
        if refusal is None and not self._is_of_member(code, request):
            self._greetings.end(connection)
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
                self._greetings.complain(connection, str(error))
                refusal = DLedgerCode.UNEXPECTED_ARGUMENT
            else:
                self._note_unproven(connection, request)
                self._receive_bounded(connection, code, command, request, message)
                return
        self._greetings.complain(connection, f"request {code} is refused: {refusal.name}")
        self._refuse(connection, code, command, request, refusal)

    def _note_unproven(self, connection: CommandProtocol, request: RequestBody) -> None:
        """Names a member that speaks JSON and could not when all have to prove the secret."""
        sender = self._name_of(request)
        if sender is not None and self._admission.is_unproven_java(sender):
            self._events.refusals.note(sender, connection.peer_host, _LET_IN_JSON)

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
            self._greetings.complain(connection, str(error))
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
        if self._admission.is_java_source(sender, connection, self._sources):
            return False
        looked = self._sources.look_again(sender)
        looked.addCallback(lambda _: self._greetings.complain_of_source(connection, sender))
        return not self._admission.is_java_source(sender, connection, self._sources)

    def _find_reason(
        self, connection: CommandProtocol, code: int, request: RequestBody
    ) -> str | None:
        """Says why nobody is served who speaks JSON and asks for this; None when some are."""
        if self._is_of_member(code, request):
            sender = self._name_of(request)
            if not self._admission.is_closed and sender is None:
                # Refused as Java's members refuse it.
                return None
            if sender is None or not self._admission.may_be_java(sender):
                return f"{sender or 'it'} may not speak JSON (key dLegerJavaMembers)"
            return None
        return self._admission.refusal_of_tool(code, connection)

    def _name_of(self, request: RequestBody) -> str | None:
        """The member that a request says it is from; None when it is none of the group."""
        sender = request.leader_id
        return sender if isinstance(sender, str) and sender in self._peer_ids else None

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
            self._greetings.complain(connection, f"candidate {message.sender!r} is no peer")
            body = wire_json.encode_answer(refused, request)
            connection.send(command.response(DLedgerCode.SUCCESS, body=body))
            return
        self._greetings.end(connection)
        key = _key_of_request(message)
        former = self._waiting.pop(key, None)
        if former is not None:
            former.context.waiting.pop(key)
        link: Link = connection.context
        if len(link.waiting) >= self._config.waiting_requests_max:
            oldest = next(iter(link.waiting))
            del self._waiting[oldest]
            oldest_code, oldest_command, oldest_request = link.waiting.pop(oldest)
            full = DLedgerCode.PUSH_REQUEST_IS_FULL
            self._refuse(connection, oldest_code, oldest_command, oldest_request, full)
        # What is kept for the answer holds no entries: they are in the message.
        command.body = b""
        wire_json.drop_entries(request)
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
        *,
        names_leader: bool = True,
    ) -> None:
        leader_id = self.leader_id if names_leader else None
        body = wire_json.encode_refusal(code, request, result, leader_id)
        connection.send(command.response(DLedgerCode.SUCCESS, body=body))


def _key_of_request(message: MemberRequest) -> Key:
    match message:
        case VoteRequest():
            return message.sender, message.term
        case HeartBeatRequest():
            return message.read_round
        case _:
            return message.request_id


def _key_of_answer(message: MemberAnswer) -> Key:
    match message:
        case VoteResponse():
            return message.target, message.round_term
        case HeartBeatResponse():
            return message.round
        case PushResponse() | TransferResponse():
            return message.request_id


def _check_run_before(message: AppendRequest, last_id: EntryId | None) -> None:
    """Refuses a run that breaks the chain of the one that came before it on its connection: it is
    damaged. One that breaks the chain of the own log is for the core to judge.
    """
    if message.chain_mismatch is not None and message.previous == last_id:
        expected, found = message.chain_mismatch
        raise RemoteProtocolError("chain_crc", found, expected)
