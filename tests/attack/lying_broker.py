"""A name server and a broker in one listener that pass requests on to true ones, and tell lies.

What they answer is changed on its way back: so every command meets answers of the shape that it
expects, with values that no broker would give.
"""

from __future__ import annotations

import contextlib
import re
import socket
import socketserver
import threading
from collections.abc import Callable
from typing import Final, Self, TypeAlias

from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.record import decode_record, encode_record
from tests.e2e.wire_client import WireClient

# Given an answer and the code of its request, changes the answer.
Lie: TypeAlias = Callable[[RemotingCommand, int], None]
_RECORDS: Final = (
    RequestCode.PULL_MESSAGE, RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID,
)  # fmt: skip
_OF_NAME_SERVERS: Final = range(100, 107)
_NAME_SERVERS: Final = frozenset(
    (*_OF_NAME_SERVERS, 205, 206, 216, 219, 224, 304, 311, 312, 313, 318, 319, 327)
)
_ADDRESS: Final = re.compile(rb"127\.0\.0\.1:\d+")
# What a terminal carries out, what forges a line, and what turns the direction of writing.
ACTING: Final = "\x1b]0;owned\x07\x1b[2J\r\nforged\u202e\x9b31m"
_ACTING_JSON: Final = (
    "".join(f"\\u{ord(char):04x}" if not char.isalnum() else char for char in ACTING)
).encode()
_NUMBER: Final = re.compile(rb"(?<=[:\[,])-?\d+(?:\.\d+)?(?=[,}\]])")
_TEXT: Final = re.compile(rb'(?<=:)"((?:[^"\\]|\\.)*)"')


def in_names(*names: str) -> tuple[Lie, Callable[[bytes], bytes]]:
    """Returns the lie that puts what acts into names, and what takes it out of a request."""

    def tell(answer: RemotingCommand, code: int) -> None:
        if code in _RECORDS:
            return
        for name in names:
            answer.body = answer.body.replace(name.encode(), name.encode() + _ACTING_JSON)

    def undo(data: bytes) -> bytes:
        return data.replace(ACTING.encode(), b"").replace(_ACTING_JSON, b"")

    return tell, undo


def with_numbers(number: str) -> Lie:
    """Returns the lie that makes this of each number."""

    def tell(answer: RemotingCommand, code: int) -> None:
        for name, value in (answer.ext_fields or {}).items():
            if re.fullmatch(r"-?\d+", value):
                answer.ext_fields[name] = number
        if code not in _RECORDS and code not in _OF_NAME_SERVERS:
            answer.body = _NUMBER.sub(number.encode(), answer.body)

    return tell


def with_figures(text: str) -> Lie:
    """Returns the lie that makes this of each figure that stands as a text (28, 319)."""

    def tell(answer: RemotingCommand, code: int) -> None:
        if code in (RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_BROKER_CONFIG):
            told = text.encode("unicode_escape").replace(b"\\x", b"\\u00")
            answer.body = _TEXT.sub(lambda _: b'"' + told + b'"', answer.body)

    return tell


def with_records(change: Callable[[int], dict[str, object]]) -> Lie:
    """Returns the lie about messages; `change` is told the number of a record in its answer."""

    def tell(answer: RemotingCommand, code: int) -> None:
        if code not in _RECORDS or answer.code:
            return
        out, start = b"", 0
        for number in range(1 << 20):
            if start >= len(answer.body):
                break
            record = decode_record(answer.body, start)
            start += record.size_bytes
            told = record._replace(**change(number))._asdict()
            told["topic"] = told["topic"].encode()
            for name in ("size_bytes", "magic", "body_crc"):
                del told[name]
            order = (
                "topic", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag",
                "born_timestamp", "born_host", "store_timestamp", "store_host", "reconsume_times",
                "prepared_transaction_offset", "body", "properties",
            )  # fmt: skip
            out += encode_record(*(told[name] for name in order))
        answer.body = out

    return tell


def refusing(answer: RemotingCommand, code: int) -> None:
    """The lie that refuses everything but routes, with a reason that acts."""
    if code not in _NAME_SERVERS:
        answer.code, answer.remark, answer.ext_fields, answer.body = 1, ACTING, None, b""


class LyingBroker:
    """Listens until the end of its `with` block."""

    def __init__(self, name_server: str, broker: str) -> None:
        """Passes on to these; tells the truth until `lie` is set."""
        self._name_server, self._broker = name_server, broker
        self.lie: Lie | None = None
        self.undo: Callable[[bytes], bytes] = bytes
        answering = self

        class Conversation(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    answering._serve(self.request)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads, allow_reuse_address, block_on_close = True, True, False

        self._server = Server(("127.0.0.1", 0), Conversation)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _serve(self, connection: socket.socket) -> None:
        decoder = FrameDecoder()
        with WireClient(self._name_server) as names, WireClient(self._broker) as broker:
            while chunk := connection.recv(1 << 16):
                for frame in decoder.feed(chunk):
                    request = decode(frame)
                    true_one = names if request.code in _NAME_SERVERS else broker
                    fields = {
                        name: self.undo(value.encode()).decode()
                        for name, value in (request.ext_fields or {}).items()
                    }
                    answer = true_one.ask(request.code, fields, self.undo(request.body))
                    answer.opaque = request.opaque
                    if request.code not in _RECORDS:
                        answer.body = _ADDRESS.sub(self.address.encode(), answer.body)
                    if self.lie is not None:
                        with contextlib.suppress(RemoteProtocolError):
                            self.lie(answer, request.code)
                    if not request.is_one_way:
                        connection.sendall(encode(answer))
