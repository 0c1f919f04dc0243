"""What a producer or consumer stands on: an id, connections, name servers, routes, heartbeats.

Membership of a group hangs on the connection, so each new connection to a broker begins with a
heartbeat. A running instance asks for all its routes again now and then; whoever sees a failure
asks at once.
"""

import asyncio
import contextlib
import itertools
import os
import secrets
import socket
import time
import weakref
from collections.abc import Callable
from typing import Final

from ledgermq.client.config import ClientConfig, parse_addresses
from ledgermq.client.connection import NOBODY, Connection, OnRequest
from ledgermq.client.connections import Connections
from ledgermq.client.endless import all_of, keep_going
from ledgermq.client.errors import ClientError, ClosedError, NoRouteError, UnreachableError
from ledgermq.client.name_servers import NameServers
from ledgermq.client.namespaces import with_namespace
from ledgermq.client.routes import RouteCache, TopicRoute
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import GetRouteInfoRequestHeader, UnregisterClientRequestHeader
from ledgermq.protocol.heartbeat import HeartbeatData
from ledgermq.protocol.message_id import UniqueIds
from ledgermq.protocol.names import DEFAULT_TOPIC

# How often to look after what is missing: the route of a topic that a send has just created, a
# connection that was lost.
_LOOK_INTERVAL_S: Final = 1.0
# How long close waits for brokers to take the news.
_UNREGISTER_TIMEOUT_S: Final = 1.0

_numbers = itertools.count()
# Makes the ids of messages differ between processes that have one address and process id.
_DRAWN: Final = secrets.randbits(32)
# What a fork copies without a use for it.
_living: "weakref.WeakSet[ClientInstance]" = weakref.WeakSet()


def now_ms() -> int:
    """Returns the wall clock in ms since 1970."""
    return time.time_ns() // 1_000_000


