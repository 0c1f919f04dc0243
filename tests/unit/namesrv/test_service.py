"""The service on a clock of memory: certificates are looked at while it serves."""

from pathlib import Path
from typing import NamedTuple, cast

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from ledgermq.namesrv.config import load_namesrv_config
from ledgermq.namesrv.registrations import Registrant, Registration
from ledgermq.namesrv.service import NamesrvService
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.headers import RegisterBrokerRequestHeader
from ledgermq.protocol.route import DataVersion
from ledgermq.protocol.tls.contexts import client_context
from ledgermq.protocol.tls.engine import TlsEngine, TlsError
from ledgermq.protocol.transport import CommandProtocol
from tests import certificate_files as certificates
from tests.certificate_files import write_tls_file

TRUST = {"tls.client.trustCertPath": certificates.AUTHORITY}


class Transport(StringTransport):
    """A socket of memory with the one option that is set."""

    def setTcpNoDelay(self, enabled: bool) -> None: ...


class Client:
    """One connection by TLS."""

    def __init__(self, reactor: MemoryReactorClock, settings: dict[str, str]) -> None:
        address = IPv4Address("TCP", "127.0.0.1", 5555)
        self.reactor = reactor
        self.link = reactor.tcpServers[-1][1].buildProtocol(address)
        self.transport = Transport(peerAddress=address)
        self.link.makeConnection(self.transport)
        self.engine = TlsEngine(client_context(settings), is_server=False)
        self.decoder = FrameDecoder()
        for _ in range(4):
            self.exchange()
        assert self.engine.is_open

    def exchange(self) -> bytes:
        if data := self.engine.take():
            self.link.dataReceived(data)
        self.reactor.advance(0)
        if self.transport.producer is not None:
            # All was sent: a socket takes more.
            self.transport.producer.resumeProducing()
        received = self.engine.receive(self.transport.value())
        self.transport.clear()
        return received

    def register(self, broker_name: str) -> RemotingCommand:
        header = RegisterBrokerRequestHeader(
            broker_name=broker_name,
            broker_addr="10.0.0.1:10911",
            cluster_name="C",
            ha_server_addr="",
            broker_id=0,
        )
        request = RemotingCommand.request(RequestCode.REGISTER_BROKER, header)
        self.engine.write(encode(request))
        return decode(self.decoder.feed(self.exchange())[0])


class Silent(NamedTuple):
    """A connection on which brokers registered, which say no more."""

    peer_host: str


def brokers_of(service: NamesrvService, owner: object, count: int) -> None:
    """Registers some, each under a long name of its own."""
    for number in range(count):
        told = Registration(
            cluster_name="C",
            broker_name="b",
            broker_id=number,
            broker_addr=f"{'h' * 280}-{number:04}:1",
            ha_server_addr="",
            data_version=DataVersion(1, 1),
            topics={},
            filter_servers=(),
            expires_after_ms=None,
        )
        service.routes.register(told, Registrant(key="account shop", account="shop"), owner, 0.0)


class LogTests(SynchronousTestCase):
    """Who registers as many addresses as they like causes few lines."""

    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()
        self.service = NamesrvService(load_namesrv_config(None, {}), self.reactor)

    def test_brokers_that_leave_with_a_connection_are_one_line(self) -> None:
        with capturedLogs() as events:
            for host in ("2001:db8::1", "2001:db8::2"):
                owner = Silent(host)
                brokers_of(self.service, owner, 200)
                self.service.connection_lost(cast("CommandProtocol", owner), "closed")
            brokers_of(self.service, owner, 1)
            self.service.connection_lost(cast("CommandProtocol", owner), "closed")
        texts = [formatEvent(event) for event in events]
        self.assertEqual(len(texts), 3)
        self.assertIn("-0002:1 and 197 more left: closed", texts[0])
        self.assertNotIn("more", texts[2])
        self.assertLess(max(map(len, texts)), 1000)
        self.assertEqual(len({event["repeats_as"] for event in events}), 1, "of one network")

    def test_brokers_that_are_silent_are_one_line(self) -> None:
        brokers_of(self.service, Silent("10.0.0.7"), 200)
        self.reactor.advance(1000)
        with capturedLogs() as events:
            self.service._expire()
        [text] = [formatEvent(event) for event in events]
        self.assertIn("-0002:1 and 197 more", text)


class ServiceTests(SynchronousTestCase):
    @pytest.fixture(autouse=True)
    def run_in(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def setUp(self) -> None:
        self.file = write_tls_file(self.folder / "tls.properties")
        self.reactor = MemoryReactorClock()
        settings = {
            "tls.config.file": str(self.file),
            "listenPort": "0",
            "kvConfigPath": str(self.folder / "kv.json"),
        }
        self.service = NamesrvService(load_namesrv_config(None, settings), self.reactor)
        self.successResultOf(self.service.start())

    def is_served(self, trusts: str) -> bool:
        """Whether a client that connects now and trusts one authority is content."""
        address = IPv4Address("TCP", "127.0.0.1", 5555)
        link = self.reactor.tcpServers[0][1].buildProtocol(address)
        transport = Transport(peerAddress=address)
        link.makeConnection(transport)
        client = TlsEngine(client_context({"tls.client.trustCertPath": trusts}), is_server=False)
        try:
            for _ in range(4):
                if data := client.take():
                    link.dataReceived(data)
                client.receive(transport.value())
                transport.clear()
        except TlsError as refusal:
            assert "not accepted" in str(refusal)
        return client.is_open

    def test_certificates_are_followed_while_it_runs(self) -> None:
        self.assertTrue(self.is_served(certificates.AUTHORITY))
        write_tls_file(
            self.file,
            tls_server_certPath=certificates.SECOND_NODE,
            tls_server_keyPath=certificates.SECOND_NODE_KEY,
        )
        self.assertFalse(self.is_served(certificates.SECOND_NODE))
        self.reactor.advance(5)
        self.assertTrue(self.is_served(certificates.SECOND_NODE))
        self.assertFalse(self.is_served(certificates.AUTHORITY))
        self.service.stop()
        self.reactor.advance(2)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_a_client_certificate_is_an_account(self) -> None:
        self.service.stop()
        accounts = self.folder / "accounts.yml"
        accounts.touch(0o600)
        accounts.write_text(
            "accounts:\n- {accessKey: by-certificate, certificateNames: [localhost],"
            " brokerNames: [shop-*]}\n"
        )
        write_tls_file(
            self.file,
            tls_server_need_client_auth="optional",
            tls_server_trustCertPath=certificates.AUTHORITY,
        )
        settings = {
            "tls.config.file": str(self.file),
            "aclEnable": "true",
            "aclFile": str(accounts),
            "kvConfigPath": str(self.folder / "kv.json"),
        }
        self.service = NamesrvService(load_namesrv_config(None, settings), self.reactor)
        self.successResultOf(self.service.start())
        own = {
            "tls.client.certPath": certificates.NODE,
            "tls.client.keyPath": certificates.NODE_KEY,
        }
        known, unknown = Client(self.reactor, {**TRUST, **own}), Client(self.reactor, TRUST)
        self.assertEqual(unknown.register("shop-a").code, ResponseCode.NO_PERMISSION)
        self.assertEqual(known.register("other").code, ResponseCode.NO_PERMISSION)
        self.assertEqual(known.register("shop-a").code, ResponseCode.SUCCESS)
        self.assertEqual(list(self.service.routes.clusters().broker_addr_table), ["shop-a"])
        self.assertEqual(self.service.refusals_count, 2)
        self.service.stop()
