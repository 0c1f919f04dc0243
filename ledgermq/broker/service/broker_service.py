"""BrokerService: builds a broker's parts in order, starts and stops them.

What the ledger tells is carried out by `applier.py`, what time demands by `upkeep.py`.

    start   lock and files -> port -> processors -> ledger member -> timers -> name servers
    stop    no more sends -> name servers -> what waits is committed -> port -> member -> files
"""

import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList, fail, maybeDeferred
from twisted.logger import Logger

from ledgermq import kernel
from ledgermq.broker.access.rules_table import RulesTable
from ledgermq.broker.clients.client_table import ClientTable
from ledgermq.broker.clocks.expiry_clock import ExpiryClock
from ledgermq.broker.clocks.log_times import LogTimes
from ledgermq.broker.config.broker_config import VIP_PORT_DISTANCE, BrokerConfig
from ledgermq.broker.config.built_in_topics import built_in_topics
from ledgermq.broker.counts.rates import Rates
from ledgermq.broker.dispatch import Dispatcher
from ledgermq.broker.ha.replication import check_interval_ms
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.own_messages import state_message
from ledgermq.broker.pulls.long_polling import ParkedPulls
from ledgermq.broker.registration.registration import Registration
from ledgermq.broker.sends.proposals import Limits, Proposals
from ledgermq.broker.service.applier import BrokerApplier
from ledgermq.broker.service.farewell import Farewell, next_step
from ledgermq.broker.service.following import Following
from ledgermq.broker.service.member import replica_config, told_formats
from ledgermq.broker.service.parts import Parts
from ledgermq.broker.service.plain_member import PlainMember
from ledgermq.broker.service.processor_table import Processors, bind_processors
from ledgermq.broker.service.replication import (
    Replication,
    answer_first_of,
    answer_ms_max,
    answer_of,
    ha_address,
    new_replication,
)
from ledgermq.broker.service.schedule import Schedule
from ledgermq.broker.service.store_host import hex_of, resolved
from ledgermq.broker.service.upkeep import Upkeep
from ledgermq.broker.storage.plain_storage import PlainStorage, storage_of
from ledgermq.broker.storage.storage import machine_memory_bytes
from ledgermq.commitlog import DamagedFileError, opening_record
from ledgermq.dledger.replica.driver import Replica
from ledgermq.dledger.store.disk_thread import WorkerThread
from ledgermq.dledger.store.errors import CorruptStoreError
from ledgermq.protocol.tls.files import TlsFiles
from ledgermq.protocol.transport import (
    LOOK_INTERVAL_MS,
    CertificateWatch,
    CommandProtocol,
    CommandServer,
    TurnOutput,
)
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.consumer_offsets import ConsumerOffsetTable
from ledgermq.state.formats import FORMATS, Format, StateFormats
from ledgermq.state.records import body_bytes_max
from ledgermq.state.subscriptions import SubscriptionGroupTable, built_in_groups
from ledgermq.state.topics import TopicTable
from ledgermq.state.under_way import OnCommitted

# Pairs of topic and group that may have offsets.
_OFFSET_KEYS_MAX: Final = 1_000_000

_log = Logger()


