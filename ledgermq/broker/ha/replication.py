"""What a broker without a ledger does for its slaves, or for its master.

Both run on the broker's own timers: `check` is called several times in each heart beat.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.config.group_secret import find_group_secret
from ledgermq.broker.ha.acknowledgements import Acknowledgements, ReplicaStatus
from ledgermq.broker.ha.client import HaClient
from ledgermq.broker.ha.greetings import HaAdmission
from ledgermq.broker.ha.replicated_log import ReplicatedLog
from ledgermq.broker.ha.server import HaServer
from ledgermq.broker.ha.settings import HaSettings
from ledgermq.dledger.addresses import parse_networks
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.tls.files import TlsFiles
from ledgermq.protocol.transport.refusals import Refusals

# Parts of a heart beat that `check` is called in, and how often that is at most and at least.
_CHECKS_PER_HEART_BEAT: Final = 5
_CHECK_MS: Final = (10, 200)

_log = Logger()


class Senders(Protocol):
    """Whoever waits for what was appended."""

    def committed(self, end_index: int) -> None: ...

    def committed_here(self, end_index: int) -> None: ...

    def stored(self, end_index: int, code: ResponseCode, remark: str) -> None: ...


def check_interval_ms(config: BrokerConfig) -> int:
    """Returns how often `check` is to be called."""
    low, high = _CHECK_MS
    return min(max(config.ha_heartbeat_ms // _CHECKS_PER_HEART_BEAT, low), high)


def ha_settings(config: BrokerConfig) -> HaSettings:
    """Returns sizes and times of replication."""
    return HaSettings(
        batch_bytes_max=config.ha_batch_bytes,
        heart_beat_ms=config.ha_heartbeat_ms,
        silence_ms_max=config.ha_silence_ms,
    )


def ha_admission(config: BrokerConfig) -> HaAdmission:
    """Returns what master and slaves have to prove to each other.

    Raises:
        ConfigError: the file with the secret cannot be used.
    """
    networks = config.ha_slave_networks
    return HaAdmission(
        config.broker_name,
        find_group_secret(config),
        is_required=config.group_secret_mode == "require",
        networks=None if networks is None else parse_networks(networks),
        needs_tls=bool(config.member_tls_file) and config.member_tls_mode == "enforcing",
    )


def ha_tls(config: BrokerConfig) -> TlsFiles | None:
    """Returns the certificates of links between master and slaves; None without TLS.

    Slaves that prove nothing, as Java's, connect without TLS from the addresses that a key names.

    Raises:
        TlsSettingsError: a certificate cannot be used.
    """
    mode = config.member_tls_mode
    if not config.member_tls_file or mode == "disabled":
        return None
    mode = "permissive" if config.ha_slave_networks is not None else mode
    return TlsFiles(config.member_tls_file, mode, is_client=True)


class MasterReplication:
    """A master's side: the port for slaves, and the answers that wait for one."""

    def __init__(
        self, config: BrokerConfig, reactor: Any, log: ReplicatedLog, senders: Senders
    ) -> None:
        """Opens nothing yet.

        Args:
            senders: answered when their message is stored as safely as brokerRole says.
        """
        self._config = config
        self._senders = senders
        self.waits_for_slaves = config.broker_role == "SYNC_MASTER"
        self._port = config.ha_listen_port
        self._acknowledgements = Acknowledgements(
            behind_bytes_max=config.slave_behind_bytes, timeout_ms=config.slave_timeout_ms
        )
        self.refusals = Refusals(config.broker_name, reactor.seconds)
        self.tls = ha_tls(config)
        self._server = HaServer(
            reactor,
            log,
            ha_settings(config),
            self._acknowledgements,
            host=config.bind_host,
            port=config.ha_listen_port,
            admission=ha_admission(config),
            refusals=self.refusals,
            tls=None if self.tls is None else self.tls.server,
        )

    @property
    def address(self) -> str:
        """Where slaves connect to; the port is known after start."""
        return f"{self._config.ha_host}:{self._port}"

    @property
    def slave_count(self) -> int:
        """Slaves that are connected and copy."""
        return self._acknowledgements.slave_count

    def start(self) -> Deferred[Any]:
        """Opens the port; fails with CannotListenError when it is taken."""
        return self._server.start().addCallback(self._listening)

    def _listening(self, port: int) -> None:
        self._port = port
        _log.info("slaves may copy at {address}", address=self.address)

    def log_advanced(self) -> None:
        """Sends slaves what was appended in this turn."""
        self._server.log_advanced()

    def confirmed(self, end_offset: int) -> None:
        """Answers who sent what ends before an offset: at once, or when a slave has it."""
        if not self.waits_for_slaves:
            self._senders.committed(end_offset)
            return
        self._senders.committed_here(end_offset)

        def told(status: ReplicaStatus) -> None:
            self._answer(end_offset, status)

        self._acknowledgements.wait(end_offset, self._server.now_ms(), told)

    def _answer(self, end_offset: int, status: ReplicaStatus) -> None:
        match status:
            case ReplicaStatus.REPLICATED:
                self._senders.committed(end_offset)
            case ReplicaStatus.SLAVE_NOT_AVAILABLE:
                behind = end_offset - self._acknowledgements.nearest_offset
                self._senders.stored(
                    end_offset,
                    ResponseCode.SLAVE_NOT_AVAILABLE,
                    f"stored on this master only: {self.slave_count} slaves are connected, the"
                    f" best one is {behind} bytes behind, allowed are fewer than"
                    f" {self._config.slave_behind_bytes} (key haSlaveFallbehindMax)",
                )
            case ReplicaStatus.FLUSH_SLAVE_TIMEOUT:
                self._senders.stored(
                    end_offset,
                    ResponseCode.FLUSH_SLAVE_TIMEOUT,
                    f"stored on this master, but no slave confirmed it in"
                    f" {self._config.slave_timeout_ms} ms (key slaveTimeout)",
                )

    def check(self) -> None:
        """Does what is due by time."""
        self._server.check()

    def stop(self) -> Deferred[Any]:
        """Ends all waits and connections; fires when nothing is left."""
        return self._server.stop()


class SlaveReplication:
    """A slave's side: it follows the master of the moment."""

    def __init__(
        self,
        config: BrokerConfig,
        reactor: Any,
        log: ReplicatedLog,
        find_master: Callable[[], str | None],
        make_room: Callable[[], Deferred[None]],
    ) -> None:
        """Opens nothing yet.

        Args:
            find_master: "host:port" where the master's log is copied, as name servers told it
                last; None when they know no master.
            make_room: as for HaClient.
        """
        self._configured_master = config.ha_master_address or None
        self._find_master = find_master
        self.refusals = Refusals(config.broker_name, reactor.seconds)
        self.tls = ha_tls(config)
        self._client = HaClient(
            reactor,
            log,
            ha_settings(config),
            make_room,
            admission=ha_admission(config),
            refusals=self.refusals,
            tls=None if self.tls is None else self.tls.client,
            may_be_plain=config.member_tls_mode == "permissive",
        )

    def start(self) -> Deferred[None]:
        """Nothing has to be opened: `check` connects."""
        return succeed(None)

    def log_advanced(self) -> None:
        """Nobody copies from a slave."""

    def check(self) -> None:
        """Does what is due by time; goes to another master when name servers name one.

        A master that they know no longer is tried on: it may be about to come back.
        """
        master = self._configured_master or self._find_master()
        if master is not None:
            self._client.follow(master)
        self._client.check()

    def stop(self) -> Deferred[Any]:
        """Leaves the master for good; fires when nothing is left."""
        return self._client.stop()
