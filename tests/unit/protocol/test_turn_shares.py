"""Shares of a turn: what a chunk asks for is worked on piece by piece, in order, others between."""

from itertools import pairwise

import pytest
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure

from ledgermq.protocol.command import RemotingCommand, encode
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.protocol.transport.turn_shares import CROWDED_S, SHARE_S, TURN_S
from tests.unit.protocol.slow_port import Port, Slow, chunk
from tests.unit.protocol.wires import Wire


def test_slow_requests_of_a_chunk_are_spread_over_turns_in_their_order() -> None:
    port = Port(0.002)
    wire = port.wire()
    wire.protocol.dataReceived(chunk(10))
    # The third passes the end of the share.
    assert port.receiver.opaques(wire.protocol) == [0, 1, 2]
    assert not wire.is_reading
    assert len(wire.socket.commands()) == 3
    port.turn()
    assert port.receiver.opaques(wire.protocol) == [0, 1, 2, 3, 4, 5]
    port.turn()
    port.turn()
    assert port.receiver.opaques(wire.protocol) == list(range(10))
    assert wire.is_reading
    assert len(port.shares) == 0
    port.turn()
    assert not port.reactor.getDelayedCalls()
    assert [answer.opaque for answer in wire.socket.commands()] == list(range(10))


def test_others_are_served_between() -> None:
    port = Port(0.002)
    greedy, modest = port.wire(), port.wire()
    greedy.protocol.dataReceived(chunk(100))
    modest.protocol.dataReceived(chunk(1))
    assert port.receiver.opaques(modest.protocol) == [0]
    assert len(port.receiver.opaques(greedy.protocol)) == 3


def test_all_together_have_their_part_of_a_turn_however_many_they_are() -> None:
    port = Port(0.002)
    wires = [port.wire() for _ in range(20)]
    begun_s = port.reactor.seconds()
    for wire in wires:
        wire.protocol.dataReceived(chunk(12))
    # One has had a share, and since then those that follow have less; the others have not begun.
    assert port.reactor.seconds() - begun_s < 0.0121
    assert len(port.shares) == 20
    assert [len(port.receiver.opaques(wire.protocol)) for wire in wires[:4]] == [3, 1, 1, 0]
    while len(port.shares):
        served = len(port.receiver.worked)
        begun_s = port.reactor.seconds()
        port.turn()
        assert len(port.receiver.worked) > served
        assert port.reactor.seconds() - begun_s < 0.0121
    assert all(port.receiver.opaques(wire.protocol) == list(range(12)) for wire in wires)


def test_who_asks_for_little_is_served_before_who_asked_for_much() -> None:
    port = Port(0.0005)
    greedy = [port.wire() for _ in range(8)]
    modest = port.wire()
    port.receiver.seconds_of[modest.protocol] = 0.0001
    for wire in greedy:
        wire.protocol.dataReceived(chunk(200))
    modest.protocol.dataReceived(chunk(1))
    # Nothing is left of this turn; two more who asked for nothing before stand in front.
    assert not port.receiver.opaques(modest.protocol)
    served_count = len(port.receiver.worked)
    port.turn()
    in_order = list(dict.fromkeys(worker for worker, _ in port.receiver.worked[served_count:]))
    assert in_order[:3] == [greedy[6].protocol, greedy[7].protocol, modest.protocol]
    for number in range(1, 30):
        port.wait(0.005)
        begun_s = port.reactor.seconds()
        modest.protocol.dataReceived(chunk(1, first=number))
        # At once, whatever the others used of this turn.
        assert port.receiver.opaques(modest.protocol) == list(range(number + 1))
        port.turn()
        # And while it is there they have little time together.
        assert port.reactor.seconds() - begun_s < 0.0036
    served = [len(port.receiver.opaques(wire.protocol)) for wire in greedy]
    assert min(served) >= 10 and max(served) - min(served) < 15
    # It has gone: they have the whole turn again.
    port.wait(2)
    begun_s = port.reactor.seconds()
    port.turn()
    assert port.reactor.seconds() - begun_s > 0.009