class BrokerService:
    """One broker.

    Attributes:
        config: as given.
        leadership: role, term, leader and broker id of the moment.
        address: "host:port" told to clients; the port is known after start.
        messages, clients: what is stored, and who is known by heart beats; for reading.
    """

    def __init__(
        self,
        config: BrokerConfig,
        reactor: Any,
        *,
        on_ready: Callable[[], None] | None = None,
        on_damage: Callable[[], None] | None = None,
        rng: Random | None = None,
        now_ms: Callable[[], int] | None = None,
        disk_thread: WorkerThread | None = None,
        formats: Sequence[Format] = FORMATS,
    ) -> None:
        """Opens nothing yet.

        Args:
            config: all settings.
            reactor: gives TCP, time and threads.
            on_ready: called each time this member begins to serve as the leader.
            on_damage: called when a file gave bytes that nobody wrote: stop, and start a new one.
            rng: draws election times and queues; None for one seeded by the system.
            now_ms: wall clock, which is believed whatever it says; None for that of the system.
            disk_thread: waits for the disk; None: one of its own.
            formats: of the records of the state.

        Raises:
            TlsSettingsError: a certificate cannot be used.
        """
        self.config = config
        self._reactor = reactor
        self._on_ready, self._on_damage = on_ready, on_damage
        # What was found damaged first; None while all is well.
        self._damage: Exception | None = None
        self._rng, self._now_ms = rng or Random(), now_ms or wall_clock_ms
        self._port = config.listen_port
        self_id, is_slave = config.ledger_self_id, config.is_slave
        self.leadership = Leadership(self_id, config.follower_broker_id, is_slave=is_slave)
        self._schedule = Schedule(reactor)
        self._output = TurnOutput(reactor)
        self._clients = self.clients = ClientTable(config.heart_beat_groups_max)
        self._parked, self._rates = ParkedPulls(config.parked_pulls_max), Rates()
        self._rules = RulesTable(config.acl_file, self._now_ms) if config.is_acl_on else None
        self.state = self._new_state(StateFormats(formats))
        self._storage = storage_of(config)(config, reactor, self.state, self._now_ms, disk_thread)
        self._messages = self.messages = self._storage.messages
        self._log_times = LogTimes(self._messages, self._now_ms, self._clock_ms)
        steady_ms = None if now_ms else self._clock_ms
        self._expiry = ExpiryClock(self._now_ms, steady_ms, self._log_times)
        self._dispatcher = self._new_dispatcher()
        self._tls = TlsFiles(config.tls_file, config.tls_mode, is_client=config.uses_tls)
        self._server = self._new_server(config.listen_port)
        # The port for clients that use upstream's VIP channel.
        vip_port = config.listen_port - VIP_PORT_DISTANCE
        self._vip_server = self._new_server(vip_port) if config.has_vip_port else None
        self._registration = self._new_registration()
        self._following = self._new_following()
        # Made by start.
        self._proposals: Proposals | None = None
        self._processors: Processors | None = None
        self._member: Replica | PlainMember | None = None
        # None with a ledger, whose members replicate it themselves.
        self._replication: Replication | None = None
        self._stopped: Deferred[None] | None = None

    def _new_state(self, formats: StateFormats) -> BrokerState:
        config = self.config
        state = BrokerState(
            TopicTable(config.topics_max, knows_light_queues=config.knows_light_queues),
            SubscriptionGroupTable(config.groups_max, knows_light_queues=config.knows_light_queues),
            ConsumerOffsetTable(_OFFSET_KEYS_MAX, knows_light_queues=config.knows_light_queues),
            write=self._write_state,
            body_bytes_max=body_bytes_max(config.segment_bytes),
            now_ms=self._now_ms,
            clock_ms=self._clock_ms,
            call_at_end_of_turn=self._schedule.soon,
            auto_create_groups=config.auto_create_groups,
            on_topics_changed=lambda: self._registration.topics_changed(),
            on_topic_removed=self._topic_removed,
            formats=formats,
        )
        state.access = self._rules
        return state

    def _new_dispatcher(self) -> Dispatcher:
        send_fields = {
            "MSG_REGION": self.config.region_id,
            "TRACE_ON": "true" if self.config.is_trace_on else "false",
        }
        return Dispatcher(send_fields=send_fields, on_connection_lost=self._connection_lost)

    def _new_following(self) -> Following:
        return Following(
            self._reactor,
            self._output,
            self._tls.client,
            self.leadership,
            self.state,
            self._registration,
        )

    def _new_registration(self) -> Registration:
        return Registration(
            self.config,
            self.leadership,
            self.state.topics,
            reactor=self._reactor,
            output=self._output,
            address=lambda: self.address,
            ha_address=lambda: self.replication_address,
            tls=self._tls.client,
        )

    def _new_server(self, port: int) -> CommandServer:
        config = self.config
        return CommandServer(
            self._reactor,
            self._dispatcher,
            config.bind_host,
            port,
            connections_max=config.connections_max,
            connections_per_host_max=config.connections_per_host_max,
            connections_per_host_rate=config.connections_per_host_rate,
            idle_timeout_s=config.idle_seconds_max,
            output=self._output,
            tls=self._tls.server,
        )

    # What others may ask.

    @property
    def role(self) -> str:
        """LEADER, FOLLOWER or CANDIDATE; UNKNOWN before the ledger told, FAILED when it stopped."""
        return self.leadership.role

    @property
    def broker_id(self) -> int:
        """0 for a leader that serves, else the member's own number, -1 before a role is known."""
        return self.leadership.broker_id

    @property
    def is_serving(self) -> bool:
        """True while sends are taken."""
        return self.leadership.is_serving

    @property
    def has_failed(self) -> bool:
        """Whether this broker can do no more until it is started again; not while it repairs."""
        return self.role == "FAILED" and self._damage is None

    @property
    def address(self) -> str:
        """Where clients connect to."""
        return f"{self.config.address_host}:{self._port}"

    @property
    def ledger_address(self) -> str:
        """Where the other members connect to."""
        peer = self.config.own_peer
        return f"{peer.host}:{peer.port}"

    @property
    def replication_address(self) -> str:
        """Where slaves connect to; nobody listens there with a ledger."""
        return ha_address(self.config, self._replication)

    @property
    def registered_with(self) -> list[str]:
        """Addresses of the name servers that know this broker under its present id."""
        return [
            address
            for address, server in self._registration.servers.items()
            if server.is_registered and server.registered_id == self.broker_id
        ]

    # Start.

    def start(self) -> Deferred[None]:
        """Opens files and ports and joins the group.

        Returns:
            A Deferred that fires when this member takes part, in whatever role. It fails, and
            nothing is left running, when files cannot be used or a port is taken.
        """
        config = self.config
        _report_keys(config)
        try:
            if self._rules is not None:
                self._rules.load()
            self._storage.open()
            if self._rules is not None:
                self._rules.write_by(self._storage.keeper)
        except Exception:
            return fail()
        started: Deferred[Any] = self._server.start()
        started.addCallback(self._join)
        if self._vip_server is not None:
            vip_server = self._vip_server
            started.addCallback(lambda _: vip_server.start())
        started.addCallback(self._start_replication)
        started.addCallback(self._run)
        started.addErrback(self._give_up)
        return started

    def _join(self, port: int) -> Deferred[None]:
        """Builds what needs the port, and starts the ledger member."""
        config = self.config
        self._port = port
        store_host = (resolved(config.address_host), port)
        self._proposals = Proposals(
            self._messages,
            limits=Limits(
                config.waiting_sends_max, config.waiting_bytes_max, answer_ms_max(config)
            ),
            call_at_end_of_turn=self._schedule.soon,
            clock_ms=self._clock_ms,
            store_host_hex=hex_of(store_host),
            region_id=config.region_id,
            is_trace_on=config.is_trace_on,
            refuse=self._dispatcher.refuse,
        )
        self._processors = bind_processors(
            Parts(
                config=config,
                leadership=self.leadership,
                state=self.state,
                clients=self._clients,
                parked=self._parked,
                proposals=self._proposals,
                messages=self._messages,
                rates=self._rates,
                rules=self._rules,
                store_host=store_host,
                machine_memory_bytes=machine_memory_bytes(),
                clean_soon=self._storage.clean_soon,
                relay_offset=self._following.relay.take,
                now_ms=self._now_ms,
                clock_ms=self._clock_ms,
                expiry_ms=self._expiry.now_ms,
                soon=self._schedule.soon,
                rng=self._rng,
            )
        )
        self._store_host = store_host
        self._dispatcher.install(self._processors.table, self._processors.take_frames)
        self._replication = new_replication(
            config, self._reactor, self._storage, self._proposals, self._registration.find_ha_master
        )
        self._applier = BrokerApplier(
            config.ledger_self_id,
            self.leadership,
            self.state,
            self._messages,
            self._proposals,
            self._processors.pulls,
            self._output,
            topics=built_in_topics(config),
            groups=built_in_groups(),
            answer=answer_of(self._proposals, self._replication),
            answer_first=answer_first_of(self._proposals, self._replication),
            on_role_changed=self._role_changed,
            on_ready=self._ready,
        )
        self._member = self._new_member()
        self._proposals.on_appended = self._member.take_turn
        if isinstance(self._member, PlainMember):
            self._proposals.make_room = self._member.make_room
        self._messages.on_damage(self._damage_found)
        return self._member.start(applied_index=self._messages.dispatched_index)

    def _new_member(self) -> Replica | PlainMember:
        config, storage = self.config, self._storage
        if isinstance(storage, PlainStorage):
            member = PlainMember(
                self._reactor,
                storage.log,
                self._applier,
                is_slave=config.broker_role == "SLAVE",
                is_sync_flush=config.flush_disk_type == "SYNC_FLUSH",
                self_id=config.ledger_self_id,
                opening_record=lambda: self._opening_record(1, b""),
                keeper=storage.keeper,
            )
            if self._replication is not None:
                member.on_turn = self._replication.log_advanced
            return member
        replica = Replica(
            replica_config(config),
            self._reactor,
            storage.ledger_store,
            storage.vote_file,
            storage.codec,
            self._rng,
            self._applier,
            self._opening_record,
            keeper=storage.keeper,
            repair_mark=storage.repair_mark,
            formats=told_formats(self.state),
        )
        self.state.formats.group = replica.formats
        self._messages.attach(replica)
        return replica

    def _start_replication(self, _: object) -> Deferred[Any] | None:
        return None if self._replication is None else self._replication.start()

    def _run(self, _: object) -> None:
        config = self.config
        assert self._processors is not None and self._proposals is not None
        assert self._member is not None
        Upkeep(
            config,
            self.leadership,
            self.state,
            self._storage,
            self._proposals,
            self._processors,
            self._registration,
            self._rates,
            self._member,
            self._expiry,
            self._log_times,
            clock_ms=self._clock_ms,
            flush_failed=self._flush_failed,
            damage_found=self._damage_found,
        ).start(self._schedule)
        self._following.start(
            self._member, self._schedule, mirrors_tables=self._replication is not None
        )
        if self._replication is not None:
            self._schedule.every(check_interval_ms(config), self._replication.check)
        if self._tls.is_in_use:
            self._schedule.every(LOOK_INTERVAL_MS, CertificateWatch(self._tls).look)
        self._registration.start()
        _log.info(
            "broker {name} at {address}, member {member} of {group}, ledger at {ledger},"
            " kernel {kernel}",
            name=config.broker_name,
            address=self.address,
            member=config.ledger_self_id,
            group=config.ledger_group,
            ledger=self.ledger_address,
            kernel=kernel.describe(),
        )

    def _give_up(self, failure: Any) -> Deferred[Any]:
        """Undoes a start that failed, and lets the failure go on."""
        return self.stop().addBoth(lambda _: failure)

    # Stop.

    def stop(self) -> Deferred[None]:
        """Stops gracefully: no more sends, what waits is committed, clients are told, files are
        closed.

        Returns:
            A Deferred that fires when nothing is left running, shutdownWaitTimeSeconds and a few
            seconds later at the latest.
        """
        if self._stopped is not None:
            return self._stopped
        stopped: Deferred[None] = Deferred()
        self._stopped = stopped
        if self.leadership.is_serving:
            self.state.write_offsets()
        self.leadership.stop()
        # Name servers are told first, but nobody waits for a slow one before the group is left.
        unregistered = self._registration.unregister()
        farewell = Farewell(self.leadership, self._schedule, self._clock_ms)
        wait_ms = self.config.drain_seconds_max * 1000
        steps: Deferred[Any] = farewell.drain(self._proposals, wait_ms)
        for step in (
            lambda: farewell.hand_over(self._member),
            self._close_port,
            self._following.stop,
            self._end_replication,
            self._leave_group,
            self._storage.stop_keeper,
            lambda: unregistered,
            self._registration.stop,
            self._close_files,
        ):
            steps.addBoth(next_step, step)
        steps.addBoth(self._finish)
        return stopped

    def abandon(self) -> None:
        """Gives the files back as they are, as the end of the process would: nothing is written.

        Whoever owns reactor and disk thread has ended all that this broker had of them.
        """
        self._storage.abandon()

    def _close_port(self) -> Deferred[Any]:
        if self._processors is not None:
            self._processors.pulls.answer_all()
        if self._proposals is not None:
            self._proposals.fail_all(self.leadership.refusal())
        servers = [self._server, *([] if self._vip_server is None else [self._vip_server])]
        return DeferredList([server.stop() for server in servers])

    def _end_replication(self) -> Deferred[Any] | None:
        return None if self._replication is None else self._replication.stop()

    def _leave_group(self) -> Deferred[Any]:
        if self._member is None:
            return maybeDeferred(lambda: None)
        self.state.follow()
        return self._member.stop()

    def _close_files(self) -> None:
        self._schedule.stop()
        self._storage.close()

    def _finish(self, result: Any) -> None:
        self._output.stop()
        assert self._stopped is not None
        self._stopped.callback(result)

    # Parts calling back.

    def _opening_record(self, term: int, last: bytes) -> bytes:
        """Returns what begins a time in which this member stores, behind the log's last record."""
        self._log_times.begin_to_store()
        return opening_record(term, self._store_host, self._messages.next_store_time(last))

    def _write_state(self, bodies: Sequence[bytes], done: OnCommitted) -> None:
        assert self._proposals is not None
        host, now_ms = self._store_host, self._now_ms()
        messages = [state_message(body, host, now_ms) for body in bodies]
        self._proposals.add_own(messages, lambda _, error: done(error))

    def _role_changed(self) -> None:
        failure = self._member.failure if self._member is not None else None
        if isinstance(failure, CorruptStoreError):
            self._damage_found(failure)
        if failure is not None:
            # What cannot be served is not copied on either.
            self._end_replication()
        self._schedule.soon(self._registration.register)

    def _ready(self) -> None:
        assert self._processors is not None
        # From now on the time to the first round of checks is counted.
        self._processors.transactions.run()
        if self._on_ready is not None:
            self._schedule.soon(self._on_ready)

    def _topic_removed(self, name: str) -> None:
        self._messages.delete_topic(name)

    def _connection_lost(self, connection: CommandProtocol) -> None:
        self._parked.connection_lost(connection)
        if self._processors is not None:
            self._processors.clients.connection_lost(connection)

    def _clock_ms(self) -> float:
        seconds: float = self._reactor.seconds()
        return seconds * 1000.0

    def _damage_found(self, error: Exception) -> None:
        """Leaves the group at once: nothing more is served of files that cannot be trusted."""
        if self._damage is not None or self._stopped is not None:
            return
        if isinstance(self._storage, PlainStorage) and not _is_derived(error):
            # Nobody has another copy, and what is not damaged is served on.
            self._storage.note_damage(error)
            return
        self._damage = error
        _log.error("{member}: {error}", member=self.config.ledger_self_id, error=error)
        self._storage.distrust(error)
        self._flush_failed(error)
        if self._on_damage is not None:
            self._schedule.soon(self._on_damage)

    def _flush_failed(self, error: BaseException) -> None:
        """A failed flush is final for this member: it leaves the group and says so."""
        if self._stopped is None and self._member is not None:
            self._member.stop()
            self._applier.failed(error)


def _is_derived(error: Exception) -> bool:
    """Whether what is damaged can be made again from the log."""
    return isinstance(error, DamagedFileError) and error.is_derived


def wall_clock_ms() -> int:
    """Returns ms since 1970."""
    return time.time_ns() // 1_000_000


def _report_keys(config: BrokerConfig) -> None:
    if config.unknown_keys:
        _log.warn("unknown configuration keys: {keys}", keys=", ".join(config.unknown_keys))
    if config.ineffective_keys:
        keys = ", ".join(config.ineffective_keys)
        _log.info("configuration keys accepted without effect: {keys}", keys=keys)
