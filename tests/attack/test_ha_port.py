"""Attacks on the port for slaves of a master whose secret they do not know: nothing is copied,
nothing counts as copied, and the master's own slave goes on.
"""

from typing import Any, Final

from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import LoopingCall, deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from ledgermq.broker.ha.acknowledgements import Acknowledgements, ReplicaStatus
from ledgermq.broker.ha.client import HaClient
from ledgermq.broker.ha.frames import encode_report
from ledgermq.broker.ha.greetings import MARK, HaAdmission
from ledgermq.broker.ha.server import HaServer
from ledgermq.broker.ha.settings import HaSettings
from ledgermq.dledger.addresses import parse_networks
from ledgermq.protocol.group_secret import GroupSecret
from ledgermq.protocol.member_proof import Challenge, Side, draw_nonce
from ledgermq.protocol.tls.contexts import ServerTls, client_context, server_context
from ledgermq.protocol.tls.engine import TlsEngine
from ledgermq.protocol.tls.files import ClientTls
from ledgermq.protocol.transport.refusals import Refusals
from ledgermq.protocol.transport.tls_link import TlsLink
from tests.certificate_files import AUTHORITY, CLIENT, NODE, NODE_KEY, SERVER
from tests.unit.broker.ha.memory_log import MemoryLog

REACTOR: Any = reactor
SETTINGS: Final = HaSettings(heart_beat_ms=100, silence_ms_max=2000)
SECRET, OTHER_SECRET = GroupSecret(b"s" * 32), GroupSecret(b"o" * 32)
LOG: Final = b"a secret message" * 100
PATIENCE_S: Final = 10.0


def admission(secret: GroupSecret | None = SECRET, **changes: Any) -> HaAdmission:
    return HaAdmission("broker-a", secret, **({"is_required": True, "networks": None} | changes))


class Attacker(Protocol):
    """One connection: what came on it, and whether it is over."""

    transport: Any

    def __init__(self) -> None:
        self.data, self.is_over = b"", False

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.is_over = True


async def wait(condition: Any, what: str) -> None:
    """Polls a condition until it is true."""
    end_s = REACTOR.seconds() + PATIENCE_S
    while not condition():
        if REACTOR.seconds() > end_s:
            raise AssertionError(f"after {PATIENCE_S} s still waiting for {what}")
        await deferLater(REACTOR, 0.01, lambda: None)


class HaTestCase(TestCase):
    timeout = 60

    def setUp(self) -> None:
        self.log = MemoryLog(segment_bytes=1 << 20)
        self.log.append(LOG)
        self.attackers: list[Attacker] = []

    async def serve(self, admitted: HaAdmission, tls: ServerTls | None = None) -> HaServer:
        waits = Acknowledgements(behind_bytes_max=1 << 28, timeout_ms=200)
        self.refusals = Refusals("master", REACTOR.seconds)
        server = HaServer(
            REACTOR, self.log, SETTINGS, waits, host="127.0.0.1", port=0, admission=admitted,
            refusals=self.refusals, tls=tls,
        )  # fmt: skip
        self.port = await server.start()
        self.addCleanup(server.stop)
        self.keep(server.check)
        return server

    def keep(self, check: Any) -> None:
        """Has a check called as a broker calls it."""
        call = LoopingCall(check)
        call.start(0.02)
        self.addCleanup(call.stop)

    def follow(
        self, admitted: HaAdmission | None, port: int | None = None, **changes: Any
    ) -> tuple[HaClient, MemoryLog]:
        copy = MemoryLog(segment_bytes=1 << 20)
        client = HaClient(
            REACTOR,
            copy,
            SETTINGS,
            lambda: deferLater(REACTOR, 0, lambda: None),
            back_off=lambda _: 0.02,
            admission=admitted,
            **changes,
        )
        client.follow(f"127.0.0.1:{port or self.port}")
        self.addCleanup(client.stop)
        self.keep(client.check)
        return client, copy

    async def attack(self, data: bytes) -> Attacker:
        endpoint: Any = TCP4ClientEndpoint(REACTOR, "127.0.0.1", self.port)
        attacker: Attacker = await connectProtocol(endpoint, Attacker())
        self.addCleanup(attacker.transport.abortConnection)
        attacker.transport.write(data)
        return attacker

    async def assert_copied(self, copy: MemoryLog) -> None:
        await wait(lambda: copy.max_offset == self.log.max_offset, "the copy")
        self.assertEqual(bytes(copy.read(0, 1 << 20)), bytes(self.log.read(0, 1 << 20)))