def test_parts_of_a_turn_let_a_client_wait_for_a_few_milliseconds() -> None:
    """With the numbers that serve: a client with a quiet p99 of 2 ms waits for up to four turns."""
    # Appending, replicating and dispatching cost as much again as the requests themselves.
    port = Port(0.0001, parts_s=(SHARE_S, TURN_S, CROWDED_S))
    greedy = [port.wire() for _ in range(32)]
    modest = port.wire()
    port.receiver.seconds_of[modest.protocol] = 0.00002
    for wire in greedy:
        wire.protocol.dataReceived(chunk(2000))
    turns_s = []
    for number in range(100):
        port.wait(0.001)
        modest.protocol.dataReceived(chunk(1, first=number))
        before, begun_s = len(port.receiver.worked), port.reactor.seconds()
        port.turn()
        worked = len(port.receiver.worked) - before
        port.reactor.rightNow += worked * 0.0001
        turns_s.append(port.reactor.seconds() - begun_s)
    assert len(port.receiver.opaques(modest.protocol)) == 100
    # A tenth of the bound on waiting, which is ten times the quiet p99; and none stands still.
    assert max(turns_s[50:]) <= 0.002, turns_s
    assert min(turns_s[50:]) >= 0.0005, turns_s


def test_who_asks_for_much_is_known_however_many_they_are() -> None:
    port = Port(0.0005)
    greedy = [port.wire() for _ in range(40)]
    modest = port.wire()
    port.receiver.seconds_of[modest.protocol] = 0.00002
    opaque = 0
    for number in range(300):
        # A third of the processor is others': what time passes does not make them modest.
        port.wait(0.01)
        for wire in greedy:
            if wire.is_reading:
                wire.protocol.dataReceived(chunk(4, first=opaque))
                opaque += 4
        modest.protocol.dataReceived(chunk(1, first=number))
        begun_s = port.reactor.seconds()
        port.turn()
        # At first nobody is known.
        if number >= 100:
            assert len(port.receiver.opaques(modest.protocol)) == number + 1
            assert port.reactor.seconds() - begun_s < 0.0036
    served = [len(port.receiver.opaques(wire.protocol)) for wire in greedy]
    assert min(served) > max(served) // 2


def test_who_waits_for_each_answer_asks_for_little_however_many_ask_for_much() -> None:
    port = Port(0.0001)
    greedy = [port.wire() for _ in range(100)]
    modest = port.wire()
    # A slow processor: what is left for each of the others is less than the client needs.
    port.receiver.seconds_of[modest.protocol] = 0.0004
    for wire in greedy:
        wire.protocol.dataReceived(chunk(1000))
    asked, lates = 0, []
    for number in range(600):
        # What requests cause, and the pause of the client.
        port.reactor.rightNow += 0.0005
        begun_s = port.reactor.seconds()
        if number % 3 == 0 and len(port.receiver.opaques(modest.protocol)) == asked:
            modest.protocol.dataReceived(chunk(1, first=asked))
            asked += 1
            lates.append(len(port.receiver.opaques(modest.protocol)) < asked)
        port.turn()
        # At first nobody is known.
        if number >= 100:
            assert port.reactor.seconds() - begun_s < 0.0036
    assert len(port.shares) == 100
    assert len(lates) > 100 and not any(lates[-100:])


class Crowd:
    """Hundreds of connections of one account that each ask once and again for next to nothing, and
    a client of another account.
    """

    def __init__(self, port: Port, count: int, account: str = "crowd") -> None:
        self.port = port
        self.wires = [port.wire() for _ in range(count)]
        self.modest = port.wire()
        for wire in self.wires:
            wire.protocol.account = account
        self.modest.protocol.account = "modest"
        self.asked = self.late = 0

    def turn(self, *, asks: bool = True) -> float:
        """All ask that have their answer; returns what the turn took, in seconds."""
        begun_s = self.port.reactor.seconds()
        answered = len(self.port.receiver.opaques(self.modest.protocol))
        for wire in self.wires:
            if wire.is_reading:
                wire.protocol.dataReceived(chunk(1))
        if asks and answered == self.asked:
            self.modest.protocol.dataReceived(chunk(1, first=self.asked))
            self.asked += 1
            self.late += len(self.port.receiver.opaques(self.modest.protocol)) < self.asked
        self.port.turn()
        return self.port.reactor.seconds() - begun_s


