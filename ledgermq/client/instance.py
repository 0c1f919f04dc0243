"""What producers and consumers stand on: an id, connections, name servers, routes, heartbeats.

Each has an instance of its own, which opens and closes with it, or several share the one of a
Client: to brokers all of them are one client then, whose heartbeat names all their groups.

Membership of a group hangs on the connection, so each new connection to a broker begins with a
heartbeat. A running instance asks for all its routes again now and then; whoever sees a failure
asks at once.
"""

import asyncio
import contextlib
import itertools
import logging
import os
import secrets
import socket
import time
import weakref
from typing import Final

from ledgermq.client.config import ClientConfig, parse_addresses
from ledgermq.client.connection import Answer, Connection
from ledgermq.client.connections import Connections
from ledgermq.client.endless import all_of, keep_going
from ledgermq.client.errors import (
    ClientError,
    ClosedError,
    ConfigError,
    NoRouteError,
    UnreachableError,
)
from ledgermq.client.name_servers import NameServers
from ledgermq.client.participant import HEARTBEAT_ANSWERS, Participant, heartbeat_of
from ledgermq.client.routes import RouteCache, TopicRoute
from ledgermq.protocol.codes import RequestCode, ResponseCode
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
_LOOPBACK: Final = "127.0.0.1"
# An address that no host has (RFC 5737).
_ELSEWHERE: Final = "192.0.2.1"

_numbers = itertools.count()
# Makes the ids of messages differ between processes that have one address and process id.
_DRAWN: Final = secrets.randbits(32)
# What a fork copies without a use for it.
_living: "weakref.WeakSet[ClientInstance]" = weakref.WeakSet()

