"""Registration of this broker with all its name servers (103, 104).

Every name server is told on its own connection, and again whenever that connection was made anew,
because a name server keeps what it knows in memory only (name_server.py). The whole topic table
goes along each time. When to register is the service's business: at a change of role or topics, and
periodically.
Source: `BrokerOuterAPI.java`.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList

from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.leadership import NO_BROKER_ID, Leadership
from ledgermq.broker.registration.name_server import Announcement, NameServer
from ledgermq.protocol import lenient_json
from ledgermq.protocol.checksum import crc32_masked
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import RegisterBrokerRequestHeader, UnRegisterBrokerRequestHeader
from ledgermq.protocol.tls.files import ClientTls
from ledgermq.protocol.transport import TurnOutput
from ledgermq.state.topics import PERM_READ_WRITE, TopicTable

_UNREGISTER_TIMEOUT_MS: Final = 3000


class Registration:
    """Tells all name servers about this broker."""

    def __init__(
        self,
        config: BrokerConfig,
        leadership: Leadership,
        topics: TopicTable,
        *,
        reactor: Any,
        output: TurnOutput,
        address: Callable[[], str],
        ha_address: Callable[[], str],
        tls: ClientTls | None = None,
    ) -> None:
        """Opens nothing yet.

        Args:
            config: names, addresses and times.
            leadership: broker id of the moment.
            topics: what is told.
            reactor: gives TCP and time to the connections.
            output: shared with the broker's other connections.
            address: of this broker for clients; asked when it is known.
            ha_address: where slaves of this broker copy its log; with a ledger nobody listens.
            tls: for connections with TLS; None for plain ones.
        """
        self._config = config
        self._leadership = leadership
        self._topics = topics
        self._address = address
        self._ha_address = ha_address
        self._servers = {
            text: NameServer(
                reactor,
                text,
                self._announce,
                answer_timeout_ms=config.register_timeout_ms,
                output=output,
                tls=tls,
            )
            for text in config.namesrv_addresses
        }

    @property
    def servers(self) -> dict[str, NameServer]:
        """The name servers by address."""
        return self._servers

    def start(self) -> None:
        """Connects to all name servers; each is told as soon as it is reached."""
        for server in self._servers.values():
            server.client.start()

    def register(self) -> None:
        """Tells all name servers that can be reached now; the others hear it when they are."""
        for server in self._servers.values():
            server.register()

    def find_master(self) -> str | None:
        """Returns the master's "ip:port" as some name server told it last, None when none did."""
        masters = [server.master for server in self._servers.values() if server.master]
        return masters[0] if masters else None

    def find_ha_master(self) -> str | None:
        """Returns where a slave copies its master's log, as some name server told it last, None
        when none did.
        """
        masters = [server.ha_master for server in self._servers.values() if server.ha_master]
        return masters[0] if masters else None

    def unregister(self) -> Deferred[Any]:
        """Takes this broker out of all name servers; fires when all answered or were too slow."""
        waiting: list[Deferred[Any]] = []
        for server in self._servers.values():
            server.leave()
            connection = server.client.connection
            if connection is None or server.registered_id == NO_BROKER_ID:
                continue
            request = RemotingCommand.request(
                RequestCode.UNREGISTER_BROKER,
                UnRegisterBrokerRequestHeader(
                    broker_name=self._config.broker_name,
                    broker_addr=self._address(),
                    cluster_name=self._config.cluster_name,
                    broker_id=server.registered_id,
                ),
            )
            waiting.append(connection.request(request, _UNREGISTER_TIMEOUT_MS))
        return DeferredList(waiting, consumeErrors=True)

    def stop(self) -> Deferred[Any]:
        """Closes all connections to name servers."""
        stops = [server.stop() for server in self._servers.values()]
        return DeferredList(stops, consumeErrors=True)

    def _announce(self) -> Announcement | None:
        broker_id = self._leadership.broker_id
        if broker_id == NO_BROKER_ID:
            return None
        body = registration_body(self._topics, self._config.broker_permission)
        header = RegisterBrokerRequestHeader(
            broker_name=self._config.broker_name,
            broker_addr=self._address(),
            cluster_name=self._config.cluster_name,
            ha_server_addr=self._ha_address(),
            broker_id=broker_id,
            body_crc32=crc32_masked(body),
        )
        request = RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body)
        return Announcement(broker_id, request)


def registration_body(topics: TopicTable, broker_permission: int) -> bytes:
    """Returns the body of a registration: the whole topic table and its version.

    Args:
        topics: what is told.
        broker_permission: replaces that of each topic when the broker is not open for both ways.
    """
    table = topics.to_json()
    if broker_permission != PERM_READ_WRITE:
        entries: Iterable[dict[str, Any]] = table["topicConfigTable"].values()
        for entry in entries:
            entry["perm"] = broker_permission
    return lenient_json.write({"filterServerList": [], "topicConfigSerializeWrapper": table})
