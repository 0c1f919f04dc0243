"""BrokerService: builds a broker's parts in order, starts and stops them.

`ground.py` builds what needs no port, `serving.py` what needs one and what time demands; what the
ledger tells is carried out by `storage/applier.py`.

    start   lock and files -> port -> processors -> ledger member -> timers -> name servers
    stop    no more sends -> name servers -> what waits is committed -> port -> member -> files
"""

import importlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger

from ledgermq import kernel
from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.config.open_ports import find_plain_links
from ledgermq.broker.ha.roles import ha_address
from ledgermq.broker.service.farewell import Farewell, next_step
from ledgermq.broker.service.ground import Ground
from ledgermq.broker.service.serving import Serving
from ledgermq.dledger.store.disk_thread import WorkerThread
from ledgermq.dledger.store.errors import CorruptStoreError
from ledgermq.dledger.store.opening_progress import OpeningStoppedError
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state.formats import FORMATS, Format
from ledgermq.state.under_way import OnCommitted

# Runs the opening of the files; fires in the reactor when it is over.
RunOpening = Callable[[Callable[[], None]], Deferred[Any]]

_log = Logger()


class BrokerService:
    """One broker.

    Attributes:
        config: as given.
        leadership: role, term, leader and broker id of the moment.
        state: topics, groups, offsets and locks.
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
        run_opening: RunOpening = maybeDeferred,
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
            run_opening: may do it in another thread, so that the reactor turns: nobody is served
                anything but the HTTP port's answers until it is over. Default: at once.

        Raises:
            TlsSettingsError: a certificate cannot be used.
        """
        self._run_opening = run_opening
        # Fires when the files are opened or not; None before and after that.
        self._opening: Deferred[None] | None = None
        self.config = config
        self._on_ready, self._on_damage = on_ready, on_damage
        # What was found damaged first; None while all is well.
        self._damage: Exception | None = None
        self._port = config.listen_port
        self._ground = Ground(
            config,
            reactor,
            rng=rng,
            now_ms=now_ms,
            disk_thread=disk_thread,
            formats=formats,
            address=lambda: self.address,
            ha_address=lambda: self.replication_address,
            write_state=self._write_state,
            connection_lost=self._connection_lost,
        )
        self.leadership, self.state = self._ground.leadership, self._ground.state
        self.messages, self.clients = self._ground.messages, self._ground.clients
        # Made by start.
        self._serving: Serving | None = None
        # What it is doing, for people: a step of start or stop, or "started".
        self._step = "has not begun"
        self._http, self._otlp = self._find_http(), None
        if config.otlp_endpoint:
            self._otlp = self._find_otlp()
        self._stopped: Deferred[None] | None = None

    def _find_http(self) -> Any:
        """The HTTP port, or None; what serves it is loaded only where there is one."""
        if not self.config.http_port:
            return None
        module = importlib.import_module("ledgermq.broker.service.http_side")
        return module.HttpSide(self._ground, lambda: self._serving, lambda: self._step)

    def _find_otlp(self) -> Any:
        """What sends to a collector; it is loaded only where there is one."""
        module = importlib.import_module("ledgermq.broker.service.otlp_side")
        sources = None if self._http is None else self._http.sources
        return module.OtlpSide(self._ground, lambda: self._serving, sources)

    # What others may ask.

    @property
    def has_failed(self) -> bool:
        """Whether this broker can do no more until it is started again; not while it repairs."""
        return self.leadership.role == "FAILED" and self._damage is None

    @property
    def address(self) -> str:
        """Where clients connect to, "host:port"; the port is known after start."""
        return f"{self.config.address_host}:{self._port}"

    @property
    def ledger_address(self) -> str | None:
        """Where the other members connect to; None without a group."""
        if not self.config.is_group_member:
            return None
        peer = self.config.own_peer
        return f"{peer.host}:{peer.port}"

    @property
    def replication_address(self) -> str:
        """Where slaves connect to; nobody listens there with a ledger."""
        serving = self._serving
        return ha_address(self.config, None if serving is None else serving.replication)

    @property
    def registered_with(self) -> list[str]:
        """Addresses of the name servers that know this broker under its present id."""
        return [
            address
            for address, server in self._ground.registration.servers.items()
            if server.is_registered and server.registered_id == self.leadership.broker_id
        ]

    @property
    def opening_text(self) -> str:
        """How far the opening of the files is, for people; empty when they are not being opened."""
        return "" if self._opening is None else f"{self._step}: {self._ground.storage.opening.now}"

    # Start.

    def start(self) -> Deferred[None]:
        """Opens files and ports and joins the group.

        Returns:
            A Deferred that fires when this member takes part, in whatever role. It fails, and
            nothing is left running, when files cannot be used or a port is taken. Fails with
            OpeningStoppedError when `stop` is called before the files are open.
        """
        _report_keys(self.config)
        started = maybeDeferred(self._open)
        started.addCallback(self._opened)
        return started.addErrback(self._not_opened)

    def _open(self) -> Deferred[Any]:
        if self._http is not None:
            self._http.start()
        self._step = "opens its files"
        if self._ground.rules is not None:
            self._ground.rules.load()
        self._opening = Deferred()
        return self._run_opening(self._ground.storage.open).addBoth(self._opening_over)

    def _opening_over(self, result: object) -> object:
        over, self._opening = self._opening, None
        assert over is not None
        over.callback(None)
        return result

    def _opened(self, _: object) -> Deferred[Any]:
        """Listens: from here on clients, and then other members, may come."""
        if self._stopped is not None:
            raise OpeningStoppedError
        ground = self._ground
        if ground.rules is not None:
            ground.rules.write_by(ground.storage.keeper)
        started: Deferred[Any] = ground.ports.start()
        started.addCallback(self._join)
        return started.addErrback(self._give_up)

    def _not_opened(self, failure: Any) -> Any:
        if self._http is None or self._stopped is not None:
            return failure
        return self._http.stop().addBoth(lambda _: failure)

    def _join(self, port: int) -> Deferred[None]:
        """Builds what needs the port, and starts it: the ledger member first."""
        self._port, self._step = port, "joins its group"
        serving = self._serving = Serving(
            self._ground, port, role_changed=self._role_changed, ready=self._ready
        )
        self.messages.on_damage(self._damage_found)
        if self._http is not None:
            self._http.watch()
        if self._otlp is not None:
            self._otlp.watch(serving)
        started: Deferred[Any] = serving.start_member()
        started.addCallback(self._ground.ports.start_vip)
        started.addCallback(serving.start_replication)
        return started.addCallback(self._run, serving)

    def _run(self, _: object, serving: Serving) -> None:
        config, self._step = self.config, "started"
        serving.start_timers(self._flush_failed, self._damage_found)
        self._ground.registration.start()
        _log.info(
            "broker {name} at {address}, member {member} of {group}, ledger at {ledger},"
            " kernel {kernel}",
            name=config.broker_name,
            address=self.address,
            member=config.ledger_self_id,
            group=config.ledger_group,
            ledger=self.ledger_address or "no port",
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
        self._stopped, self._step = stopped, "stopping"
        if self._opening is None:
            self._stop_parts()
        else:
            # Its thread has the files until it is over.
            self._ground.storage.opening.give_up()
            self._opening.addCallback(lambda _: self._stop_parts())
        return stopped

    def _stop_parts(self) -> None:
        ground, serving = self._ground, self._serving
        if self.leadership.is_serving:
            self.state.write_offsets()
        self.leadership.stop()
        # Name servers are told first, but nobody waits for a slow one before the group is left.
        unregistered = ground.registration.unregister()
        farewell = Farewell(self.leadership, ground.schedule, ground.clock_ms)
        wait_ms = self.config.drain_seconds_max * 1000
        steps: Deferred[Any] = farewell.drain(
            None if serving is None else serving.proposals, wait_ms
        )
        for step in (
            lambda: farewell.hand_over(None if serving is None else serving.member),
            self._close_port,
            ground.following.stop,
            self._end_replication,
            self._leave_group,
            ground.storage.stop_keeper,
            lambda: unregistered,
            ground.registration.stop,
            ground.schedule.stop,
            lambda: None if ground.audit is None else ground.audit.close(),
            ground.storage.close,
            lambda: None if self._http is None else self._http.stop(),
            lambda: None if self._otlp is None else self._otlp.stop(),
        ):
            steps.addBoth(next_step, step)
        steps.addBoth(self._finish)

    def abandon(self) -> None:
        """Gives the files back as they are, as the end of the process would: nothing is written.

        Whoever owns reactor and disk thread has ended all that this broker had of them.
        """
        self._ground.storage.abandon()

    def _close_port(self) -> Deferred[Any]:
        if self._serving is not None:
            self._serving.processors.pulls.answer_all()
            self._serving.proposals.fail_all(self.leadership.refusal())
        return self._ground.ports.stop()

    def _end_replication(self) -> Deferred[Any] | None:
        if self._serving is None or self._serving.replication is None:
            return None
        return self._serving.replication.stop()

    def _leave_group(self) -> Deferred[Any] | None:
        if self._serving is None:
            return None
        self.state.follow()
        return self._serving.member.stop()

    def _finish(self, result: Any) -> None:
        self._ground.output.stop()
        assert self._stopped is not None
        self._stopped.callback(result)

    # Parts calling back.

    def _write_state(self, bodies: Sequence[bytes], done: OnCommitted) -> None:
        assert self._serving is not None
        self._serving.write_state(bodies, done)

    def _role_changed(self) -> None:
        failure = None if self._serving is None else self._serving.member.failure
        if isinstance(failure, CorruptStoreError):
            self._damage_found(failure)
        if self._ground.audit is not None:
            self._ground.audit.watch.leads(self.leadership)
        if failure is not None:
            # What cannot be served is not copied on either.
            self._end_replication()
        self._ground.schedule.soon(self._ground.registration.register)

    def _ready(self) -> None:
        assert self._serving is not None
        # From now on the time to the first round of checks is counted.
        self._serving.processors.transactions.run()
        if self._on_ready is not None:
            self._ground.schedule.soon(self._on_ready)

    def _connection_lost(self, connection: CommandProtocol) -> None:
        self._ground.parked.connection_lost(connection)
        if self._serving is not None:
            self._serving.processors.clients.connection_lost(connection)

    def _damage_found(self, error: Exception) -> None:
        """Leaves the group at once: nothing more is served of files that cannot be trusted."""
        if self._damage is not None or self._stopped is not None:
            return
        if not self._ground.storage.distrust(error):
            return
        self._damage = error
        _log.error("{member}: {error}", member=self.config.ledger_self_id, error=error)
        self._flush_failed(error)
        if self._on_damage is not None:
            self._ground.schedule.soon(self._on_damage)

    def _flush_failed(self, error: BaseException) -> None:
        """A failed flush is final for this member: it leaves the group and says so."""
        if self._stopped is None and self._serving is not None:
            self._serving.member.stop()
            self._serving.applier.failed(error)


def _report_keys(config: BrokerConfig) -> None:
    if plain_links := find_plain_links(config):
        _log.warn("{plain_links}", plain_links=plain_links)
    if config.unknown_keys:
        _log.warn("unknown configuration keys: {keys}", keys=", ".join(config.unknown_keys))
    if config.ineffective_keys:
        keys = ", ".join(config.ineffective_keys)
        _log.info("configuration keys accepted without effect: {keys}", keys=keys)
