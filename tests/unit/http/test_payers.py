"""For whom the port counts what a connection uses."""

from typing import Any, cast

import pytest
from twisted.internet.address import IPv6Address
from twisted.internet.testing import MemoryReactorClock, StringTransport

from ledgermq.http.application import Application
from ledgermq.http.hosts import HostGuard
from ledgermq.http.port import HttpPort
from ledgermq.http.replies import text_reply
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