class ClientInstance:
    """One client as brokers see it."""

    def __init__(
        self,
        name_servers: str,
        config: ClientConfig,
        *,
        default_queue_nums: int = 4,
        on_request: OnRequest | None = None,
        heartbeat: Callable[[], HeartbeatData] | None = None,
        stays_connected: bool = False,
    ) -> None:
        """Opens nothing yet.

        Args:
            name_servers: ``host:port;host:port``.
            config: times.
            default_queue_nums: queues of a topic that a send creates.
            on_request: gets the requests of brokers.
            heartbeat: makes what the next heartbeat says; None sends none.
            stays_connected: True for whom brokers ask: a connection that is lost is made again.

        Raises:
            ConfigError: the addresses are wrong.
        """
        addresses = parse_addresses(name_servers)
        self.config = config
        number = next(_numbers)
        self._process_id = os.getpid()
        # True in the child of a fork: sockets and loop belong to the process that made them.
        self.is_foreign = False
        _living.add(self)
        host = _own_host(addresses[0])
        # As Java's ip@pid#nanoTime. Address, process id and name are the same in many containers:
        # two members of one id would each hold all queues of the group.
        name = config.instance_name or str(os.getpid())
        self.client_id = f"{host}@{name}#{secrets.token_hex(8)}"
        self.unique_ids = UniqueIds(socket.inet_aton(host), os.getpid(), number ^ _DRAWN)
        self.connections = Connections(
            config, on_request or _answer_nothing, self._connected, self._question
        )
        self.name_servers = NameServers(addresses, self.connections, config.request_timeout_s)
        self.routes = RouteCache(
            self.name_servers, default_queue_nums, config.namespace, self._take_route
        )
        # Requests that wait for a leader: its broker name and address when they were sent.
        self._asked: dict[asyncio.Timeout, tuple[str, str]] = {}
        self._heartbeat = heartbeat
        self._stays_connected = stays_connected
        self._addresses = frozenset(addresses)
        self._tending: list[asyncio.Task[None]] = []

    def check_open(self, is_open: bool, what: str) -> None:
        """Checks that a producer or consumer may be used.

        Raises:
            ClosedError: it is used outside its `async with` block, or in the child of a fork.
        """
        if self.is_foreign:
            raise ClosedError(
                f"this {what} was made in process {self._process_id} and cannot be used in"
                f" {os.getpid()}, a fork of it; make and open one there"
            )
        if not is_open:
            raise ClosedError(f"this {what} is not open; use it in an async with block")

    def start(self) -> None:
        """Begins to keep routes and heartbeats fresh; needs a running loop.

        Raises:
            ClosedError: it was closed before (a client is opened once), or made before a fork.
        """
        self.check_open(True, "client")
        if self.connections.is_closed:
            raise ClosedError("this client was closed; make a new one")
        create_task = asyncio.get_running_loop().create_task
        # Each of its own, so that none waits for what another one waits for.
        turns = {
            "looking after routes": self._look,
            "asking for routes again": self._renew_routes,
            "sending heart beats": self._beat,
        }
        if self._stays_connected:
            turns["making lost connections anew"] = self._reconnect
        self._tending = [create_task(keep_going(what, turn)) for what, turn in turns.items()]

    async def close(self, producer_group: str | None, consumer_group: str | None) -> None:
        """Tells all connected brokers that the client goes, and closes everything."""
        try:
            for task in self._tending:
                task.cancel()
            if self._tending:
                await asyncio.wait(self._tending)
            await self.leave(producer_group, consumer_group)
        finally:
            self.abort()
        await self.connections.close()

    def abort(self) -> None:
        """Closes everything, tells nobody and waits for nothing. Safe to call twice."""
        for task in self._tending:
            task.cancel()
        self.connections.abort()

    async def leave(self, producer_group: str | None, consumer_group: str | None) -> None:
        """Tells all connected brokers that the client is no member of these groups any more."""
        header = UnregisterClientRequestHeader(
            client_id=self.client_id,
            producer_group=self._wire_name(producer_group),
            consumer_group=self._wire_name(consumer_group),
        )
        known = {address for route in self.routes.known() for address in route.brokers()}
        goodbyes = [
            connection.request(
                RemotingCommand.request(RequestCode.UNREGISTER_CLIENT, header),
                _UNREGISTER_TIMEOUT_S,
            )
            for address in sorted(known)
            if (connection := self.connections.find(address)) is not None
        ]
        await asyncio.gather(*goodbyes, return_exceptions=True)

    async def master_of(self, topic: str, broker_name: str) -> str:
        """Returns the address of the leader of a broker name, as it is known.

        Raises:
            NoRouteError: the topic is not there, or the broker has no leader now.
        """
        route = await self.routes.get(topic)
        address = route.masters.get(broker_name)
        if address is None:
            raise NoRouteError("no leader now", retriable=True, broker=broker_name, topic=topic)
        return address

    async def request(self, address: str, command: RemotingCommand) -> RemotingCommand:
        """Sends an ordinary request to a broker and returns its answer, whatever its code.

        Raises:
            UnreachableError: no connection, or no answer in time.
        """
        return await self.connections.request(address, command, self.config.request_timeout_s)

    async def ask_leader(
        self, topic: str, broker_name: str, command: RemotingCommand, timeout_s: float
    ) -> RemotingCommand:
        """Sends a request to the leader of a broker name and returns its answer, whatever its code.

        It may be held there for long: a route that names another leader ends the waiting, also that
        for a connection.

        Raises:
            NoRouteError: as for master_of.
            UnreachableError: no connection, no answer in time, or another broker leads now.
        """
        address = await self.master_of(topic, broker_name)
        try:
            async with asyncio.timeout(None) as waiting:
                self._asked[waiting] = (broker_name, address)
                try:
                    return await self.connections.request(address, command, timeout_s)
                finally:
                    self._asked.pop(waiting, None)
        except TimeoutError as error:
            raise UnreachableError(
                "another broker leads now", retriable=True, broker=address, topic=topic
            ) from error

    def _take_route(self, route: TopicRoute) -> None:
        """Ends what waits for brokers that lead no longer."""
        now_s = asyncio.get_running_loop().time()
        for waiting, (broker_name, address) in list(self._asked.items()):
            if route.masters.get(broker_name, address) != address:
                # Once: its turn to go comes later.
                del self._asked[waiting]
                waiting.reschedule(now_s)

    async def send_heartbeats(self) -> None:
        """Sends a heartbeat to every broker of every known route, and waits until they are out.

        One that cannot be reached is left out: a connection to it will begin with a heartbeat.
        """
        await all_of(map(self._greet, self._brokers()))

    async def refresh_routes(self) -> None:
        """Asks for all known routes again; a failure leaves the old one."""
        await all_of(map(self._refresh, self.routes.known()))

    def _wire_name(self, group: str | None) -> str | None:
        return None if group is None else with_namespace(self.config.namespace, group)

    def _brokers(self) -> list[str]:
        return sorted({a for route in self.routes.known() for a in route.brokers()})

    async def _greet(self, address: str) -> None:
        found = self.connections.find(address)
        if found is not None:
            self._connected(found)
        else:
            # The new connection begins with the heartbeat.
            await self._open(address)

    async def _open(self, address: str) -> None:
        with contextlib.suppress(ClientError):
            await self.connections.open(address)

    async def _refresh(self, route: TopicRoute) -> None:
        with contextlib.suppress(ClientError):
            await self.routes.refresh(route.topic, may_create=route.is_guess)

    def _connected(self, connection: Connection) -> None:
        if self._heartbeat is None or connection.address in self._addresses:
            return
        command = RemotingCommand.request(RequestCode.HEART_BEAT, body=self._heartbeat().encode())
        with contextlib.suppress(ClientError):
            connection.send(command, NOBODY, self.config.request_timeout_s)

    def _question(self, address: str) -> RemotingCommand:
        """Returns what a living name server or broker answers; it changes nothing there."""
        if address in self._addresses:
            header = GetRouteInfoRequestHeader(topic=DEFAULT_TOPIC, accept_standard_json_only=True)
            return RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        # Of no group: brokers take it as news of nobody.
        body = HeartbeatData(client_id=self.client_id).encode()
        return RemotingCommand.request(RequestCode.HEART_BEAT, body=body)

    # What goes on as long as the client lives, a turn at a time.

    async def _look(self) -> None:
        await asyncio.sleep(_LOOK_INTERVAL_S)
        known = self.routes.known()
        await all_of(self._refresh(one) for one in known if one.is_guess or self._is_doubtful(one))

    async def _reconnect(self) -> None:
        await asyncio.sleep(_LOOK_INTERVAL_S)
        find = self.connections.find
        # A new connection begins with a heartbeat.
        await all_of(self._open(address) for address in self._brokers() if find(address) is None)

    def _is_doubtful(self, route: TopicRoute) -> bool:
        """Tells whether another broker may lead now: nothing is heard of the one that did."""
        if not self._stays_connected:
            # Whoever sends asks for itself.
            return False
        links = [self.connections.find(address) for address in route.masters.values()]
        return any(link is None or not link.is_proven for link in links)

    async def _renew_routes(self) -> None:
        await asyncio.sleep(self.config.route_interval_s)
        await self.refresh_routes()

    async def _beat(self) -> None:
        await asyncio.sleep(self.config.heartbeat_interval_s)
        await self.send_heartbeats()


def _answer_nothing(address: str, request: RemotingCommand) -> None:
    return None


def _own_host(name_server: str) -> str:
    """Returns this machine's address as the name server would see it; nothing is sent."""
    host, _, port = name_server.rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, int(port)))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def _forked() -> None:
    """Called in the child of a fork."""
    for instance in list(_living):
        instance.is_foreign = True


# Asked for on every call, so told rather than looked up: a process id costs a system call.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
