"""The simulated network: latency, loss, duplicates, cut links, connections that come and go.

Each member has a connection to each other one, as in the running product: requests go out on it,
answers come back on the connection that the request came from. Nobody hears of messages that were
lost. What is under way when a connection breaks may still arrive, after what the next connection
brings; what was sent to a process never reaches the one that is started in its place.
"""

import random
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from twisted.internet.defer import Deferred, succeed

from ledgermq.dledger.entry import EntryCodec, EntryId
from ledgermq.dledger.errors import ContradictionError, LedgerError
from ledgermq.dledger.membership import find_mismatch
from ledgermq.dledger.messages import (
    AppendRequest,
    BirthReport,
    HeartBeatRequest,
    HeartBeatResponse,
    LinkMessage,
    PeerDialect,
    PushResponse,
    ReadIndexRequest,
    ReadIndexResponse,
    TransferResponse,
    VoteRequest,
    VoteResponse,
)
from ledgermq.dledger.replica.peers import MemberEvents
from ledgermq.dledger.replica.wire_binary import decode, encode
from ledgermq.dledger.storage import LedgerStore
from ledgermq.protocol.command import decode as decode_command
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.testing.simulation.clock import SimReactor, Timeline
from ledgermq.testing.simulation.plan import Plan

_TAIL_MS: Final = 10_000.0
_CUT_RETRY_MS: Final = 150.0
_CUT_RETRIES_MAX: Final = 20
_PING_MS: Final = 500
_RECONNECT_MS: Final = 300.0


def as_json(message: LinkMessage) -> LinkMessage | None:
    """Returns what DLedger's JSON leaves of a message; None when it has no such form."""
    match message:
        case VoteRequest() if message.pre_vote:
            return None
        case BirthReport() | ReadIndexRequest() | ReadIndexResponse():
            return None
        case VoteRequest() | VoteResponse() | HeartBeatRequest():
            return replace(message, birth=None)
        case HeartBeatResponse():
            return replace(message, recovering=False, birth=None)
        case AppendRequest():
            return replace(message, previous=None)
        case PushResponse():
            return replace(message, recovering=False)
        case _:
            return message


class Network:
    """All links between members, and between clients and members."""

    def __init__(
        self, plan: Plan, timeline: Timeline, rng: random.Random, hit: Callable[[str], None]
    ) -> None:
        self.plan = plan
        self.timeline = timeline
        self._rng = rng
        self.hit = hit
        # Links that carry nothing now, by direction.
        self.cuts: set[tuple[str, str]] = set()
        # Faults are over: quick and loss-free.
        self.is_healed = False
        # Members whose ports are open.
        self.listening: dict[str, SimLinks] = {}
        # Processes that have run, for their numbers.
        self.process_count = 0
        # HELLO tells nothing of member lists, as before they were compared.
        self.ignores_lists = False
        # When the last message of a direction arrives, where the order is kept.
        self._last_ms: dict[tuple[str, str], float] = {}
        # Members whose disks may have rotted: what they send is checked as bytes from a wire are.
        self.untrusted: Collection[str] = ()
        # Sees every message that a member sends.
        self.on_sent: Callable[[LinkMessage], None] = _ignore
        # Sees every message that a process reads.
        self.on_read: Callable[[LinkMessage], None] = _ignore
        # Told who connected to whom, and what that one reads of the applier's formats.
        self.on_greeted: Callable[[str, str, int], None] = _ignore_greeting
        # Told of two members of which one does not read what the other needs.
        self.on_refused: Callable[[str, str], None] = _ignore_refusal

    def is_cut(self, sender: str, target: str) -> bool:
        """Tells whether a direction carries nothing now."""
        return (sender, target) in self.cuts

    def draw_ms(self) -> float:
        """Draws the latency of one message."""
        if self.is_healed:
            return 1.0
        rng, plan = self._rng, self.plan
        if plan.tail and rng.random() < plan.tail:
            return rng.uniform(0.0, _TAIL_MS)
        return rng.expovariate(1 / plan.delay_ms)

    def carry(self, sender: str, target: str, deliver: Callable[[], None]) -> None:
        """Brings something from one end to another, or loses it, or brings it twice."""
        rng, plan = self._rng, self.plan
        if not self.is_healed and rng.random() < plan.loss:
            self.hit("message lost")
            return
        self._carry_copy(sender, target, deliver, 0)
        if not self.is_healed and rng.random() < plan.duplication:
            self.hit("message duplicated")
            self._carry_copy(sender, target, deliver, 0)

    def _carry_copy(
        self, sender: str, target: str, deliver: Callable[[], None], retries: int
    ) -> None:
        now_ms, way = self.timeline.now_ms, (sender, target)
        at_ms = now_ms + self.draw_ms()
        if self.plan.keeps_order:
            at_ms = self._last_ms[way] = max(at_ms, self._last_ms.get(way, 0.0))
        self.timeline.at(at_ms - now_ms, self._arrive, sender, target, deliver, retries)

    def _arrive(self, sender: str, target: str, deliver: Callable[[], None], retries: int) -> None:
        if not self.is_cut(sender, target):
            deliver()
        elif self.plan.holds_cut and retries < _CUT_RETRIES_MAX:
            self.timeline.at(_CUT_RETRY_MS, self._arrive, sender, target, deliver, retries + 1)

    def process_ended(self, member_id: str) -> None:
        """The port of a member closed; the others hear of it when their connection can tell."""
        self.listening.pop(member_id, None)
        for other in list(self.listening.values()):
            delay_ms = self.draw_ms()
            if self.is_cut(member_id, other.self_id):
                delay_ms += 3_000.0
            number = other.open_links.get(member_id)
            if number is not None:
                self.timeline.at(delay_ms, other.broken, member_id, number)

    def break_link(self, sender: str, target: str) -> None:
        """A connection is reset; what is under way on it still arrives."""
        self._last_ms.pop((sender, target), None)
        links = self.listening.get(sender)
        if links is not None and target in links.open_links:
            links.broken(target, links.open_links[target])


