"""Parts of a broker for unit tests: tables, a store in memory, connections without a socket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from ledgermq.broker.clients.client_table import ClientTable
from ledgermq.broker.clients.creation_rates import CreationRates
from ledgermq.broker.config.broker_config import BrokerConfig, load_broker_config
from ledgermq.broker.config.built_in_topics import built_in_topics
from ledgermq.broker.counts.statistics import Statistics
from ledgermq.broker.dispatch import Dispatcher
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.pulls.long_polling import ParkedPulls
from ledgermq.broker.sends.light_admission import LightAdmission
from ledgermq.broker.sends.proposals import Limits, Proposals
from ledgermq.broker.sends.send import SendProcessor
from ledgermq.commitlog import AppendMessage, AppendResult
from ledgermq.protocol.command import RemotingCommand, decode
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.consumer_offsets import ConsumerOffsetTable
from ledgermq.state.errors import BrokerError
from ledgermq.state.formats import FORMATS, Format, StateFormats
from ledgermq.state.records import body_bytes_max
from ledgermq.state.subscriptions import SubscriptionGroupTable
from ledgermq.state.topics import TopicTable
from ledgermq.state.under_way import OnCommitted

HOST = (b"\x7f\x00\x00\x01", 10911)
HOST_HEX = "7F00000100002A9F"


class ListConnection:
    """A connection that keeps what is sent."""

    def __init__(self, peer: str = "10.0.0.9:5555") -> None:
        self.peer = peer
        self.peer_host = peer.rpartition(":")[0]
        self.own_host = ""
        self.account: str | None = None
        self.sight: Any = None
        self.context: Any = (b"\x0a\x00\x00\x09", 5555)
        self.unsent_bytes = 0
        self.writes: list[bytes] = []
        self.commands: list[RemotingCommand] = []
        self.close_reason: str | None = None
        self.is_open = True

    def send_frame(self, frame: bytes) -> None:
        self.writes.append(frame)
        for piece in FrameDecoder().feed(frame):
            self.commands.append(decode(piece))

    def send(self, command: RemotingCommand) -> None:
        self.commands.append(command)

    def send_one_way(self, command: RemotingCommand) -> None:
        self.commands.append(command)

    def send_parts(self, parts: Sequence[bytes | memoryview]) -> None:
        self.send_frame(b"".join(bytes(part) for part in parts))

    def close(self, reason: str) -> None:
        self.close_reason, self.is_open = reason, False

    def goes_on(self) -> bool:
        return self.is_open

    def has_room(self, usual: int = 8 << 20) -> bool:
        return self.unsent_bytes <= usual

    def take(self) -> list[RemotingCommand]:
        taken, self.commands, self.writes = self.commands, [], []
        return taken


class ListStore:
    """Appends to a list; each message takes 100 bytes of the log."""

    def __init__(self) -> None:
        self.messages: list[AppendMessage] = []
        self.turns: list[int] = []
        # Raised by the next append.
        self.error: Exception | None = None
        self._offsets: dict[tuple[str, int], int] = {}

    def append(self, messages: Sequence[AppendMessage]) -> list[AppendResult]:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self.turns.append(len(messages))
        results = []
        for message in messages:
            index = len(self.messages)
            key = (message.topic, message.queue_id)
            offset = self._offsets.get(key, 0)
            self._offsets[key] = offset + 1
            self.messages.append(message)
            results.append(AppendResult(index, index * 100 + 48, 100, offset, 1000))
        return results

    def queues(self, topic: str) -> list[int]:
        """Ids of a topic's queues in this store."""
        return sorted({message.queue_id for message in self.messages if message.topic == topic})

    def count_light_queues(self) -> int:
        return len({m.topic for m in self.messages if m.topic.startswith("%LMQ%")})


