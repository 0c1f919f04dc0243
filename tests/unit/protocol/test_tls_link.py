"""A port with TLS on sockets of memory: the first byte decides, and what follows is the same."""

import gc
import weakref

from twisted.internet.error import ConnectionDone
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.tls.contexts import ServerTls, client_context, server_context
from ledgermq.protocol.tls.engine import TlsEngine
from ledgermq.protocol.transport import CommandProtocol, ConnectionLimits
from ledgermq.protocol.transport.tls_link import TlsLink
from tests.certificate_files import CLIENT, OTHER_AUTHORITY, SERVER
from tests.unit.protocol.wires import Answering, MemoryConnection, MemorySocket

LIMITS = ConnectionLimits(unsent_bytes_max=8 << 20, pause_bytes=256 << 10)


def request(opaque: int, body: bytes = b"") -> RemotingCommand:
    return RemotingCommand(code=10, opaque=opaque, body=body)


class Port:
    """One connection to a server, driven by hand."""

    def __init__(self, refuses_plain: bool = False) -> None:
        self.reactor = MemoryReactorClock()
        self.receiver = Answering()
        self.protocol = CommandProtocol(self.reactor, self.receiver, limits=LIMITS)
        tls = ServerTls(context=server_context(SERVER), refuses_plain=refuses_plain)
        self.socket = MemorySocket()
        link = TlsLink(self.protocol, server=tls)
        # Twisted's interfaces are unknown to the type checker.
        self.link = MemoryConnection(self.socket, link, self.reactor)  # type: ignore[arg-type]
        self.link.connected = 1
        self.link.startReading()
        link.makeConnection(self.link)

    def give(self, data: bytes) -> bytes:
        """The socket reads this; returns what it sent then."""
        if data:
            self.link.protocol.dataReceived(data)
        for _ in range(1000):
            if self.link not in self.reactor.getWriters() or not self.socket.room:
                break
            result = self.link.doWrite()
            if result is not None:
                self.link.connectionLost(Failure(result))
                break
        self.reactor.advance(0)
        sent = bytes(self.socket.sent)
        self.socket.sent.clear()
        return sent

    def shaken(self) -> TlsEngine:
        client = TlsEngine(client_context(CLIENT), is_server=False, server_name="127.0.0.1")
        for _ in range(3):
            client.receive(self.give(client.take()))
        assert client.is_open
        return client


def commands(plaintext: bytes) -> list[RemotingCommand]:
    return [decode(frame) for frame in FrameDecoder().feed(plaintext)]


