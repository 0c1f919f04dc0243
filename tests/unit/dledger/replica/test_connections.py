"""When a peer counts as ended: nobody listens at its address, and its own connection is closed."""

from typing import Any, cast

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from ledgermq.dledger.entry import EntryCodec
from ledgermq.dledger.formats import GroupFormats
from ledgermq.dledger.membership import Cluster
from ledgermq.dledger.messages import Message, PeerDialect
from ledgermq.dledger.replica import greeting_bodies
from ledgermq.dledger.replica.client_requests import ClientRequests
from ledgermq.dledger.replica.clock_exchange import ClockExchange
from ledgermq.dledger.replica.config import FlushDiskType, ReplicaConfig
from ledgermq.dledger.replica.connections import Connections
from ledgermq.dledger.replica.flush_modes import FlushModes
from ledgermq.dledger.store.memory_store import DLedgerMemoryStore
from ledgermq.protocol.checksum import crc32c
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.transport.refusals import Refusals

SEGMENT_BYTES = 4096


class Rig:
    """The connections of n0, and what they tell of n1."""

    def __init__(self, peers: str = "n0-h:1;n1-10.0.0.1:2") -> None:
        self.clock = MemoryReactorClock()
        self.ended: list[str] = []
        self.term = 1
        self.found: list[str] = []
        self.formats = GroupFormats("n0", ("n1",))
        self.wall_ms = 1_700_000_000_000
        config = ReplicaConfig(group="g", self_id="n0", peers=peers)
        self.clocks = ClockExchange(config, lambda: self.wall_ms, self.clock.seconds)
        self.flush_modes = FlushModes("n0", ("n1",), FlushDiskType.SYNC_FLUSH)
        self.cluster = Cluster("", ("n0", "n1"))
        self.refusals = Refusals("n0", self.clock.seconds)
        self.connections = Connections(
            self.clock,
            config,
            DLedgerMemoryStore(SEGMENT_BYTES),
            EntryCodec(crc32c),
            self,
            cast(ClientRequests, None),
        )
        self.connections.listen()
        self.connections.connect()

    def message_received(self, message: Message) -> None: ...

    def take_turn(self) -> None: ...

    def dialect_found(self, peer_id: str, dialect: PeerDialect) -> None:
        self.found.append(peer_id)

    def peer_lost(self, peer_id: str) -> None: ...

    def peer_ended(self, peer_id: str) -> None:
        self.ended.append(peer_id)

    def pass_s(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.clock.advance(0.1)

    def refuse(self) -> None:
        """The machine of n1 says that nobody listens."""
        factory: Any = self.clock.tcpClients.pop()[2]
        factory.clientConnectionFailed(None, Failure(ConnectionRefusedError()))
        self.clock.advance(1)

    def accept(self) -> Any:
        """A connection that n1 makes."""
        protocol = self.clock.tcpServers[0][1].buildProtocol(None)
        protocol.makeConnection(StringTransport(peerAddress=IPv4Address("TCP", "10.0.0.1", 5)))
        hello = greeting_bodies.Hello(
            group="g",
            sender="n1",
            target="n0",
            segment_bytes=SEGMENT_BYTES,
            members=self.cluster.members,
        )
        body = greeting_bodies.encode_hello(hello)
        protocol.dataReceived(encode(RemotingCommand(code=52001, body=body, opaque=1)))
        return protocol


def test_peer_that_neither_listens_nor_is_connected_has_ended() -> None:
    rig = Rig()
    rig.refuse()
    assert rig.ended == ["n1"]


def test_peer_that_is_still_connected_has_not_ended() -> None:
    """A firewall may refuse what its process does not know of."""
    rig = Rig()
    connection = rig.accept()
    rig.refuse()
    assert rig.ended == []
    connection.connectionLost(Failure(ConnectionDone()))
    rig.refuse()
    assert rig.ended == ["n1"]


def test_peer_that_cannot_be_reached_holds_no_other_up() -> None:
    rig = Rig("n0-h:1;n1-10.0.0.1:2;n2-10.0.0.2:2")
    hosts = [host for host, *_ in rig.clock.tcpClients]
    assert hosts == ["10.0.0.1", "10.0.0.2"]
    # Nothing comes back from n1; n2 begins to answer after half a minute.
    rig.pass_s(30)
    attempts = [attempt for attempt in rig.clock.tcpClients if attempt[0] == "10.0.0.2"]
    factory: Any = attempts[-1][2]
    protocol = factory.buildProtocol(None)
    transport = StringTransport()
    protocol.makeConnection(transport)
    rig.clock.advance(0)
    (frame,) = FrameDecoder().feed(transport.value())
    protocol.dataReceived(encode(decode(frame).response(0)))
    assert rig.found == ["n2"]