class Turn:
    """The end of the reactor's turn, called by the test."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def soon(self, function: Callable[[], None]) -> None:
        self.waiting.append(function)

    def end(self) -> None:
        waiting, self.waiting = self.waiting, []
        for function in waiting:
            function()


class Parts:
    """A leader that serves, without disk and network."""

    # Pairs of a removal that one turn drops.
    dropped_max = 1000

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        formats: Sequence[Format] = FORMATS,
        **settings: str,
    ) -> None:
        self.now_ms = 1_700_000_000_000
        # By how much the wall clock was set ahead, or back.
        self.jump_ms = 0
        self.config: BrokerConfig = load_broker_config(
            None, {"brokerName": "b", "brokerIP1": "127.0.0.1", **settings}
        )
        self.turn, self.store = Turn(), ListStore()
        self.leadership = Leadership("n0", 1)
        self.clients, self.parked = ClientTable(), ParkedPulls(self.config.parked_pulls_max)
        # Bodies of state records with what to call when they are committed.
        self.written: list[tuple[bytes, OnCommitted]] = []
        # How many of them each call wrote.
        self.writes: list[int] = []
        # What `lead` wrote.
        self.first: list[bytes] = []
        self.is_prompt = False
        # Of the next record that is committed; and how often topics changed.
        self.index = self.changes = 0
        self.removed_topics: list[str] = []
        self.state = BrokerState(
            TopicTable(self.config.topics_max, knows_light_queues=self.config.knows_light_queues),
            SubscriptionGroupTable(
                self.config.groups_max, knows_light_queues=self.config.knows_light_queues
            ),
            self._new_offsets(),
            write=self._write,
            body_bytes_max=body_bytes_max(self.config.segment_bytes),
            now_ms=lambda: self.now_ms + self.jump_ms,
            clock_ms=lambda: float(self.now_ms),
            call_at_end_of_turn=self.turn.soon,
            auto_create_groups=self.config.auto_create_groups,
            on_topics_changed=self._changed,
            on_topic_removed=self.removed_topics.append,
            formats=StateFormats(formats),
        )
        self.state.creations = CreationRates(self.config, lambda: float(self.now_ms))
        self.dispatcher = Dispatcher(
            send_fields={"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"},
            on_connection_lost=lambda connection: None,
        )
        self.proposals = Proposals(
            self.store,
            limits=limits or Limits(10_000, 64 << 20, 2500),
            call_at_end_of_turn=self.turn.soon,
            clock_ms=lambda: float(self.now_ms),
            store_host_hex=HOST_HEX,
            region_id="DefaultRegion",
            is_trace_on=True,
            refuse=self.dispatcher.refuse,
        )
        self.statistics = Statistics("DefaultCluster", self.now_ms)
        self.sends = SendProcessor(
            self.config,
            self.leadership,
            self.state,
            self.proposals,
            store_host=HOST,
            now_ms=lambda: self.now_ms + self.jump_ms,
            rng=Random(1),
            statistics=self.statistics,
            light=LightAdmission(self.config, self.store),
            waits_for_slaves=self.config.broker_role == "SYNC_MASTER",
        )

    def _new_offsets(self) -> ConsumerOffsetTable:
        return ConsumerOffsetTable(
            1000,
            knows_light_queues=self.config.knows_light_queues,
            dropped_max=self.dropped_max,
        )

    def lead(self, *, is_prompt: bool = True) -> Parts:
        """Begins to lead; `is_prompt`: what is proposed from then on is committed at once."""
        self.leadership.changed("LEADER", 1, "n0")
        self.leadership.serve()
        self.state.lead("n0/1")
        self.state.adopt(built_in_topics(self.config), [], _ignore)
        self.first = self.commit_state()
        self.is_prompt = is_prompt
        return self

    def commit_state(self, error: BrokerError | None = None) -> list[bytes]:
        """Has the log commit the state records written so far, and returns them.

        Args:
            error: what becomes of them instead; they are not applied.
        """
        written, self.written = self.written, []
        for body, done in written:
            if error is None:
                self.state.apply(body, self.index)
                self.index += 1
            done(error)
        return [body for body, _ in written]

    def commit_all(self) -> list[bytes]:
        """The same, until nothing more is written: a great many offsets go piece by piece."""
        bodies: list[bytes] = []
        while self.written:
            bodies += self.commit_state()
            self.turn.end()
        return bodies

    def sweep(self) -> list[bytes]:
        """Goes through all tables once, and returns what was committed for it."""
        bodies: list[bytes] = []
        self.state.begin_sweep()
        while not self.state.is_swept:
            self.state.sweep()
            bodies += self.commit_state()
        return bodies

    def _write(self, bodies: Sequence[bytes], done: OnCommitted) -> None:
        self.writes.append(len(bodies))
        # What is written together is told of once.
        self.written += [(body, _ignore) for body in bodies[:-1]]
        self.written.append((bodies[-1], done))
        if self.is_prompt:
            self.commit_state()

    def _changed(self) -> None:
        self.changes += 1


def _ignore(error: BrokerError | None) -> None:
    """Nobody waits."""
