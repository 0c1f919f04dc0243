"""A port whose requests take time, with a line of those who wait for a part of a turn."""

from typing import Any

from twisted.internet.testing import MemoryReactorClock

from ledgermq.protocol.command import RemotingCommand, encode
from ledgermq.protocol.transport import CommandProtocol, ConnectionLimits, TurnShares
from tests.unit.protocol.wires import Recorder, Wire


class Slow(Recorder):
    """A receiver that needs some time for each request, and answers with a body of some size."""

    def __init__(self, reactor: MemoryReactorClock, seconds: float, answer_bytes: int = 0) -> None:
        super().__init__()
        self.reactor = reactor
        self.seconds = seconds
        # Of connections that need another time.
        self.seconds_of: dict[CommandProtocol, float] = {}
        self.answer_bytes = answer_bytes
        # Peer and opaque of each request in the order of work.
        self.worked: list[tuple[CommandProtocol, int]] = []

    def commands_received(
        self, connection: CommandProtocol, commands: list[RemotingCommand]
    ) -> int:
        for taken, command in enumerate(commands):
            if taken and not connection.goes_on():
                return taken
            self.worked.append((connection, command.opaque))
            self.reactor.rightNow += self.seconds_of.get(connection, self.seconds)
            connection.send(command.response(0, body=bytes(self.answer_bytes)))
        return len(commands)

    def opaques(self, connection: CommandProtocol) -> list[int]:
        return [opaque for worker, opaque in self.worked if worker is connection]


def chunk(count: int, first: int = 0) -> bytes:
    return b"".join(
        encode(RemotingCommand(code=10, opaque=first + number)) for number in range(count)
    )


class Port:
    """Some connections with one line."""

    def __init__(
        self,
        seconds: float,
        answer_bytes: int = 0,
        *,
        parts_s: tuple[float, float, float] = (0.005, 0.01, 0.002),
        **limits: Any,
    ) -> None:
        self.reactor = MemoryReactorClock()
        self.receiver = Slow(self.reactor, seconds, answer_bytes)
        # What this thread stood still while others had the processor.
        self.still_s = 0.0
        share_s, turn_s, crowded_s = parts_s
        self.shares = TurnShares(
            self.reactor,
            share_s=share_s,
            turn_s=turn_s,
            crowded_s=crowded_s,
            processor_s=lambda: self.reactor.seconds() - self.still_s,
        )
        self.limits = ConnectionLimits(**limits)

    def wire(self, room: int = 1 << 40) -> Wire:
        protocol = CommandProtocol(
            self.reactor, self.receiver, limits=self.limits, shares=self.shares
        )
        return Wire(self.reactor, protocol, room)

    def wait(self, seconds: float) -> None:
        """Nothing is done for so long."""
        self.reactor.rightNow += seconds
        self.still_s += seconds

    def turn(self) -> None:
        """One turn of the reactor: calls that are made meanwhile are due in the next."""
        due, self.reactor.calls = self.reactor.calls, []
        for call in due:
            call.called = True
            call.func(*call.args, **call.kw)
