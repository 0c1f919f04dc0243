"""The broker of a simulated member: production parts, joined as the broker service joins them.

Message store, proposals, replicated state and leadership are the product's own; what is missing is
the wire to clients and the parts that need none of the ledger. Files of the state stand on the
simulated disk.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

from twisted.internet.defer import Deferred

from ledgermq.broker.consumer_offsets import ConsumerOffsetTable
from ledgermq.broker.errors import BrokerError
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.own_messages import state_message
from ledgermq.broker.proposals import Limits, Proposals
from ledgermq.broker.state_files import StateFile, parse_tolerant
from ledgermq.broker.state_log import BrokerState, OnCommitted
from ledgermq.broker.state_records import body_bytes_max
from ledgermq.broker.subscriptions import SubscriptionGroupTable, built_in_groups
from ledgermq.broker.topics import TopicConfig, TopicTable
from ledgermq.commitlog import (
    STATE_TOPIC,
    AppendMessage,
    DamagedFileError,
    FlushJob,
    GetMessageResult,
    MessageStore,
    StoreReport,
)
from ledgermq.commitlog.scrub import Scrub
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.replica.driver import Replica
from ledgermq.dledger.store.errors import CorruptStoreError, DiskFullError
from ledgermq.dledger.store.keeper import Keeper
from ledgermq.testing.simulation.clock import SimReactor
from ledgermq.testing.simulation.disk import SimDisk

STORE_HOST: Final = (bytes((127, 0, 0, 1)), 10911)
LIMITS: Final = Limits(2_000, 1 << 20, 5_000)
_TOPICS_PATH: Final = "/store/config/topics.json"
_GROUPS_PATH: Final = "/store/config/subscriptionGroup.json"
_OFFSETS_PATH: Final = "/store/config/consumerOffset.json"
# One stands for all that are built in: each snapshot names them again.
_GROUPS: Final = built_in_groups()[:1]
_TICK_MS: Final = 250.0
_OFFSETS_MS: Final = 1_000.0
_SNAPSHOT_MS: Final = 10_000.0
_SCRUB_MS: Final = 1_000.0
_SCRUB_BYTES: Final = 4_096


class SimBroker:
    """Applier of one member, and what its clients reach."""

    def __init__(
        self,
        self_id: str,
        topics: Sequence[str],
        queue_count: int,
        disk: SimDisk,
        reactor: SimReactor,
        keeper: Keeper,
        messages: MessageStore,
        segment_bytes: int,
        wall_ms: Callable[[], int],
        refuse: Callable[[Any, int, int, BrokerError], None],
    ) -> None:
        """Binds the parts; `open` comes next."""
        self._self_id = self_id
        self._topics = [TopicConfig(topic, queue_count, queue_count) for topic in topics]
        self._disk = disk
        self._reactor = reactor
        self._wall_ms = wall_ms
        self._segment_bytes = segment_bytes
        self.messages = messages
        self.leadership = Leadership(self_id, 1)
        self.state = BrokerState(
            TopicTable(1000),
            SubscriptionGroupTable(1000),
            ConsumerOffsetTable(1000),
            write=self._write_state,
            body_bytes_max=body_bytes_max(segment_bytes),
            now_ms=wall_ms,
            clock_ms=lambda: reactor.seconds() * 1000.0,
            auto_create_groups=True,
            on_topics_changed=lambda: None,
            on_topic_removed=messages.delete_topic,
        )
        self.proposals = Proposals(
            messages,
            limits=LIMITS,
            call_at_end_of_turn=lambda function: reactor.callLater(0, function),
            clock_ms=lambda: reactor.seconds() * 1000.0,
            store_host_hex="",
            region_id="sim",
            is_trace_on=True,
            refuse=refuse,
        )
        self._keeper = keeper
        self._job: FlushJob | None = None
        self._replica: Replica | None = None
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
        # Told when this member begins to serve.
        self.on_serving: Callable[[], None] = _nothing
        self._snapshot_at_ms = 0.0
        # Segment of the log that the last snapshot stands in: each gets one.
        self._snapshot_segment = 0
        self._offsets_at_ms = 0.0
        # The process is being stopped in order.
        self.is_leaving = False

    def open(self) -> None:
        """Loads the state and opens the store, as the broker's storage does."""
        state = self.state
        for path, load in (
            (_TOPICS_PATH, state.topics.load_json),
            (_GROUPS_PATH, state.groups.load_json),
            (_OFFSETS_PATH, state.offsets.load_json),
        ):
            content = self._disk.read(path)
            if content:
                load(parse_tolerant(content.decode("utf-8")))
        self.messages.watch_topic(STATE_TOPIC, self.state.apply)
        self.report = self.messages.open(self._save_state)
        if self.report.rebuilt_because or self.report.rebuilt_queues:
            self._disk.hit("CQ rebuilt")

    def _save_state(self) -> bool:
        for path, content in self._state_files():
            self._disk.replace(path, content)
        return True

    def _state_files(self) -> list[tuple[str, bytes]]:
        """Contents of the files of the state that are older than its tables."""
        state, files = self.state, []
        if state.are_topics_unsaved:
            files.append((_TOPICS_PATH, StateFile.encode(state.topics.to_json())))
        if state.are_groups_unsaved:
            files.append((_GROUPS_PATH, StateFile.encode(state.groups.to_json())))
        if state.are_offsets_unsaved or state.offsets.has_changes:
            files.append((_OFFSETS_PATH, StateFile.encode(state.offsets.to_json())))
        state.are_topics_unsaved = state.are_groups_unsaved = state.are_offsets_unsaved = False
        return files

    def attach(self, replica: Replica) -> None:
        """Names the ledger, and begins the periodic work."""
        self._replica = replica
        self.proposals.on_appended = replica.take_turn
        self._scrub = self.messages.make_scrub()
        self.messages.attach(replica)
        self._reactor.callLater(_TICK_MS / 1000, self._keep_up)

    # -- Applier

    def committed(self, start_index: int, end_index: int) -> None:
        """As in the broker service."""
        self.messages.committed(start_index, end_index)
        self.proposals.committed(end_index)

    def role_changed(self, role: Role, term: int, leader_id: str | None, is_ready: bool) -> None:
        """As in the broker service."""
        leadership = self.leadership
        is_leader = role is Role.LEADER
        if leadership.is_serving and is_leader and is_ready and leadership.term == term:
            return
        leadership.changed(role.name, term, leader_id)
        self.messages.resign()
        self.state.follow()
        self.proposals.fail_all(leadership.refusal())
        if is_leader and is_ready:
            self.messages.become_leader()
            leadership.serve()
            self.state.adopt(self._topics, _GROUPS)
            self.on_serving()
            self.state.lead(f"{self._self_id}/{term}")

    def failed(self, error: BaseException) -> None:
        """The member has stopped for good."""
        self.failure = error
        self.leadership.fail(str(error))
        self.messages.resign()
        self.state.follow()
        self.proposals.fail_all(self.leadership.refusal())

    def leave(self) -> Deferred[None]:
        """Stops as the broker service does; fires when all but the ledger's files is closed."""
        replica = self._replica
        assert replica is not None and not self.is_leaving
        self.is_leaving = True
        stopped = replica.stop()
        self.role_changed(Role.CANDIDATE, self.leadership.term, None, False)
        stopped.addCallback(lambda _: self._keeper.stop())
        stopped.addCallback(lambda _: self._save_state())
        return stopped.addCallback(lambda _: self._close_messages())

    def _close_messages(self) -> None:
        """As the broker: after a flush that failed nothing more is flushed."""
        if self._job is None:
            self.messages.close()
        else:
            self.messages.abandon()

    # -- clients

    def send(self, message: AppendMessage, connection: Any, opaque: int, queue_id: int) -> None:
        """Takes a send; what is refused at once is answered by an error.

        Raises:
            BrokerError: nothing was appended.
        """
        self.leadership.check_serving()
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

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Stores the offset of a group; the leader does.

        Raises:
            BrokerError: this member does not serve.
        """
        self.leadership.check_serving()
        self.state.offsets.commit(group, topic, queue_id, offset)

    def clean(self) -> None:
        """Retention finds the disk nearly full: full segments go, whatever their age."""
        if self.failure is None and self._job is None:
            try:
                decision = self.messages.decide_clean(
                    self._wall_ms(), 0, 87, state_index=self.state.snapshot_index
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
            self._flush_failed(failure)

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
            self.state.write_offsets()
            if self.leadership.is_serving:
                segment = self.messages.max_physical_offset // self._segment_bytes
                if self.state.is_snapshot_due or segment != self._snapshot_segment:
                    self._snapshot_segment = segment
                    self.state.write_snapshot()
        if now_ms - self._snapshot_at_ms >= _SNAPSHOT_MS:
            self._snapshot_at_ms = now_ms
            if self.leadership.is_serving:
                self.state.write_snapshot()
        if now_ms - self._scrub_at_ms >= _SCRUB_MS:
            self._scrub_at_ms = now_ms
            self.scrub(_SCRUB_BYTES)
        if self._job is None and self.messages.is_flush_due(int(now_ms)):
            # As the broker: the state first, then the mark that makes it needed.
            files = self._state_files()
            job = self._job = self.messages.begin_flush(int(now_ms))
            flushed: Deferred[Any] = self._keeper.run_steps(self._flush_steps(files, job))
            flushed.addCallbacks(self._flushed, self._not_flushed)

    def _flush_steps(
        self, files: Sequence[tuple[str, bytes]], job: FlushJob
    ) -> Iterator[Callable[[], None]]:
        writes = (partial(self._disk.replace, path, content) for path, content in files)
        return chain(writes, job.steps())

    def _not_flushed(self, failure: Any) -> None:
        if not failure.check(DiskFullError):
            self._flush_failed(failure)
            return
        self._job = None
        state = self.state
        state.are_topics_unsaved = state.are_groups_unsaved = state.are_offsets_unsaved = True
        self.messages.take_back_flush()

    def _flushed(self, _: object) -> None:
        job, self._job = self._job, None
        assert job is not None
        self.messages.end_flush(job)

    def _flush_failed(self, failure: Any) -> None:
        """A failed flush is final for this member: it leaves the group."""
        if self.failure is None and self._replica is not None:
            self._replica.stop()
            self.role_changed(Role.CANDIDATE, self.leadership.term, None, False)
            self.failed(failure.value)

    def _write_state(self, bodies: Sequence[bytes], done: OnCommitted) -> None:
        now_ms = self._wall_ms()
        messages = [state_message(body, STORE_HOST, now_ms) for body in bodies]
        self.proposals.add_own(messages, lambda _, error: done(error))


def _ignore_damage(error: Exception) -> None:
    """Nobody listens."""


def _nothing() -> None:
    """Nobody listens."""
