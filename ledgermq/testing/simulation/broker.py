"""The broker of a simulated member: production parts, joined as the broker service joins them.

Message store, proposals, replicated state and leadership are the product's own; what is missing is
the wire to clients and the parts that need none of the ledger. Files of the state stand on the
simulated disk.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, cast

from twisted.internet.defer import Deferred

from ledgermq.broker.clocks.clock_guard import ClockGuard
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.offsets.processor import OffsetProcessor
from ledgermq.broker.sends.proposals import Limits, Proposals
from ledgermq.broker.service.member import lead_confirmation, read_confirmation
from ledgermq.broker.storage.applier import BrokerApplier
from ledgermq.broker.storage.broker_store import BrokerStore, propose_records
from ledgermq.broker.storage.sweeps import Sweeps
from ledgermq.commitlog import (
    AppendMessage,
    DamagedFileError,
    GetMessageResult,
    MessageStore,
    StoreReport,
)
from ledgermq.commitlog.scrub import Scrub
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.replica.driver import Replica
from ledgermq.dledger.store.errors import CorruptStoreError, DiskFullError
from ledgermq.dledger.store.keeper import Keeper
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import QueryConsumerOffsetRequestHeader
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.consumer_offsets import ConsumerOffsetTable
from ledgermq.state.errors import BrokerError, TopicNotFoundError
from ledgermq.state.formats import Format, StateFormats
from ledgermq.state.records import body_bytes_max
from ledgermq.state.subscriptions import SubscriptionGroupTable, built_in_groups
from ledgermq.state.topics import TopicConfig, TopicTable
from ledgermq.state.under_way import OnCommitted
from ledgermq.testing.simulation.clock import SimReactor
from ledgermq.testing.simulation.disk import SimDisk
from ledgermq.testing.simulation.plan import Plan
from ledgermq.testing.simulation.rules import SimRules
from ledgermq.testing.simulation.state_files import SimStateFile

STORE_HOST: Final = (bytes((127, 0, 0, 1)), 10911)
LIMITS: Final = Limits(2_000, 1 << 20, 5_000)
# One stands for all that are built in: each snapshot names them again.
_GROUPS: Final = built_in_groups()[:1]
# A message so near to the end of the log counts as read from memory.
_NEAR_BYTES: Final = 1 << 20
_TICK_MS: Final = 250.0
_OFFSETS_MS: Final = 1_000.0
_SWEEP_MS: Final = 10_000.0
# So long do offsets live that nobody uses: a few times what a new leader's clients need to come.
OFFSETS_RETENTION_MS: Final = 3_000.0
_SCRUB_MS: Final = 1_000.0
_SCRUB_BYTES: Final = 4_096


class SimBroker:
    """Applier of one member, and what its clients reach."""

    def __init__(
        self,
        self_id: str,
        topics: Sequence[str],
        disk: SimDisk,
        reactor: SimReactor,
        keeper: Keeper,
        messages: MessageStore,
        plan: Plan,
        wall_ms: Callable[[], int],
        refuse: Callable[[Any, int, int, BrokerError], None],
        formats: Sequence[Format],
    ) -> None:
        """Binds the parts; `open` comes next."""
        self._self_id, self._disk, self._reactor = self_id, disk, reactor
        self.wall_ms = wall_ms
        self.messages = messages
        self.leadership = Leadership(self_id, 1)
        self.state = self._new_state(plan, formats)
        # Rules of access control that this process goes by.
        self.rules = SimRules()
        self.state.access = self.rules
        self.proposals = self._new_proposals(refuse)
        self._keeper = keeper
        self.store = BrokerStore(
            keeper,
            messages,
            self.state,
            partial(SimStateFile, disk),
            name=self_id,
            root="/store",
            now_ms=lambda: int(self._clock_ms()),
            clock_ms=self._clock_ms,
            call_later=reactor.callLater,
            slice_chars=plan.file_slice_chars,
        )
        self._sweeps = Sweeps(self.state, self.leadership, messages, plan.segment_bytes)
        self._applier = self._make_applier(self_id, topics, plan.queue_count)
        self._offsets = OffsetProcessor(
            self.leadership, self.state, messages, _NEAR_BYTES, _ignore_offset
        )
        self._replica: Replica | None = None
        self._clock_guard: ClockGuard | None = None
        # What the message store found; known after `open`.
        self.report: StoreReport | None = None
        # Why the member stopped by itself.
        self.failure: BaseException | None = None
        # Told of damage that the scrub found.
        self.on_damage: Callable[[Exception], None] = _ignore_damage
        self._scrub: Scrub | None = None
        self._scrub_at_ms = 0.0
        # Told when retention has dropped something.
        self.on_dropped: Callable[[], None] = _nothing
        # Told the index and the body of each record of the state that was applied.
        self.on_state_applied: Callable[[int, bytes], None] = _ignore_record
        # Told each record of the state that is proposed.
        self.on_state_proposed: Callable[[bytes], None] = _ignore_body
        # Told the format that is chosen for a record of the state.
        self.on_format_chosen: Callable[[int], None] = _ignore_format
        # Whether a client of a group is connected.
        self.is_live: Callable[[str], bool] = _is_live
        # Told when this member begins to serve.
        self.on_serving: Callable[[], None] = _nothing
        self._sweep_at_ms = self._offsets_at_ms = 0.0
        # The process is being stopped in order.
        self.is_leaving = False

    def _new_state(self, plan: Plan, formats: Sequence[Format]) -> BrokerState:
        return BrokerState(
            TopicTable(1000),
            SubscriptionGroupTable(1000),
            # Removals are worked off over many turns.
            ConsumerOffsetTable(1000, dropped_max=8),
            write=self.write_state,
            body_bytes_max=body_bytes_max(plan.segment_bytes),
            now_ms=self.wall_ms,
            clock_ms=self._clock_ms,
            call_at_end_of_turn=self._soon,
            auto_create_groups=True,
            on_topics_changed=lambda: None,
            on_topic_removed=self.messages.delete_topic,
            sweep_step_bytes=plan.sweep_step_bytes,
            formats=_TellingFormats(formats, lambda version: self.on_format_chosen(version)),
        )

    def _new_proposals(self, refuse: Callable[[Any, int, int, BrokerError], None]) -> Proposals:
        return Proposals(
            self.messages,
            limits=LIMITS,
            call_at_end_of_turn=self._soon,
            clock_ms=self._clock_ms,
            store_host_hex="",
            region_id="sim",
            is_trace_on=True,
            refuse=refuse,
        )

    def _soon(self, function: Callable[[], None]) -> None:
        self._reactor.callLater(0, function)

    def _clock_ms(self) -> float:
        return self._reactor.seconds() * 1000.0

    def _make_applier(self, self_id: str, topics: Sequence[str], queue_count: int) -> BrokerApplier:
        return BrokerApplier(
            self_id,
            self.leadership,
            self.state,
            self.messages,
            self.proposals,
            self,
            self,
            topics=[TopicConfig(topic, queue_count, queue_count) for topic in topics],
            groups=_GROUPS,
            answer=self.proposals.committed,
            answer_first=self.proposals.answer,
            on_role_changed=_nothing,
            on_ready=self._begins_to_serve,
            doubt=lambda: self.store.repair.doubt,
        )

    def open(self) -> None:
        """Loads the state and opens the store, as the broker's storage does."""
        self.store.load_state()
        if self.state.access_record.record is not None:
            self.rules.follow(self.state.access_record.record)
        self.report = self.store.open(apply=self._apply)
        if self.report.rebuilt_because or self.report.rebuilt_queues:
            self._disk.hit("CQ rebuilt")

    def _apply(self, body: bytes, index: int) -> None:
        if self.store.flushes.is_encoding:
            self._disk.hit("state changed while it was encoded")
        self.state.apply(body, index)
        self.on_state_applied(index, body)

    def attach(self, replica: Replica, first_index: Callable[[], int]) -> None:
        """Names the ledger, and where its log begins; begins the periodic work."""
        self._replica = replica
        self.state.formats.group = replica.formats
        self.state.confirm_lead = lead_confirmation(replica)
        self.leadership.confirm_read = read_confirmation(replica, self.state, first_index)
        self.proposals.on_appended = replica.take_turn
        self._scrub = self.messages.make_scrub()
        self.messages.attach(replica)
        guard = self._clock_guard = ClockGuard(replica.clocks, self.leadership)
        self.messages.store_times.set_judge(guard.store_time, guard.limit_ms)
        self._reactor.callLater(_TICK_MS / 1000, self._keep_up)

    # -- Applier

    def committed(self, start_index: int, end_index: int) -> None:
        """The broker's applier does it."""
        self._applier.committed(start_index, end_index)

    def role_changed(self, role: Role, term: int, leader_id: str | None, is_ready: bool) -> None:
        """The broker's applier does it."""
        self._applier.role_changed(role, term, leader_id, is_ready)

    def failed(self, error: BaseException) -> None:
        """The member has stopped for good."""
        self.failure = error
        self._applier.failed(error)

    # -- what the applier tells

    def _begins_to_serve(self) -> None:
        self.on_serving()

    def messages_dispatched(self, arrivals: list[tuple[str, int, int, int]]) -> None:
        """No pull waits here."""

    def flush(self) -> None:
        """Answers go out one by one."""

    def leave(self) -> Deferred[None]:
        """Stops as the broker service does; fires when all but the ledger's files is closed."""
        replica = self._replica
        assert replica is not None and not self.is_leaving
        self.is_leaving = True
        stopped = replica.stop()
        self.role_changed(Role.CANDIDATE, self.leadership.term, None, False)
        stopped.addCallback(lambda _: self.store.stop_keeper())
        return stopped.addCallback(lambda _: self._close_store())

    def _close_store(self) -> None:
        self.store.close()

    # -- clients

    def send(self, message: AppendMessage, connection: Any, opaque: int, queue_id: int) -> None:
        """Takes a send; what is refused at once is answered by an error.

        Raises:
            BrokerError: nothing was appended.
        """
        if not self.leadership.takes_messages:
            raise self.leadership.refusal()
        if self.state.find_topic(message.topic) is None:
            raise TopicNotFoundError(message.topic)
        size = len(message.body) + len(message.properties) + 100
        self.proposals.add(message, size, connection, opaque, 1, queue_id)

    def pull(
        self, topic: str, queue_id: int, offset: int, count_max: int
    ) -> GetMessageResult[bytes]:
        """Reads a queue; any member answers with what it has dispatched.

        Raises:
            BrokerError: a leader that may not serve yet.
        """
        if self.leadership.is_leader:
            self.leadership.check_serving()
        return self.messages.get_message(topic, queue_id, offset, count_max, None)

    def commit_offset(
        self, group: str, topic: str, queue_id: int, offset: int, done: OnCommitted | None
    ) -> None:
        """Stores the offset of a group; the leader does.

        Args:
            group, topic, queue_id: whose and where.
            offset: of the next message.
            done: told when it is committed; None for a one-way tell.

        Raises:
            BrokerError: this member does not serve, or does not know the queue.
        """
        self.leadership.check_serving()
        self.state.check_offset(group, topic, queue_id, None)
        if done is None:
            self.state.commits.tell(group, topic, queue_id, offset)
        else:
            self.state.commits.commit(group, topic, queue_id, offset, done)

    def query_offset(
        self, group: str, topic: str, queue_id: int, uncertain: Callable[[BrokerError], None]
    ) -> Any:
        """Asks for the offset of a group.

        Args:
            uncertain: told why a follower does not know whether it is up to date.

        Returns:
            As a processor: an answer, None when there is none, or a Deferred of either.
        """
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id
        )
        command = RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        confirm = self.leadership.confirm_read

        def note(done: OnCommitted) -> None:
            def told(error: BrokerError | None) -> None:
                if error is not None:
                    uncertain(error)
                done(error)

            confirm(told)

        self.leadership.confirm_read = note
        try:
            return self._offsets.query(cast(Any, None), command)
        finally:
            self.leadership.confirm_read = confirm

    @property
    def is_at_disk(self) -> bool:
        """Whether the keeper of the files does something."""
        return self._keeper._is_running

    def clean(self) -> None:
        """Retention finds the disk nearly full: full segments go, whatever their age."""
        if self.failure is None:
            try:
                decision = self.messages.decide_clean(
                    self.wall_ms(), 0, 87, state_index=self.state.sweep_index
                )
            except DiskFullError:
                return
            if decision.drop_before:
                dropped = self._keeper.run(partial(self.messages.begin_drop, decision.drop_before))
                dropped.addCallback(self._dropped)
                dropped.addErrback(self._not_dropped)

    def _dropped(self, _: None) -> None:
        self._disk.hit("segments dropped")
        self.on_dropped()

    def _not_dropped(self, failure: Any) -> None:
        """There was no room for the mark; any other error ends the member."""
        if not failure.check(DiskFullError):
            self._flush_failed(failure.value)

    def scrub(self, bytes_max: int) -> bool:
        """Looks at a part of the log and of what derives from it; tells whether there is more."""
        assert self._scrub is not None
        try:
            return self._scrub.step(bytes_max)
        except (CorruptStoreError, DamagedFileError) as error:
            self.on_damage(error)
            return False

    # -- periodic work

    def _keep_up(self) -> None:
        now_ms = self._reactor.seconds() * 1000.0
        if self.failure is not None or self.is_leaving:
            return
        self._reactor.callLater(_TICK_MS / 1000, self._keep_up)
        self.proposals.expire()
        if now_ms - self._offsets_at_ms >= _OFFSETS_MS:
            self._offsets_at_ms = now_ms
            if self._clock_guard is not None:
                self._clock_guard.look()
            self.state.write_offsets()
            self._sweeps.look()
            if self._replica is not None:
                is_closed = self.leadership.closed_because is not None
                self._replica.decline_leadership(is_closed or bool(self.store.repair.doubt))
            self._applier.look()
            if self.leadership.is_serving:
                self.state.expiry.step(self.is_live, OFFSETS_RETENTION_MS)
        if now_ms - self._sweep_at_ms >= _SWEEP_MS:
            self._sweep_at_ms = now_ms
            self._sweeps.begin()
        self.state.sweep()
        if now_ms - self._scrub_at_ms >= _SCRUB_MS:
            self._scrub_at_ms = now_ms
            self.scrub(_SCRUB_BYTES)
        self.store.flush_if_due(self._flush_failed)

    def _flush_failed(self, error: BaseException) -> None:
        """A failed flush is final for this member: it leaves the group."""
        if self.failure is None and self._replica is not None:
            self._replica.stop()
            self.failed(error)

    def write_state(self, bodies: Sequence[bytes], done: OnCommitted) -> None:
        """Proposes records of the state; `done` gets what becomes of them."""
        for body in bodies:
            self.on_state_proposed(body)
        propose_records(self.proposals, bodies, STORE_HOST, self.wall_ms(), done)


def _ignore_offset(header: object, fields: object, payer: str) -> None:
    """Nobody tells offsets to members that do not lead."""


class _TellingFormats(StateFormats):
    """Formats that tell each choice."""

    def __init__(self, formats: Sequence[Format], on_chosen: Callable[[int], None]) -> None:
        super().__init__(formats)
        self._on_chosen = on_chosen

    @property
    def written(self) -> Format:
        chosen = super().written
        self._on_chosen(chosen.version)
        return chosen


def _ignore_format(version: int) -> None:
    """Nobody listens."""


def _ignore_body(body: bytes) -> None:
    """Nobody listens."""


def _is_live(group: str) -> bool:
    """All clients stay."""
    return True


def _ignore_record(index: int, body: bytes) -> None:
    """Nobody listens."""


def _ignore_damage(error: Exception) -> None:
    """Nobody listens."""


def _nothing() -> None:
    """Nobody listens."""