_log = logging.getLogger("ledgermq.client")


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
        is_shared: bool = False,
    ) -> None:
        """Opens nothing yet.

        Args:
            name_servers: ``host:port;host:port``.
            config: times.
            is_shared: True when it outlives those who join it; else it closes with the one who did.

        Raises:
            ConfigError: the addresses are wrong.
        """
        addresses = parse_addresses(name_servers)
        self.config = config
        self.is_shared = is_shared
        self._participants: list[Participant] = []
        self._process_id = os.getpid()
        # True in the child of a fork: sockets and loop belong to the process that made them.
        self.is_foreign = False
        _living.add(self)
        host = _own_host(addresses[0])
        # As Java's ip@pid#nanoTime. Address, process id and name are the same in many containers:
        # two members of one id would each hold all queues of the group.
        name = config.instance_name or str(os.getpid())
        self.client_id = f"{host}@{name}#{secrets.token_hex(8)}"
        self._host = host
        self.unique_ids = self.new_unique_ids()
        self.connections = Connections(
            config, self._requested, self._connected, self._question, self._doubted
        )
        self.name_servers = NameServers(addresses, self.connections, config.request_timeout_s)
        self.routes = RouteCache(
            self.name_servers, namespace=config.namespace, on_route=self._take_route
        )
        # Requests that wait for a leader: its broker name and address when they were sent.
        self._asked: dict[asyncio.Timeout, tuple[str, str]] = {}
        self._addresses = frozenset(addresses)
        self._tending: list[asyncio.Task[None]] = []
        # It lives on one loop; None before it starts.
        self._loop: asyncio.AbstractEventLoop | None = None
        # Addresses of silent brokers whose successors are asked for.
        self._succeeding: dict[str, asyncio.Task[None]] = {}

    def new_unique_ids(self) -> UniqueIds:
        """Returns what makes ids of messages that no other one makes; for one thread."""
        return UniqueIds(socket.inet_aton(self._host), os.getpid(), next(_numbers) ^ _DRAWN)

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

    def check_new(self, participant: Participant) -> None:
        """Checks that a producer or consumer was not closed before.

        Raises:
            ClosedError: it was: each is opened once.
        """
        if participant.has_quit:
            raise ClosedError("this producer or consumer was closed; make a new one")

    def start(self) -> None:
        """Begins to keep routes and heartbeats fresh; needs a running loop.

        Raises:
            ClosedError: it was closed before (a client is opened once), or made before a fork.
        """
        self.check_open(True, "client")
        if self.connections.is_closed:
            raise ClosedError("this client was closed; make a new one")
        self._loop = asyncio.get_running_loop()
        create_task = self._loop.create_task
        # Each of its own, so that none waits for what another one waits for.
        turns = {
            "looking after routes": self._look,
            "asking for routes again": self._renew_routes,
            "sending heart beats": self._beat,
            "making lost connections anew": self._reconnect,
        }
        self._tending = [create_task(keep_going(what, turn)) for what, turn in turns.items()]

    def join(self, participant: Participant) -> None:
        """Takes a producer or consumer in; needs a running loop.

        Raises:
            ClosedError: as for start; a shared one must be open already, in this event loop.
            ConfigError: a consumer of its group is there already.
        """
        if self.is_shared:
            self.check_new(participant)
            self.check_open(bool(self._tending) and not self.connections.is_closed, "client")
            if self._loop is not asyncio.get_running_loop():
                raise ClosedError(
                    "this client was opened in another event loop; make and open one in each, or"
                    " keep one loop (asyncio.Runner) for all"
                )
            group = participant.consumer_group
            if group is not None and any(p.consumer_group == group for p in self._participants):
                raise ConfigError(
                    f"consumer group {group} has a consumer of this client already; a client is"
                    " one member of a group: make the other one of another client"
                )
        self._participants.append(participant)
        if participant.default_queue_nums is not None:
            self.routes.limit_guess(participant.default_queue_nums)
        if not self.is_shared:
            self.start()
            return
        if participant.heartbeat is not None:
            # Brokers that know the client are to learn of the new group, too.
            for address in self._brokers():
                if (connection := self.connections.find(address)) is not None:
                    self._connected(connection)

    async def quit(self, participant: Participant) -> None:
        """Tells brokers that a producer or consumer goes; a shared one stays open without it."""
        participant.has_quit = True
        if not self.is_shared:
            await self.close(participant)
            return
        self._forget(participant)
        await self._leave_groups(participant)

    def drop(self, participant: Participant) -> None:
        """Does as quit, but tells nobody and waits for nothing. Safe to call twice."""
        self._forget(participant)
        if not self.is_shared:
            self.abort()

    async def close(self, *leaving: Participant) -> None:
        """Tells all connected brokers that the client goes, and closes everything."""
        try:
            tending = [*self._tending, *self._succeeding.values()]
            for task in tending:
                task.cancel()
            if tending:
                await asyncio.wait(tending)
            for participant in leaving:
                self._forget(participant)
                await self._leave_groups(participant)
        finally:
            self.abort()
        await self.connections.close()

    def abort(self) -> None:
        """Closes everything, tells nobody and waits for nothing. Safe to call twice."""
        for task in [*self._tending, *self._succeeding.values()]:
            task.cancel()
        self.connections.abort()

    def _forget(self, participant: Participant) -> None:
        if participant in self._participants:
            self._participants.remove(participant)

    async def _leave_groups(self, participant: Participant) -> None:
        """Leaves the groups that nobody else here is in."""
        others = {p.producer_group for p in self._participants}
        producer_group = participant.producer_group
        await self.leave(
            None if producer_group in others else producer_group, participant.consumer_group
        )

    async def leave(self, producer_group: str | None, consumer_group: str | None) -> None:
        """Tells all connected brokers that the client is no member of these groups any more.

        Args:
            producer_group: as it stands on the wire; None leaves none.
            consumer_group: the same.
        """
        header = UnregisterClientRequestHeader(
            client_id=self.client_id,
            producer_group=producer_group,
            consumer_group=consumer_group,
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

    @property
    def _stays_connected(self) -> bool:
        """True when brokers ask somebody here: a connection that is lost is made again."""
        return any(participant.stays_connected for participant in self._participants)

    def _requested(self, address: str, request: RemotingCommand) -> Answer:
        """Gives a request of a broker to whom it is meant for."""
        fields = request.ext_fields or {}
        group = fields.get("consumerGroup") or fields.get("group")
        of_group = [p for p in self._participants if group and p.consumer_group == group]
        for participant in of_group or list(self._participants):
            answer = participant.on_request(address, request)
            if answer is not None:
                return answer
        if request.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            _log.info("a reply came when nobody waited for it: %r", fields.get("topic"))
            return request.response(ResponseCode.SUCCESS)
        return None

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
        if connection.address in self._addresses:
            return
        heartbeat = heartbeat_of(self.client_id, self._participants)
        if heartbeat is None:
            return
        command = RemotingCommand.request(RequestCode.HEART_BEAT, body=heartbeat.encode())
        with contextlib.suppress(ClientError):
            connection.send(command, HEARTBEAT_ANSWERS, self.config.request_timeout_s)

    def _question(self, address: str) -> RemotingCommand:
        """Returns what a living name server or broker answers; it changes nothing there."""
        if address in self._addresses:
            header = GetRouteInfoRequestHeader(topic=DEFAULT_TOPIC, accept_standard_json_only=True)
            return RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        # Of no group: brokers take it as news of nobody.
        body = HeartbeatData(client_id=self.client_id).encode()
        return RemotingCommand.request(RequestCode.HEART_BEAT, body=body)

    def _doubted(self, connection: Connection) -> None:
        """Has the successor of a silent broker asked for, unless it is being asked for."""
        address = connection.address
        if address not in self._succeeding:
            task = asyncio.get_running_loop().create_task(self._succeed(connection))
            self._succeeding[address] = task
            task.add_done_callback(lambda _: self._succeeding.pop(address, None))

    async def _succeed(self, connection: Connection) -> None:
        """Leaves a silent broker at once when all that it led has another leader."""
        address = connection.address
        led = [route for route in self.routes.known() if address in route.masters.values()]
        names = {name for route in led for name, at in route.masters.items() if at == address}
        await all_of(map(self._refresh, led))
        now = {(name, at) for route in self.routes.known() for name, at in route.masters.items()}
        has_heirs = all(any(name == one for one, _ in now) for name in names)
        if led and has_heirs and all(at != address for _, at in now) and connection.is_doubted:
            connection.abort("it is silent, and another broker leads now")

    # What goes on as long as the client lives, a turn at a time.

    async def _look(self) -> None:
        await asyncio.sleep(_LOOK_INTERVAL_S)
        known = self.routes.known()
        await all_of(self._refresh(one) for one in known if one.is_guess or self._is_doubtful(one))

    async def _reconnect(self) -> None:
        await asyncio.sleep(_LOOK_INTERVAL_S)
        if not self._stays_connected:
            return
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


def instance_of(name_servers: str | ClientInstance, config: ClientConfig) -> ClientInstance:
    """Returns an instance for a producer or consumer: a new one, or the shared one it is given."""
    if isinstance(name_servers, ClientInstance):
        return name_servers
    return ClientInstance(name_servers, config)


def _own_host(name_server: str) -> str:
    """Returns this machine's address as the name server would see it; nothing is sent.

    A host name is not looked up: that may take seconds, in which the program's event loop would
    stand still. Then it is the address for hosts elsewhere.
    """
    host, _, port = name_server.rpartition(":")
    if host == "localhost":
        return _LOOPBACK
    try:
        socket.inet_aton(host)
    except OSError:
        host = _ELSEWHERE
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, int(port)))
            return str(probe.getsockname()[0])
    except OSError:
        return _LOOPBACK


def _forked() -> None:
    """Called in the child of a fork."""
    for instance in list(_living):
        instance.is_foreign = True


# Asked for on every call, so told rather than looked up: a process id costs a system call.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