def test_many_connections_of_one_that_each_ask_for_little_ask_for_much() -> None:
    port = Port(0.0002)
    crowd = Crowd(port, 300)
    port.receiver.seconds_of[crowd.modest.protocol] = 0.00002
    for _ in range(600):
        crowd.turn()
    # At first nobody is known.
    crowd.late = 0
    before = [len(port.receiver.opaques(wire.protocol)) for wire in crowd.wires]
    turns_s = [crowd.turn() for _ in range(300)]
    assert crowd.late == 0 and max(turns_s) < 0.0036
    after = [len(port.receiver.opaques(wire.protocol)) for wire in crowd.wires]
    served = [later - sooner for sooner, later in zip(before, after, strict=True)]
    assert min(served) >= max(served) - 2 > 5
    # The other one has gone: they have the whole turn again.
    port.wait(2)
    assert max(crowd.turn(asks=False) for _ in range(5)) > 0.009


def test_who_is_alone_is_not_told_apart_from_itself() -> None:
    port = Port(0.0002)
    crowd = Crowd(port, 300, account="modest")
    served = []
    for _ in range(100):
        crowd.turn()
        served.append(len(port.receiver.worked))
    # As much as those have of a turn who ask for little, whoever it is for.
    assert all(22 <= after - before <= 28 for before, after in pairwise(served[50:]))


def test_two_who_both_ask_for_much_are_served_alike() -> None:
    port = Port(0.0002)
    wires = [port.wire() for _ in range(200)]
    for number, wire in enumerate(wires):
        wire.protocol.account = ("first", "second")[number % 2]
    for number in range(1000):
        if number == 200:
            # By now it is known that both do.
            port.receiver.worked.clear()
        for wire in wires:
            if wire.is_reading:
                wire.protocol.dataReceived(chunk(1))
        port.turn()
    counts = [len(port.receiver.opaques(wire.protocol)) for wire in wires]
    first, second = sum(counts[::2]), sum(counts[1::2])
    assert min(first, second) > 0.8 * max(first, second)
    assert min(counts) > 50


def test_however_many_ask_for_little_who_asks_for_much_is_not_left_out() -> None:
    port = Port(0.0002)
    wires, greedy = [port.wire() for _ in range(60)], port.wire()
    greedy.protocol.dataReceived(chunk(10_000))
    served = []
    for _ in range(500):
        for wire in wires:
            if wire.is_reading:
                wire.protocol.dataReceived(chunk(1))
        port.turn()
        served.append(len(port.receiver.opaques(greedy.protocol)))
    # Ten requests fit into what those who ask for much have of a turn.
    assert served[-1] - served[100] > 5 * 400
    assert all(later > before for before, later in zip(served[100:], served[120:], strict=False))
    assert min(len(port.receiver.opaques(wire.protocol)) for wire in wires) > 100


def test_what_requests_cause_later_is_taken_from_their_share() -> None:
    port = Port(0.0001)
    greedy, modest = port.wire(), port.wire()
    greedy.protocol.dataReceived(chunk(5000))
    turns = []
    for number in range(60):
        port.wait(0.005)
        modest.protocol.dataReceived(chunk(1, first=number))
        before = len(port.receiver.worked)
        port.turn()
        worked = len(port.receiver.worked) - before
        # What is appended, dispatched and answered once a turn: twice as long as the requests.
        port.reactor.rightNow += worked * 0.0002
        turns.append(worked)
    # Two milliseconds in all: with what they cause it is six or seven requests, not twenty.
    assert all(5 <= worked <= 9 for worked in turns[40:]), turns
    # It costs as little as before: they have their time again.
    for number in range(60, 120):
        port.wait(0.005)
        modest.protocol.dataReceived(chunk(1, first=number))
        before = len(port.receiver.worked)
        port.turn()
        turns.append(len(port.receiver.worked) - before)
    assert all(18 <= worked <= 22 for worked in turns[110:]), turns


def test_what_is_read_of_who_asked_for_much_waits_for_its_turn() -> None:
    port = Port(0.002)
    greedy, other, modest = port.wire(), port.wire(), port.wire()
    modest.protocol.dataReceived(chunk(1))
    greedy.protocol.dataReceived(chunk(2))
    other.protocol.dataReceived(chunk(20))
    served = len(port.receiver.worked)
    # All that it asked for is done, but it used up its time for now.
    assert port.receiver.opaques(greedy.protocol) == [0, 1]
    greedy.protocol.dataReceived(chunk(2, first=2))
    assert len(port.receiver.worked) == served and not greedy.is_reading
    for _ in range(3):
        port.turn()
    assert port.receiver.opaques(greedy.protocol) == [0, 1, 2, 3]
    # Long after it counts as one that asks for little.
    while len(port.shares):
        port.turn()
    port.turn()
    port.wait(1)
    other.protocol.dataReceived(chunk(20, first=20))
    greedy.protocol.dataReceived(chunk(1, first=4))
    assert port.receiver.opaques(greedy.protocol)[-1] == 4


