"""A client of HTTP that shows every byte: it sends what it is told, and reads what comes."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure


class Browser(Protocol):
    """One connection."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_closed = False
        self._waiting: list[tuple[bytes | None, Deferred[bytes]]] = []

    def dataReceived(self, data: bytes) -> None:
        self.data += data
        self._look()

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.is_closed = True
        self._look()

    def send(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)

    def until(self, mark: bytes | None) -> Deferred[bytes]:
        """Fires with all that came, when the mark is in it or the connection is closed."""
        waiting: Deferred[bytes] = Deferred()
        self._waiting.append((mark, waiting))
        self._look()
        return waiting

    def until_closed(self) -> Deferred[bytes]:
        return self.until(None)

    def close(self) -> None:
        transport: Any = self.transport
        transport.abortConnection()

    def _look(self) -> None:
        for mark, waiting in list(self._waiting):
            if self.is_closed or (mark is not None and mark in self.data):
                self._waiting.remove((mark, waiting))
                waiting.callback(bytes(self.data))


class Answer:
    """One reply, taken apart."""

    def __init__(self, data: bytes) -> None:
        head, _, self.body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ")[1])
        self.headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
        }
        if self.headers.get("transfer-encoding") == "chunked":
            self.body = _joined(self.body)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json["error"]
        return error


def _joined(data: bytes) -> bytes:
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        if not size:
            break
        body += data[: int(size, 16)]
        data = data[int(size, 16) + 2 :]
    return body


def connect(reactor: Any, port: int) -> Deferred[Browser]:
    """Opens a connection to a port of loopback."""
    connecting: Deferred[Browser] = connectProtocol(
        TCP4ClientEndpoint(reactor, "127.0.0.1", port), Browser()
    )
    return connecting


async def ask(
    reactor: Any,
    port: int,
    path: str,
    *,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    body: bytes = b"",
) -> Answer:
    """Asks once, on a connection of its own."""
    told = {"Host": f"127.0.0.1:{port}", **(headers or {}), "Connection": "close"}
    if body:
        told["Content-Length"] = str(len(body))
    browser = await connect(reactor, port)
    lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    browser.send(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body)
    return Answer(await browser.until_closed())
