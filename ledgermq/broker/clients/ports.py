"""ClientPorts: where clients connect; the port of the configuration, and upstream's VIP port."""

import time
from typing import Any

from twisted.internet.defer import Deferred, DeferredList

from ledgermq.broker.config.broker_config import VIP_PORT_DISTANCE, BrokerConfig
from ledgermq.broker.config.memory import receive_budget_bytes, send_budget_bytes
from ledgermq.broker.dispatch import Dispatcher
from ledgermq.protocol.tls.contexts import ServerTls
from ledgermq.protocol.transport import (
    CommandProtocol,
    CommandServer,
    ConnectionLimits,
    ReceiveBudget,
    SendBudget,
    TurnOutput,
    TurnShares,
)


class ClientPorts:
    """One or two ports with the same limits, behind which the same dispatcher answers."""

    def __init__(
        self,
        config: BrokerConfig,
        reactor: Any,
        dispatcher: Dispatcher,
        output: TurnOutput,
        tls: ServerTls | None,
    ) -> None:
        """Opens nothing yet; `tls` is None where no connection has any."""
        ports = [config.listen_port]
        if config.has_vip_port:
            ports.append(config.listen_port - VIP_PORT_DISTANCE)
        limits = ConnectionLimits(
            idle_timeout_s=config.idle_seconds_max,
            unknown_frame_bytes_max=config.unsigned_frame_bytes_max if config.is_acl_on else 0,
        )
        shares = TurnShares(reactor, processor_s=time.thread_time)
        budget = ReceiveBudget(receive_budget_bytes(config))
        send_budget = SendBudget(send_budget_bytes(config))
        self._shares = shares
        self._servers = [
            CommandServer(
                reactor,
                dispatcher,
                config.bind_host,
                port,
                connections_max=config.connections_max,
                connections_per_host_max=config.connections_per_host_max,
                connections_per_host_rate=config.connections_per_host_rate,
                limits=limits,
                output=output,
                tls=tls,
                shares=shares,
                budget=budget,
                send_budget=send_budget,
            )
            for port in ports
        ]

    @property
    def connections(self) -> list[CommandProtocol]:
        """Those that are open."""
        return [one for server in self._servers for one in server.connections]

    @property
    def refused_count(self) -> int:
        """Connections that were refused for a limit, since the start."""
        return sum(server.refused_count for server in self._servers)

    def start(self) -> Deferred[int]:
        """Listens for clients; fires with the port."""
        return self._servers[0].start()

    def start_vip(self, _: object = None) -> Deferred[int] | None:
        """Listens on the VIP port, where there is one."""
        return self._servers[1].start() if len(self._servers) > 1 else None

    def stop(self) -> Deferred[Any]:
        """Ends all connections; fires when nobody listens any more."""
        stopped = DeferredList([server.stop() for server in self._servers])
        return stopped.addBoth(self._ended)

    def _ended(self, result: object) -> object:
        self._shares.stop()
        return result