class HaPortAttacks(HaTestCase):
    async def test_who_proves_nothing_gets_not_a_byte_of_the_log(self) -> None:
        await self.serve(admission())
        attacks = [
            encode_report(0),
            encode_report(len(LOG)),
            encode_report(2**63 - 1),
            encode_report(-1),
            bytes(1000),
            MARK + bytes(31) + encode_report(0) * 100,
            b"GET / HTTP/1.1\r\n\r\n",
        ]
        for data in attacks:
            attacker = await self.attack(data)
            await wait(lambda one=attacker: one.is_over, "the end of a connection")
            self.assertNotIn(LOG[:16], attacker.data)
        _, copy = self.follow(admission())
        await self.assert_copied(copy)

    async def test_a_copy_that_nobody_has_is_not_acknowledged(self) -> None:
        """A report of the end would count as a copy, and answer senders that wait for one."""
        server = await self.serve(admission())
        statuses: list[ReplicaStatus] = []
        server.acknowledgements.wait(len(LOG), server.now_ms(), statuses.append)
        attacker = await self.attack(encode_report(len(LOG)))
        await wait(lambda: attacker.is_over and statuses, "an answer")
        self.assertNotIn(ReplicaStatus.REPLICATED, statuses)

    async def test_reflected_replayed_and_foreign_proofs_are_refused(self) -> None:
        await self.serve(admission())
        nonce, former = draw_nonce(), b""
        for step in ("other", "reflected", "noted", "replayed"):
            attacker = await self.attack(MARK + bytes.fromhex(nonce))
            await wait(lambda one=attacker: len(one.data) >= 72, "the challenge")
            told = Challenge(
                "ha 1", "broker-a", "slave", "master", nonce, attacker.data[8:40].hex()
            )
            right = bytes.fromhex(told.proof(SECRET.key("slaves"), Side.OPENER))
            other = bytes.fromhex(told.proof(OTHER_SECRET.key("slaves"), Side.OPENER))
            proofs = {
                "other": other, "reflected": attacker.data[40:72], "noted": bytes(32),
                "replayed": former,
            }  # fmt: skip
            former = right
            attacker.transport.write(proofs[step] + encode_report(0))
            await wait(lambda one=attacker: one.is_over, "the end of a connection")
            self.assertEqual(len(attacker.data), 72)
        self.assertEqual(self.refusals.texts(), ["a slave at 127.0.0.1: another group secret"])

    async def test_half_greetings_by_the_hundred_keep_no_slave_out(self) -> None:
        await self.serve(admission())
        halves = [await self.attack(MARK + bytes(i % 30)) for i in range(300)]
        _, copy = self.follow(admission())
        await self.assert_copied(copy)
        await wait(lambda: sum(not one.is_over for one in halves) <= 33, "the end of most halves")
        self.log.append(b"more")
        await self.assert_copied(copy)

    async def test_a_slave_copies_from_no_master_that_proves_nothing(self) -> None:
        """Who answers in a master's place would write the slave's log."""
        for admitted in (admission(None), admission(OTHER_SECRET)):
            await self.serve(admitted)
            client, copy = self.follow(admission())
            await wait(lambda one=client: one.last_failure, "a refusal")
            self.assertEqual(copy.max_offset, 0)
            self.assertFalse(client.is_copying)


class FromOpenToClosed(HaTestCase):
    async def test_master_and_slave_that_accept_copy_whatever_the_other_end_knows(self) -> None:
        accepting = admission(is_required=False)
        pairs = [
            (accepting, accepting),
            (accepting, admission(None)),
            (admission(None), accepting),
            (accepting, admission()),
            (admission(), accepting),
            (accepting, admission(OTHER_SECRET, is_required=False)),
            (admission(), admission()),
        ]
        for master, slave in pairs:
            await self.serve(master)
            _, copy = self.follow(slave)
            await self.assert_copied(copy)

    async def test_slaves_that_prove_nothing_are_served_from_their_addresses(self) -> None:
        await self.serve(admission(networks=parse_networks(["127.0.0.1"])))
        _, copy = self.follow(None)
        await self.assert_copied(copy)
        await self.serve(admission(None, networks=parse_networks(["10.0.0.0/8"])))
        attacker = await self.attack(encode_report(0))
        await wait(lambda: attacker.is_over, "the end of a connection")
        self.assertEqual(attacker.data, b"")
        self.assertIn("haSlaveAddresses", self.refusals.texts()[0])


CERTIFICATES: Final = {
    **SERVER, **CLIENT, "tls.server.need.client.auth": "require",
    "tls.server.trustCertPath": AUTHORITY, "tls.client.certPath": NODE,
    "tls.client.keyPath": NODE_KEY,
}  # fmt: skip


def server_tls(*, refuses_plain: bool = True) -> ServerTls:
    return ServerTls(context=server_context(CERTIFICATES), refuses_plain=refuses_plain)


