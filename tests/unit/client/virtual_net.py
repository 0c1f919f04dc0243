"""A network in memory under a clock that jumps: whole clients run for minutes in no time.

`run` gives a scenario an event loop whose time goes on only when nobody has anything to do, and a
`Net` in the place of sockets: each way takes half a round trip, and an address can fall silent.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.framing import FrameDecoder
from tests.unit.client.virtual_broker import Broker, Disk


class _Jumping(selectors.SelectSelector):
    """Where the loop would wait, time jumps."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everybody waits for ever"
            # A turn of the loop takes its time, too.
            self.now_s += timeout + 1e-7
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer, and whose connections are of a Net."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)
        self.net = Net(self)

    def time(self) -> float:
        return self._jumping.now_s

    def pass_time(self, seconds: float) -> None:
        self._jumping.now_s += seconds

    def run_in_executor(self, _: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """Runs a function at once: a clock that jumps does not wait for threads."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    async def create_connection(
        self, factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:  # type: ignore[override]
        return await self.net.connect(factory, f"{host}:{port}")


class Net:
    """Who listens where, and how far away all are."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.round_trip_s = 0.001
        self.brokers: dict[str, Broker] = {}
        # Addresses to and from which nothing comes any more.
        self.silent: set[str] = set()
        # Addresses that take connections, and say nothing: a stopped process.
        self.stopped: set[str] = set()
        # Connections that were made, and their addresses.
        self.wires: list[Wire] = []
        self.connected: list[str] = []

    def listen(self, address: str, disk: Disk | None = None) -> Broker:
        """Returns a new broker, which is its own name server; those with one disk are a group."""
        broker = self.brokers[address] = Broker(address, disk)
        return broker

    def hang_up(self, address: str) -> None:
        """Ends all connections to an address."""
        for wire in self._wires(address):
            wire.close()

    def ask(self, address: str, request: RemotingCommand) -> None:
        """Sends a request of the broker to all who are connected to it."""
        for wire in self._wires(address):
            wire.answer(request)

    def _wires(self, address: str) -> list["Wire"]:
        return [w for w in self.wires if w.broker.address == address and not w.is_closing()]

    def pass_time(self, seconds: float) -> None:
        """Moves the clock while nobody gets a turn, as a program does that blocks its loop."""
        self._loop.pass_time(seconds)

    def cluster(self, name_server: str, address: str) -> Broker:
        """Returns a new broker that has a name server of its own."""
        broker = self.listen(address)
        self.listen(name_server).leader = address
        return broker

    async def connect(self, factory: Callable[[], asyncio.Protocol], address: str) -> Any:
        await asyncio.sleep(self.round_trip_s)
        while address in self.silent:
            await asyncio.sleep(3600)
        if address not in self.brokers:
            raise ConnectionRefusedError(f"nobody listens at {address}")
        protocol = factory()
        wire = Wire(self, self._loop, protocol, self.brokers[address])
        self.wires.append(wire)
        self.connected.append(address)
        protocol.connection_made(wire)
        return wire, protocol


class Wire(asyncio.Transport):
    """The client's end of a connection; it also carries what the broker writes."""

    def __init__(
        self, net: Net, loop: VirtualLoop, protocol: asyncio.Protocol, broker: Broker
    ) -> None:
        super().__init__()
        self._net = net
        self._loop = loop
        self._protocol = protocol
        self.broker = broker
        self._decoder = FrameDecoder()
        self._is_closing = False
        # What the system has not taken yet, as far as a test says so.
        self.unwritten_bytes = 0
        # Two things that are sent at the same time arrive in their order.
        self._last_s = {True: 0.0, False: 0.0}

    def write(self, data: Any) -> None:
        self._later(True, self._arrive, bytes(data))

    def answer(self, command: RemotingCommand) -> None:
        """Called by the broker."""
        self._later(False, self._come_back, encode(command))

    def get_write_buffer_size(self) -> int:
        return self.unwritten_bytes

    def get_extra_info(self, name: Any, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def _later(self, is_out: bool, arrive: Callable[[bytes], None], data: bytes) -> None:
        due_s = max(self._loop.time() + self._net.round_trip_s / 2, self._last_s[is_out] + 1e-6)
        self._last_s[is_out] = due_s
        self._loop.call_at(due_s, self._unless_silent, arrive, data)

    def _unless_silent(self, arrive: Callable[[bytes], None], data: bytes) -> None:
        if self.broker.address not in self._net.silent | self._net.stopped:
            arrive(data)

    def _arrive(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            self.broker.take(self, decode(frame))

    def _come_back(self, data: bytes) -> None:
        if not self._is_closing:
            self._protocol.data_received(data)


def run(scenario: Callable[[Net], Coroutine[Any, Any, None]]) -> None:
    """Runs a scenario in a net of its own; one that does not end fails after a (virtual) day."""

    async def bounded() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        async with asyncio.timeout(86_400):
            await scenario(loop.net)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(bounded())


async def true(condition: Callable[[], Any]) -> None:
    """Returns when a condition holds; fails when it does not within ten (virtual) minutes."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + 600
    while not condition():
        assert loop.time() < end_s, "it never came true"
        await asyncio.sleep(0.02)