class SimLinks:
    """All connections of one member while its process runs; takes the place of Connections."""

    def __init__(
        self,
        network: Network,
        reactor: SimReactor,
        self_id: str,
        peer_ids: tuple[str, ...],
        store: LedgerStore,
        codec: EntryCodec,
        events: MemberEvents,
        java_ids: tuple[str, ...],
    ) -> None:
        """Opens nothing yet."""
        self._network = network
        self._reactor = reactor
        self.self_id = self_id
        self._peer_ids = peer_ids
        self._store = store
        self._codec = codec
        self._events = events
        self._java_ids = java_ids
        # Number of the open connection to each peer.
        self.open_links: dict[str, int] = {}
        self._last_number = 0
        self._exchanged_ms = 0.0
        # The process at the other end of what came in last, for answers.
        self._asked_by: dict[str, SimLinks] = {}
        # The process that asked for a vote or a read, by its number.
        self._candidates: dict[int, SimLinks] = {}
        network.process_count += 1
        self._number = network.process_count
        self._is_stopped = False
        # Processes whose formats do not go with those of this one: a connection is unused.
        self._refused_by: dict[str, SimLinks] = {}

    def listen(self) -> Deferred[None]:
        """Opens the port."""
        self._network.listening[self.self_id] = self
        return succeed(None)

    def connect(self) -> None:
        """Connects to all peers, and stays connected."""
        for peer_id in self._peer_ids:
            self._reactor.callLater(self._network.draw_ms() / 1000, self._try, peer_id)

    def _try(self, peer_id: str) -> None:
        network = self._network
        if self._is_stopped or peer_id in self.open_links:
            return
        is_cut = network.is_cut(self.self_id, peer_id) or network.is_cut(peer_id, self.self_id)
        if is_cut or peer_id not in network.listening:
            if not is_cut:
                network.hit("process of a peer found ended")
                self._events.peer_ended(peer_id)
            self._reactor.callLater(_RECONNECT_MS / 1000, self._try, peer_id)
            return
        if not self._is_greeted(peer_id, network.listening[peer_id]):
            self._reactor.callLater(_RECONNECT_MS / 1000, self._try, peer_id)
            return
        self._last_number += 1
        self.open_links[peer_id] = self._last_number
        self._exchange_clocks()
        self._events.dialect_found(peer_id, self.dialect_of(peer_id))

    def _exchange_clocks(self) -> None:
        """What PING and its answers tell, without the messages: those of a link that is cut come
        to nothing.
        """
        network, now_ms = self._network, self._reactor.seconds() * 1000
        self._exchanged_ms = now_ms
        for peer_id in self.open_links:
            peer = network.listening.get(peer_id)
            is_cut = network.is_cut(self.self_id, peer_id) or network.is_cut(peer_id, self.self_id)
            if peer is not None and not is_cut and not peer._reactor.is_paused:
                if self.dialect_of(peer_id) is PeerDialect.LEDGERMQ:
                    clocks = peer._events.clocks
                    self._events.clocks.group.measured(peer_id, clocks.wall_ms(), now_ms, now_ms)

    def _is_greeted(self, peer_id: str, peer: "SimLinks") -> bool:
        """What HELLO and its answer tell of formats; a process that refused goes on refusing."""
        own, others = self._events.formats, peer._events.formats
        if self.self_id in self._java_ids or peer_id in self._java_ids:
            own.greeted(peer_id, None)
            return True
        if self._refused_by.get(peer_id) is peer:
            return False
        reason = others.asked_by(self.self_id, own.own)
        reason = own.greeted(peer_id, others.own) or reason
        self._network.on_greeted(self.self_id, peer_id, others.own.reads)
        if reason is not None:
            self._refused_by[peer_id] = peer
            self._network.on_refused(self.self_id, peer_id)
        mismatch = None
        if not self._network.ignores_lists:
            mismatch = find_mismatch(peer_id, peer._events.cluster, self._events.cluster)
        if mismatch is not None:
            self._network.hit("another membership rejected")
            self._events.refusals.note(peer_id, peer_id, mismatch, is_logged=False)
        return reason is None and mismatch is None

    def broken(self, peer_id: str, number: int) -> None:
        """A connection broke."""
        if self.open_links.get(peer_id) != number:
            return
        del self.open_links[peer_id]
        self._events.clocks.group.forget(peer_id)
        if not self._reactor.is_dead:
            self._reactor.callLater(0, self._events.peer_lost, peer_id)
            self._reactor.callLater(_RECONNECT_MS / 1000, self._try, peer_id)

    def contradicted(self, sender: str, error: ContradictionError) -> None:
        """Nobody lies here: whoever contradicts another shows a fault of the program."""
        raise error

    def dialect_of(self, peer_id: str) -> PeerDialect:
        """As in Connections."""
        if peer_id not in self.open_links:
            return PeerDialect.UNKNOWN
        is_java = self.self_id in self._java_ids or peer_id in self._java_ids
        return PeerDialect.JAVA if is_java else PeerDialect.LEDGERMQ

    def send(self, message: LinkMessage) -> None:
        """As in Connections."""
        network = self._network
        if self._reactor.is_dead or self._is_stopped:
            return
        network.on_sent(message)
        peer_id = message.target
        if isinstance(message, ReadIndexResponse) or (
            isinstance(message, VoteResponse) and message.asked_on
        ):
            target = self._candidates.get(message.asked_on)
        elif isinstance(
            message, PushResponse | HeartBeatResponse | VoteResponse | TransferResponse
        ):
            target = self._asked_by.get(peer_id)
        elif peer_id in self.open_links:
            target = network.listening.get(peer_id)
        elif isinstance(message, BirthReport):
            target = self._asked_by.get(peer_id)
        else:
            target = None
        if target is None or target._is_stopped:
            return
        if self.self_id in self._java_ids or peer_id in self._java_ids:
            changed = as_json(message)
            if changed is None:
                return
            message = changed
        is_encoded = network.plan.is_encoded or self.self_id in network.untrusted
        frame = b"".join(encode(message)) if is_encoded else b""
        receiver, sent = target, message
        network.carry(self.self_id, peer_id, lambda: receiver.arrived(self, sent, frame))

    def arrived(self, sender: "SimLinks", message: LinkMessage, frame: bytes) -> None:
        """A message came to the socket of this process; a paused one reads it later."""
        if self._is_stopped or self._reactor.is_dead:
            return
        if self._reactor.is_paused:
            self._reactor.callLater(0, self._receive, sender, message, frame)
        else:
            # It goes into the inbox; what comes of it belongs to the next turn.
            self._receive(sender, message, frame)

    def _receive(self, sender: "SimLinks", message: LinkMessage, frame: bytes) -> None:
        if frame:
            command = decode_command(frame[4:])
            try:
                message = decode(
                    command.code,
                    command.body,
                    sender=message.sender,
                    target=self.self_id,
                    codec=self._codec,
                    chain_crc_of=self._chain_crc_of,
                )
            except RemoteProtocolError:
                # As the product does: it closes the connection.
                self._network.hit("bad bytes of a peer refused")
                self._network.break_link(message.sender, self.self_id)
                return
        self._asked_by[message.sender] = sender
        if isinstance(message, VoteRequest | ReadIndexRequest):
            self._candidates[sender._number] = sender
            message = replace(message, asked_on=sender._number)
        self._network.on_read(message)
        self._events.message_received(message)

    def _chain_crc_of(self, entry_id: EntryId) -> int | None:
        try:
            head = self._store.head_at(entry_id.index)
        except LedgerError:
            return None
        return head.chain_crc if head.term == entry_id.term else None

    def flush(self) -> None:
        """Nothing gathers here; clocks are exchanged as often as PING goes out."""
        if self._reactor.seconds() * 1000 - self._exchanged_ms >= _PING_MS:
            self._exchange_clocks()

    def name_leader(self, leader_id: str | None) -> None:
        """Nobody asks."""

    def stop(self) -> Deferred[None]:
        """Closes all."""
        if not self._is_stopped:
            self._is_stopped = True
            if self._network.listening.get(self.self_id) is self:
                self._network.process_ended(self.self_id)
        return succeed(None)


def _ignore(message: LinkMessage) -> None:
    """Nobody watches."""


def _ignore_greeting(member_id: str, peer_id: str, reads: int) -> None:
    """Nobody watches."""


def _ignore_refusal(member_id: str, peer_id: str) -> None:
    """Nobody watches."""
