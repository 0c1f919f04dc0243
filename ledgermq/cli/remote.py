"""One request at a time to name servers and brokers, over plain sockets: for commands that end.

Every call has a deadline. A refusal of the other side becomes `RefusedError` with its code and
remark; no answer becomes `UnreachableError` with the address.
"""

from __future__ import annotations

import socket
import ssl
from typing import Final, Self

from ledgermq.cli.security import Security
from ledgermq.client.blocking import AdminClient
from ledgermq.client.errors import code_name
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.headers import GetRouteInfoRequestHeader
from ledgermq.protocol.headers.header import Header
from ledgermq.protocol.route import MASTER_ID, ClusterInfo, TopicRouteData
from ledgermq.protocol.signature import Credentials, ends_of
from ledgermq.protocol.tcp_times import CLIENT_TIMES, set_tcp_times

TIMEOUT_S: Final = 5.0
NO_SECURITY: Final = Security()


class AdminError(Exception):
    """A command could not be carried out; its text says why."""


class UnreachableError(AdminError):
    """Nobody answered."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"no answer from {address}: {reason}")
        self.address = address


class RefusedError(AdminError):
    """The other side answered with an error."""

    def __init__(self, address: str, code: int, remark: str | None) -> None:
        super().__init__(f"{address} answered {code_name(code)}: {remark or 'no remark'}")
        self.address = address
        self.code = code
        self.remark = remark


class Remote:
    """Connections to name servers and brokers, kept until the command ends."""

    def __init__(
        self, name_servers: str, timeout_s: float = TIMEOUT_S, security: Security = NO_SECURITY
    ) -> None:
        """Parses ``host:port;host:port``; nothing is opened yet.

        Raises:
            AdminError: the text holds no address.
        """
        self.name_servers = [part.strip() for part in name_servers.split(";") if part.strip()]
        if not self.name_servers:
            raise AdminError(f"name server address {name_servers!r}: give host:port;host:port")
        for part in self.name_servers:
            _host_and_port(part)
        self._timeout_s = timeout_s
        self._security = security
        self._sockets: dict[str, socket.socket] = {}
        self._opaque = 0
        self._admin: AdminClient | None = None

    @property
    def admin(self) -> AdminClient:
        """The same cluster as an admin client, opened when it is first used."""
        if self._admin is None:
            names = ";".join(self.name_servers)
            admin = AdminClient(names, config=self._security.client_config())
            self._admin = admin.__enter__()
        return self._admin

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._admin is not None:
            self._admin.close()
        for connection in self._sockets.values():
            connection.close()

    def call(
        self, address: str, code: int, header: Header | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Sends one request and returns its answer.

        Raises:
            UnreachableError: no connection, or no answer in time.
            RefusedError: the answer is not SUCCESS.
            AdminError: the address is none.
        """
        answer = self.ask(address, code, header, body)
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedError(address, answer.code, answer.remark)
        return answer

    def ask(
        self, address: str, code: int, header: Header | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Sends one request and returns its answer, whatever its code.

        Raises:
            UnreachableError: no connection, or no answer in time.
            AdminError: the address is none.
        """
        command = RemotingCommand.request(code, header, body)
        return self._ask(address, command, self._security.tls, self._security.credentials)

    def ask_ledger(self, address: str, code: int, body: bytes) -> RemotingCommand:
        """Asks a member at the port of its ledger, where there is neither TLS nor signature.

        Raises:
            UnreachableError: no connection, or no answer in time.
        """
        return self._ask(address, RemotingCommand.request(code, None, body), None)

    def _ask(
        self,
        address: str,
        command: RemotingCommand,
        tls: ssl.SSLContext | None,
        who: Credentials | None = None,
    ) -> RemotingCommand:
        self._opaque += 1
        command.opaque = self._opaque
        try:
            connection = self._connection(address, tls)
            if who is not None:
                ends = ends_of(address, connection.getpeername())
                command.ext_fields = who.signed(
                    command.ext_fields, command.body, command.code, ends
                )
            return _exchange(connection, command)
        except (OSError, UnicodeError, RemoteProtocolError) as error:
            lost = self._sockets.pop(address, None)
            if lost is not None:
                lost.close()
            raise UnreachableError(address, str(error)) from error

    def _connection(self, address: str, tls: ssl.SSLContext | None) -> socket.socket:
        connection = self._sockets.get(address)
        if connection is None:
            place = _host_and_port(address)
            connection = socket.create_connection(place, timeout=self._timeout_s)
            set_tcp_times(connection, CLIENT_TIMES)
            if tls is not None:
                connection = tls.wrap_socket(connection, server_hostname=place[0])
            self._sockets[address] = connection
        return connection

    def ask_name_server(
        self, code: int, header: Header | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Asks the first name server that answers.

        Raises:
            UnreachableError: none of them answers.
            RefusedError: it answered with an error.
        """
        failure: UnreachableError | None = None
        for address in self.name_servers:
            try:
                return self.call(address, code, header, body)
            except UnreachableError as error:
                failure = error
        assert failure is not None
        raise failure

    def clusters(self) -> ClusterInfo:
        """All clusters and brokers."""
        return ClusterInfo.decode(self.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO).body)

    def route(self, topic: str) -> TopicRouteData:
        """The brokers and queues of a topic."""
        answer = self.ask_name_server(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic)
        )
        return TopicRouteData.decode(answer.body)

    def masters(self, cluster_name: str) -> list[str]:
        """Addresses of the masters of a cluster.

        Raises:
            AdminError: no such cluster, or it has no master now.
        """
        info = self.clusters()
        if cluster_name not in info.cluster_addr_table:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise AdminError(f"no cluster {cluster_name!r}; known: {known}")
        addresses = []
        for broker_name in info.cluster_addr_table[cluster_name]:
            master = info.broker_addr_table[broker_name].broker_addrs.get(MASTER_ID)
            if master is not None:
                addresses.append(master)
        if not addresses:
            raise AdminError(f"cluster {cluster_name!r} has no master now")
        return sorted(addresses)


def _exchange(connection: socket.socket, command: RemotingCommand) -> RemotingCommand:
    connection.sendall(encode(command))
    decoder = FrameDecoder()
    while True:
        chunk = connection.recv(65_536)
        if not chunk:
            raise ConnectionError("the connection was closed")
        for frame in decoder.feed(chunk):
            answer = decode(frame)
            if answer.is_response and answer.opaque == command.opaque:
                return answer


def _host_and_port(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= 5
    if not host or not colon or not is_number or not 1 <= int(port) <= 65_535:
        raise AdminError(f"address {address!r}: give host:port, the port from 1 to 65535")
    return host, int(port)
