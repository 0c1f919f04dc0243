"""An object store that is not well: a proxy before one, which spoils a share of the answers.

503      "SlowDown", the request does not reach the store
reset    the connection is reset, the request does not reach the store
lost     the store does what it is asked for; then the connection is reset instead of an answer
slow     the answer comes late
"""

import http.client
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

from ledgermq.spark.tables.storage import StoreKeys

KINDS: Final = ("503", "reset", "lost", "slow")
_SLOW_S: Final = 0.3
_ANSWER_S: Final = 120.0
_SLOW_DOWN: Final = (
    b'<?xml version="1.0" encoding="UTF-8"?>'
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)
_DENIED: Final = (
    b'<?xml version="1.0" encoding="UTF-8"?>'
    b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
)
# Of one hop: they are for this proxy, or made anew by it.
_OWN_HEADERS: Final = ("connection", "transfer-encoding", "date", "server", "expect")


class UnwellStore(ThreadingHTTPServer):
    """The proxy; its faults may be changed while it runs."""

    daemon_threads = True

    def __init__(self, endpoint: str) -> None:
        super().__init__(("127.0.0.1", 0), _Exchange)
        self.endpoint = f"http://127.0.0.1:{self.server_address[1]}"
        self.store = urlsplit(endpoint)
        # Those that are to come, in turns. Each request (method and path) gets one at its first
        # try, unless there is a share; then each try has a fault with that probability.
        self.kinds: Sequence[str] = KINDS
        self.share: float | None = None
        # Only requests whose path has this in it are spoiled.
        self.part = ""
        # Every try of every request fails.
        self.is_down = False
        # Every request is answered that the keys do not allow it.
        self.refuses = False
        # By path, what was given to who asked for it.
        self.given_bytes: Counter[str] = Counter()
        # How often each kind came.
        self.told: Counter[str] = Counter()
        self._seen: set[tuple[str, str]] = set()
        self._random = random.Random(7)
        self._lock = threading.Lock()

    def fault(self, method: str, path: str) -> str | None:
        """Returns what becomes of a request; None when nothing ails the store."""
        with self._lock:
            if self.refuses:
                return "403"
            if self.is_down:
                kind = "503"
            elif self.share is not None:
                if self._random.random() >= self.share:
                    return None
                kind = self._random.choice(self.kinds)
            else:
                if (method, path) in self._seen or not self.kinds or self.part not in path:
                    return None
                self._seen.add((method, path))
                kind = self.kinds[self.told.total() % len(self.kinds)]
            self.told[kind] += 1
            return kind

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are no fault of the proxy."""


class _Exchange(BaseHTTPRequestHandler):
    """The requests of one connection."""

    protocol_version = "HTTP/1.1"
    server: UnwellStore

    def _exchange(self) -> None:
        body = self._body()
        fault = self.server.fault(self.command, self.path)
        if fault == "503":
            self._answer(503, [("Content-Type", "application/xml")], _SLOW_DOWN)
            return
        if fault == "403":
            self._answer(403, [("Content-Type", "application/xml")], _DENIED)
            return
        if fault == "reset":
            self._reset()
            return
        status, headers, answer = self._ask(body)
        if fault == "lost":
            self._reset()
            return
        if fault == "slow":
            threading.Event().wait(_SLOW_S)
        self._answer(status, headers, answer)

    def _body(self) -> bytes:
        if "chunked" not in (self.headers.get("Transfer-Encoding") or ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            # A trailer.
            pass
        return b"".join(parts)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _exchange

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        store = self.server.store
        connection = http.client.HTTPConnection(store.hostname or "", store.port, timeout=_ANSWER_S)
        try:
            sent = {n: text for n, text in self.headers.items() if n.lower() not in _OWN_HEADERS}
            connection.request(self.command, self.path, body, sent)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response(status)
        has_length = False
        for name, text in headers:
            if name.lower() not in _OWN_HEADERS:
                has_length |= name.lower() == "content-length"
                self.send_header(name, text)
        if not has_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.server.given_bytes[self.path] += len(body)
            self.wfile.write(body)

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """What it told is counted."""


@contextmanager
def unwell(keys: StoreKeys) -> Iterator[tuple[UnwellStore, StoreKeys]]:
    """Yields a proxy before a store, and how the store is reached through it."""
    assert keys.endpoint is not None
    proxy = UnwellStore(keys.endpoint)
    thread = threading.Thread(target=proxy.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield proxy, keys._replace(endpoint=proxy.endpoint)
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()