class TlsLinkTests(SynchronousTestCase):
    def test_connection_counts_from_the_start(self) -> None:
        """Limits and times of connections hold for a handshake, too."""
        port = Port()
        self.assertEqual(port.receiver.made, [port.protocol])
        self.assertEqual(port.protocol.peer, "10.0.0.9:5555")
        port.protocol.check(port.reactor.seconds() + LIMITS.first_frame_timeout_s)
        port.give(b"")
        self.assertEqual(len(port.receiver.lost), 1)

    def test_requests_in_tls_are_answered_in_tls(self) -> None:
        port = Port()
        client = port.shaken()
        client.write(encode(request(1, b"x")) + encode(request(2, b"y")))
        answer = port.give(client.take())
        self.assertNotIn(b"opaque", answer)
        answers = commands(client.receive(answer))
        self.assertEqual([(one.opaque, one.body) for one in answers], [(1, b"x"), (2, b"y")])

    def test_record_that_comes_by_the_byte_is_not_waited_for(self) -> None:
        port = Port()
        client = port.shaken()
        for number in range(3):
            client.write(encode(request(number, b"x")))
            for byte in client.take()[:-1]:
                if not port.receiver.lost:
                    port.give(bytes([byte]))
        self.assertEqual(port.receiver.lost, ["TLS: no record in 64 reads"])

    def test_records_of_several_packets_are_waited_for(self) -> None:
        port = Port()
        client = port.shaken()
        client.write(encode(request(1, bytes(16_000))))
        data = client.take()
        for at in range(0, len(data), 536):
            port.give(data[at : at + 536])
        self.assertEqual([one.opaque for one in port.receiver.received[0]], [1])

    def test_plain_connection_is_served_without_anything_in_between(self) -> None:
        port = Port()
        answer = port.give(encode(request(1, b"x")))
        self.assertEqual([one.body for one in commands(answer)], [b"x"])
        self.assertIs(port.link.protocol, port.protocol)
        self.assertEqual(port.socket.calls, [("send", len(answer))])

    def test_plain_connection_is_closed_where_tls_is_enforced(self) -> None:
        port = Port(refuses_plain=True)
        self.assertEqual(port.give(encode(request(1, b"x"))), b"")
        self.assertEqual(port.receiver.received, [])
        self.assertEqual(port.receiver.lost, ["plain connection, TLS is enforced"])
        enforced = Port(refuses_plain=True)
        self.assertTrue(enforced.shaken().is_open)

    def test_large_answers_arrive_whole_while_the_socket_is_slow(self) -> None:
        port = Port()
        client = port.shaken()
        body = bytes(range(256)) * 8192
        client.write(encode(request(1, body)))
        decoder = FrameDecoder()
        port.socket.room = 0
        port.give(client.take())
        self.assertGreater(port.protocol.unsent_bytes, len(body) // 2)
        self.assertNotIn(port.link, port.reactor.getReaders())
        frames: list[bytes] = []
        for _ in range(100):
            port.socket.room += 50_000
            frames += decoder.feed(client.receive(port.give(b"")))
        self.assertEqual(decode(frames[0]).body, body)
        self.assertEqual(port.protocol.unsent_bytes, 0)
        self.assertIn(port.link, port.reactor.getReaders())

    def test_failed_handshake_ends_the_connection_with_its_reason(self) -> None:
        port = Port()
        stranger = TlsEngine(
            client_context({"tls.client.trustCertPath": OTHER_AUTHORITY}), is_server=False
        )
        answer = port.give(stranger.take())
        try:
            stranger.receive(answer)
        except Exception:
            port.give(stranger.take())
        self.assertEqual(len(port.receiver.lost), 1)
        self.assertIn("TLS: ", port.receiver.lost[0])
        noise = Port()
        noise.link.protocol.dataReceived(b"\x16" + bytes(200))
        noise.give(b"\x16" + bytes(200))
        self.assertIn("TLS: ", noise.receiver.lost[0])

    def test_lines_of_one_address_are_equal_whatever_its_ports(self) -> None:
        """A hundred a second told of a hundred ports, and filled the disk."""
        told: list[LogEvent] = []
        observer = told.append
        globalLogPublisher.addObserver(observer)
        try:
            for refuses_plain in (True, False):
                Port(refuses_plain).give(b"\x15" if refuses_plain else b"\x16" + bytes(200))
            Port().give(b"\xff" * 8)
        finally:
            globalLogPublisher.removeObserver(observer)
        kinds = [event["repeats_as"] for event in told if "closing" in formatEvent(event)]
        self.assertEqual(len(kinds), 3)
        host = Port().protocol.peer_host
        for kind in kinds:
            self.assertTrue(kind.startswith(f"closing {host}: "), kind)

    def test_peer_that_ends_tls_is_closed(self) -> None:
        port = Port()
        client = port.shaken()
        client.end()
        port.give(client.take())
        self.assertEqual(port.receiver.lost, ["ended by the peer"])

    def test_lost_connection_is_told_once(self) -> None:
        port = Port()
        port.link.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(len(port.receiver.lost), 1)

    def test_lost_connection_is_freed_at_once(self) -> None:
        """TLS takes 60 KB a connection: who connects and leaves all the time must not have them
        kept until cycles are collected.
        """
        was_on = gc.isenabled()
        gc.disable()
        try:
            for is_tls in (True, False):
                port = Port()
                if is_tls:
                    port.shaken()
                else:
                    port.give(encode(request(1, b"x")))
                parts = [weakref.ref(port.protocol), weakref.ref(port.link)]
                if is_tls:
                    link = port.link.protocol
                    parts += [weakref.ref(link), weakref.ref(link._engine)]
                    del link
                port.link.connectionLost(Failure(ConnectionDone()))
                port.receiver.made.clear()
                port.receiver.received.clear()
                del port
                self.assertEqual([part() for part in parts], [None] * len(parts))
        finally:
            if was_on:
                gc.enable()

    def test_client_end_waits_for_the_handshake(self) -> None:
        reactor = MemoryReactorClock()
        receiver = Answering()
        protocol = CommandProtocol(reactor, receiver)
        engine = TlsEngine(client_context(CLIENT), is_server=False, server_name="127.0.0.1")
        link = TlsLink(protocol, engine=engine)
        socket = MemorySocket()
        connection = MemoryConnection(socket, link, reactor)  # type: ignore[arg-type]
        connection.connected = 1
        link.makeConnection(connection)
        answered = protocol.request(request(0, b"early"), 1000)
        reactor.advance(0)
        server = TlsEngine(server_context(SERVER), is_server=True)
        plaintext = b""
        for _ in range(3):
            while connection in reactor.getWriters():
                connection.doWrite()
            sent = bytes(socket.sent)
            socket.sent.clear()
            plaintext += server.receive(sent) if sent else b""
            if answer := server.take():
                link.dataReceived(answer)
        [early] = commands(plaintext)
        self.assertEqual(early.body, b"early")
        server.write(encode(early.response(0, body=b"late")))
        link.dataReceived(server.take())
        self.assertEqual(self.successResultOf(answered).body, b"late")
