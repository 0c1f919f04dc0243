"""CommandServer and CommandClient with a reactor of memory, and once over loopback."""

from typing import Any

from twisted.internet import reactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.task import deferLater
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase

from ledgermq.protocol.command import RemotingCommand, decode, encode, encode_parts
from ledgermq.protocol.errors import ConnectionClosedError, RequestTimeoutError
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.transport import (
    CommandClient,
    CommandProtocol,
    CommandServer,
    ConnectionLimits,
    Receiver,
)
from ledgermq.protocol.transport.client import default_back_off
from tests.free_ports import free_ports
from tests.unit.protocol.wires import Answering, Recorder


class MemoryTransport(StringTransport):
    """A transport that ends when it is told to."""

    protocol: Any = None

    def loseConnection(self) -> None:
        self.end(ConnectionDone())

    def abortConnection(self) -> None:
        self.end(ConnectionDone())

    def end(self, reason: Exception) -> None:
        protocol, self.protocol = self.protocol, None
        if protocol is not None:
            protocol.connectionLost(Failure(reason))

    def commands(self) -> list[RemotingCommand]:
        return [decode(frame) for frame in FrameDecoder().feed(self.value())]


class ServerTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()
        self.receiver = Answering()

    def started(self, **limits: Any) -> CommandServer:
        server = CommandServer(self.reactor, self.receiver, "127.0.0.1", 0, **limits)
        self.successResultOf(server.start())
        return server

    def connect(self, host: str = "10.0.0.9") -> MemoryTransport | None:
        factory = self.reactor.tcpServers[-1][1]
        protocol = factory.buildProtocol(IPv4Address("TCP", host, 5555))
        if protocol is None:
            return None
        transport = MemoryTransport(peerAddress=IPv4Address("TCP", host, 5555))
        transport.protocol = protocol
        protocol.makeConnection(transport)
        return transport

    def test_requests_are_answered(self) -> None:
        server = self.started()
        transport = self.connect()
        assert transport is not None
        transport.protocol.dataReceived(encode(RemotingCommand(code=1, opaque=7, body=b"x")))
        (answer,) = transport.commands()
        self.assertEqual((answer.opaque, answer.body), (7, b"x"))
        self.assertEqual(len(server.connections), 1)
        transport.end(ConnectionDone())
        self.assertEqual(server.connections, set())
        self.assertEqual(len(self.receiver.lost), 1)

    def test_connections_beyond_the_limits_are_refused_at_accept(self) -> None:
        server = self.started(connections_max=3, connections_per_host_max=2)
        first = self.connect("10.0.0.1")
        assert first is not None
        self.assertIsNotNone(self.connect("10.0.0.1"))
        self.assertIsNone(self.connect("10.0.0.1"))
        self.assertIsNotNone(self.connect("10.0.0.2"))
        self.assertIsNone(self.connect("10.0.0.3"))
        self.assertEqual((len(server.connections), server.refused_count), (3, 2))
        first.end(ConnectionDone())
        self.assertIsNotNone(self.connect("10.0.0.1"))

    def test_new_connections_of_one_address_are_limited_a_second(self) -> None:
        server = self.started(connections_per_host_rate=3)
        made = [self.connect("10.0.0.1") for _ in range(5)]
        self.assertEqual([one is None for one in made], [False] * 3 + [True] * 2)
        self.assertIsNotNone(self.connect("10.0.0.2"))
        self.reactor.advance(0.5)
        self.assertIsNotNone(self.connect("10.0.0.1"))
        self.assertIsNone(self.connect("10.0.0.1"))
        self.assertEqual(server.refused_count, 3)

    def test_addresses_of_one_network_of_ipv6_count_together(self) -> None:
        server = self.started(connections_max=9, connections_per_host_max=2)
        first, second = (self.connect(f"2001:db8::{number}") for number in (1, 2))
        assert first is not None and second is not None
        self.assertIsNone(self.connect("2001:db8::3"))
        other = self.connect("2001:db8:0:1::1")
        assert other is not None
        first.end(ConnectionDone())
        self.assertIsNotNone(self.connect("2001:db8::3"))
        self.assertIsNone(self.connect("2001:db8::4"))
        for transport in (second, other):
            transport.end(ConnectionDone())
        self.assertEqual(vars(server)["_hosts"], {"2001:db8::/64": 1})

    def test_new_connections_of_one_network_of_ipv6_are_limited_a_second(self) -> None:
        self.started(connections_per_host_rate=3)
        made = [self.connect(f"2001:db8::{number}") for number in range(1, 6)]
        self.assertEqual([one is None for one in made], [False] * 3 + [True] * 2)
        self.assertIsNotNone(self.connect("2001:db8:0:1::1"))

    def test_idle_connections_are_closed(self) -> None:
        server = self.started(limits=ConnectionLimits(idle_timeout_s=5, first_frame_timeout_s=0))
        self.connect()
        self.reactor.pump([1.0] * 4)
        self.assertEqual(len(server.connections), 1)
        self.reactor.pump([1.0])
        self.assertEqual((len(server.connections), self.receiver.lost), (0, ["idle for 5 s"]))

    def test_many_connections_are_not_checked_in_one_turn(self) -> None:
        """Each once a second all the same."""
        server = self.started()
        checks: dict[CommandProtocol, int] = {}
        for number in range(450):
            self.connect(f"10.0.{number // 200}.{number % 200}")
        for connection in server.connections:
            checks[connection] = 0

            def count(now_s: float, connection: CommandProtocol = connection) -> None:
                checks[connection] += 1

            connection.check = count  # type: ignore[method-assign]
        most = before = 0
        for _ in range(3500):
            self.reactor.advance(0.001)
            most, before = max(most, sum(checks.values()) - before), sum(checks.values())
        self.assertEqual(set(checks.values()), {3})
        self.assertEqual(most, 200)
        self.successResultOf(server.stop())
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_stop_closes_everything_and_leaves_no_call(self) -> None:
        server = self.started()
        self.connect()
        stopped = server.stop()
        self.successResultOf(stopped)
        self.assertEqual(self.receiver.lost, ["server stops"])
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.successResultOf(server.stop())

    def test_server_that_never_started_stops(self) -> None:
        server = CommandServer(self.reactor, self.receiver, "127.0.0.1", 0)
        self.successResultOf(server.stop())
        self.assertEqual(self.reactor.getDelayedCalls(), [])


class ClientTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()
        self.receiver = Recorder()

    def client(self, **options: Any) -> CommandClient:
        client = CommandClient(self.reactor, "10.0.0.1", 10911, self.receiver, **options)
        self.addCleanup(client.stop)
        return client

    def attempts_count(self) -> int:
        return len(self.reactor.tcpClients)

    def accept(self) -> MemoryTransport:
        factory = self.reactor.tcpClients[-1][2]
        address = IPv4Address("TCP", "10.0.0.1", 10911)
        protocol = factory.buildProtocol(address)
        assert protocol is not None
        transport = MemoryTransport(peerAddress=address)
        transport.protocol = protocol
        protocol.makeConnection(transport)
        self.reactor.advance(0)
        return transport

    def refuse(self) -> None:
        factory: Any = self.reactor.tcpClients[-1][2]
        factory.clientConnectionFailed(None, Failure(ConnectionRefusedError("no")))
        self.reactor.advance(0)

    def test_first_request_makes_the_connection(self) -> None:
        client = self.client()
        self.assertEqual(self.attempts_count(), 0)
        waiting = client.request(RemotingCommand(code=1), 1000)
        self.assertFalse(client.is_connected)
        transport = self.accept()
        self.reactor.advance(0)
        self.assertTrue(client.is_connected)
        (sent,) = transport.commands()
        transport.protocol.dataReceived(encode(sent.response(0, "fine")))
        self.assertEqual(self.successResultOf(waiting).remark, "fine")

    def test_refused_connection_fails_the_requests_that_wait(self) -> None:
        client = self.client()
        waiting = [client.request(RemotingCommand(code=1), 1000) for _ in range(2)]
        self.refuse()
        for one in waiting:
            error = self.failureResultOf(one, ConnectionClosedError).value
            self.assertIn("10.0.0.1:10911", str(error))

    def test_whoever_gets_a_failure_may_stop_the_client(self) -> None:
        client = self.client()
        stopped: list[Deferred[None]] = []
        waiting = client.request(RemotingCommand(code=1), 1000)
        waiting.addErrback(lambda _: stopped.append(client.stop()))
        self.refuse()
        self.successResultOf(stopped[0])
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_request_that_waits_for_a_connection_has_its_deadline(self) -> None:
        client = self.client()
        waiting = client.request(RemotingCommand(code=1), 1000)
        self.reactor.advance(1)
        self.reactor.advance(0)
        self.failureResultOf(waiting, ConnectionClosedError)

    def test_connecting_counts_into_the_deadline_of_the_answer(self) -> None:
        client = self.client()
        waiting = client.request(RemotingCommand(code=1), 1000)
        self.reactor.advance(0.6)
        self.accept()
        self.reactor.advance(0)
        self.reactor.advance(0.39)
        self.assertNoResult(waiting)
        self.reactor.advance(0.02)
        self.failureResultOf(waiting, RequestTimeoutError)

    def test_lost_connection_is_made_again_after_the_back_off(self) -> None:
        delays: list[int] = []

        def back_off(attempts_count: int) -> float:
            delays.append(attempts_count)
            return 2.0

        client = self.client(back_off=back_off)
        client.start()
        self.accept().end(ConnectionDone())
        self.assertFalse(client.is_connected)
        self.assertEqual(len(self.receiver.lost), 1)
        self.reactor.advance(1.9)
        self.assertEqual(self.attempts_count(), 1)
        self.reactor.advance(0.2)
        self.assertEqual(self.attempts_count(), 2)
        self.accept()
        self.assertTrue(client.is_connected)
        self.assertEqual(len(delays), 1)

    def test_back_off_doubles_up_to_its_limit(self) -> None:
        delays = [default_back_off(count) for count in range(8)]
        self.assertEqual(delays, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])
        self.assertEqual(default_back_off(10_000), 5.0)

    def test_requests_wait_for_the_negotiation(self) -> None:
        agreed: Deferred[None] = Deferred()
        seen: list[CommandProtocol] = []

        def negotiate(connection: CommandProtocol) -> Deferred[None]:
            seen.append(connection)
            return agreed

        client = self.client(on_connected=negotiate)
        waiting = client.request(RemotingCommand(code=1), 1000)
        transport = self.accept()
        self.assertEqual((len(seen), client.is_connected), (1, False))
        self.assertEqual(transport.commands(), [])
        agreed.callback(None)
        self.reactor.advance(0)
        self.reactor.advance(0)
        self.assertTrue(client.is_connected)
        self.assertEqual(len(transport.commands()), 1)
        waiting.addErrback(lambda _: None)

    def test_plain_callback_needs_no_deferred(self) -> None:
        client = self.client(on_connected=lambda connection: None)
        client.start()
        self.accept()
        self.assertTrue(client.is_connected)

    def test_one_way_requests_begin_a_connection_and_are_dropped_without_one(self) -> None:
        client = self.client()
        client.send_one_way(RemotingCommand(code=1))
        transport = self.accept()
        self.assertEqual(transport.commands(), [])
        client.send_one_way(RemotingCommand(code=2))
        self.reactor.advance(0)
        self.assertEqual([one.is_one_way for one in transport.commands()], [True])

    def test_waiting_requests_are_limited(self) -> None:
        client = self.client()
        waiting = [client.request(RemotingCommand(code=1), 1000) for _ in range(1025)]
        self.failureResultOf(waiting[-1], ConnectionClosedError)
        for one in waiting[:-1]:
            one.addErrback(lambda _: None)

    def test_stop_ends_everything_and_leaves_no_call(self) -> None:
        client = self.client()
        waiting = client.request(RemotingCommand(code=1), 1000)
        self.accept()
        self.reactor.advance(0)
        self.successResultOf(client.stop())
        self.failureResultOf(waiting, ConnectionClosedError)
        self.failureResultOf(client.request(RemotingCommand(code=1), 9), ConnectionClosedError)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_stop_while_connecting_fails_what_waits(self) -> None:
        client = self.client()
        waiting = client.request(RemotingCommand(code=1), 1000)
        stopped = client.stop()
        self.refuse()
        self.successResultOf(stopped)
        self.failureResultOf(waiting, ConnectionClosedError)
        self.assertEqual(self.reactor.getDelayedCalls(), [])


