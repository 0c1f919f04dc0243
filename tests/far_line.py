"""A long way to real brokers: what an event loop's connections send and get comes later.

The delay is added at the client's end, so that neither network namespaces nor rights are needed;
sockets and brokers are real. `round_trip_s` may change at any time, and bytes keep their order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any


class FarLoop(asyncio.SelectorEventLoop):
    """An event loop that is far away from all that it connects to."""

    def __init__(self) -> None:
        super().__init__()
        self.round_trip_s = 0.0
        # Host and port of each connection that was made.
        self.connected: list[str] = []

    async def create_connection(  # type: ignore[override]
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int, **options: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        far = _Far(self, factory())
        await super().create_connection(lambda: far, host, port, **options)
        self.connected.append(f"{host}:{port}")
        assert far.line is not None
        return far.line, far.near


class _Way:
    """Calls what it is given half a round trip later, in order."""

    def __init__(self, loop: FarLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], object]] = deque()
        self._last_s = 0.0

    def later(self, call: Callable[[], object]) -> None:
        # Also when the way has become shorter meanwhile.
        self._last_s = max(self._last_s, self._loop.time() + self._loop.round_trip_s / 2)
        self._calls.append(call)
        self._loop.call_at(self._last_s, self._arrive)

    def _arrive(self) -> None:
        self._calls.popleft()()


class _Far(asyncio.Protocol):
    """The end of a real connection, whose news reach the near protocol later."""

    def __init__(self, loop: FarLoop, near: asyncio.Protocol) -> None:
        self.near = near
        self.line: _Line | None = None
        self._loop = loop
        self._way = _Way(loop)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.line = _Line(transport, _Way(self._loop))
        self.near.connection_made(self.line)

    def data_received(self, data: bytes) -> None:
        self._way.later(lambda: self.near.data_received(data))

    def connection_lost(self, error: Exception | None) -> None:
        self._way.later(lambda: self.near.connection_lost(error))


class _Line(asyncio.Transport):
    """What the near protocol writes to."""

    def __init__(self, transport: asyncio.Transport, way: _Way) -> None:
        super().__init__()
        self._transport = transport
        self._way = way
        self._is_closing = False

    def write(self, data: Any) -> None:
        sent = bytes(data)
        self._way.later(lambda: self._transport.is_closing() or self._transport.write(sent))

    def is_closing(self) -> bool:
        return self._is_closing or self._transport.is_closing()

    def close(self) -> None:
        self._is_closing = True
        self._way.later(self._transport.close)

    def abort(self) -> None:
        self._is_closing = True
        self._transport.abort()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)
