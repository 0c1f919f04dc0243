"""What all connections together may have unsent, and who pays when it is too much."""

from __future__ import annotations

from twisted.internet.testing import MemoryReactorClock

from ledgermq.protocol.command import RemotingCommand, encode
from ledgermq.protocol.transport import CommandProtocol, ConnectionLimits, SendBudget, TurnShares
from ledgermq.protocol.transport.budgets import SHORT_PAUSE_BYTES
from tests.unit.protocol.wires import Answering, Wire

MIB = 1 << 20


class Port:
    """Connections with one budget; what they ask for comes back as it is."""

    def __init__(self, budget_bytes: int) -> None:
        self.reactor = MemoryReactorClock()
        self.receiver = Answering()
        self.budget = SendBudget(budget_bytes)
        self.shares = TurnShares(self.reactor)

    def wire(self, room: int = 0) -> Wire:
        protocol = CommandProtocol(
            self.reactor,
            self.receiver,
            limits=ConnectionLimits(),
            shares=self.shares,
            send_budget=self.budget,
        )
        return Wire(self.reactor, protocol, room)

    def ask(self, wire: Wire, size: int, count: int = 1) -> None:
        """Asks for answers of a size, in frames that come as they are read."""
        for number in range(count):
            if wire.is_reading:
                frame = encode(RemotingCommand(code=10, opaque=number, body=bytes(size)))
                wire.protocol.dataReceived(frame)
                self.reactor.advance(0)


def test_a_connection_that_does_not_read_has_its_eight_mib_while_there_is_room_for_all() -> None:
    port = Port(64 * MIB)
    wire = port.wire()
    port.ask(wire, MIB, 20)
    assert 8 * MIB < wire.protocol.unsent_bytes < 9.1 * MIB and not wire.is_reading
    assert port.budget.used_bytes == wire.protocol.unsent_bytes
    wire.drain(1 << 40)
    assert port.budget.used_bytes == 0 and wire.is_reading


def test_when_half_is_used_nobody_gets_more_behind_what_it_does_not_read() -> None:
    port = Port(64 * MIB)
    first = [port.wire() for _ in range(4)]
    for wire in first:
        port.ask(wire, MIB, 10)
    assert port.budget.used_bytes > 32 * MIB
    late, reading = port.wire(), port.wire(room=1 << 40)
    port.ask(late, MIB, 10)
    assert not late.is_reading and MIB <= late.protocol.unsent_bytes < 1.1 * MIB
    port.ask(reading, MIB, 10)
    assert len(reading.socket.commands()) == 10
    assert not late.protocol.has_room(8 * MIB) and reading.protocol.has_room(8 * MIB)
    # Some of it is read: below the mark it goes on, and has the usual one when the others do.
    late.drain(MIB - SHORT_PAUSE_BYTES // 2)
    assert late.is_reading
    for wire in first:
        wire.drain(1 << 40)
    port.ask(late, MIB, 4)
    assert late.protocol.unsent_bytes > 4 * MIB


def test_who_has_read_nothing_for_a_second_is_closed_before_who_reads() -> None:
    port = Port(32 * MIB)
    wires = [port.wire() for _ in range(10)]
    moving = port.wire()
    port.ask(moving, MIB, 10)
    for wire in wires:
        port.ask(wire, 3 * MIB)
        port.reactor.rightNow += 2
        moving.drain(70_000)
        assert port.budget.used_bytes <= 32 * MIB
    assert moving.protocol.is_open
    assert [wire.protocol.is_open for wire in wires].count(False) == 2
    assert wires[-1].protocol.is_open
    held = [*wires, moving]
    assert port.budget.used_bytes == sum(wire.protocol.unsent_bytes for wire in held)
    for wire in held:
        wire.protocol.abort("test ends")
    assert port.budget.used_bytes == 0
