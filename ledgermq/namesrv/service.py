"""NamesrvService: one name server: listener, expiry of silent brokers, start and stop."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from ledgermq.namesrv.accounts_file import AccountsFile
from ledgermq.namesrv.audit import audit_of, closed
from ledgermq.namesrv.config import NamesrvConfig
from ledgermq.namesrv.guard import Guard
from ledgermq.namesrv.kv_table import KvTable
from ledgermq.namesrv.processors import Processors
from ledgermq.namesrv.route_table import RouteTable
from ledgermq.namesrv.threads import Threads
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import LocalProtocolError
from ledgermq.protocol.networks import network_of
from ledgermq.protocol.signed_for import own_ends
from ledgermq.protocol.tcp_times import NAME_SERVER_TIMES
from ledgermq.protocol.tls.files import TlsFiles
from ledgermq.protocol.transport import (
    LOOK_INTERVAL_MS,
    CertificateWatch,
    CommandProtocol,
    CommandServer,
    ConnectionLimits,
    ReceiveBudget,
    Schedule,
)

# Of a request on a connection on which no account was proven yet, unless it may be one's.
_UNKNOWN_FRAME_BYTES: Final = 65_536

# What is joined or was lost is told so long after it can be.
_AUDIT_MS: Final = 1000

# Brokers that one line of the log names.
_SHOWN_MAX: Final = 3

_log = Logger()


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class NamesrvService:
    """Builds the parts of a name server and runs them on the given reactor.

    Attributes:
        port: TCP port in use; None before the start.
    """

    def __init__(self, config: NamesrvConfig, reactor: Any) -> None:
        """Opens nothing yet.

        Raises:
            TlsSettingsError: a certificate cannot be used.
            AccountsError: the file of accounts cannot be used.
        """
        self._config = config
        self._reactor = reactor
        self.port: int | None = None
        self._schedule = Schedule(reactor)
        self._routes = RouteTable(
            expires_after_ms=config.broker_expired_ms,
            limits=config.limits,
            on_leaving=lambda: self._schedule.soon(self._forget),
        )
        threads = Threads(reactor)
        self._kv = KvTable(config.kv_config_path, threads.run, reactor)
        # None where nobody needs an account.
        self._accounts = AccountsFile(config.acl_file) if config.is_acl_on else None
        self._guard = self._new_guard()
        self._audit = audit_of(config, threads, self._now_ms, _wall_ms)
        self._processors = Processors(
            config,
            self._routes,
            self._kv,
            self._guard,
            self._now_ms,
            self._schedule.soon,
            self._audit,
        )
        if self._audit is not None and self._accounts is not None:
            self._accounts.on_edited = self._audit.accounts_edited
        self._tls = TlsFiles(config.tls_file, config.tls_mode)
        self._server = CommandServer(
            reactor,
            self,
            config.bind_address,
            config.listen_port,
            connections_max=config.connections_max,
            connections_per_host_max=config.connections_per_host_max,
            budget=ReceiveBudget(config.receive_budget_bytes),
            limits=ConnectionLimits(
                idle_timeout_s=config.idle_timeout_s,
                tcp_times=NAME_SERVER_TIMES,
                unknown_frame_bytes_max=_UNKNOWN_FRAME_BYTES if config.is_acl_on else 0,
            ),
            tls=self._tls.server,
        )

    @property
    def routes(self) -> RouteTable:
        """What brokers have registered, for reading."""
        return self._routes

    @property
    def refusals_count(self) -> int:
        """Requests that were refused since the start."""
        return self._processors.refusals.count

    def _new_guard(self) -> Guard:
        file, named = self._accounts, self._config.signed_addresses
        return Guard(
            None if file is None else lambda: file.accounts,
            route_needs_account=self._config.route_needs_account,
            signature_wanted=self._config.signature_wanted,
            is_own=own_ends(named, lambda: (self.port or 0,)) if named else None,
        )

    def _now_ms(self) -> float:
        return float(self._reactor.seconds()) * 1000

    async def _start(self) -> None:
        self._kv.load()
        if self._config.unknown_keys:
            _log.warn("unknown keys are ignored: {keys}", keys=", ".join(self._config.unknown_keys))
        self.port = await self._server.start()
        self._schedule.every(self._config.scan_interval_ms, self._expire)
        if self._tls.is_in_use:
            self._schedule.every(LOOK_INTERVAL_MS, CertificateWatch(self._tls).look)
        if self._audit is not None:
            self._schedule.every(_AUDIT_MS, self._audit.log.tick)
        if self._accounts is not None:
            self._schedule.every(LOOK_INTERVAL_MS, self._accounts.follow)
        _log.info("name server listens on {port}", port=self.port)
        self._tell_who_may()

    def _tell_who_may(self) -> None:
        """One line about what the settings mean for whoever reaches the port."""
        config, port = self._config, self.port
        if self._accounts is None:
            _log.warn(
                "no accounts (aclEnable=false): anybody who reaches port {port} may register"
                " brokers, take over the routes of others and change the key-value table",
                port=port,
            )
            return
        _log.info(
            "{count} accounts of {path}: others register and change nothing; {reading}",
            count=len(self._accounts.accounts.accounts),
            path=config.acl_file,
            reading="they read nothing (routeNeedsAccount=true)"
            if config.route_needs_account
            else "anybody who reaches the port reads routes (routeNeedsAccount=false)",
        )

    def start(self) -> Deferred[None]:
        """Reads the key-value table and listens.

        Returns:
            Fires when requests are answered; fails with OSError (port, file) or ValueError (file).
        """
        return Deferred.fromCoroutine(self._start())

    def stop(self) -> Deferred[None]:
        """Fires when the port and all connections are closed."""
        self._schedule.stop()
        return Deferred.fromCoroutine(self._end())

    async def _end(self) -> None:
        await self._server.stop()
        await self._kv.stop()
        if self._audit is not None:
            await closed(self._audit, self._reactor)

    def _expire(self) -> None:
        self._processors.refusals.sum_up()
        silent = self._routes.expire(self._now_ms())
        if silent:
            brokers = _few([address for address, _ in silent])
            _log.warn("silent for too long: {brokers}", brokers=brokers)
        for _, owner in silent:
            if isinstance(owner, CommandProtocol):
                owner.close("silent broker")

    def _forget(self) -> None:
        """Forgets topics of brokers that left, a piece in each turn."""
        if self._routes.forget_some():
            self._schedule.soon(self._forget)

    # Receiver of the server's connections.

    def connection_made(self, connection: CommandProtocol) -> None:
        """Nothing is kept for a connection until a broker registers on it."""
        connection.admits_large = self._guard.admits_large

    def commands_received(
        self, connection: CommandProtocol, commands: Sequence[RemotingCommand]
    ) -> int:
        """Answers requests of one chunk in order, but for what waits for the disk.

        Returns:
            How many it had time for.
        """
        for taken, command in enumerate(commands):
            if taken and not connection.goes_on():
                return taken
            answer = self._processors.answer(command, connection)
            if isinstance(answer, Deferred):
                answer.addCallback(self._send, connection, command)
            else:
                self._send(answer, connection, command)
        return len(commands)

    def _send(
        self, answer: RemotingCommand, connection: CommandProtocol, command: RemotingCommand
    ) -> None:
        if command.is_one_way:
            return
        try:
            connection.send(answer)
        except LocalProtocolError as error:
            # A list that is larger than a frame.
            connection.send(command.response(ResponseCode.SYSTEM_ERROR, str(error)))

    def connection_lost(self, connection: CommandProtocol, reason: str) -> None:
        """The brokers that registered on it are gone."""
        gone = self._routes.owner_lost(connection)
        if gone:
            _log.info(
                "{brokers} left: {reason}",
                brokers=_few(gone),
                reason=reason,
                repeats_as=f"brokers of {network_of(connection.peer_host)} left",
            )


def _few(addresses: Sequence[str]) -> str:
    """Names some brokers: there may be as many as an account may register."""
    shown = ", ".join(addresses[:_SHOWN_MAX])
    if len(addresses) == 1:
        return f"broker {shown}"
    more = len(addresses) - _SHOWN_MAX
    return f"brokers {shown} and {more} more" if more > 0 else f"brokers {shown}"
