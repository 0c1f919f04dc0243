"""Serving: the parts of a broker that need its port: processors, the ledger's member, replication.

They are built when the port is known, bound to the ground, and run from `start` to `leave`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from twisted.internet.defer import Deferred

from ledgermq.broker.clocks.clock_guard import ClockGuard, back_to_clock
from ledgermq.broker.config.built_in_topics import built_in_topics
from ledgermq.broker.config.memory import machine_memory_bytes
from ledgermq.broker.ha.plain_member import PlainMember
from ledgermq.broker.ha.replication import check_interval_ms
from ledgermq.broker.ha.roles import answer_first_of, answer_ms_max, answer_of, new_replication
from ledgermq.broker.sends.proposals import Limits, Proposals
from ledgermq.broker.service.ground import Ground
from ledgermq.broker.service.member import (
    lead_confirmation,
    read_confirmation,
    reads_text,
    replica_config,
    told_formats,
)
from ledgermq.broker.service.parts import Parts
from ledgermq.broker.service.processor_table import bind_processors
from ledgermq.broker.service.store_host import hex_of, resolved
from ledgermq.broker.service.timers import Timers
from ledgermq.broker.storage.applier import BrokerApplier
from ledgermq.broker.storage.broker_store import propose_records
from ledgermq.broker.storage.disk_care import DiskCare
from ledgermq.broker.storage.plain_storage import PlainStorage
from ledgermq.broker.watching.spare_memory import LOOK_MS as MEMORY_LOOK_MS
from ledgermq.broker.watching.spare_memory import find_spare_memory
from ledgermq.commitlog import opening_record
from ledgermq.dledger.replica.driver import Replica
from ledgermq.protocol.transport import LOOK_INTERVAL_MS, CertificateWatch
from ledgermq.state.subscriptions import built_in_groups
from ledgermq.state.under_way import OnCommitted

# What is joined or was lost is told so long after it can be.
_AUDIT_MS: Final = 1000
# Between two tries to store what is built in.
_BUILT_IN_MS: Final = 1000


class Serving:
    """What takes, stores and gives messages; for composition only, no part is given it."""

    def __init__(
        self,
        ground: Ground,
        port: int,
        *,
        role_changed: Callable[[], None],
        ready: Callable[[], None],
    ) -> None:
        """Builds and binds the parts.

        Args:
            port: that clients connect to.
            role_changed: called after each change of the member's role.
            ready: called when it begins to serve.
        """
        config, messages, storage = ground.config, ground.messages, ground.storage
        self._ground = ground
        self._store_host, self.port = (resolved(config.address_host), port), port
        self.store_host_hex = hex_of(self._store_host)
        self.proposals = Proposals(
            messages,
            limits=Limits(
                config.waiting_sends_max, config.waiting_bytes_max, answer_ms_max(config)
            ),
            call_at_end_of_turn=ground.schedule.soon,
            clock_ms=ground.clock_ms,
            store_host_hex=self.store_host_hex,
            region_id=config.region_id,
            is_trace_on=config.is_trace_on,
            refuse=ground.dispatcher.refuse,
        )
        self.processors = bind_processors(self._parts())
        if config.slow_request_ms:
            self.proposals.times.slow_ms = config.slow_request_ms
            self.proposals.on_slow = ground.dispatcher.times.sent_slowly
            ground.dispatcher.times.followers = lambda: ground.leadership.followers
        ground.dispatcher.install(
            self.processors.table, self.processors.take_frames, self.processors.admits_large
        )
        # None with a ledger, whose members replicate it themselves.
        self.replication = new_replication(
            config, ground.reactor, storage, self.proposals, ground.registration.find_ha_master
        )
        self.applier = BrokerApplier(
            config.ledger_self_id,
            ground.leadership,
            ground.state,
            messages,
            self.proposals,
            self.processors.pulls,
            ground.output,
            topics=built_in_topics(config),
            groups=built_in_groups(),
            answer=answer_of(self.proposals, self.replication),
            answer_first=answer_first_of(self.proposals, self.replication),
            on_role_changed=role_changed,
            on_ready=ready,
            doubt=lambda: storage.state_repair.doubt,
        )
        self.member = self._new_member()
        self.proposals.on_appended = self.member.take_turn

    def _parts(self) -> Parts:
        ground = self._ground
        return Parts(
            config=ground.config,
            leadership=ground.leadership,
            state=ground.state,
            clients=ground.clients,
            parked=ground.parked,
            times=ground.dispatcher.times,
            proposals=self.proposals,
            messages=ground.messages,
            cold_reader=ground.storage.pull_reader,
            rates=ground.rates,
            rules=ground.rules,
            audit=None if ground.audit is None else ground.audit.watch,
            store_host=self._store_host,
            machine_memory_bytes=machine_memory_bytes(),
            clean_soon=ground.storage.clean_soon,
            topics_told=ground.registration.told,
            relay_offset=ground.following.relay.take,
            now_ms=ground.now_ms,
            clock_ms=ground.clock_ms,
            expiry_ms=ground.expiry.now_ms,
            soon=ground.schedule.soon,
            rng=ground.rng,
        )

    def _new_member(self) -> Replica | PlainMember:
        ground, config, storage = self._ground, self._ground.config, self._ground.storage
        if isinstance(storage, PlainStorage):
            member = PlainMember(
                ground.reactor,
                storage.log,
                self.applier,
                is_slave=config.broker_role == "SLAVE",
                is_sync_flush=config.flush_disk_type == "SYNC_FLUSH",
                self_id=config.ledger_self_id,
                opening_record=lambda: self._opening_record(1, b""),
                keeper=storage.keeper,
            )
            if config.trusts_clock:
                limit_ms = config.clock_skew_max_ms
                judge = partial(back_to_clock, limit_ms=limit_ms)
                ground.messages.store_times.set_judge(judge, limit_ms)
            self.proposals.make_room = member.make_room
            if self.replication is not None:
                member.on_turn = self.replication.log_advanced
                member.refusals = self.replication.refusals
            return member
        replica = Replica(
            replica_config(config),
            ground.reactor,
            storage.ledger_store,
            storage.vote_file,
            storage.codec,
            ground.rng,
            self.applier,
            self._opening_record,
            keeper=storage.keeper,
            cold_reader=storage.log_reader,
            repair_mark=storage.repair_mark,
            formats=told_formats(ground.state, storage.state_repair),
            wall_ms=ground.now_ms,
        )
        guard = ground.clock_guard = ClockGuard(
            replica.clocks, ground.leadership, trusts_clock=config.trusts_clock
        )
        ground.messages.store_times.set_judge(guard.store_time, guard.limit_ms)
        ground.state.formats.group = replica.formats
        ground.state.confirm_lead = lead_confirmation(replica)
        ground.leadership.confirm_read = read_confirmation(
            replica, ground.state, lambda: storage.ledger_store.first_index
        )
        ground.leadership.tell_reads = partial(reads_text, replica)
        if ground.audit is not None:
            replica.clients.on_hand_over = ground.audit.watch.handed_over
        ground.messages.attach(replica)
        return replica

    def _opening_record(self, term: int, last: bytes) -> bytes:
        """Returns what begins a time in which this member stores, behind the log's last record."""
        self._ground.log_times.begin_to_store()
        return opening_record(term, self._store_host, self._ground.messages.next_store_time(last))

    def write_state(self, bodies: Sequence[bytes], done: OnCommitted) -> None:
        """Proposes records of the state; `done` hears what became of them."""
        propose_records(self.proposals, bodies, self._store_host, self._ground.now_ms(), done)

    def start_member(self) -> Deferred[None]:
        """Joins the group; fires when this member takes part, in whatever role."""
        return self.member.start(applied_index=self._ground.messages.dispatched_index)

    def start_replication(self, _: object) -> Deferred[Any] | None:
        """Listens for slaves, or connects to the master; nothing with a ledger."""
        return None if self.replication is None else self.replication.start()

    def start_timers(
        self,
        flush_failed: Callable[[BaseException], None],
        damage_found: Callable[[Exception], None],
    ) -> None:
        """Begins what is done from time to time.

        Args:
            flush_failed: told when the disk refuses, or is another one, which is final.
            damage_found: told of bytes on disk that are not what was written.
        """
        ground, config, schedule = self._ground, self._ground.config, self._ground.schedule
        Timers(ground, self.proposals, self.processors, self.member, flush_failed).start()
        schedule.every(_BUILT_IN_MS, self.applier.look)
        DiskCare(
            config,
            ground.leadership,
            ground.storage,
            self.member,
            expiry_ms=ground.expiry.now_ms,
            flush_failed=flush_failed,
            damage_found=damage_found,
        ).start(schedule)
        if ground.audit is not None:
            schedule.every(_AUDIT_MS, ground.audit.log.tick)
        memory = find_spare_memory()
        if memory is not None:
            schedule.every(MEMORY_LOOK_MS, memory.look)
        replication = self.replication
        ground.following.start(self.member, schedule, mirrors_tables=replication is not None)
        if replication is not None:
            schedule.every(check_interval_ms(config), replication.check)
            if replication.tls is not None:
                schedule.every(LOOK_INTERVAL_MS, CertificateWatch(replication.tls).look)
        if ground.tls.is_in_use:
            schedule.every(LOOK_INTERVAL_MS, CertificateWatch(ground.tls).look)
        member_tls = None if isinstance(self.member, PlainMember) else self.member.config.tls
        if member_tls is not None:
            schedule.every(LOOK_INTERVAL_MS, CertificateWatch(member_tls.files).look)
