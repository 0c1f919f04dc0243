"""A connection whose other end has vanished is given up by the kernel in time, on every socket."""

import ast
import socket
import sys
from typing import Any, cast

import pytest
from twisted.internet.testing import MemoryReactorClock

from ledgermq.broker.ha.client import MasterConnection
from ledgermq.broker.ha.server import SlaveConnection
from ledgermq.protocol.tcp_times import (
    ACCEPTED_TIMES,
    CLIENT_TIMES,
    MEMBER_TIMES,
    NAME_SERVER_TIMES,
    REGISTRATION_TIMES,
    TcpTimes,
    set_tcp_times,
)
from ledgermq.protocol.tls.contexts import ServerTls
from ledgermq.protocol.transport import CommandClient, CommandProtocol, CommandServer
from ledgermq.protocol.transport.limits import ConnectionLimits
from ledgermq.protocol.transport.tls_link import TlsLink
from tests.tidy.sources import python_sources
from tests.unit.protocol.wires import MemoryConnection, MemorySocket, Recorder, Wire

TCP_USER_TIMEOUT = 18
linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="TCP_USER_TIMEOUT is an option of Linux"
)
ALL = (MEMBER_TIMES, REGISTRATION_TIMES, CLIENT_TIMES, ACCEPTED_TIMES, NAME_SERVER_TIMES)


def unacknowledged_ms(sock: MemorySocket) -> int:
    return sock.options[socket.IPPROTO_TCP, TCP_USER_TIMEOUT]


def attach(protocol: Any) -> MemorySocket:
    """Gives a protocol a connection over a socket of memory."""
    sock = MemorySocket()
    protocol.makeConnection(
        MemoryConnection(cast(Any, sock), protocol, cast(Any, MemoryReactorClock()))
    )
    return sock


@linux_only
@pytest.mark.parametrize("times", ALL)
def test_kernel_takes_the_times(times: TcpTimes) -> None:
    with socket.socket() as sock:
        set_tcp_times(sock, times)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        values = [
            sock.getsockopt(socket.IPPROTO_TCP, option)
            for option in (
                socket.TCP_KEEPIDLE,
                socket.TCP_KEEPINTVL,
                socket.TCP_KEEPCNT,
                TCP_USER_TIMEOUT,
            )
        ]
    assert values[:2] == [times.idle_s, times.interval_s]
    # Without the last option the probes alone take about as long.
    assert values[2] * times.interval_s * 1000 == times.unacknowledged_ms
    assert values[3] == times.unacknowledged_ms


def test_socket_that_has_gone_is_left_alone() -> None:
    with socket.socket() as sock:
        pass
    set_tcp_times(sock, MEMBER_TIMES)


@linux_only
def test_connection_has_the_times_of_its_limits() -> None:
    clock, limits = MemoryReactorClock(), ConnectionLimits(tcp_times=NAME_SERVER_TIMES)
    wire = Wire(clock, CommandProtocol(clock, Recorder(), limits=limits))
    assert wire.socket.options[socket.SOL_SOCKET, socket.SO_KEEPALIVE] == 1
    assert unacknowledged_ms(wire.socket) == NAME_SERVER_TIMES.unacknowledged_ms


@linux_only
def test_connection_behind_tls_has_them_before_its_first_byte() -> None:
    clock, limits = MemoryReactorClock(), ConnectionLimits(tcp_times=NAME_SERVER_TIMES)
    inner = CommandProtocol(clock, Recorder(), limits=limits)
    sock = attach(TlsLink(inner, server=cast(ServerTls, None)))
    assert unacknowledged_ms(sock) == NAME_SERVER_TIMES.unacknowledged_ms


@linux_only
def test_ends_that_say_nothing_get_those_of_clients_and_of_what_is_accepted() -> None:
    clock = MemoryReactorClock()
    client = CommandClient(clock, "10.0.0.9", 1)
    client.start()
    sock = attach(clock.tcpClients[0][2].buildProtocol(None))
    assert unacknowledged_ms(sock) == CLIENT_TIMES.unacknowledged_ms
    server = CommandServer(clock, Recorder(), "", 0)
    sock = attach(server.admit("10.0.0.9"))
    assert unacknowledged_ms(sock) == ACCEPTED_TIMES.unacknowledged_ms


@linux_only
@pytest.mark.parametrize("end", [MasterConnection, SlaveConnection])
def test_both_ends_of_a_log_that_is_copied_have_them(end: type) -> None:
    class Owner:
        """As much of a client or server as a connection needs when it is made."""

        def new_link(self) -> Any:
            return self

        def new_greeting(self, *host: str) -> None:
            """Nobody has to say who it is."""

        def now_ms(self) -> float:
            return 0.0

        def take_report(self, now_ms: float) -> None: ...

        def connection_made(self, connection: object) -> None: ...

    assert unacknowledged_ms(attach(end(Owner()))) == CLIENT_TIMES.unacknowledged_ms


def test_whoever_opens_or_takes_a_connection_says_how_long_it_waits() -> None:
    """A file that switches TCP's delay off, or connects a plain socket, holds a connection."""
    # Tests' own sockets, probes that are closed at once, and asyncio's, which are set when made.
    exempt = ("ledgermq.testing", "ledgermq.cli.doctor", "ledgermq.client")
    found = []
    for source in python_sources("ledgermq"):
        calls = {
            ast.unparse(node.func).rpartition(".")[2]
            for node in ast.walk(source.tree)
            if isinstance(node, ast.Call)
        }
        if calls & {"setTcpNoDelay", "create_connection"} and not source.module.startswith(exempt):
            found.append(source.module)
            assert "set_tcp_times" in calls, source.path
    assert len(found) >= 6