def client_tls() -> ClientTls:
    return ClientTls(context=client_context(CERTIFICATES))


class Relay(Protocol):
    """Reads and passes on what comes, at one of its two ends."""

    transport: Any

    def __init__(self, seen: list[bytes], other: "Relay | None" = None) -> None:
        self.other, self.seen, self.peer = other, seen, "the relay"
        self._waiting: list[bytes] = []
        if other is not None:
            other.other = self

    def connectionMade(self) -> None:
        if self.other is not None:
            for data in self.other._waiting:
                self.transport.write(data)

    def dataReceived(self, data: bytes) -> None:
        self.seen.append(data)
        if self.other is None or self.other.transport is None:
            self._waiting.append(data)
        else:
            self.other.transport.write(data)

    def use(self, transport: Any) -> None:
        self.transport = transport

    def close(self, reason: str) -> None:
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.abortConnection()


class HaTlsAttacks(HaTestCase):
    """With TLS, nobody reads or changes what passes between a master and its slave."""

    def stand_between(self, *, has_certificates: bool) -> tuple[int, list[bytes]]:
        """Listens in the master's place, and connects to it for each slave."""
        seen: list[bytes] = []

        def build(_: object) -> Any:
            outer = Relay(seen)
            inner = Relay(seen, outer)
            far: Any = inner
            if has_certificates:
                context = client_tls().context
                far = TlsLink(inner, engine=TlsEngine(context, is_server=False))
            endpoint: Any = TCP4ClientEndpoint(REACTOR, "127.0.0.1", self.port)
            connectProtocol(endpoint, far).addErrback(lambda _: None)
            return TlsLink(outer, server=server_tls()) if has_certificates else outer

        factory: Any = Factory()
        factory.noisy, factory.buildProtocol = False, build
        listening = REACTOR.listenTCP(0, factory, interface="127.0.0.1")
        self.addCleanup(listening.stopListening)
        return listening.getHost().port, seen

    async def test_slave_copies_and_who_reads_the_wire_sees_nothing_of_it(self) -> None:
        await self.serve(admission(needs_tls=True), server_tls())
        port, seen = self.stand_between(has_certificates=False)
        _, copy = self.follow(admission(), port, tls=client_tls())
        await self.assert_copied(copy)
        self.assertNotIn(LOG[:16], b"".join(seen))
        _, plain_copy = self.follow(admission(), tls=client_tls())
        await self.assert_copied(plain_copy)

    async def test_who_stands_between_with_good_certificates_passes_no_proof_on(self) -> None:
        """Certificates of applications are of the same authority, and no names are compared."""
        await self.serve(admission(needs_tls=True), server_tls())
        port, seen = self.stand_between(has_certificates=True)
        client, copy = self.follow(admission(), port, tls=client_tls())
        await wait(lambda: client.last_failure, "a refusal")
        self.assertIn("another group secret", str(client.last_failure))
        self.assertEqual(copy.max_offset, 0)
        self.assertNotIn(LOG[:16], b"".join(seen))

    async def test_slave_without_tls_or_without_a_certificate_gets_nothing(self) -> None:
        await self.serve(admission(needs_tls=True), server_tls())
        bare = ClientTls(context=client_context(CLIENT))
        for changes in ({}, {"tls": bare}):
            client, copy = self.follow(admission(), **changes)
            await wait(lambda one=client: one.last_failure, "a refusal")
            self.assertEqual(copy.max_offset, 0)

    async def test_who_proves_the_secret_without_tls_is_refused_where_java_slaves_are_served(
        self,
    ) -> None:
        networks = parse_networks(["127.0.0.1"])
        admitted = admission(needs_tls=True, networks=networks)
        await self.serve(admitted, server_tls(refuses_plain=False))
        client, copy = self.follow(admission())
        await wait(lambda: client.last_failure, "a refusal")
        self.assertIn("without TLS", self.refusals.texts()[0])
        self.assertEqual(copy.max_offset, 0)
        _, java_copy = self.follow(None)
        await self.assert_copied(java_copy)

    async def test_master_and_slaves_begin_with_tls_one_after_the_other(self) -> None:
        """Whatever the other end has by now."""
        permissive = server_tls(refuses_plain=False)
        accepting = admission(is_required=False)
        slaves: list[dict[str, Any]] = [{}, {"tls": client_tls(), "may_be_plain": True}]
        for master_tls in (None, permissive):
            for master in (admission(), accepting, admission(None)):
                for changes in slaves:
                    await self.serve(master, master_tls)
                    _, copy = self.follow(accepting, **changes)
                    await self.assert_copied(copy)
