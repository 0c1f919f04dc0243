"""For whom the port counts what a connection uses, and keeps."""

from typing import Any, cast

import pytest
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.testing import MemoryReactorClock, StringTransport

from ledgermq.http.application import Application
from ledgermq.http.hosts import HostGuard
from ledgermq.http.limits import Limits
from ledgermq.http.port import HttpPort
from ledgermq.http.replies import Reply, text_reply
from ledgermq.http.routes import Routes


class Socket:
    """Takes all options."""

    def setsockopt(self, *_: object) -> None: ...


class Transport(StringTransport):
    socket, bufferSize = Socket(), 0


@pytest.mark.parametrize(
    ("host", "are_one"), [("2001:db8::ffff:9", True), ("2001:db8:0:1::1", False)]
)
def test_addresses_of_one_network_of_ipv6_are_one(host: str, are_one: bool) -> None:
    routes = Routes()
    routes.add("GET", "/hello", lambda request: text_reply("hello"))
    reactor = MemoryReactorClock()
    port = HttpPort(reactor, Application(routes, [HostGuard()]), host="::", port=0)
    port.start()
    payers = []
    for address in ("2001:db8::1", host):
        peer = IPv6Address("TCP", address, 5555)
        connection = cast(Any, reactor.tcpServers[-1][1].buildProtocol(peer))
        transport = Transport(peerAddress=peer)
        connection.makeConnection(transport)
        connection.dataReceived(b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n")
        reactor.advance(0)
        assert transport.value().endswith(b"hello")
        payers.append(connection._share._payer)
    assert None not in payers and (payers[0] is payers[1]) == are_one


class Unread(Transport):
    """Its client reads nothing."""

    def write(self, data: bytes) -> None:
        super().write(data)
        if len(data) > self.bufferSize:
            cast(Any, self.producer).pauseProducing()


def test_who_reads_nothing_gives_way_to_others_answers() -> None:
    """Two addresses kept large answers from all others."""
    routes, body = Routes(), b"x" * 100_000
    routes.add("GET", "/large", lambda request: Reply(body=body, content_type="text/plain"))
    reactor = MemoryReactorClock()
    port = HttpPort(
        reactor, Application(routes, [HostGuard()]), host="::", port=0,
        limits=Limits(answers_bytes_max=4 * len(body)),
    )  # fmt: skip
    port.start()

    def ask(host: str) -> Unread:
        peer = IPv4Address("TCP", host, 5555)
        connection = cast(Any, reactor.tcpServers[-1][1].buildProtocol(peer))
        transport = Unread(peerAddress=peer)
        connection.makeConnection(transport)
        connection.dataReceived(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        reactor.advance(0)
        return transport

    def status(transport: Unread) -> bytes:
        return transport.value()[9:12]

    first = [ask(host) for host in ("10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2")]
    assert [status(one) for one in first] == [b"200"] * 4
    assert status(ask("10.0.0.1")) == b"503"
    assert not any(one.disconnecting or one.disconnected for one in first)
    assert status(ask("10.0.0.3")) == b"200"
    gone = [one.disconnecting or one.disconnected for one in first]
    assert gone == [True, False, False, False]
    assert port.unread_bytes == 4 * len(body)


def test_who_opens_most_connections_has_its_own_closed() -> None:
    """One address closed those of all others before they had asked, and no probe came through."""
    reactor = MemoryReactorClock()
    limits = Limits(connections_max=4, connections_per_host_rate=6)
    port = HttpPort(reactor, Application(Routes()), host="::", port=0, limits=limits)
    port.start()

    def connect(host: str) -> Transport | None:
        peer = IPv4Address("TCP", host, 5555)
        connection = cast(Any, reactor.tcpServers[-1][1].buildProtocol(peer))
        if connection is None:
            return None
        transport = Transport(peerAddress=peer)
        connection.makeConnection(transport)
        return transport

    probe = connect("10.0.0.1")
    assert probe is not None
    others = [connect("10.0.0.2") for _ in range(9)]
    assert [one is not None for one in others] == [True] * 6 + [False] * 3
    gone = [one is not None and (one.disconnecting or one.disconnected) for one in (probe, *others)]
    assert gone == [False] + [True] * 3 + [False] * 6
    assert (port.connection_count, port.refused_count) == (4, 6)
    reactor.advance(1)
    assert connect("10.0.0.2") is not None