def test_who_had_to_wait_for_a_processor_does_not_ask_for_much() -> None:
    port = Port(0.0001)
    greedy, modest = port.wire(), port.wire()
    greedy.protocol.dataReceived(chunk(200))
    work = port.receiver.commands_received

    def stand_still(connection: CommandProtocol, commands: list[RemotingCommand]) -> int:
        if connection is modest.protocol:
            port.reactor.rightNow += 0.02
            port.still_s += 0.02
        return work(connection, commands)

    port.receiver.commands_received = stand_still  # type: ignore[method-assign]
    for number in range(5):
        modest.protocol.dataReceived(chunk(1, first=number))
        assert port.receiver.opaques(modest.protocol) == list(range(number + 1))
        assert len(port.shares) == 1
        port.turn()


def test_what_one_request_took_too_much_is_missing_from_the_next_turns() -> None:
    port = Port(0.0001)
    greedy, modest = port.wire(), port.wire()
    port.receiver.seconds_of[greedy.protocol] = 0.0121
    greedy.protocol.dataReceived(chunk(3))
    turns = []
    for number in range(20):
        port.wait(0.005)
        modest.protocol.dataReceived(chunk(1, first=number))
        before = len(port.receiver.opaques(greedy.protocol))
        port.turn()
        assert len(port.receiver.opaques(modest.protocol)) == number + 1
        turns.append(len(port.receiver.opaques(greedy.protocol)) - before)
    # Two milliseconds of each turn are theirs, so each takes those of six.
    served = [number for number, count in enumerate(turns) if count]
    assert len(served) == 2 and max(turns) == 1
    assert served[1] - served[0] in (6, 7)
    assert port.receiver.opaques(greedy.protocol) == [0, 1, 2]


def test_quick_requests_are_worked_on_at_once() -> None:
    port = Port(0.0)
    wire = port.wire()
    wire.protocol.dataReceived(chunk(1000))
    assert port.receiver.opaques(wire.protocol) == list(range(1000))
    assert wire.is_reading and not port.reactor.getDelayedCalls()


def test_what_came_in_before_reading_paused_waits_behind() -> None:
    port = Port(0.006)
    wire = port.wire()
    wire.protocol.dataReceived(chunk(3))
    wire.protocol.dataReceived(chunk(2, first=3))
    assert port.receiver.opaques(wire.protocol) == [0]
    while len(port.shares):
        port.turn()
    assert port.receiver.opaques(wire.protocol) == [0, 1, 2, 3, 4]


def test_requests_end_with_their_connection() -> None:
    port = Port(0.006)
    wire = port.wire()
    wire.protocol.dataReceived(chunk(50))
    wire.link.connectionLost(Failure(ConnectionDone()))
    for _ in range(5):
        port.turn()
    assert port.receiver.opaques(wire.protocol) == [0]
    assert len(port.shares) == 0


def test_nothing_is_answered_into_a_full_outbox() -> None:
    port = Port(0.0, answer_bytes=100_000, pause_bytes=300_000, unsent_bytes_max=10_000_000)
    wire = port.wire(room=0)
    wire.protocol.dataReceived(chunk(100))
    for _ in range(10):
        port.turn()
    # The socket takes nothing: three answers fill the outbox, and one more is on its way.
    assert 3 <= len(port.receiver.worked) <= 5
    assert wire.protocol.unsent_bytes < 600_000
    assert wire.protocol.is_open and not wire.is_reading
    while len(port.receiver.worked) < 100:
        before = len(port.receiver.worked)
        wire.drain(500_000)
        port.turn()
        assert len(port.receiver.worked) > before
    assert port.receiver.opaques(wire.protocol) == list(range(100))
    wire.drain(1 << 30)
    assert wire.is_reading
    assert [answer.opaque for answer in wire.socket.commands()] == list(range(100))


