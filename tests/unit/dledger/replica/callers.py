"""A listener, and callers at the other ends of its connections."""

import json
from collections.abc import Sequence
from typing import Any, cast

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from ledgermq.dledger.entry import EntryCodec, EntryHead, EntrySlice, read_head
from ledgermq.dledger.formats import Formats, GroupFormats
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.membership import Cluster
from ledgermq.dledger.messages import (
    CommitRequest,
    DLedgerCode,
    Message,
    PeerDialect,
    PushKind,
    PushResponse,
    VoteRequest,
)
from ledgermq.dledger.replica import greeting_bodies, wire_binary
from ledgermq.dledger.replica.client_requests import ClientRequests
from ledgermq.dledger.replica.clock_exchange import ClockExchange
from ledgermq.dledger.replica.config import FlushDiskType, ReplicaConfig
from ledgermq.dledger.replica.flush_modes import FlushModes
from ledgermq.dledger.replica.greeting_bodies import Hello
from ledgermq.dledger.replica.listener import Listener
from ledgermq.dledger.replica.member_addresses import MemberAddresses
from ledgermq.dledger.storage import LedgerStore
from ledgermq.dledger.transfer import Transfer
from ledgermq.protocol.checksum import crc32c
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.protocol.transport.refusals import Refusals

CODEC = EntryCodec(crc32c)
SEGMENT_BYTES = 1 << 20
# Where callers come from, and where they come to.
SOURCE, OWN = "192.168.1.1", "10.0.0.1"
LOG = CODEC.encode([b"a", b"b", b"c"], first_index=0, term=1, position=0, previous_chain_crc=0)


class FakeStore:
    segment_bytes = SEGMENT_BYTES
    first_index = 0
    last_index = 2

    def head_at(self, index: int) -> EntryHead:
        return read_head(LOG.data, LOG.starts[index])

    def read(self, first_index: int, bytes_max: int) -> EntrySlice:
        return LOG.slice_from(first_index)


class FakeMember:
    """What the listener tells, and what tools are served from."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.role = Role.LEADER
        self.term = 1
        self.leader_id: str | None = "n0"
        self.commit_index = 1
        self.store = cast(LedgerStore, FakeStore())
        self.now_ms = 0.0
        self.wall_ms = 1_700_000_000_000
        config = ReplicaConfig(group="g", self_id="n0", peers="n0-h:1;n1-h:2;n2-h:3")
        self.clocks = ClockExchange(config, lambda: self.wall_ms, lambda: self.now_ms / 1000)
        self.error: Exception | None = None
        self.own_formats = Formats()
        self.formats = GroupFormats("n0", ("n1", "n2"), lambda: self.own_formats)
        self.flush_modes = FlushModes("n0", ("n1", "n2"), FlushDiskType.SYNC_FLUSH)
        self.cluster = Cluster("", ("n0", "n1", "n2"))
        self.refusals = Refusals("n0", lambda: self.now_ms / 1000)

    def message_received(self, message: Message) -> None:
        self.messages.append(message)

    def take_turn(self) -> None: ...

    def dialect_found(self, peer_id: str, dialect: PeerDialect) -> None: ...

    def peer_lost(self, peer_id: str) -> None: ...

    def peer_ended(self, peer_id: str) -> None: ...

    def propose(self, bodies: Sequence[bytes]) -> list[EntrySlice]:
        if self.error is not None:
            raise self.error
        return [CODEC.encode(bodies, first_index=3, term=1, position=147, previous_chain_crc=1)]

    def transfer(self, target_id: str) -> Transfer:
        if self.error is not None:
            raise self.error
        self.transfer_begun = Transfer(self.term, target_id, self.now_ms, self.now_ms + 3000)
        return self.transfer_begun


class Rig:
    """A listener and connections to it."""

    def __init__(self, peers: str = "n0-h:1;n1-h:2;n2-h:3", **changes: Any) -> None:
        config = ReplicaConfig(group="g", self_id="n0", peers=peers, **changes)
        self.member = FakeMember()
        self.clients = ClientRequests(config, self.member)
        self.clock = Clock()
        # What a look-up of a name finds; None while it is under way.
        self.names: dict[str, list[str] | None] = {"h": [SOURCE]}
        # Names that were asked for, with those who wait.
        self.asked: list[tuple[str, Deferred[list[str]]]] = []
        sources = MemberAddresses(config, self.look_up, self.clock.seconds)
        self.listener = Listener(
            config, self.member.store, CODEC, self.member, self.clients, sources
        )

    def look_up(self, name: str) -> Deferred[list[str]]:
        found: Deferred[list[str]] = Deferred()
        self.asked.append((name, found))
        known = self.names[name]
        if known is not None:
            found.callback(known)
        return found

    def connect(self, source: str = SOURCE, own: str = OWN) -> "Caller":
        return Caller(self, source, own)


class Caller:
    """The other end of one connection."""

    def __init__(self, rig: Rig, source: str, own: str) -> None:
        self.rig = rig
        ends = IPv4Address("TCP", own, 1), IPv4Address("TCP", source, 54321)
        self.transport = StringTransport(*ends)
        self.connection = CommandProtocol(rig.clock, rig.listener)
        self.connection.makeConnection(self.transport)
        self.decoder = FrameDecoder()

    def send(self, frame: bytes) -> None:
        self.connection.dataReceived(frame)

    def ask(self, code: int, body: bytes, opaque: int = 7) -> list[RemotingCommand]:
        self.send(encode(RemotingCommand(code=code, body=body, opaque=opaque)))
        return self.answers()

    def ask_json(self, code: int, opaque: int = 7, **fields: Any) -> Any:
        ids = {"group": "g", "remoteId": "n0", "leaderId": "n1", "localId": "n1", "term": 1}
        body = json.dumps({k: v for k, v in (ids | fields).items() if v is not None}).encode()
        answers = self.ask(code, body, opaque)
        return [(answer.code, answer.opaque, json.loads(answer.body)) for answer in answers]

    def answers(self) -> list[RemotingCommand]:
        self.rig.clock.advance(0)
        frames = self.decoder.feed(self.transport.value())
        self.transport.clear()
        return [decode(frame) for frame in frames]

    def greet(self, sender: str = "n1", **changes: Any) -> RemotingCommand:
        self.send_greeting(sender, **changes)
        (answer,) = self.answers()
        return answer

    def send_greeting(self, sender: str = "n1", **changes: Any) -> None:
        fields = {
            "group": "g",
            "target": "n0",
            "segment_bytes": SEGMENT_BYTES,
            "members": self.rig.member.cluster.members,
        } | changes
        hello = greeting_bodies.encode_hello(Hello(sender=sender, **fields))
        self.send(encode(RemotingCommand(code=52001, body=hello, opaque=7)))


def binary(message: Message) -> bytes:
    return b"".join(wire_binary.encode(message))


COMMIT = CommitRequest(term=1, sender="n1", target="n0", commit_index=0, request_id=5)
VOTE = VoteRequest(term=4, sender="n1", target="n0", last_index=2, last_term=3)
COMMIT_ANSWER = PushResponse(
    term=1,
    sender="n0",
    target="n1",
    kind=PushKind.COMMIT,
    code=DLedgerCode.SUCCESS,
    index=None,
    count=0,
    begin_index=0,
    end_index=2,
    request_id=5,
)
