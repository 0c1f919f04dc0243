"""A broker in memory behind a real socket, in a thread, for clients that have threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Self

from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.framing import FrameDecoder
from tests.unit.client.virtual_broker import Broker, Link
from tests.waiting import wait_until


class _Link(asyncio.Protocol):
    """The broker's end of a connection."""

    def __init__(self, owner: LoopbackBroker) -> None:
        self._owner = owner
        self._decoder = FrameDecoder()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            self._owner.broker.take(self, decode(frame))

    def answer(self, command: RemotingCommand) -> None:
        if not self._transport.is_closing():
            self._transport.write(encode(command))


class LoopbackBroker:
    """Use it in a `with` block; it is its own name server."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._is_ready = threading.Event()
        self.broker: Broker
        # Called first with each request, in the broker's thread; True when it has taken it.
        self.on_request: Callable[[Link, RemotingCommand], bool] | None = None

    @property
    def address(self) -> str:
        return self.broker.address

    def bodies(self) -> list[bytes]:
        """All that is stored."""
        return [body for queue in self.broker.stored.values() for body in queue]

    def answer(self, waiting: list[tuple[Link, RemotingCommand]]) -> None:
        """Stores sends that a test has kept, and answers them."""

        def answer_all() -> None:
            for link, request in waiting:
                link.answer(self.broker.store(request))

        self._loop.call_soon_threadsafe(answer_all)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        wait_until(condition, what="what the test waits for")

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)

    def _run(self) -> None:
        loop = self._loop
        server = loop.run_until_complete(loop.create_server(lambda: _Link(self), "127.0.0.1", 0))
        port = server.sockets[0].getsockname()[1]
        self.broker = Broker(f"127.0.0.1:{port}")
        self.broker.on_request = self._take
        self._is_ready.set()
        loop.run_forever()
        server.close()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    def _take(self, link: Link, request: RemotingCommand) -> bool:
        return self.on_request is not None and self.on_request(link, request)