def test_frames_of_the_quick_road_have_their_share_too() -> None:
    port = Port(0.0)
    wire = port.wire()
    taken: list[int] = []

    def take(connection: CommandProtocol, frames: list[bytes]) -> int:
        taken.append(len(frames))
        port.reactor.rightNow += 0.006
        return len(frames)

    wire.protocol.take_frames = take
    wire.protocol.dataReceived(chunk(300))
    assert taken == [128]
    port.turn()
    port.turn()
    assert taken == [128, 128, 44]
    assert not port.receiver.worked and wire.is_reading


def test_a_peer_that_is_kept_waiting_is_not_called_slow_or_idle() -> None:
    port = Port(
        0.006, idle_timeout_s=20, frame_timeout_s=10, frame_bytes_s_min=1024, slow_checks_max=2
    )
    wire = port.wire()
    wire.protocol.dataReceived(chunk(3) + chunk(1)[:7])
    for second in range(1, 40):
        wire.protocol.check(port.reactor.rightNow + second)
    assert wire.protocol.is_open
    while len(port.shares):
        port.turn()
    assert wire.is_reading
    wire.protocol.check(port.reactor.rightNow + 1)
    assert wire.protocol.is_open
    # From here on it is the peer who must go on.
    wire.protocol.check(port.reactor.rightNow + 11)
    assert not wire.protocol.is_open


@pytest.mark.parametrize("piece_bytes", [1, 300, 1000])
def test_a_frame_that_comes_in_small_pieces_is_read_now_and_then(piece_bytes: int) -> None:
    port = Port(0.0)
    wire, frame = port.wire(), encode(RemotingCommand(code=10, body=bytes(50_000)))
    pieces = [frame[at : at + piece_bytes] for at in range(0, 9 * piece_bytes, piece_bytes)]
    for piece in pieces[:3]:
        assert wire.is_reading
        wire.protocol.dataReceived(piece)
    # For longer each time: at first as long as nobody notices who has small packets.
    for least_s, piece in zip((0.05, 0.1, 0.2, 0.4, 0.4), pieces[3:8], strict=True):
        assert not wire.is_reading
        port.reactor.advance(least_s * 0.99)
        assert not wire.is_reading
        port.reactor.advance(least_s * 1.02)
        assert wire.is_reading
        wire.protocol.dataReceived(piece)
    port.reactor.advance(1)
    # All that gathered meanwhile, and another one of which little has come.
    wire.protocol.dataReceived(frame[8 * piece_bytes :] + frame[:1])
    assert port.receiver.opaques(wire.protocol) == [0]
    assert wire.is_reading


def test_who_can_bring_much_at_once_is_read_as_it_comes() -> None:
    port = Port(0.0)
    wire, frame = port.wire(), encode(RemotingCommand(code=10, body=bytes(1_000_000)))
    at = 0
    while at < len(frame):
        for size in (700, 700, 20_000):
            assert wire.is_reading
            wire.protocol.dataReceived(frame[at : at + size])
            at += size
    assert port.receiver.opaques(wire.protocol) == [0]


def test_what_is_written_piece_by_piece_is_read_at_once() -> None:
    port = Port(0.0)
    wire, frame = port.wire(), encode(RemotingCommand(code=10, body=b"x"))
    for _ in range(5):
        for piece in (frame[:4], frame[4:-1], frame[-1:]):
            assert wire.is_reading
            wire.protocol.dataReceived(piece)
    assert len(port.receiver.worked) == 5


def test_a_peer_that_sends_by_the_byte_is_cut_off_although_it_is_seldom_read() -> None:
    port = Port(0.0, slow_checks_max=5)
    wire = port.wire()
    for byte in (b"\0", b"\3"):
        wire.protocol.dataReceived(byte)
    for number in range(8):
        if wire.protocol.is_open:
            assert wire.is_reading
            wire.protocol.dataReceived(b"\0")
        # Each look at it comes while it rests.
        assert not wire.is_reading
        wire.protocol.check(port.reactor.seconds())
        assert wire.protocol.is_open == (number < 5)
        port.reactor.advance(1.1)
    assert not port.reactor.getDelayedCalls()


def test_connections_without_a_line_do_all_at_once() -> None:
    reactor = MemoryReactorClock()
    receiver = Slow(reactor, 1.0)
    wire = Wire(reactor, CommandProtocol(reactor, receiver))
    wire.protocol.dataReceived(chunk(5))
    assert receiver.opaques(wire.protocol) == [0, 1, 2, 3, 4]
