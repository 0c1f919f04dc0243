"""A simulated machine and the broker process on it: production code on a simulated disk.

The disk and a few numbers outlive the process. A process ends by a kill (its page cache stays), by
a power cut (what was not synced may be lost), by a stop inside any operation of the disk, or by
itself when its disk fails; then somebody starts it again.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, cast

from ledgermq.broker.service.member import told_formats
from ledgermq.commitlog import MessageStore, StoreConfig, UnreadRecordError, opening_record
from ledgermq.dledger.entry import INDEX_UNIT, INDEX_UNIT_BYTES, EntryCodec, EntrySlice
from ledgermq.dledger.errors import LedgerError
from ledgermq.dledger.messages import PeerDialect
from ledgermq.dledger.raft import Raft
from ledgermq.dledger.replica.config import FlushDiskType, ReplicaConfig
from ledgermq.dledger.replica.driver import Replica
from ledgermq.dledger.storage import HardState, VoteStore
from ledgermq.dledger.store.errors import (
    CorruptStoreError,
    DiskFullError,
    MembershipError,
    StoreFailedError,
    StoreFormatError,
    VoteStateLostError,
)
from ledgermq.dledger.store.keeper import Keeper
from ledgermq.dledger.store.marks import DURABLE, START
from ledgermq.dledger.store.opening import RecoveryReport
from ledgermq.dledger.store.repair_mark import RepairMark
from ledgermq.dledger.store.text_file import parse_int, unseal
from ledgermq.dledger.store.vote_file import VoteFile
from ledgermq.protocol.checksum import crc32c
from ledgermq.protocol.record import PHYSICAL_OFFSET_OFFSET
from ledgermq.state.errors import BrokerError
from ledgermq.state.formats import FORMATS, Format
from ledgermq.testing.simulation.broker import STORE_HOST, SimBroker
from ledgermq.testing.simulation.clock import SimReactor, Timeline
from ledgermq.testing.simulation.disk import MachineStoppedError, SimDisk
from ledgermq.testing.simulation.network import Network, SimLinks
from ledgermq.testing.simulation.plan import Plan
from ledgermq.testing.simulation.thread import SimThread
from ledgermq.testing.simulation.watched import Watch, WatchedStore, WatchedVotes

ROOT: Final = "/store"
GROUP: Final = "sim"
_INDEX_UNITS: Final = 64
_CODEC: Final = EntryCodec(crc32c, PHYSICAL_OFFSET_OFFSET)
_WALL_START_MS: Final = 1_700_000_000_000
# What a member may have waiting for a majority, and open of its derived files.
PROPOSALS_MAX: Final = 400
OPEN_FILES_MAX: Final = 6
# What may wait for a disk: two of the largest pushes, and the room kept for short messages.
INBOX_BYTES_MAX: Final = (256 << 10) + (160 << 10)
_STORE_CONFIG: Final = StoreConfig(
    root=ROOT,
    queue_segment_bytes=20 * 50,
    index_slot_count=20,
    index_entry_count=60,
    open_files_max=OPEN_FILES_MAX,
    flush_interval_ms=1_000,
    flush_records=200,
)


class SimMember:
    """One machine with its process."""

    def __init__(
        self,
        member_id: str,
        plan: Plan,
        timeline: Timeline,
        network: Network,
        rng: random.Random,
        topics: Sequence[str],
        hit: Callable[[str], None],
    ) -> None:
        """The machine runs, the process does not yet."""
        self.id = member_id
        self.plan = plan
        self._timeline = timeline
        self._network = network
        self._rng = rng
        self._topics = topics
        self.hit = hit
        self.disk = SimDisk(random.Random(rng.random()), hit)
        self.directory = f"{ROOT}/dledger-{member_id}"
        # Distance of the wall clock to simulated time.
        self.wall_offset_ms = _WALL_START_MS
        # Mean of the time of a sync.
        self.sync_ms = plan.sync_ms
        # Counts processes.
        self.incarnation = 0
        # Formats of the program that is installed: the next process runs it.
        self.formats: Sequence[Format] = FORMATS
        # As configured when the process starts; whoever runs the group takes it away when that is
        # born, as they are told to.
        self.founder_ids = plan.founder_ids
        # The member list that the next process is configured with.
        self.configured_ids = self.running_ids = plan.ids
        # Its disk may hold no list that tells a wrong one: a script watches it.
        self.takes_any_list = False
        # The invariant that a forged message wants to break in this process; empty: none was sent.
        self.deceived_about = ""
        # When the process went on after it was stopped for a while.
        self.resumed_ms = 0.0
        self.reactor: SimReactor | None = None
        self.store: WatchedStore | None = None
        self.replica: Replica | None = None
        self.broker: SimBroker | None = None
        # Why the process cannot start, for the disk is damaged; None when it can.
        self.refusal: LedgerError | None = None
        # Why it could not start just now.
        self.start_failure: Exception | None = None
        # Set by the world.
        self.watch: Watch = _ignore_change
        self.watch_vote: Callable[[HardState], None] = _ignore_vote
        self.on_stopped: Callable[[SimMember], None] = _ignore_stop
        self.on_turn: Callable[[SimMember], None] = _ignore_stop
        self.on_serving: Callable[[SimMember], None] = _ignore_stop
        # Told the index and the body of each record of the broker's state that was applied.
        self.on_state_applied: Callable[[SimMember, int, bytes], None] = _ignore_applied
        # Told each record of the state that its leader proposes.
        self.on_state_proposed: Callable[[SimMember, bytes], None] = _ignore_record
        # Told the format that its leader chooses for a record of the state.
        self.on_format_chosen: Callable[[SimMember, int], None] = _ignore_format
        # Whether a client of a group is connected to it.
        self.is_live: Callable[[SimMember, str], bool] = _is_live
        self.on_dropped: Callable[[SimMember], None] = _ignore_stop
        self.on_damage: Callable[[SimMember, CorruptStoreError], None] = _ignore_damage
        self.on_found: Callable[[SimMember, Exception], None] = _ignore_found
        self.on_opened: Callable[[SimMember, RecoveryReport], None] = _ignore_report
        self.refuse: Callable[[Any, int, int, BrokerError], None] = _ignore_refusal

    # -- what the world sees

    @property
    def is_running(self) -> bool:
        """Whether the process runs; a paused one does."""
        return self.reactor is not None

    @property
    def is_paused(self) -> bool:
        """Whether the process runs, and is stopped for a while."""
        return self.reactor is not None and self.reactor.is_paused

    @property
    def raft(self) -> Raft | None:
        """The core, while it runs."""
        replica = self.replica
        return replica._raft if replica is not None and replica.failure is None else None

    @property
    def running_reads(self) -> int:
        """Newest format that the process reads; 0 while none runs."""
        return 0 if self.broker is None else self.broker.state.formats.reads

    def wall_ms(self) -> int:
        """The wall clock of this machine."""
        return int(self.wall_offset_ms + self._timeline.now_ms)

    def term_on_platter(self, index: int, term: int, position: int) -> bool:
        """Tells whether this entry would be there after a power cut."""
        return self._entry_at(index, term, position, is_platter=True)

    def term_in_cache(self, index: int, term: int, position: int) -> bool:
        """Tells whether this entry would be there after a kill."""
        return self._entry_at(index, term, position, is_platter=False)

    def _entry_at(self, index: int, term: int, position: int, *, is_platter: bool) -> bool:
        start = position - position % self.plan.segment_bytes
        path = f"{self.directory}/data/{start:020d}"
        names = self.disk.durable_names if is_platter else self.disk.files
        file = names.get(path)
        if file is None:
            return False
        content = file.durable if is_platter else file.content
        offset = position - start
        found_index = int.from_bytes(content[offset + 8 : offset + 16], "big")
        found_term = int.from_bytes(content[offset + 16 : offset + 24], "big")
        size = int.from_bytes(content[offset + 4 : offset + 8], "big")
        return found_index == index and found_term == term and size > 0

    def durable_end(self) -> tuple[int, int]:
        """Returns the index, and the end position, up to which the store vouches for its log."""
        claim, begin = (
            unseal(self.disk.texts.get(f"{self.directory}/{name}", b"")) or {}
            for name in (DURABLE, START)
        )
        # A claim of an earlier generation was taken back.
        if (parse_int(begin, "generation") or 0) > (parse_int(claim, "generation") or 0):
            claim = begin
        index = parse_int(claim, "durable_index")
        if index is None or index < 0:
            return -1, 0
        unit_at = index * INDEX_UNIT_BYTES
        start = unit_at - unit_at % (INDEX_UNIT_BYTES * _INDEX_UNITS)
        file = self.disk.files.get(f"{self.directory}/index/{start:020d}")
        if file is None:
            return -1, 0
        _, position, size, _, _ = INDEX_UNIT.unpack_from(file.content, unit_at - start)
        return index, position + size

    # -- life

    def start(self) -> None:
        """Starts the process on what the disk holds."""
        assert self.reactor is None
        self.disk.restart()
        self.disk.wall_ms = self.wall_ms()
        self.incarnation += 1
        self.refusal = self.start_failure = None
        self.deceived_about = ""
        self.broker = None
        self.reactor = SimReactor(self._timeline, self.enter)
        self.enter(self._start)

    def enter(self, piece: Callable[..., object], *arguments: Any) -> None:
        """Runs a piece of the program; ends it when the machine stopped meanwhile."""
        try:
            piece(*arguments)
        except MachineStoppedError:
            pass
        if self.disk.is_stopped:
            self.on_stopped(self)
        elif self.reactor is not None:
            self.on_turn(self)

    def make_store(self, disk: SimDisk) -> WatchedStore:
        """Returns this member's log on a disk; it is not open."""
        return WatchedStore(
            disk, self.directory, self.plan.segment_bytes, 32 * _INDEX_UNITS, _CODEC
        )

    def make_messages(self, disk: SimDisk, store: WatchedStore) -> MessageStore:
        """Returns this member's messages on a disk; they are not open."""
        data = store.data
        return MessageStore(
            _STORE_CONFIG,
            store,
            disk,
            self.wall_ms,
            data.read,
            segment_at=data.segment_at,
            mode=store.mode,
        )

    def _start(self) -> None:
        plan, disk, reactor = self.plan, self.disk, self.reactor
        assert reactor is not None
        store = self.store = self.make_store(disk)
        store.watch = self.watch
        is_given = self._has_list or self.takes_any_list
        ids = self.running_ids = self.configured_ids if is_given else plan.ids
        votes = VoteFile(disk, self.directory, self.id, group=GROUP, members=ids)
        mark = RepairMark(disk, self.directory)
        try:
            # As the broker: before any file changes.
            with suppress(VoteStateLostError):
                votes.load()
            report = self._open(store, mark)
        except (OSError, DiskFullError, MembershipError) as error:
            self.start_failure = error
            return
        except (CorruptStoreError, StoreFormatError) as error:
            self.refusal = error
            self.hit("damage found at start")
            return
        else:
            self.on_opened(self, report)
        thread = SimThread(reactor, disk, self._draw_sync_ms)
        keeper = Keeper(cast(Any, reactor), thread)
        messages = self.make_messages(disk, store)
        broker = self.broker = SimBroker(
            self.id,
            self._topics,
            disk,
            reactor,
            keeper,
            messages,
            plan,
            self.wall_ms,
            self._refuse,
            self.formats,
        )
        broker.state.progress.attach(store.term_at, lambda: messages.dispatched_index + 1)
        broker.on_serving = lambda: self.on_serving(self)
        broker.on_state_applied = lambda index, body: self.on_state_applied(self, index, body)
        broker.on_state_proposed = lambda body: self.on_state_proposed(self, body)
        broker.on_format_chosen = lambda version: self.on_format_chosen(self, version)
        broker.is_live = lambda group: self.is_live(self, group)
        broker.on_dropped = lambda: self.on_dropped(self)
        broker.on_damage = lambda error: self.on_found(self, error)
        try:
            broker.open()
        except (OSError, DiskFullError, CorruptStoreError, UnreadRecordError) as error:
            broker.failure = error
            return
        self.replica = self._make_replica(store, votes, mark, broker, keeper)
        broker.attach(self.replica, lambda: store.first_index)
        started = self.replica.start(applied_index=messages.dispatched_index)
        started.addErrback(self._not_started)

    @property
    def _has_list(self) -> bool:
        """Whether the agreed member list is on disk: an empty disk gets no other one."""
        values = unseal(self.disk.read(f"{self.directory}/identity") or b"") or {}
        return values.get("birth_agreed") == "1"

    def _open(self, store: WatchedStore, mark: RepairMark) -> RecoveryReport:
        """Opens the log as the broker's storage does: a damaged one is cut, and recovers."""
        repair = mark.read()
        damages: list[str] = []

        def note(error: CorruptStoreError) -> None:
            damages.append(str(error))
            mark.begin_recovery(str(error))
            self.hit("damage found at start")
            self.on_damage(self, error)

        has_peers = self.plan.member_count > 1
        report = store.open(verify_all=repair is not None, on_damage=note if has_peers else None)
        if repair is not None and not repair.is_recovering and not damages:
            mark.clear()
        return report

    @property
    def is_sync_flush(self) -> bool:
        """Whether this member itself counts what is synced only."""
        return self.plan.is_sync_flush and self.id not in self.plan.async_ids

    def _make_replica(
        self,
        store: WatchedStore,
        votes: VoteFile,
        mark: RepairMark,
        broker: SimBroker,
        keeper: Keeper,
    ) -> Replica:
        plan, reactor, peers = self.plan, self.reactor, self.running_ids
        assert reactor is not None
        flush = FlushDiskType.SYNC_FLUSH if self.is_sync_flush else FlushDiskType.ASYNC_FLUSH
        config = ReplicaConfig(
            group=GROUP,
            self_id=self.id,
            peers=";".join(f"{peer}-127.0.0.1:{i + 1}" for i, peer in enumerate(peers)),
            flush_disk_type=flush,
            clock_skew_max_ms=plan.clock_skew_max_ms,
            checkpoint_interval_ms=1_000,
            timing=plan.timing_of(self.id),
            timing_with_java=plan.java_timing,
            proposals_max=PROPOSALS_MAX,
            push_bytes_max=2_000,
            inbox_bytes_max=INBOX_BYTES_MAX,
            founder_ids=self.founder_ids,
            preferred_leader_ids=plan.preferred_ids,
        )
        peer_ids = tuple(peer for peer in peers if peer != self.id)

        def make_links(_: Any, __: Any, ___: Any, ____: Any, events: Any, _____: Any) -> SimLinks:
            return SimLinks(
                self._network, reactor, self.id, peer_ids, store, _CODEC, events, plan.java_ids
            )

        return Replica(
            config,
            reactor,
            store,
            cast(VoteStore, WatchedVotes(votes, self.watch_vote)),
            _CODEC,
            random.Random(self._rng.random()),
            broker,
            lambda term, last: opening_record(
                term, STORE_HOST, broker.messages.next_store_time(last)
            ),
            repair_mark=mark,
            formats=told_formats(broker.state, broker.store.repair),
            wall_ms=self.wall_ms,
            make_links=make_links,
            keeper=keeper,
        )

    def _not_started(self, failure: Any) -> None:
        """The first sync failed: the process ends."""
        if self.broker is not None and self.broker.failure is None:
            self.broker.failure = failure.value

    def _draw_sync_ms(self) -> float:
        return self._rng.expovariate(1 / self.sync_ms)

    def _refuse(self, connection: Any, opaque: int, _: int, error: BrokerError) -> None:
        self.refuse(connection, opaque, self.incarnation, error)

    def end(self, *, is_power_cut: bool) -> None:
        """The process is gone, at once; the disk is left as the kind of the end has it."""
        if self.reactor is not None:
            self.reactor.end()
        self.reactor = None
        self.replica = self.broker = None
        self.store = None
        self._network.process_ended(self.id)
        if is_power_cut:
            self.disk.cut_power()

    def leave(self, on_left: Callable[["SimMember"], None]) -> None:
        """Stops the process in order; `on_left` is told when it has closed everything."""
        self.enter(self._leave, on_left)

    def _leave(self, on_left: Callable[["SimMember"], None]) -> None:
        broker, store = self.broker, self.store
        if self.raft is None or broker is None or store is None or broker.is_leaving:
            return

        def close(_: object) -> None:
            store.close()

        def end(_: object) -> None:
            if not self.disk.is_stopped and self.start_failure is None:
                on_left(self)

        broker.leave().addCallback(close).addErrback(self._not_closed).addCallback(end)

    def _not_closed(self, failure: Any) -> None:
        """A disk may fail then, too; anything else is a failure of the program."""
        if not failure.check(OSError, DiskFullError, StoreFailedError, MachineStoppedError):
            self.start_failure = failure.value

    def suspect(self, reason: str) -> None:
        """Has the next process look at all of the store, as a scrub that found damage does."""
        self.disk.restart()
        self.disk.free_bytes = None
        try:
            RepairMark(self.disk, self.directory).suspect(reason)
        except OSError:
            # As in the broker: a later read of the damage notes it.
            self.hit("damage could not be noted")

    def pause(self) -> None:
        """The process stops for a while; its sockets keep what comes."""
        if self.reactor is not None:
            self.reactor.is_paused = True

    def resume(self) -> None:
        """The paused process goes on."""
        if self.reactor is not None and self.reactor.is_paused:
            self.resumed_ms = self._timeline.now_ms
            self.reactor.resume()

    def dialect_of(self, peer_id: str) -> PeerDialect:
        """How this member speaks with a peer."""
        is_java = self.id in self.plan.java_ids or peer_id in self.plan.java_ids
        return PeerDialect.JAVA if is_java else PeerDialect.LEDGERMQ


def _ignore_change(what: str, index: int, entries: EntrySlice | None) -> None:
    """Nobody watches."""


def _ignore_applied(member: SimMember, index: int, body: bytes) -> None:
    """Nobody listens."""


def _ignore_format(member: SimMember, version: int) -> None:
    """Nobody listens."""


def _ignore_record(member: SimMember, body: bytes) -> None:
    """Nobody listens."""


def _is_live(member: SimMember, group: str) -> bool:
    """All clients stay."""
    return True


def _ignore_vote(state: HardState) -> None:
    """Nobody watches."""


def _ignore_stop(member: SimMember) -> None:
    """Nobody watches."""


def _ignore_damage(member: SimMember, error: CorruptStoreError) -> None:
    """Nobody watches."""


def _ignore_found(member: SimMember, error: Exception) -> None:
    """Nobody watches."""


def _ignore_report(member: SimMember, report: RecoveryReport) -> None:
    """Nobody watches."""


def _ignore_refusal(connection: Any, opaque: int, incarnation: int, error: BrokerError) -> None:
    """Nobody waits."""
