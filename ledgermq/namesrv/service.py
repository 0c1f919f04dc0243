"""NamesrvService: one name server: listener, expiry of silent brokers, start and stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from ledgermq.namesrv.config import NamesrvConfig
from ledgermq.namesrv.kv_table import KvTable
from ledgermq.namesrv.processors import Processors
from ledgermq.namesrv.route_table import RouteTable
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.tcp_times import NAME_SERVER_TIMES
from ledgermq.protocol.tls.files import TlsFiles
from ledgermq.protocol.transport import (
    LOOK_INTERVAL_MS,
    CertificateWatch,
    CommandProtocol,
    CommandServer,
    ConnectionLimits,
)

_log = Logger()


class NamesrvService:
    """Builds the parts of a name server and runs them on the given reactor.

    Attributes:
        port: TCP port in use; None before the start.
    """

    def __init__(self, config: NamesrvConfig, reactor: Any) -> None:
        """Opens nothing yet.

        Raises:
            TlsSettingsError: a certificate cannot be used.
        """
        self._config = config
        self._reactor = reactor
        self.port: int | None = None
        self._routes = RouteTable(
            expires_after_ms=config.broker_expired_ms,
            topics_max=config.topics_max,
            brokers_max=config.brokers_max,
        )
        self._kv = KvTable(config.kv_config_path)
        self._processors = Processors(config, self._routes, self._kv, self._now_ms)
        self._tls = TlsFiles(config.tls_file, config.tls_mode)
        self._server = CommandServer(
            reactor,
            self,
            config.bind_address,
            config.listen_port,
            connections_max=config.connections_max,
            limits=ConnectionLimits(
                idle_timeout_s=config.idle_timeout_s, tcp_times=NAME_SERVER_TIMES
            ),
            tls=self._tls.server,
        )
        # Periodic calls, by their functions.
        self._periodic: dict[Callable[[], None], Any] = {}
        self._is_stopped = False

    @property
    def routes(self) -> RouteTable:
        """What brokers have registered, for reading."""
        return self._routes

    def _now_ms(self) -> float:
        return float(self._reactor.seconds()) * 1000

    async def _start(self) -> None:
        self._kv.load()
        if self._config.unknown_keys:
            _log.warn("unknown keys are ignored: {keys}", keys=", ".join(self._config.unknown_keys))
        self.port = await self._server.start()
        self._every(self._config.scan_interval_ms, self._expire)
        if self._tls.is_in_use:
            self._every(LOOK_INTERVAL_MS, CertificateWatch(self._tls).look)
        _log.info("name server listens on {port}", port=self.port)

    def start(self) -> Deferred[None]:
        """Reads the key-value table and listens.

        Returns:
            Fires when requests are answered; fails with OSError (port, file) or ValueError (file).
        """
        return Deferred.fromCoroutine(self._start())

    def stop(self) -> Deferred[None]:
        """Fires when the port and all connections are closed."""
        self._is_stopped = True
        for call in self._periodic.values():
            call.cancel()
        self._periodic.clear()
        return self._server.stop()

    def _every(self, interval_ms: int, function: Callable[[], None]) -> None:
        """Has a function called again and again; what it raises is logged and ends nothing."""
        if not self._is_stopped:
            self._periodic[function] = self._reactor.callLater(
                interval_ms / 1000, self._run, interval_ms, function
            )

    def _run(self, interval_ms: int, function: Callable[[], None]) -> None:
        del self._periodic[function]
        try:
            function()
        except Exception:
            _log.failure("periodic call {name} failed", name=getattr(function, "__qualname__", "?"))
        self._every(interval_ms, function)

    def _expire(self) -> None:
        for address, owner in self._routes.expire(self._now_ms()):
            _log.warn("broker {address} was silent for too long", address=address)
            if isinstance(owner, CommandProtocol):
                owner.close("silent broker")

    # Receiver of the server's connections.

    def connection_made(self, connection: CommandProtocol) -> None:
        """Nothing is kept for a connection until a broker registers on it."""

    def commands_received(
        self, connection: CommandProtocol, commands: Sequence[RemotingCommand]
    ) -> None:
        """Answers the requests of one chunk in their order."""
        for command in commands:
            answer = self._processors.answer(command, connection)
            if not command.is_one_way:
                connection.send(answer)

    def connection_lost(self, connection: CommandProtocol, reason: str) -> None:
        """The brokers that registered on it are gone."""
        for address in self._routes.owner_lost(connection):
            _log.info("broker {address} left: {reason}", address=address, reason=reason)
