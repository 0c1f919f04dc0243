"""The service on a clock of memory: certificates are looked at while it serves."""

from pathlib import Path

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase

from ledgermq.namesrv.config import load_namesrv_config
from ledgermq.namesrv.service import NamesrvService
from ledgermq.protocol.tls.contexts import client_context
from ledgermq.protocol.tls.engine import TlsEngine, TlsError
from tests import certificate_files as certificates
from tests.certificate_files import write_tls_file


class Transport(StringTransport):
    """A socket of memory with the one option that is set."""

    def setTcpNoDelay(self, enabled: bool) -> None: ...


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