class LargeAnswers(Recorder):
    """Answers each request with a large body given as a view."""

    def commands_received(
        self, connection: CommandProtocol, commands: list[RemotingCommand]
    ) -> None:
        for command in commands:
            body = memoryview(bytearray(command.body * 1_000))
            connection.send_parts(encode_parts(command.response(0), [body]))


class LoopbackTests(TestCase):
    timeout = 20

    async def _round_trips(self, receiver: Receiver, body: bytes, factor: int) -> None:
        server = CommandServer(reactor, receiver, "127.0.0.1", 0)
        port = await server.start()
        client = CommandClient(reactor, "127.0.0.1", port)
        try:
            answers = await gatherResults(
                [client.request(RemotingCommand(code=1, body=body), 10_000) for _ in range(40)]
            )
            self.assertEqual({len(answer.body) for answer in answers}, {len(body) * factor})
        finally:
            await client.stop()
            await server.stop()

    def test_many_small_answers_arrive(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._round_trips(Answering(), b"x" * 1_000, 1))

    def test_answers_larger_than_the_socket_s_buffer_arrive(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._round_trips(LargeAnswers(), b"x" * 1_000, 1_000))

    def test_nobody_listening_is_a_closed_connection(self) -> Deferred[None]:
        async def attempt() -> None:
            server = CommandServer(reactor, Recorder(), "127.0.0.1", 0)
            port = await server.start()
            await server.stop()
            client = CommandClient(reactor, "127.0.0.1", port)
            try:
                with self.assertRaises(ConnectionClosedError):
                    await client.request(RemotingCommand(code=1), 5_000)
            finally:
                await client.stop()

        return Deferred.fromCoroutine(attempt())

    async def test_stopped_server_s_address_is_free_although_its_peers_went_first(self) -> None:
        receiver = Answering()
        [port] = free_ports(1)
        server = CommandServer(reactor, receiver, "127.0.0.1", port)
        await server.start()
        client = CommandClient(reactor, "127.0.0.1", port)
        await client.request(RemotingCommand(code=1), 10_000)

        again = CommandServer(reactor, receiver, "127.0.0.1", port)
        assert client.connection is not None
        # Its end is seen after the turn that stops the server, before the one that closes the port.
        client.connection.abort("gone")
        stopped = deferLater(reactor, 0, server.stop)
        self.assertEqual(await stopped.addCallback(lambda _: again.start()), port)
        await client.stop()
        await again.stop()


def test_ends_satisfy_what_connections_ask_of_a_receiver() -> None:
    receivers: list[type[Receiver]] = [CommandServer, CommandClient, Recorder]
    assert succeed(receivers)
