"""Replica: one running member. Inbox -> Raft -> Ready -> disk -> peers -> apply.

It decides nothing: what arrived, was proposed or came due in one turn of the reactor goes to the
core together; what the core wants done leaves it as one Ready, and is done here in the order that
`Ready` prescribes. So N proposals of a turn make one append, one sync and one push for each peer.

    SYNC_FLUSH   push answers, and the leader's own copy, count after fdatasync (group commit)
    ASYNC_FLUSH  they count at once, but for a leader with SYNC_FLUSH; fdatasync follows soon

No turn waits for the disk. Entries are written to the page cache here, in the reactor, when the
files for them are there; votes, cuts, new files and syncs are jobs of the keeper. A Ready with such
a step is finished when its jobs are done; until then the core gets no message and no other Ready is
taken, so that its steps are the disk's steps, one by one. A sync holds nothing up but the answers
that wait for it. However long the disk takes, what waits for it is bounded (`memory.py`).

Votes wait for the vote file only, never for entries: what they testify to is durable by then. A
disk without room is waited for. Any other error of the disk or of the core stops the member for
good: it falls silent, the others elect.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import Any, Final, cast

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from ledgermq.dledger.config import NEVER
from ledgermq.dledger.disk_job import Begin, DiskJob
from ledgermq.dledger.entry import EntryCodec, EntryId, EntrySlice
from ledgermq.dledger.errors import (
    AppliedEntriesCutError,
    ApplierBehindError,
    LedgerError,
    NotLeaderError,
)
from ledgermq.dledger.formats import Formats, GroupFormats
from ledgermq.dledger.leader import MakeOpening
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.member_view import MemberView
from ledgermq.dledger.membership import Cluster
from ledgermq.dledger.messages import LinkMessage, PeerDialect, PushResponse, ReadMessage
from ledgermq.dledger.raft import Raft
from ledgermq.dledger.ready import Ready, RoleChange
from ledgermq.dledger.replica.applying import Applier, Applying, ApplyTimes
from ledgermq.dledger.replica.birth_log import BirthLog
from ledgermq.dledger.replica.client_requests import ClientRequests
from ledgermq.dledger.replica.clock_exchange import ClockExchange
from ledgermq.dledger.replica.config import FlushDiskType, ReplicaConfig
from ledgermq.dledger.replica.confirming import Confirming
from ledgermq.dledger.replica.connections import Connections, MakeLinks
from ledgermq.dledger.replica.contradictions import Contradictions
from ledgermq.dledger.replica.disk_steps import ROOM_RETRY_S, DiskSteps
from ledgermq.dledger.replica.durability import Durability
from ledgermq.dledger.replica.flush_modes import FlushModes
from ledgermq.dledger.replica.inbox import Inbox
from ledgermq.dledger.replica.membership_report import MembershipReport, membership_report
from ledgermq.dledger.replica.memory import MemoryUse
from ledgermq.dledger.replica.recollection import Recollection
from ledgermq.dledger.storage import LedgerStore, VoteStore
from ledgermq.dledger.store.cold_reader import ColdReader
from ledgermq.dledger.store.errors import DiskFullError
from ledgermq.dledger.store.keeper import Keeper
from ledgermq.dledger.store.repair_mark import RepairMark
from ledgermq.dledger.transfer import Transfer
from ledgermq.protocol.transport.refusals import Refusals

# Ready values taken in one turn: each may follow from `persisted` of the one before.
_READIES_MAX: Final = 4

_log = Logger()


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Replica:
    """One member of a group on a reactor.

    Invariants: one delayed call at most for the turn, the clock and the upkeep each; after `stop`
    or a failure there is none.
    """

    def __init__(
        self,
        config: ReplicaConfig,
        reactor: Any,
        store: LedgerStore,
        vote_store: VoteStore,
        codec: EntryCodec,
        rng: Random,
        applier: Applier,
        opening_body: MakeOpening | None,
        *,
        make_links: MakeLinks = Connections,
        keeper: Keeper | None = None,
        cold_reader: ColdReader | None = None,
        repair_mark: RepairMark | None = None,
        formats: Callable[[], Formats] = Formats,
        wall_ms: Callable[[], int] = _wall_clock_ms,
    ) -> None:
        """Opens nothing yet.

        Args:
            config: identity, addresses, limits.
            reactor: gives TCP, time and threads; its clock should be monotonic.
            store: open; the caller closes it after `stop`.
            vote_store: of the same member.
            codec: as the group's other members have it.
            rng: draws election times.
            applier: told what is committed.
            opening_body: makes the entry that opens a term; None: no such entry.
            make_links: makes the ways to the other members.
            keeper: does what waits for the disk; its owner stops it. None: one of this member.
            cold_reader: reads old entries for followers; None: their reads wait for the disk.
            repair_mark: of the same store; None: what was forgotten is forgotten by a restart.
            formats: tells what the applier reads and needs; asked when members connect.
            wall_ms: the members compare it.
        """
        self.config, self._reactor = config, reactor
        self._vote_store, self._codec = vote_store, codec
        self.peer_ids = tuple(sorted(set(config.addresses()) - {config.self_id}))
        self._recollection = Recollection(config.self_id, vote_store, repair_mark, self.peer_ids)
        self._rng, self._opening_body, self._cold_reader = rng, opening_body, cold_reader
        self.store, self.self_id = store, config.self_id  # Read up to `commit_index` only.
        self.failure: BaseException | None = None  # Why the member stopped by itself.
        self._keeper, self._owns_keeper = keeper or Keeper(reactor), keeper is None
        self._durability = Durability(
            config,
            self._keeper,
            store,
            finish=self._finish,
            joined=self._reported_with_next,
            synced=self._after_sync,
            failed=self._fail,
        )
        self._applying = Applying(applier, config.apply_count_max)
        self.formats = GroupFormats(config.self_id, self.peer_ids, formats)
        self.clocks = ClockExchange(config, wall_ms, reactor.seconds)
        self.flush_modes = FlushModes(config.self_id, self.peer_ids, config.flush_disk_type)
        self.refusals = Refusals(config.self_id, reactor.seconds)
        self.contradictions = Contradictions(config)
        self.clients = ClientRequests(config, self)
        self.confirming = Confirming(self, self._schedule_turn)
        self._connections = make_links(reactor, config, store, codec, self, self.clients)
        self._raft: Raft | None = None  # Before `start`.
        self._inbox = Inbox(config.inbox_bytes_max)  # What the core has not taken.
        self._turn_call = self._tick_call = self._upkeep_call = cast(Any, None)
        self._apply_times, self._tick_at_ms = ApplyTimes(reactor, self._schedule_turn), 0.0
        # A step found no room and waits for it; and: the next segment was asked for.
        self._is_running = self._is_full = self._is_ahead_asked = False
        self._flush_s, failed = config.flush_interval_ms / 1000, self._fail_if_running
        self._disk_steps = DiskSteps(reactor, self._keeper, no_room=self._no_room, failed=failed)

    # What the core knows.

    @property
    def role(self) -> Role:
        """CANDIDATE before start, after a failure, and while a step waits for room on the disk."""
        return self._raft.role if self._raft is not None and self._takes_part else Role.CANDIDATE

    @property
    def _takes_part(self) -> bool:
        return self._is_running and not self._is_full

    @property
    def term(self) -> int:
        """The current term; 0 before start."""
        return self._raft.term if self._raft is not None else 0

    @property
    def leader_id(self) -> str | None:
        """The leader this member follows or is."""
        return self._raft.leader_id if self._raft is not None and self._takes_part else None

    @property
    def commit_index(self) -> int:
        """Last committed entry that the store holds, -1 for none: the core may know more."""
        return min(self._raft.commit_index if self._raft else -1, self._applying.committed_index)

    @property
    def applied_index(self) -> int:
        """Index of the last entry that the applier was told of."""
        return self._applying.applied_index

    @property
    def is_ready_leader(self) -> bool:
        """Leads, and the entry that opened its term is committed and applied."""
        return (
            self._raft is not None
            and self._takes_part
            and self._raft.is_ready_leader
            and not self._applying.is_leader_coming
        )

    @property
    def is_recovering(self) -> bool:
        """True while this member neither votes nor counts, as it lost what it may have promised."""
        return self._recollection.is_recovering

    def view(self) -> MemberView | None:
        """What this member knows of its group; None before start."""
        return self._raft.view(self.now_ms) if self._raft is not None else None

    @property
    def membership(self) -> MembershipReport:
        """The group's membership, for operators."""
        return membership_report(
            self._raft, self.refusals.memberships(), self.contradictions.reports
        )

    @property
    def cluster(self) -> Cluster:
        """Cluster id and member ids of the group, as this member knows them."""
        birth = self._raft.birth if self._raft is not None else None
        cluster_id = birth.group_id if birth is not None and birth.is_agreed else ""
        return Cluster(cluster_id, tuple(sorted((self.self_id, *self.peer_ids))))

    @property
    def now_ms(self) -> float:
        """The reactor's clock, in ms."""
        return float(self._reactor.seconds() * 1000.0)

    @property
    def needed_index(self) -> int:
        """First entry that retention should keep while the disk allows it; 0 when not running."""
        if self._raft is None or not self._is_running:
            return 0
        return self._raft.needed_index(self.now_ms)

    @property
    def memory_use(self) -> MemoryUse:
        """What waits here for the disk and the peers; see `memory_bounds`."""
        entries_bytes = self._raft.entries_bytes if self._raft is not None else 0
        return MemoryUse(self._inbox.size_bytes, self._durability.answers_bytes, entries_bytes)

    def decline_leadership(self, declines: bool) -> None:
        """Takes whether this member cannot do a leader's work (its disk is full, its state in
        doubt): while it leads it hands over to a member that can, it takes no leadership over, and
        it asks for votes after all others.
        """
        if self._raft is not None and self._is_running:
            self._raft.set_unfit(declines, self.now_ms)
            self._schedule_turn()

    def dialect_of(self, peer_id: str) -> PeerDialect:
        """How a peer is spoken to now; UNKNOWN while there is no connection to it."""
        return self._connections.dialect_of(peer_id)

    # Start, propose, stop.

    def start(self, *, applied_index: int = -1, recovering: bool = False) -> Deferred[None]:
        """Makes what the store recovered durable, then listens, connects and takes part.

        Args:
            applied_index: last entry that the applier has; it hears of the next one first.
            recovering: the store has lost what it may have promised; no vote, no acknowledgement
                until the member has caught up.

        Returns:
            A Deferred that fires when the port is open; it fails when the port is taken or the disk
            fails, and then the member does not run.
        """
        self._applying.begin_after(applied_index)
        is_syncing = self.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        synced: Deferred[Any] = self._durability.begin() if is_syncing else succeed(None)
        return synced.addCallback(self._begin, recovering)

    def _begin(self, _: object, recovering: bool) -> Deferred[None]:
        former = self._recollection.load(self.store, is_recovering=recovering)
        raft = self._raft = Raft(
            self.config.core(),
            self.store,
            self._codec,
            former.state,
            self._rng,
            self.now_ms,
            self._opening_body,
            recovering=former.is_recovering,
            is_new=former.is_new and bool(self.peer_ids),
        )
        self._recollection.note_loss(raft)
        self._birth_log = BirthLog(raft, self.now_ms)
        self.confirming.begin(raft, self._connections.send)
        # What the checkpoint says to be committed may be behind the applier, or before it.
        self._applying.advance(raft.commit_index + 1)
        raft.applied(min(self.applied_index, raft.commit_index))
        return self._connections.listen().addCallback(self._run)

    def _run(self, _: None) -> None:
        self._is_running = True
        self._connections.connect()
        self._upkeep_call = self._reactor.callLater(self._flush_s, self._keep_up)
        self._schedule_turn()

    def propose(self, bodies: Sequence[bytes]) -> list[EntrySlice]:
        """Appends bodies to the log of this leader; they are pushed at the end of this turn.

        Returns:
            The runs of entries they became; usually one. They are not committed yet.

        Raises:
            NotLeaderError: this member does not lead, or has stopped.
            ProposalDroppedError: a limit is reached; nothing was appended.
            EntryTooLargeError: an entry fits in no segment; nothing was appended.
        """
        raft = self._raft
        if raft is None or not self._takes_part:
            raise NotLeaderError(None, self.term)
        entries = raft.propose(bodies, self.now_ms)
        self._schedule_turn()
        return entries

    def transfer(self, target_id: str) -> Transfer:
        """Begins to hand the leadership to another member; proposals are refused meanwhile.

        Raises:
            NotLeaderError, TransferRefusedError: nothing was begun.
        """
        raft = self._raft
        if raft is None or not self._takes_part:
            raise NotLeaderError(None, self.term)
        transfer = raft.transfer(target_id, self.now_ms)
        self._schedule_turn()
        return transfer

    def stop(self) -> Deferred[None]:
        """Leaves the group; fires when all is closed and synced, and the store may be closed."""
        was_running = self._is_running
        if was_running:
            self._take_last_steps()
        closed = self._leave()
        if was_running:
            closed.addCallback(lambda _: self._durability.end(self.commit_index))
            closed.addErrback(self._not_stopped_well)
        if self._owns_keeper:
            closed.addCallback(lambda _: self._keeper.stop())
        return closed

    def _take_last_steps(self) -> None:
        """What was proposed in this turn still gets to the disk."""
        if self._turn_call is not None:
            self._turn_call.cancel()
            self._turn()

    def _not_stopped_well(self, failure: Failure) -> None:
        reason = failure.getErrorMessage()
        _log.error("{self_id}: last sync failed: {reason}", self_id=self.self_id, reason=reason)

    def _leave(self) -> Deferred[None]:
        """Stops all that calls us; fires when the connections are closed."""
        self._is_running = False
        for call in (self._turn_call, self._tick_call, self._upkeep_call):
            if call is not None and call.active():
                call.cancel()
        self._turn_call = self._tick_call = self._upkeep_call = None
        self._apply_times.stop()
        self._disk_steps.stop()
        self.clients.term_changed()
        self.confirming.end()
        self._durability.drop()
        return self._connections.stop()

    def _fail(self, error: BaseException) -> None:
        """Stops for good: the core's state is no longer that of the disk."""
        if self.failure is not None:
            return
        self.failure = error
        self._recollection.note_failure(error)
        _log.failure(
            "{self_id}: stopped at index {last_index} of term {term}",
            Failure(error),
            self_id=self.self_id,
            last_index=self.store.last_index,
            term=self.term,
        )
        self._leave()
        self._applying.fail(error)

    def take_turn(self) -> None:
        """Does at once what is due at the end of the reactor's turn, for who has gathered one."""
        if self._turn_call is not None:
            self._turn_call.cancel()
            self._turn()

    # MemberEvents: what the connections tell.

    def message_received(self, message: LinkMessage) -> None:
        """Puts a message into this turn's inbox."""
        if isinstance(message, ReadMessage):
            self.confirming.follower_reads.receive(message)
        else:
            self._inbox.add(message, replaces=self._disk_steps.is_waiting)
        self._schedule_turn()

    def dialect_found(self, peer_id: str, dialect: PeerDialect) -> None:
        """Tells the core how a peer speaks."""
        if self._raft is not None and self._is_running:
            self._raft.set_dialect(peer_id, dialect)
            self._schedule_turn()

    def peer_lost(self, peer_id: str) -> None:
        """Tells the core that a peer cannot be reached."""
        if self._raft is not None and self._is_running:
            self._raft.unreachable(peer_id)
            self._schedule_turn()

    def peer_ended(self, peer_id: str) -> None:
        """Tells the core that the process of a peer is no more."""
        if self._raft is not None and self._is_running:
            self._raft.peer_ended(peer_id, self.now_ms)
            self._schedule_turn()

    # One turn.

    def _schedule_turn(self) -> None:
        if self._turn_call is None and self._is_running:
            self._turn_call = self._reactor.callLater(0, self._turn)

    def _turn(self) -> None:
        """Everything that came since the last turn, at once."""
        self._turn_call = None
        raft = self._raft
        assert raft is not None
        try:
            now_ms = self.now_ms
            if not self._disk_steps.is_waiting:
                self._step(raft, now_ms)
            # A follower's answers are on their way while it applies.
            self._connections.flush()
            self._apply(raft)
            self.clients.look_at_transfer()
            self.confirming.look()
            if self.clients.deadline_ms() <= now_ms:
                self.clients.expire(now_ms)
            self._arm(raft, now_ms)
        except Exception as error:
            self._fail(error)
        self._connections.flush()

    def _step(self, raft: Raft, now_ms: float) -> None:
        """Gives the core what came, and carries out what it wants until the disk is in the way."""
        for message in self._inbox.take():
            self.contradictions.receive(raft, message, now_ms, self._connections)
        if now_ms >= self._tick_at_ms and now_ms >= raft.deadline_ms():
            raft.tick(now_ms)
        for _ in range(_READIES_MAX):
            ready = raft.take_ready()
            self._load_cold(raft)
            if ready is None:
                break
            self._carry_out(ready, raft)
            if self._disk_steps.is_waiting:
                return
        else:
            self._schedule_turn()
        end = self._recollection.begin_end(raft)
        if end is not None:
            self._keeper.run(lambda: end).addErrback(self._disk_failed)

    def _load_cold(self, raft: Raft) -> None:
        """Has a thread read what followers are to get and is not in memory."""
        if self._cold_reader is None:
            return
        for peer_id, cold in raft.take_cold():
            if not self._cold_reader.load(cold, partial(self._loaded, raft, peer_id)):
                raft.loaded(peer_id)

    def _loaded(self, raft: Raft, peer_id: str, error: LedgerError | None) -> None:
        if error is not None:
            self._fail_if_running(error)
        elif self._is_running:
            raft.loaded(peer_id)
            self._schedule_turn()

    def _carry_out(self, ready: Ready, raft: Raft) -> None:
        """Does the steps of one Ready; their numbers are those of its docstring."""
        steps = self._find_steps(ready, raft)
        if steps:
            self._disk_steps.do(steps, partial(self._steps_done, ready, raft))
        else:
            self._carry_on(ready, raft)

    def _find_steps(self, ready: Ready, raft: Raft) -> list[Begin]:
        """Returns what of a Ready waits for the disk, in order: steps 1 and 2."""
        store, steps = self.store, list[Begin]()
        is_told = ready.role is not None or ready.hard_state is not None
        if is_told and raft.recovering and not self._recollection.is_recovering:
            steps.append(partial(self._recollection.begin_loss, raft))
        if ready.hard_state is not None:  # 1
            save = partial(self._vote_store.save, ready.hard_state)
            steps.append(lambda: DiskJob(save))
        if ready.truncate_from is not None:  # 2
            steps.append(partial(store.begin_truncate, ready.truncate_from))
        elif ready.reset_to is not None:
            self._applying.skip_to(ready.reset_to[0])
            steps.append(partial(store.begin_reset, *ready.reset_to))
        if ready.entries and (steps or not store.has_room(ready.entries)):
            steps.append(partial(store.begin_room, ready.entries))
        return steps

    def _steps_done(self, ready: Ready, raft: Raft) -> None:
        was_full, self._is_full = self._is_full, False
        try:
            self._carry_on(ready, raft)
            if was_full:
                # All were told that it does not lead; if nobody else does, it stands again.
                raft.resign(self.now_ms)
                # Of a follower the core has no news: it follows whom it followed.
                told = RoleChange(role=raft.role, term=raft.term, leader_id=raft.leader_id)
                self._applying.change_role(told, None)
        except Exception as error:
            self._fail(error)
        self._schedule_turn()

    def _no_room(self, error: BaseException) -> None:
        """Takes no part until the step is done: who cannot write must not pass for a leader."""
        self._log_wait(error)
        if not self._is_full:
            self._is_full = True
            self.clients.term_changed()
            change = RoleChange(role=Role.CANDIDATE, term=self.term, leader_id=None)
            self._applying.change_role(change, None)

    def _disk_failed(self, failure: Failure) -> None:
        assert failure.value is not None
        self._fail_if_running(failure.value)

    def _fail_if_running(self, error: BaseException) -> None:
        if self._is_running:
            self._fail(error)

    def _carry_on(self, ready: Ready, raft: Raft) -> None:
        """Does the steps of one Ready that no disk holds up."""
        store, cut = self.store, ready.truncate_from
        if cut is not None and cut <= self._applying.applied_index:
            raise AppliedEntriesCutError(cut, self._applying.applied_index)
        for entries in ready.entries:  # 3
            store.append(entries)
        if store.wants_ahead and not self._is_ahead_asked:
            self._is_ahead_asked = True
            self._keeper.run(store.begin_ahead).addBoth(self._ahead_ended)
        for message in ready.messages:  # 4
            self._connections.send(message)
        if ready.persist_id is not None or ready.messages_after_persist:
            self._finish_later(ready)
        if ready.committed is not None:  # 7
            self._applying.advance(ready.committed[1])
        if ready.role is not None:
            if ready.role.is_ready_leader:
                # All of former terms is told before it is told of as ready.
                self._apply(raft)
            else:
                # First it is over, then comes what is committed: where this member's own proposals
                # stood, another leader may have put its entries in this very step.
                self.clients.term_changed()
            self._connections.name_leader(ready.role.leader_id)
            self._applying.change_role(ready.role, raft.opening_index)

    def _ahead_ended(self, result: object) -> None:
        self._is_ahead_asked = False
        # Without room it is tried again when the segment is needed.
        if isinstance(result, Failure) and not result.check(DiskFullError):
            self._disk_failed(result)

    def _finish_later(self, ready: Ready) -> None:
        """Sends what testifies to term and vote at once, all else when the entries are durable."""
        answers: list[PushResponse] = []
        for message in ready.messages_after_persist:
            if isinstance(message, PushResponse):
                answers.append(message)
            else:
                self._connections.send(message)
        self._durability.finish(ready.persist_id, answers)

    def _finish(self, persist_id: EntryId | None, answers: Iterable[PushResponse]) -> None:
        """Step 6."""
        for message in answers:
            self._connections.send(message)
        if persist_id is not None and self._raft is not None:
            self._raft.persisted(persist_id)

    def _reported_with_next(self, persist_id: EntryId) -> None:
        if self._raft is not None:
            self._raft.persists_with_next(persist_id)

    def _after_sync(self) -> None:
        self._schedule_turn()
        self._connections.flush()

    def _apply(self, raft: Raft) -> None:
        """Tells the applier what is committed, when it is time for that."""
        applying, is_leader = self._applying, raft.leader_id == self.self_id
        if not self._is_running:
            return
        if not self._apply_times.may_apply(is_leader=is_leader, has_more=applying.has_more):
            return
        try:
            is_told = applying.apply()
        except (ApplierBehindError, DiskFullError) as error:
            self._log_wait(error)
            self._apply_times.hold(ROOM_RETRY_S)
            return
        if is_told:
            raft.applied(applying.applied_index)
            self.clients.committed(applying.applied_index + 1)
            if applying.has_more:
                self._apply_times.goes_on()
                self._schedule_turn()

    def _log_wait(self, error: BaseException) -> None:
        _log.error(
            "{self_id}: waiting for the disk: {reason}",
            self_id=self.self_id,
            reason=str(error),
        )

    # Time.

    def _arm(self, raft: Raft, now_ms: float) -> None:
        """Makes the clock ring at the next deadline, or before: a call is moved only forward."""
        if not self._is_running:
            return
        core_due_ms = NEVER if self._disk_steps.is_waiting else raft.deadline_ms()
        due_ms = min(core_due_ms, self.clients.deadline_ms(), self.confirming.deadline_ms())
        if self._tick_call is not None:
            if self._tick_at_ms <= due_ms:
                return
            self._tick_call.cancel()
        self._tick_at_ms = due_ms
        delay_s = min(max(due_ms - now_ms, 0.0), 60_000.0) / 1000.0
        self._tick_call = self._reactor.callLater(delay_s, self._tick)

    def _tick(self) -> None:
        self._tick_call = None
        if self._turn_call is not None:
            self._turn_call.cancel()
        self._turn()

    def _keep_up(self) -> None:
        """Background sync of ASYNC_FLUSH, and the checkpoint."""
        self._upkeep_call = self._reactor.callLater(self._flush_s, self._keep_up)
        self._durability.keep_up(self.commit_index, self.now_ms)
        self._birth_log.look(self.now_ms)
