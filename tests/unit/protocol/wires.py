"""Sockets and transports of memory for the tests of the transport."""

from collections.abc import Sequence

from twisted.internet.address import IPv4Address
from twisted.internet.tcp import Connection
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure

from ledgermq.protocol.command import RemotingCommand, decode
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.transport import CommandProtocol


class MemorySocket:
    """A non-blocking socket with room for so many bytes."""

    def __init__(self, room: int = 1 << 40) -> None:
        self.room = room
        self.sent = bytearray()
        # Bytes of each call that sent something, "send" or "sendmsg".
        self.calls: list[tuple[str, int]] = []
        self.failure: OSError | None = None
        # What was set on it, by level and name.
        self.options: dict[tuple[int, int], int] = {}

    def send(self, data: bytes | memoryview) -> int:
        return self._take("send", bytes(data))

    def sendmsg(self, buffers: Sequence[bytes | memoryview]) -> int:
        return self._take("sendmsg", b"".join(buffers))

    def _take(self, call: str, data: bytes) -> int:
        if self.failure is not None:
            raise self.failure
        taken = data[: self.room]
        if data and not taken:
            raise BlockingIOError
        self.room -= len(taken)
        self.sent += taken
        self.calls.append((call, len(taken)))
        return len(taken)

    def commands(self) -> list[RemotingCommand]:
        """What was sent, decoded."""
        return [decode(frame) for frame in FrameDecoder().feed(bytes(self.sent))]

    # What Twisted asks of a socket.

    def setblocking(self, flag: bool) -> None: ...

    def setsockopt(self, level: int, name: int, value: int) -> None:
        self.options[level, name] = value

    def shutdown(self, how: int) -> None: ...

    def close(self) -> None: ...

    def fileno(self) -> int:
        return 1_000_000


class MemoryConnection(Connection):
    """A TCP connection of Twisted over a MemorySocket."""

    def getPeer(self) -> IPv4Address:
        return IPv4Address("TCP", "10.0.0.9", 5555)

    def getHost(self) -> IPv4Address:
        return IPv4Address("TCP", "10.0.0.1", 10911)


class Wire:
    """A CommandProtocol on a MemoryConnection, driven by hand."""

    def __init__(
        self, reactor: MemoryReactorClock, protocol: CommandProtocol, room: int = 1 << 40
    ) -> None:
        self.reactor = reactor
        self.protocol = protocol
        self.socket = MemorySocket(room)
        self.link = MemoryConnection(self.socket, protocol, reactor)  # type: ignore[arg-type]
        self.link.connected = 1
        self.link.startReading()
        protocol.makeConnection(self.link)

    def drain(self, room: int) -> None:
        """Makes room in the socket and has Twisted write while it wants to."""
        self.socket.room += room
        while self.link in self.reactor.getWriters() and (
            self.socket.room or self.link.disconnecting
        ):
            result = self.link.doWrite()
            if result is not None:
                self.link.stopWriting()
                self.link.connectionLost(Failure(result))
                return

    @property
    def is_reading(self) -> bool:
        return self.link in self.reactor.getReaders()


class Recorder:
    """A receiver that notes what it is told."""

    def __init__(self) -> None:
        self.made: list[CommandProtocol] = []
        self.received: list[list[RemotingCommand]] = []
        self.lost: list[str] = []
        self.failure: Exception | None = None

    def connection_made(self, connection: CommandProtocol) -> None:
        self.made.append(connection)

    def commands_received(
        self, connection: CommandProtocol, commands: list[RemotingCommand]
    ) -> None:
        self.received.append(commands)
        if self.failure is not None:
            raise self.failure

    def connection_lost(self, connection: CommandProtocol, reason: str) -> None:
        self.lost.append(reason)


class Answering(Recorder):
    """A receiver that answers each request with its body."""

    def commands_received(
        self, connection: CommandProtocol, commands: list[RemotingCommand]
    ) -> None:
        super().commands_received(connection, commands)
        for command in commands:
            if not command.is_one_way:
                connection.send(command.response(0, body=command.body))
