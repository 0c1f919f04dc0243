"""HaServer and HaClient on sockets of memory and a clock of the test."""

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.python.failure import Failure
from twisted.test.iosim import ConnectionCompleter, IOPump
from twisted.trial.unittest import SynchronousTestCase

from ledgermq.broker.ha.acknowledgements import Acknowledgements, ReplicaStatus
from ledgermq.broker.ha.client import HaClient, MasterConnection
from ledgermq.broker.ha.frames import encode_frame, encode_report
from ledgermq.broker.ha.server import SLAVES_MAX, HaServer, SlaveConnection
from ledgermq.broker.ha.settings import HaSettings
from ledgermq.commitlog import LogOffsetError, SegmentLackingError
from ledgermq.dledger.store.errors import DiskFullError
from tests.unit.broker.ha.memory_log import MemoryLog

SETTINGS = HaSettings(batch_bytes_max=1000, heart_beat_ms=5000, silence_ms_max=20_000)
# What a transport holds before it pauses its producer, as Twisted's.
ROOM_BYTES = 4000


class Logged:
    """The texts of warnings and errors from here on."""

    def __init__(self, case: SynchronousTestCase) -> None:
        self.texts: list[str] = []
        observer: Any = self._observe
        globalLogPublisher.addObserver(observer)
        case.addCleanup(globalLogPublisher.removeObserver, observer)

    def _observe(self, event: LogEvent) -> None:
        is_ours = event["log_namespace"].startswith("ledgermq")
        if is_ours and event["log_level"].name in ("warn", "error"):
            self.texts.append(formatEvent(event))


class NarrowTransport(StringTransport):
    """A transport whose peer reads only when the test says so."""

    def write(self, data: bytes) -> None:
        super().write(data)
        if len(self.value()) > ROOM_BYTES and self.producer is not None:
            self.producer.pauseProducing()

    def read_all(self) -> bytes:
        """The peer reads; the producer may go on."""
        data = self.value()
        self.clear()
        producer: Any = self.producer
        producer.resumeProducing()
        return data


def new_server(reactor: Any, log: MemoryLog, timeout_ms: int = 3000) -> HaServer:
    acknowledgements = Acknowledgements(behind_bytes_max=1 << 28, timeout_ms=timeout_ms)
    return HaServer(reactor, log, SETTINGS, acknowledgements, host="127.0.0.1", port=10912)


