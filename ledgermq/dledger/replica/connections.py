"""All connections of one member: its port, where it has one, and a way to each peer.

Requests go out on the connection to their target, answers to where their request came from, reports
of births on whichever of the two there is. What is sent in one turn goes out together when `flush`
is called; runs of entries go at once.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred, DeferredList, succeed

from ledgermq.dledger.entry import EntryCodec
from ledgermq.dledger.errors import ContradictionError
from ledgermq.dledger.messages import (
    BirthReport,
    HeartBeatResponse,
    LinkMessage,
    PeerDialect,
    PushResponse,
    ReadIndexResponse,
    TransferResponse,
    VoteResponse,
)
from ledgermq.dledger.replica.client_requests import ClientRequests
from ledgermq.dledger.replica.config import ReplicaConfig
from ledgermq.dledger.replica.listener import Listener
from ledgermq.dledger.replica.member_addresses import MemberAddresses, look_up_by
from ledgermq.dledger.replica.peers import MemberEvents, Peer
from ledgermq.dledger.storage import LedgerStore
from ledgermq.protocol.tcp_times import MEMBER_TIMES
from ledgermq.protocol.transport import CommandServer, ConnectionLimits, TurnOutput

# Members and a few tools; whoever else connects is refused by what it says first.
_CONNECTIONS_MAX: Final = 256
_ANSWERS: Final = (
    PushResponse,
    HeartBeatResponse,
    VoteResponse,
    TransferResponse,
    ReadIndexResponse,
)


class Links(Protocol):
    """What a member needs of its ways to the others; see Connections."""

    def listen(self) -> Deferred[None]: ...
    def connect(self) -> None: ...
    def send(self, message: LinkMessage) -> None: ...
    def flush(self) -> None: ...
    def name_leader(self, leader_id: str | None) -> None: ...
    def dialect_of(self, peer_id: str) -> PeerDialect: ...
    def contradicted(self, sender: str, error: ContradictionError) -> None: ...
    def stop(self) -> Deferred[None]: ...


# Makes the links of a member; its arguments are those of Connections.
MakeLinks = Callable[
    [Any, ReplicaConfig, LedgerStore, EntryCodec, MemberEvents, ClientRequests], Links
]


class Connections:
    """The one part of a member that knows sockets."""

    def __init__(
        self,
        reactor: Any,
        config: ReplicaConfig,
        store: LedgerStore,
        codec: EntryCodec,
        events: MemberEvents,
        clients: ClientRequests,
    ) -> None:
        """Opens nothing yet.

        Args:
            reactor: gives TCP and time.
            config: addresses and limits.
            store: tells the segment size, which all members share, and heads of entries.
            codec: checks what comes in.
            events: told of messages and of peers found and lost.
            clients: answers DLedger's tools.
        """
        addresses = config.addresses()
        peer_ids = sorted(set(addresses) - {config.self_id})
        self._output = TurnOutput(reactor)
        self._peers = {
            peer_id: Peer(
                reactor,
                config,
                peer_id,
                codec,
                store.segment_bytes,
                events,
                self._output,
                self._refused,
            )
            for peer_id in peer_ids
        }
        self._events = events
        sources = MemberAddresses(config, look_up_by(reactor), reactor.seconds)
        self._listener = Listener(config, store, codec, events, clients, sources)
        self._listens = config.listens
        self._server = CommandServer(
            reactor,
            self._listener,
            config.listen_host,
            addresses[config.self_id].port,
            connections_max=_CONNECTIONS_MAX,
            limits=ConnectionLimits(tcp_times=MEMBER_TIMES),
            output=self._output,
            tls=None if config.tls is None else config.tls.server,
        )

    def listen(self) -> Deferred[None]:
        """Opens the port; fails when it is taken."""
        if not self._listens:
            return succeed(None)
        return self._server.start().addCallback(lambda _port: None)

    def connect(self) -> None:
        """Connects to all peers, and stays connected."""
        for peer in self._peers.values():
            peer.start()

    def send(self, message: LinkMessage) -> None:
        """Sends a message to its target, or drops it when there is no way."""
        if isinstance(message, _ANSWERS):
            self._listener.answer(message)
        elif isinstance(message, BirthReport) and not self._peers[message.target].is_open:
            # A member that was there first tries again later; the other one is connected by now.
            self._listener.tell(message)
        else:
            self._peers[message.target].send(message)

    def flush(self) -> None:
        """Sends what has gathered in this turn."""
        self._output.flush()

    def name_leader(self, leader_id: str | None) -> None:
        """Notes the leader that refusals name."""
        self._listener.leader_id = leader_id

    def dialect_of(self, peer_id: str) -> PeerDialect:
        """How a peer is spoken to now; UNKNOWN while there is no connection to it."""
        return self._peers[peer_id].dialect

    def contradicted(self, sender: str, error: ContradictionError) -> None:
        """Ends the connections that a member has made: one of them brought what cannot be."""
        self._listener.end(sender, str(error))

    def _refused(self, peer_id: str) -> None:
        """Nobody listens at a peer's address: unless it is still connected itself, it has ended."""
        if not self._listener.is_connected(peer_id):
            self._events.peer_ended(peer_id)

    def stop(self) -> Deferred[None]:
        """Closes all; fires when nothing is left. May be called again."""
        closing: list[Deferred[Any]] = [peer.stop() for peer in self._peers.values()]
        closing.append(self._server.stop())
        return DeferredList(closing).addCallback(lambda _: self._output.stop())
