"""Ground: the parts of a broker that need no port, built in order; nothing is opened yet."""

import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from ledgermq.broker.access.sharing import rules_table_of
from ledgermq.broker.audit.recorder import recorder_of
from ledgermq.broker.clients.client_table import ClientTable
from ledgermq.broker.clients.ports import ClientPorts
from ledgermq.broker.clocks.clock_guard import ClockGuard
from ledgermq.broker.clocks.expiry_clock import ExpiryClock
from ledgermq.broker.clocks.log_times import LogTimes
from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.config.namesrv_account import find_namesrv_account
from ledgermq.broker.config.open_ports import check_open_ports
from ledgermq.broker.counts.rates import Rates
from ledgermq.broker.dispatch import Dispatcher
from ledgermq.broker.ha.following import Following
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.pulls.long_polling import ParkedPulls
from ledgermq.broker.registration.registration import Registration
from ledgermq.broker.request_times import RequestTimes
from ledgermq.broker.storage.plain_storage import storage_of
from ledgermq.dledger.store.disk_thread import WorkerThread
from ledgermq.protocol.tls.files import TlsFiles
from ledgermq.protocol.transport import CommandProtocol, TurnOutput
from ledgermq.protocol.transport.schedule import Schedule
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.consumer_offsets import ConsumerOffsetTable
from ledgermq.state.formats import Format, StateFormats
from ledgermq.state.proposals import StateWriter
from ledgermq.state.records import body_bytes_max
from ledgermq.state.subscriptions import SubscriptionGroupTable
from ledgermq.state.topics import TopicTable

# Pairs of topic and group that may have offsets.
_OFFSET_KEYS_MAX: Final = 1_000_000


class Ground:
    """What the rest of a broker is bound to; for composition only, no part is given it."""

    def __init__(
        self,
        config: BrokerConfig,
        reactor: Any,
        *,
        rng: Random | None,
        now_ms: Callable[[], int] | None,
        disk_thread: WorkerThread | None,
        formats: Sequence[Format],
        address: Callable[[], str],
        ha_address: Callable[[], str],
        write_state: StateWriter,
        connection_lost: Callable[[CommandProtocol], None],
    ) -> None:
        """Builds the parts; the first six arguments are those of BrokerService.

        Args:
            address: of this broker for clients; asked when it is known.
            ha_address: where slaves of this broker copy its log; likewise.
            write_state: stores records of the state, in the log.
            connection_lost: told of each connection of a client that is lost.

        Raises:
            TlsSettingsError: a certificate cannot be used.
            ConfigError: the file of a secret cannot be used, or a port has to be closed.
        """
        self.config, self.reactor = config, reactor
        self.rng, self.now_ms = rng or Random(), now_ms or wall_clock_ms
        self.leadership = Leadership(
            config.ledger_self_id, config.follower_broker_id, is_slave=config.is_slave
        )
        self.schedule, self.output = Schedule(reactor), TurnOutput(reactor)
        self.clients = ClientTable(config.heart_beat_groups_max)
        self.parked, self.rates = ParkedPulls(config.parked_pulls_max), Rates()
        check_open_ports(config)
        self.rules = rules_table_of(config, self.now_ms)
        self.state = self._new_state(StateFormats(formats), write_state)
        self.audit = recorder_of(config, reactor, self.state, self.rules, self.now_ms)
        self.storage = storage_of(config)(config, reactor, self.state, self.now_ms, disk_thread)
        self.messages = self.storage.messages
        keeper = self.storage.keeper
        self.leadership.tell_sync_ms = lambda: round(keeper.recent_sync_s * 1000)
        self.log_times = LogTimes(self.messages, self.now_ms, self.clock_ms)
        # None without a ledger.
        self.clock_guard: ClockGuard | None = None
        steady_ms = None if now_ms else self.clock_ms
        self.expiry = ExpiryClock(self.now_ms, steady_ms, self.log_times)
        send_fields = {
            "MSG_REGION": config.region_id,
            "TRACE_ON": "true" if config.is_trace_on else "false",
        }
        self.dispatcher = Dispatcher(
            send_fields=send_fields,
            on_connection_lost=connection_lost,
            times=RequestTimes(config.slow_request_ms),
        )
        self.tls = TlsFiles(config.tls_file, config.tls_mode, is_client=config.uses_tls)
        self.ports = ClientPorts(config, reactor, self.dispatcher, self.output, self.tls.server)
        self.registration = Registration(
            config,
            self.leadership,
            self.state.topics,
            reactor=reactor,
            output=self.output,
            address=address,
            ha_address=ha_address,
            tls=self.tls.client,
            account=find_namesrv_account(config),
        )
        self.following = self._new_following()

    def _new_following(self) -> Following:
        ways = (self.reactor, self.output, self.tls.client)
        return Following(*ways, self.leadership, self.state, self.registration, self.config)

    def _new_state(self, formats: StateFormats, write: StateWriter) -> BrokerState:
        config = self.config
        state = BrokerState(
            TopicTable(config.topics_max, knows_light_queues=config.knows_light_queues),
            SubscriptionGroupTable(config.groups_max, knows_light_queues=config.knows_light_queues),
            ConsumerOffsetTable(_OFFSET_KEYS_MAX, knows_light_queues=config.knows_light_queues),
            write=write,
            body_bytes_max=body_bytes_max(config.segment_bytes),
            now_ms=self.now_ms,
            clock_ms=self.clock_ms,
            call_at_end_of_turn=self.schedule.soon,
            auto_create_groups=config.auto_create_groups,
            on_topics_changed=self._topics_changed,
            on_topic_removed=lambda name: self.messages.delete_topic(name),
            formats=formats,
        )
        state.access = self.rules
        if self.rules is not None:
            self.rules.propose_by(state.access_changes.change)
        return state

    def _topics_changed(self) -> None:
        # What is read of the files, perhaps by another thread, all name servers are told at first.
        if self.storage.is_open:
            self.registration.topics_changed()

    def clock_ms(self) -> float:
        """Returns monotonic time."""
        seconds: float = self.reactor.seconds()
        return seconds * 1000.0


def wall_clock_ms() -> int:
    """Returns ms since 1970."""
    return time.time_ns() // 1_000_000