class MasterTest(SynchronousTestCase):
    """A master and slaves that the test plays."""

    def setUp(self) -> None:
        self.reactor: Any = MemoryReactorClock()
        self.log = MemoryLog(segment_bytes=1 << 20)
        self.server = new_server(self.reactor, self.log)
        self.successResultOf(self.server.start())

    def connect(self) -> tuple[SlaveConnection, NarrowTransport]:
        factory = self.reactor.tcpServers[0][1]
        connection = factory.buildProtocol(IPv4Address("TCP", "10.0.0.9", 5555))
        transport = NarrowTransport(peerAddress=IPv4Address("TCP", "10.0.0.9", 5555))
        connection.makeConnection(transport)
        return connection, transport

    def lose(self, connection: SlaveConnection) -> None:
        connection.connectionLost(Failure(ConnectionRefusedError()))

    def test_a_slow_slave_costs_a_bounded_buffer_and_gets_all_in_the_end(self) -> None:
        self.log.append(bytes(1_000_000))
        connection, transport = self.connect()
        connection.dataReceived(encode_report(1))
        fast, fast_transport = self.connect()
        fast.dataReceived(encode_report(1_000_000))
        received = 0
        while received < 999_999 + 999 * 12:
            self.reactor.advance(0)
            self.assertLessEqual(len(transport.value()), ROOM_BYTES + 1012)
            received += len(transport.read_all())
        self.assertEqual(fast_transport.value(), encode_frame(1_000_000, b""))
        self.log.append(b"new")
        self.server.log_advanced()
        self.assertIn(encode_frame(1_000_000, b"new"), fast_transport.value())
        self.lose(connection)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_a_turn_sends_a_bounded_share(self) -> None:
        self.log.append(bytes(100_000))
        connection, transport = self.connect()
        transport.producer = None
        connection.dataReceived(encode_report(1))
        self.assertEqual(len(transport.value()), 16 * 1012)
        self.reactor.advance(0)
        self.assertEqual(len(transport.value()), 99_999 + 100 * 12)
        self.lose(connection)

    def test_a_silent_slave_is_closed(self) -> None:
        """Half open: the machine behind the connection is gone, and nobody said so."""
        connection, transport = self.connect()
        connection.dataReceived(encode_report(0))
        self.reactor.advance(20)
        self.server.check()
        self.assertFalse(transport.disconnected)
        self.reactor.advance(0.5)
        self.server.check()
        self.assertTrue(transport.disconnected)

    def test_a_slave_that_is_ahead_is_closed_and_told_in_the_log(self) -> None:
        connection, transport = self.connect()
        logged = Logged(self)
        connection.dataReceived(encode_report(5))
        self.assertIn("ends at 5, behind the end of this master's at 0", logged.texts[0])
        self.assertTrue(transport.disconnected)
        self.assertEqual(self.server.acknowledgements.slave_count, 0)

    def test_too_many_slaves_are_refused(self) -> None:
        for _ in range(SLAVES_MAX):
            self.connect()
        factory = self.reactor.tcpServers[0][1]
        self.assertIsNone(factory.buildProtocol(IPv4Address("TCP", "10.0.0.7", 5555)))
        self.assertEqual(
            self.server.refusals.texts(), ["a new connection at 10.0.0.7: 32 slaves are connected"]
        )

    def test_who_connects_too_often_is_refused_and_named_once(self) -> None:
        factory, logged = self.reactor.tcpServers[0][1], Logged(self)
        often, other = IPv4Address("TCP", "10.0.0.9", 5555), IPv4Address("TCP", "10.0.0.8", 5555)
        made = [factory.buildProtocol(often) for _ in range(100)]
        self.assertEqual(sum(one is not None for one in made), 32)
        self.assertIsNotNone(factory.buildProtocol(other))
        text = "a new connection at 10.0.0.9: more than 32 new connections a second"
        self.assertEqual(self.server.refusals.texts(), [text])
        self.assertEqual(len(logged.texts), 1)

    def test_acknowledgements_come_from_reports_and_end_with_the_last_slave(self) -> None:
        connection, _ = self.connect()
        acknowledgements = self.server.acknowledgements
        self.assertFalse(acknowledgements.is_slave_available(0))
        connection.dataReceived(encode_report(0))
        self.log.append(b"message")
        told: list[ReplicaStatus] = []
        acknowledgements.wait(7, 0, told.append)
        self.server.log_advanced()
        connection.dataReceived(encode_report(6))
        self.assertEqual(told, [])
        connection.dataReceived(encode_report(7))
        self.assertEqual(told, [ReplicaStatus.REPLICATED])
        self.lose(connection)
        self.assertFalse(acknowledgements.is_slave_available(0))

    def test_a_wait_ends_at_its_deadline(self) -> None:
        connection, _ = self.connect()
        connection.dataReceived(encode_report(0))
        self.log.append(b"message")
        told: list[ReplicaStatus] = []
        self.server.acknowledgements.wait(7, self.server.now_ms(), told.append)
        self.reactor.advance(3)
        self.server.check()
        self.assertEqual(told, [ReplicaStatus.FLUSH_SLAVE_TIMEOUT])

    def test_a_stop_closes_all_and_leaves_no_call(self) -> None:
        self.log.append(bytes(100_000))
        connection, transport = self.connect()
        transport.producer = None
        connection.dataReceived(encode_report(1))
        stopped = self.server.stop()
        self.assertTrue(transport.disconnected)
        self.lose(connection)
        self.successResultOf(stopped)
        self.assertEqual(self.reactor.getDelayedCalls(), [])


