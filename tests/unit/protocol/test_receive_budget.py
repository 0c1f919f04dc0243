"""What connections hold of unfinished requests, in all, and before they said who they are."""

import struct
from typing import Any

from twisted.internet.testing import MemoryReactorClock
from twisted.logger import LogEvent, globalLogPublisher

from ledgermq.protocol.command import RemotingCommand, encode
from ledgermq.protocol.transport import (
    CommandProtocol,
    ConnectionLimits,
    ReceiveBudget,
    TurnShares,
)
from tests.unit.protocol.wires import Answering, Wire

MIB = 1 << 20


class Port:
    """Connections with one budget."""

    def __init__(self, budget_bytes: int, unknown_frame_bytes_max: int = 0) -> None:
        self.reactor = MemoryReactorClock()
        self.receiver = Answering()
        self.budget = ReceiveBudget(budget_bytes)
        self.shares = TurnShares(self.reactor)
        self.limits = ConnectionLimits(unknown_frame_bytes_max=unknown_frame_bytes_max)

    def wire(self) -> Wire:
        protocol = CommandProtocol(
            self.reactor,
            self.receiver,
            limits=self.limits,
            shares=self.shares,
            budget=self.budget,
        )
        return Wire(self.reactor, protocol)


def send_in_chunks(wire: Wire, data: bytes) -> None:
    for at in range(0, len(data), 65_536):
        wire.protocol.dataReceived(data[at : at + 65_536])


def whole(size: int, opaque: int = 0, **fields: str) -> bytes:
    return encode(
        RemotingCommand(code=10, opaque=opaque, ext_fields=fields or None, body=bytes(size))
    )


def begun(size: int) -> bytes:
    """So many bytes of a frame of 15 MiB."""
    return struct.pack(">i", 15 * MIB) + bytes(size - 4)


def test_unfinished_frames_share_one_budget_and_a_moving_client_keeps_its_place() -> None:
    port = Port(32 * MIB)
    events: list[LogEvent] = []
    observer: Any = events.append
    globalLogPublisher.addObserver(observer)
    try:
        stalled = [port.wire() for _ in range(30)]
        sender = port.wire()
        message = whole(4 * MIB, opaque=7)
        send_in_chunks(sender, message[: 2 * MIB])
        for wire in stalled:
            send_in_chunks(wire, begun(3 * MIB))
            port.reactor.rightNow += 2
            sender.protocol.dataReceived(b"")
            assert port.budget.used_bytes <= 32 * MIB
        send_in_chunks(sender, message[2 * MIB :])
    finally:
        globalLogPublisher.removeObserver(observer)
    assert [answer.opaque for answer in sender.socket.commands()] == [7]
    open_count = sum(wire.protocol.is_open for wire in stalled)
    assert 5 <= open_count <= 10
    assert port.budget.used_bytes == open_count * 3 * MIB
    lines = [event for event in events if event.get("key") == "receiveBudgetBytes"]
    # One for the closures of ten seconds.
    assert 1 <= len(lines) <= 7
    for wire in stalled:
        wire.protocol.abort("test ends")
    assert port.budget.used_bytes == 0


def test_the_largest_ends_first_among_those_that_move() -> None:
    port = Port(MIB)
    large, small = port.wire(), port.wire()
    send_in_chunks(large, begun(700_000))
    send_in_chunks(small, begun(300_000))
    assert large.protocol.is_open and small.protocol.is_open
    small.protocol.dataReceived(bytes(100_000))
    assert not large.protocol.is_open and small.protocol.is_open
    assert port.budget.used_bytes == 400_000


def test_requests_that_wait_for_their_turn_count() -> None:
    port = Port(MIB)
    wire = port.wire()

    def take(connection: CommandProtocol, frames: list[bytes]) -> int:
        port.reactor.rightNow += 1
        return 1

    wire.protocol.take_frames = take
    wire.protocol.dataReceived(b"".join(whole(1000) for _ in range(300)))
    assert 290_000 < port.budget.used_bytes < MIB
    while len(port.shares):
        port.reactor.advance(0)
    assert port.budget.used_bytes == 0


def test_strangers_send_small_frames_only() -> None:
    port = Port(64 * MIB, unknown_frame_bytes_max=65_536)
    wire = port.wire()
    send_in_chunks(wire, whole(60_000, opaque=1))
    assert [answer.opaque for answer in wire.socket.commands()] == [1]
    send_in_chunks(wire, whole(500_000, opaque=2))
    assert not wire.protocol.is_open
    refusal = wire.socket.commands()[-1]
    assert (refusal.opaque, refusal.code) == (2, 1)
    assert "before a valid signature" in (refusal.remark or "")
    assert "65536" in (refusal.remark or "")
    assert port.budget.used_bytes == 0


def test_a_stranger_that_hides_its_header_is_cut_off() -> None:
    port = Port(64 * MIB, unknown_frame_bytes_max=65_536)
    wire = port.wire()
    # The header is said to have 8 MiB.
    send_in_chunks(wire, struct.pack(">iI", 15 * MIB, 8 * MIB) + bytes(200_000))
    assert not wire.protocol.is_open
    assert port.budget.used_bytes == 0


def test_whoever_names_an_account_or_signed_before_may_send_more() -> None:
    port = Port(64 * MIB, unknown_frame_bytes_max=65_536)
    wire = port.wire()

    def admits(connection: CommandProtocol, command: RemotingCommand) -> bool:
        return (command.ext_fields or {}).get("AccessKey") == "alice"

    wire.protocol.admits_large = admits
    send_in_chunks(wire, whole(500_000, opaque=1, AccessKey="alice"))
    assert [answer.opaque for answer in wire.socket.commands()] == [1]
    wire.protocol.is_trusted = True
    send_in_chunks(wire, whole(500_000, opaque=2))
    assert [answer.opaque for answer in wire.socket.commands()] == [1, 2]
    wire.protocol.is_trusted = False
    send_in_chunks(wire, whole(500_000, opaque=3, AccessKey="mallory"))
    assert not wire.protocol.is_open


def test_strangers_make_room_first() -> None:
    port = Port(MIB, unknown_frame_bytes_max=400_000)
    known, stranger = port.wire(), port.wire()
    known.protocol.is_trusted = True
    send_in_chunks(known, begun(700_000))
    send_in_chunks(stranger, struct.pack(">iI", 390_000, 10_000) + bytes(380_000))
    assert known.protocol.is_open and not stranger.protocol.is_open
