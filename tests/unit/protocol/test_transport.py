"""CommandProtocol on a socket of memory: order, coalescing, marks, times, and bad bytes."""

import struct
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import LogEvent, globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from ledgermq.protocol.command import RemotingCommand, encode, encode_parts
from ledgermq.protocol.errors import (
    ConnectionClosedError,
    LocalProtocolError,
    RequestTimeoutError,
)
from ledgermq.protocol.transport import (
    CommandProtocol,
    ConnectionLimits,
    Receiver,
    TurnOutput,
)
from tests.unit.protocol.wires import Answering, Recorder, Wire


def request(opaque: int = 0, body: bytes = b"") -> RemotingCommand:
    return RemotingCommand(code=10, opaque=opaque, body=body)


class ProtocolTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()
        self.receiver = Recorder()
        self.events: list[LogEvent] = []
        # Twisted's interfaces are unknown to the type checker.
        observer: Any = self.events.append
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)

    def wire(
        self,
        room: int = 1 << 40,
        limits: ConnectionLimits | None = None,
        receiver: Receiver | None = None,
        output: TurnOutput | None = None,
    ) -> Wire:
        protocol = CommandProtocol(
            self.reactor, receiver or self.receiver, limits=limits, output=output
        )
        return Wire(self.reactor, protocol, room)

    def end_turn(self) -> None:
        self.reactor.advance(0)

    def warnings(self) -> list[LogEvent]:
        return [event for event in self.events if event["log_level"].name in ("warn", "error")]

    # Receiving.

    def test_peer_is_known_when_the_connection_is_made(self) -> None:
        wire = self.wire()
        self.assertEqual(self.receiver.made, [wire.protocol])
        self.assertEqual(wire.protocol.peer, "10.0.0.9:5555")
        self.assertEqual(wire.protocol.peer_host, "10.0.0.9")
        self.assertTrue(wire.protocol.is_open)

    def test_commands_of_a_chunk_come_in_one_call(self) -> None:
        wire = self.wire()
        commands = [request(number) for number in range(3)]
        wire.protocol.dataReceived(b"".join(encode(command) for command in commands))
        self.assertEqual(self.receiver.received, [commands])

    def test_half_a_frame_calls_nobody(self) -> None:
        wire = self.wire()
        wire.protocol.dataReceived(encode(request())[:9])
        self.assertEqual(self.receiver.received, [])

    def test_bad_bytes_close_with_one_line_in_the_log(self) -> None:
        for data in (b"\xff" * 9, struct.pack(">iI", 6, 2) + b"{]", struct.pack(">iI", 6, 99)):
            wire = self.wire()
            before = len(self.warnings())
            wire.protocol.dataReceived(data)
            wire.protocol.dataReceived(encode(request()))
            wire.drain(0)
            self.assertFalse(wire.protocol.is_open)
            (line,) = self.warnings()[before:]
            self.assertEqual(line["peer"], "10.0.0.9:5555")
            self.assertTrue(self.receiver.lost[-1].startswith("bad bytes: "))
        self.assertEqual(self.receiver.received, [])

    def test_command_without_its_fields_harms_nobody(self) -> None:
        wire = self.wire()
        command = RemotingCommand(code=310, ext_fields={"e": "x" * 5000})
        wire.protocol.dataReceived(encode(command))
        self.assertEqual(self.receiver.received, [[command]])
        self.assertTrue(wire.protocol.is_open)

    def test_failing_receiver_costs_its_connection_only(self) -> None:
        self.receiver.failure = ValueError("bug")
        wire = self.wire()
        wire.protocol.dataReceived(encode(request()))
        self.end_turn()
        self.assertEqual(self.receiver.lost, ["internal error"])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_frames_taken_from_the_front_become_no_commands(self) -> None:
        wire = self.wire()
        offered: list[int] = []

        def take(connection: CommandProtocol, frames: list[bytes]) -> int:
            self.assertIs(connection, wire.protocol)
            offered.append(len(frames))
            return 2

        wire.protocol.take_frames = take
        commands = [request(number) for number in range(3)]
        wire.protocol.dataReceived(b"".join(encode(command) for command in commands))
        self.assertEqual(self.receiver.received, [commands[2:]])
        wire.protocol.dataReceived(encode(request()) + encode(request()))
        self.assertEqual(offered, [3, 2])
        self.assertEqual(len(self.receiver.received), 1)

    def test_bad_bytes_behind_frames_that_were_taken_close(self) -> None:
        wire = self.wire()
        wire.protocol.take_frames = lambda connection, frames: 1
        wire.protocol.dataReceived(encode(request()) + struct.pack(">iI", 6, 2) + b"{]")
        wire.drain(0)
        self.assertFalse(wire.protocol.is_open)
        self.assertTrue(self.receiver.lost[-1].startswith("bad bytes: "))
        self.assertEqual(self.receiver.received, [])

    def test_failing_taker_costs_its_connection_only(self) -> None:
        wire = self.wire()

        def fail(connection: CommandProtocol, frames: list[bytes]) -> int:
            raise ValueError("bug")

        wire.protocol.take_frames = fail
        wire.protocol.dataReceived(encode(request()))
        self.end_turn()
        self.assertEqual(self.receiver.lost, ["internal error"])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    # Sending.

    def test_answers_to_a_chunk_go_out_in_one_write(self) -> None:
        wire = self.wire(receiver=Answering())
        chunk = b"".join(encode(request(number, b"body")) for number in range(20))
        wire.protocol.dataReceived(chunk)
        self.assertEqual(len(wire.socket.calls), 1)
        self.assertEqual([one.opaque for one in wire.socket.commands()], list(range(20)))
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_what_is_sent_in_a_turn_goes_out_at_its_end(self) -> None:
        output = TurnOutput(self.reactor)
        wires = [self.wire(output=output) for _ in range(2)]
        for number in range(3):
            for wire in wires:
                wire.protocol.send(request(number))
        self.assertEqual([wire.socket.calls for wire in wires], [[], []])
        self.assertEqual(len(self.reactor.getDelayedCalls()), 1)
        self.end_turn()
        for wire in wires:
            self.assertEqual(len(wire.socket.calls), 1)
            self.assertEqual(len(wire.socket.commands()), 3)

    def test_turn_may_be_ended_by_hand(self) -> None:
        output = TurnOutput(self.reactor)
        wire = self.wire(output=output)
        wire.protocol.send_one_way(request())
        output.flush()
        self.assertTrue(wire.socket.commands()[0].is_one_way)
        self.end_turn()
        self.assertEqual(len(wire.socket.calls), 1)

    def test_full_socket_is_served_by_the_reactor_in_order(self) -> None:
        wire = self.wire(room=10)
        commands = [request(number, bytes(1_000)) for number in range(500)]
        for command in commands[:300]:
            wire.protocol.send(command)
        self.end_turn()
        for command in commands[300:]:
            wire.protocol.send(command)
        self.end_turn()
        sent = len(b"".join(encode(command) for command in commands))
        self.assertEqual(wire.protocol.unsent_bytes, sent - 10)
        for _ in range(100):
            wire.drain(7_777)
        self.assertEqual(wire.socket.commands(), commands)
        self.assertEqual(wire.protocol.unsent_bytes, 0)
        wire.protocol.send(request(7))
        self.end_turn()
        self.assertEqual(len(wire.socket.commands()), 501)

    def test_views_are_the_caller_s_again_when_send_parts_returns(self) -> None:
        for room in (1 << 20, 100):
            wire = self.wire(room=room)
            buffer = bytearray(b"x" * 200_000)
            view = memoryview(buffer)
            wire.protocol.send_parts(encode_parts(RemotingCommand(code=0), [view, b"tail"]))
            view.release()
            buffer.clear()
            wire.drain(1 << 20)
            (command,) = wire.socket.commands()
            self.assertEqual(command.body, b"x" * 200_000 + b"tail")

    def test_write_error_ends_the_connection(self) -> None:
        wire = self.wire()
        wire.socket.failure = BrokenPipeError(32, "Broken pipe")
        wire.protocol.send(request())
        self.end_turn()
        self.end_turn()
        self.assertEqual(self.receiver.lost, ["write failed: Broken pipe"])

    def test_reading_pauses_above_the_mark_and_resumes_below_half_of_it(self) -> None:
        limits = ConnectionLimits(pause_bytes=200_000, unsent_bytes_max=10_000_000)
        wire = self.wire(room=0, limits=limits)
        for _ in range(21):
            wire.protocol.send_frame(bytes(10_000))
        self.assertFalse(wire.is_reading)
        wire.drain(100_000)
        self.assertFalse(wire.is_reading)
        wire.drain(66_000)
        self.assertTrue(wire.is_reading)

    def test_slow_peer_is_cut_off_at_the_limit(self) -> None:
        limits = ConnectionLimits(pause_bytes=100_000, unsent_bytes_max=1_000_000)
        wire = self.wire(room=0, limits=limits)
        for _ in range(200):
            wire.protocol.send_frame(bytes(10_000))
            self.assertLessEqual(wire.protocol.unsent_bytes, 1_010_000)
        self.end_turn()
        self.assertEqual(self.receiver.lost, ["slow peer: 1010000 bytes unsent"])
        self.assertEqual(len(self.warnings()), 1)

    def test_close_sends_what_has_gathered_first(self) -> None:
        wire = self.wire(room=5)
        wire.protocol.send(request(body=bytes(100_000)))
        wire.protocol.close("done")
        self.assertEqual(self.receiver.lost, [])
        wire.drain(1_000_000)
        self.assertEqual(len(wire.socket.commands()), 1)
        self.assertEqual(self.receiver.lost, ["done"])

    def test_closed_connection_sends_nothing(self) -> None:
        wire = self.wire()
        wire.protocol.close("done")
        wire.protocol.send(request())
        wire.protocol.send_parts([b"x"])
        self.end_turn()
        self.assertEqual(wire.socket.sent, b"")

    # Requests.

    def test_answer_reaches_its_request_and_not_the_receiver(self) -> None:
        wire = self.wire()
        first = wire.protocol.request(RemotingCommand(code=1), 1000)
        second = wire.protocol.request(RemotingCommand(code=2), 1000, body_parts=[b"a", b"b"])
        self.end_turn()
        sent = {command.code: command for command in wire.socket.commands()}
        self.assertEqual(sent[2].body, b"ab")
        answers = [sent[2].response(0, "two"), sent[1].response(0, "one"), request(77)]
        wire.protocol.dataReceived(b"".join(encode(answer) for answer in answers))
        self.assertEqual(self.successResultOf(first).remark, "one")
        self.assertEqual(self.successResultOf(second).remark, "two")
        self.assertEqual(self.receiver.received, [[request(77)]])

    def test_answer_that_nobody_waits_for_is_counted(self) -> None:
        wire = self.wire()
        wire.protocol.dataReceived(encode(RemotingCommand(code=0, flag=3, opaque=5)))
        self.assertEqual(wire.protocol.unmatched_responses_count, 1)
        self.assertEqual(self.receiver.received, [])

    def test_request_without_an_answer_times_out(self) -> None:
        wire = self.wire()
        late = wire.protocol.request(RemotingCommand(code=1), 3000)
        early = wire.protocol.request(RemotingCommand(code=2), 1000)
        self.reactor.advance(0.999)
        self.assertNoResult(early)
        self.reactor.advance(0.002)
        error = self.failureResultOf(early, RequestTimeoutError).value
        self.assertEqual(str(error), "no answer from 10.0.0.9:5555 to request 2 in 1000 ms")
        self.assertNoResult(late)
        self.reactor.advance(2)
        self.failureResultOf(late, RequestTimeoutError)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_lost_connection_fails_what_waits_and_leaves_no_call(self) -> None:
        wire = self.wire()
        waiting = wire.protocol.request(RemotingCommand(code=1), 1000)
        wire.link.connectionLost(Failure(ConnectionDone()))
        self.failureResultOf(waiting, ConnectionClosedError)
        self.failureResultOf(
            wire.protocol.request(RemotingCommand(code=1), 1000), ConnectionClosedError
        )
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.assertEqual(len(self.receiver.lost), 1)

    def test_too_many_requests_are_refused(self) -> None:
        wire = self.wire(limits=ConnectionLimits(outstanding_max=1))
        first = wire.protocol.request(RemotingCommand(code=1), 1000)
        second = wire.protocol.request(RemotingCommand(code=1), 1000)
        self.failureResultOf(second, LocalProtocolError)
        self.assertNoResult(first)

    def test_request_that_does_not_fit_leaves_nothing_behind(self) -> None:
        wire = self.wire(limits=ConnectionLimits(outstanding_max=1))
        bad = wire.protocol.request(RemotingCommand(code=1, remark="\ud800"), 1000)
        self.failureResultOf(bad, LocalProtocolError)
        self.assertNoResult(wire.protocol.request(RemotingCommand(code=1), 1000))

    def test_cancelled_request_ignores_its_answer(self) -> None:
        wire = self.wire()
        waiting = wire.protocol.request(RemotingCommand(code=1), 1000)
        waiting.addErrback(lambda _: None).cancel()
        wire.protocol.dataReceived(encode(RemotingCommand(code=0, flag=1, opaque=0)))
        self.assertEqual(wire.protocol.unmatched_responses_count, 1)

    # Times.

    def check_at(self, wire: Wire, seconds: float) -> list[str]:
        self.reactor.advance(seconds)
        wire.protocol.check(self.reactor.seconds())
        wire.drain(0)
        self.end_turn()
        return self.receiver.lost

    def test_connection_without_a_frame_is_closed(self) -> None:
        wire = self.wire()
        self.assertEqual(self.check_at(wire, 29), [])
        self.assertEqual(self.check_at(wire, 1), ["no frame in 30 s"])

    def test_connection_whose_peer_stays_unknown_is_closed(self) -> None:
        """Also one whose requests are whole, small and in time."""
        limits = ConnectionLimits(unknown_frame_bytes_max=65_536)
        unknown, known = self.wire(limits=limits), self.wire(limits=limits)
        known.protocol.is_trusted = True
        for _ in range(5):
            for wire in (unknown, known):
                wire.protocol.dataReceived(encode(request()))
            self.assertEqual(self.check_at(unknown, 10), [])
        self.assertEqual(self.check_at(unknown, 10), ["no request that was let pass in 60 s"])
        self.assertTrue(known.protocol.is_open)
        known.protocol.check(self.reactor.seconds())
        self.assertTrue(known.protocol.is_open)

    def test_idle_connection_is_closed(self) -> None:
        wire = self.wire()
        wire.protocol.dataReceived(encode(request()))
        self.assertEqual(self.check_at(wire, 119), [])
        wire.protocol.send(request())
        self.end_turn()
        self.assertEqual(self.check_at(wire, 119), [])
        self.assertEqual(self.check_at(wire, 1), ["idle for 120 s"])

    def test_slow_frame_is_cut_off_after_some_checks(self) -> None:
        wire = self.wire()
        wire.protocol.dataReceived(encode(request(body=bytes(100_000)))[:1500])
        self.assertEqual(self.check_at(wire, 1), [])
        for _ in range(4):
            self.assertEqual(self.check_at(wire, 1), [])
        (reason,) = self.check_at(wire, 1)
        self.assertEqual(
            reason, "frame too slow, 1500 bytes of it came, 1024 a second are the least"
        )

    def test_frame_that_was_slow_for_a_while_is_not(self) -> None:
        """A pause of the network, or of this process: between two checks all comes that waited."""
        wire = self.wire()
        frame = encode(request(body=bytes(100_000)))
        wire.protocol.dataReceived(frame[:10])
        for _ in range(4):
            self.assertEqual(self.check_at(wire, 1), [])
        wire.protocol.dataReceived(frame[10:50_000])
        for _ in range(6):
            self.assertEqual(self.check_at(wire, 1), [])
        self.assertEqual(self.check_at(wire, 15), [])
        wire.protocol.dataReceived(frame[50_000:])
        self.assertEqual(len(self.receiver.received), 1)

    def test_frame_that_trickles_is_cut_off(self) -> None:
        wire = self.wire(limits=ConnectionLimits(frame_bytes_s_min=0))
        frame = encode(request())
        wire.protocol.dataReceived(frame + frame[:1])
        for number in range(1, 6):
            self.assertEqual(self.check_at(wire, 5), [])
            wire.protocol.dataReceived(frame[number : number + 1])
        reason = "frame not whole in 30 s, 6 bytes of it came"
        self.assertEqual(self.check_at(wire, 5), [reason])

    def test_peer_that_takes_nothing_is_cut_off(self) -> None:
        wire = self.wire(room=0)
        wire.protocol.dataReceived(encode(request()))
        wire.protocol.send_frame(bytes(100_000))
        self.end_turn()
        self.assertEqual(self.check_at(wire, 59), [])
        wire.drain(70_000)
        self.assertEqual(self.check_at(wire, 59), [])
        self.assertEqual(self.check_at(wire, 1), ["30000 bytes unsent for 60 s"])

    def test_closing_connection_is_not_waited_for_without_end(self) -> None:
        wire = self.wire(room=0)
        wire.protocol.send_frame(bytes(100))
        wire.protocol.close("done")
        self.assertEqual(self.check_at(wire, 60), ["done"])