class PairTest(SynchronousTestCase):
    """A master and a slave, joined in memory."""

    def setUp(self) -> None:
        self.reactor: Any = MemoryReactorClock()
        self.completer = ConnectionCompleter(self.reactor)
        self.master_log = MemoryLog(segment_bytes=4096)
        self.slave_log = MemoryLog(segment_bytes=4096)
        # Each asked for files.
        self.made: list[Deferred[None]] = []
        self.server = new_server(self.reactor, self.master_log)
        self.successResultOf(self.server.start())
        self.client = HaClient(
            self.reactor,
            self.slave_log,
            SETTINGS,
            self.make_room,
            back_off=lambda count: 2.0 ** min(count, 3),
        )

    def make_room(self) -> Deferred[None]:
        self.made.append(Deferred())
        return self.made[-1]

    def connect(self) -> IOPump:
        pump = self.completer.succeedOnce()
        assert pump is not None, "the slave does not try to connect"
        pump.flush()
        return pump

    def turns(self, pump: IOPump) -> None:
        for _ in range(10):
            self.reactor.advance(0)
            pump.flush()

    def test_a_slave_copies_and_follows(self) -> None:
        self.master_log.append(b"a" * 3000)
        self.client.follow("127.0.0.1:10912")
        pump = self.connect()
        self.turns(pump)
        self.assertEqual(self.slave_log.data, self.master_log.data)
        self.assertTrue(self.client.is_copying)
        self.master_log.append(b"b" * 3000)
        self.server.log_advanced()
        self.turns(pump)
        self.assertEqual(self.slave_log.data, self.master_log.data)
        self.assertEqual(self.server.acknowledgements.best_offset, 6000)

    def test_an_address_that_is_none_is_told_and_another_one_followed(self) -> None:
        logged = Logged(self)
        for address in ("10912", "host:", "host:x", "host:0", "host:65536", "h:9\u0661", ":1"):
            self.client.follow(address)
            self.client.check()
            self.assertIn("its address is none", str(self.client.last_failure))
        self.assertEqual(self.reactor.tcpClients, [])
        self.assertTrue(logged.texts)
        self.master_log.append(b"a" * 10)
        self.client.follow("127.0.0.1:10912")
        self.turns(self.connect())
        self.assertEqual(self.slave_log.data, self.master_log.data)

    def test_a_torn_frame_is_sent_again_on_the_next_connection(self) -> None:
        self.master_log.append(b"a" * 50)
        self.slave_log.append(b"a" * 10)
        self.client.follow("127.0.0.1:10912")
        self.reactor.connectors.pop()
        factory = self.reactor.tcpClients.pop()[2]
        torn = factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 10912))
        torn.makeConnection(StringTransport())
        torn.dataReceived(encode_frame(10, b"a" * 20) + encode_frame(30, b"a" * 20)[:-1])
        torn.connectionLost(Failure(ConnectionRefusedError()))
        self.assertEqual(self.slave_log.max_offset, 30)
        self.reactor.advance(2)
        self.turns(self.connect())
        self.assertEqual(self.slave_log.data, self.master_log.data)

    def test_logs_that_do_not_fit_are_told_once_and_tried_with_growing_pauses(self) -> None:
        self.slave_log.append(b"more than the master has")
        logged = Logged(self)
        self.client.follow("127.0.0.1:10912")
        pauses = []
        for _ in range(5):
            self.turns(self.connect())
            begun = self.reactor.seconds()
            while not self.reactor.tcpClients:
                self.reactor.advance(0.5)
            pauses.append(self.reactor.seconds() - begun)
        self.assertEqual(pauses, [2, 4, 8, 8, 8])
        self.assertEqual(len([text for text in logged.texts if "to the master" in text]), 1)
        self.assertEqual(self.slave_log.data, b"more than the master has")
        self.assertFalse(self.client.is_copying)

    def test_a_master_that_sends_elsewhere_is_left_with_the_reason(self) -> None:
        self.slave_log.append(b"0123456789")
        self.client.follow("127.0.0.1:10912")
        factory = self.reactor.tcpClients[-1][2]
        connection = factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 10912))
        transport = StringTransport()
        connection.makeConnection(transport)
        self.assertEqual(transport.value(), encode_report(10))
        connection.dataReceived(encode_frame(4, b"abc"))
        self.assertTrue(transport.disconnected)
        connection.connectionLost(Failure(ConnectionRefusedError()))
        self.assertIn("from 4 on, but this slave's ends at 10", self.client.last_failure or "")
        self.assertEqual(self.slave_log.data, b"0123456789")

    def test_a_log_that_takes_nothing_ends_the_connection_not_the_slave(self) -> None:
        def no_room() -> None:
            raise OSError(28, "No space left on device")

        self.master_log.append(b"a" * 50)
        self.slave_log.on_append = no_room
        self.client.follow("127.0.0.1:10912")
        self.turns(self.connect())
        self.assertIn("No space left", self.client.last_failure or "")
        self.slave_log.on_append = lambda: None
        self.reactor.advance(2)
        self.turns(self.connect())
        self.assertEqual(self.slave_log.data, self.master_log.data)
        self.assertIsNone(self.client.last_failure)

    def lack_a_file(self) -> None:
        """The slave's log takes nothing until the next file is made."""

        def refuse() -> None:
            raise SegmentLackingError("commitlog", 100)

        self.slave_log.on_append = refuse

    def to_slave(self) -> tuple[MasterConnection, StringTransport]:
        """A connection whose master is the test."""
        self.client.follow("127.0.0.1:10912")
        connection = self.reactor.tcpClients[-1][2].buildProtocol(
            IPv4Address("TCP", "127.0.0.1", 10912)
        )
        transport = StringTransport()
        connection.makeConnection(transport)
        return connection, transport

    def test_a_slave_reads_nothing_while_a_file_is_made(self) -> None:
        connection, transport = self.to_slave()
        self.lack_a_file()
        connection.dataReceived(encode_frame(0, b"abc") + encode_frame(3, b"de"))
        self.assertEqual(transport.producerState, "paused")
        self.assertEqual(self.slave_log.data, b"")
        # One more file is lacking, then there are enough.
        self.made[0].callback(None)
        self.assertEqual(transport.producerState, "paused")
        self.slave_log.on_append = lambda: None
        transport.clear()
        self.made[1].callback(None)
        self.assertEqual(transport.producerState, "producing")
        self.assertEqual(self.slave_log.data, b"abcde")
        self.assertEqual(transport.value(), encode_report(5))
        self.assertEqual(len(self.made), 2)

    def test_frames_that_wait_for_a_file_go_with_their_connection(self) -> None:
        connection, transport = self.to_slave()
        self.lack_a_file()
        connection.dataReceived(encode_frame(0, b"abc"))
        connection.connectionLost(Failure(ConnectionRefusedError()))
        self.slave_log.on_append = lambda: None
        self.made[0].callback(None)
        self.assertEqual(self.slave_log.data, b"")

    def test_a_disk_without_room_for_a_file_ends_the_connection(self) -> None:
        connection, transport = self.to_slave()
        self.lack_a_file()
        connection.dataReceived(encode_frame(0, b"abc"))
        self.made[0].errback(DiskFullError("commitlog/0", 64))
        self.assertTrue(transport.disconnected)
        connection.connectionLost(Failure(ConnectionRefusedError()))
        self.assertIn("no room on the disk", self.client.last_failure or "")

    def test_a_log_that_was_cut_is_wiped_though_the_master_is_left(self) -> None:
        def refuse() -> None:
            raise LogOffsetError("record at 0", "a record", "garbage")

        connection, transport = self.to_slave()
        self.slave_log.on_append = refuse
        connection.dataReceived(encode_frame(0, b"abc"))
        self.assertTrue(transport.disconnected)
        self.assertEqual(len(self.made), 1)

    def test_a_silent_master_is_left_and_tried_again(self) -> None:
        self.client.follow("127.0.0.1:10912")
        pump = self.connect()
        self.turns(pump)
        self.reactor.advance(20.5)
        self.client.check()
        pump.flush()
        self.assertIn("haHousekeepingInterval", self.client.last_failure or "")
        self.assertEqual(self.reactor.tcpClients, [])
        self.reactor.advance(2)
        self.assertEqual(len(self.reactor.tcpClients), 1)

    def test_a_master_that_nobody_finds_is_told_once(self) -> None:
        logged = Logged(self)
        self.client.follow("127.0.0.1:10999")
        for _ in range(9):
            while not self.reactor.tcpClients:
                self.reactor.advance(0.5)
            self.completer.failOnce()
        texts = [text for text in logged.texts if "nobody answers" in text]
        self.assertEqual(len(texts), 1)
        self.assertIn("127.0.0.1:10999", texts[0])

    def test_reports_go_out_in_silence(self) -> None:
        self.client.follow("127.0.0.1:10912")
        pump = self.connect()
        for _ in range(30):
            self.reactor.advance(5)
            self.client.check()
            self.server.check()
            self.turns(pump)
        self.assertTrue(self.client.is_copying)
        self.assertEqual(self.server.acknowledgements.slave_count, 1)

    def test_another_master_is_followed_after_the_first_is_left(self) -> None:
        self.client.follow("127.0.0.1:10912")
        pump = self.connect()
        self.turns(pump)
        self.client.follow("127.0.0.1:10999")
        self.assertEqual(self.reactor.tcpClients, [])
        self.turns(pump)
        self.assertEqual(self.reactor.tcpClients[-1][1], 10999)
        self.assertEqual(self.client.master, "127.0.0.1:10999")

    def test_a_stop_leaves_nothing(self) -> None:
        self.client.follow("127.0.0.1:10912")
        pump = self.connect()
        self.turns(pump)
        stopped = self.client.stop()
        self.assertNoResult(stopped)
        pump.flush()
        self.successResultOf(stopped)
        self.client.follow("127.0.0.1:10912")
        self.assertIsNone(self.client.master)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_a_stop_while_it_waits_for_another_try_leaves_nothing(self) -> None:
        self.client.follow("127.0.0.1:10912")
        self.completer.failOnce()
        self.successResultOf(self.client.stop())
        self.assertEqual(self.reactor.getDelayedCalls(), [])
