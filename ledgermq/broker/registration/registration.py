"""Registration of this broker with all its name servers (103, 104).

Every name server is told on its own connection, all again whenever that connection was made anew,
because a name server keeps what it knows in memory only (name_server.py), and what has changed in
between (announcements.py). When to register is the service's business: at a change of role or
topics, and periodically.
Source: `BrokerOuterAPI.java`.
"""

from collections.abc import Callable
from math import inf
from random import random
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList, succeed

from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.leadership import LEADER_BROKER_ID, NO_BROKER_ID, Leadership
from ledgermq.broker.registration.announcements import Announcements
from ledgermq.broker.registration.name_server import NameServer
from ledgermq.broker.registration.told_waits import ToldWaits
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import UnRegisterBrokerRequestHeader
from ledgermq.protocol.signature import Credentials
from ledgermq.protocol.tls.files import ClientTls
from ledgermq.protocol.transport import TurnOutput
from ledgermq.state.topics import TopicTable

_UNREGISTER_TIMEOUT_MS: Final = 3000
# Least time between two tellings of changed topics.
_DISTANCE_S: Final = 0.2


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
        account: Credentials | None = None,
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
            account: by which this broker registers; None where name servers need none.
        """
        self._config = config
        self._leadership = leadership
        self._topics = topics
        self._reactor = reactor
        self._waits = ToldWaits(reactor, self._least_known)
        self._address = address
        announcements = Announcements(
            config, leadership, topics, address=address, ha_address=ha_address, chance=random
        )
        self._servers = {
            text: NameServer(
                reactor,
                text,
                announcements,
                answer_timeout_ms=config.register_timeout_ms,
                output=output,
                tls=tls,
                account=account,
                on_word=self._waits.look,
            )
            for text in config.namesrv_addresses
        }
        # When changed topics were told last, and the call that tells them next.
        self._told_s = -inf
        self._tell_call: Any = None
        self._is_stopped = False

    @property
    def servers(self) -> dict[str, NameServer]:
        """The name servers by address."""
        return self._servers

    def start(self) -> None:
        """Connects to all name servers; each is told as soon as it is reached."""
        for server in self._servers.values():
            server.client.start()

    def register(self) -> None:
        """Tells all name servers that can be reached now, and makes sure of those that should know
        all; the others hear it when they are reached.
        """
        for server in self._servers.values():
            server.register()
        # Who leads no more waits for nobody.
        self._waits.look()

    def topics_changed(self) -> None:
        """Tells changed topics when this turn is over, or a little later when topics change in
        quick succession.
        """
        if self._tell_call is None and not self._is_stopped:
            delay_s = self._told_s + _DISTANCE_S - self._reactor.seconds()
            self._tell_call = self._reactor.callLater(
                min(max(0.0, delay_s), _DISTANCE_S), self._tell
            )

    def told(self) -> Deferred[None]:
        """Tells changed topics at once; returns what fires when name servers know them."""
        if self._is_stopped:
            return succeed(None)
        if self._tell_call is not None:
            self._tell_call.cancel()
        # Behind this turn, so that all that it changes is told together.
        self._tell_call = self._reactor.callLater(0, self._tell)
        return self._waits.wait(self._topics.changes.last_number)

    def _least_known(self) -> int | None:
        if self._leadership.broker_id != LEADER_BROKER_ID:
            return None
        known = [
            server.known_number
            for server in self._servers.values()
            if server.client.connection is not None and server.is_registered is not False
        ]
        return min(known, default=None)

    def _tell(self) -> None:
        self._tell_call = None
        self._told_s = self._reactor.seconds()
        for server in self._servers.values():
            server.tell()
        # One that is not reached any more says no word.
        self._waits.look()

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
        self._is_stopped = True
        self._waits.stop()
        if self._tell_call is not None:
            self._tell_call.cancel()
            self._tell_call = None
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
            server.sign(request, connection)
            waiting.append(connection.request(request, _UNREGISTER_TIMEOUT_MS))
        return DeferredList(waiting, consumeErrors=True)

    def stop(self) -> Deferred[Any]:
        """Closes all connections to name servers."""
        stops = [server.stop() for server in self._servers.values()]
        return DeferredList(stops, consumeErrors=True)
