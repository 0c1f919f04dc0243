"""A TCP proxy that notes every remoting frame between two stock peers.

A tap listens on a port of its own and passes bytes on to one target. Both directions are cut into
frames (4 length, 4 type and head length, head, body); what is noted is what the sender wrote. On
the way a frame may be rewritten by pairs of byte strings of equal length, so that a client that
asks the name server for a route is led to another tap.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tests.processes import LOOPBACK

_WORD: Final = struct.Struct(">I")
_FRAME_BYTES_MAX: Final = 64 * 1024 * 1024


@dataclass(slots=True, frozen=True, kw_only=True)
class Frame:
    """One frame as it went over the wire, with what its head says."""

    # Name of the tap and the side that sent it: "client" opened the connection, "server" took it.
    tap: str
    sender: str
    connection: int
    raw: bytes
    # "JSON" or "ROCKETMQ" (the binary head).
    serialize: str
    code: int
    opaque: int
    flag: int
    ext_fields: Mapping[str, object]
    # Code of the request that this frame answers; its own code for a request.
    request_code: int

    @property
    def is_response(self) -> bool:
        """True when flag bit 0 is set."""
        return bool(self.flag & 1)


def parse_head(raw: bytes) -> tuple[str, int, int, int, dict[str, object]]:
    """Return serialize type, code, opaque, flag and ext fields of a whole frame."""
    word = _WORD.unpack_from(raw, 4)[0]
    kind, size = word >> 24, word & 0xFFFFFF
    head = raw[8 : 8 + size]
    if kind == 0:
        value = json.loads(head)
        ext = value.get("extFields") or {}
        return "JSON", value["code"], value["opaque"], value.get("flag", 0), ext
    code, _language, _version, opaque, flag = struct.unpack_from(">hbhii", head, 0)
    position = 13
    remark_size = _WORD.unpack_from(head, position)[0]
    position += 4 + remark_size + 4
    ext = {}
    while position < len(head):
        key, position = _text(head, position, ">H")
        value, position = _text(head, position, ">I")
        ext[key] = value
    return "ROCKETMQ", code, opaque, flag, ext


def _text(head: bytes, position: int, size_format: str) -> tuple[str, int]:
    size = struct.unpack_from(size_format, head, position)[0]
    begin = position + struct.calcsize(size_format)
    return head[begin : begin + size].decode(), begin + size


class WireTap:
    """One listening proxy; `note` is called from its threads, one frame at a time."""

    def __init__(
        self,
        name: str,
        target_port: int,
        note: Callable[[Frame], None],
        *,
        port: int = 0,
        rewrite: Mapping[bytes, bytes] | None = None,
    ) -> None:
        self.name = name
        self._target_port = target_port
        self._note = note
        self._rewrite = dict(rewrite or {})
        assert all(len(old) == len(new) for old, new in self._rewrite.items())
        self._listener = socket.create_server((LOOPBACK, port))
        self._listener.settimeout(0.2)
        self._lock = threading.Lock()
        self._is_closed = False
        self._connection_count = 0
        # (connection, who sent the request, opaque) -> code of the request.
        self._asked: dict[tuple[int, str, int], int] = {}
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        """The loopback port it listens on."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Stop listening; links in being end with their peers."""
        self._is_closed = True
        self._listener.close()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            try:
                server = socket.create_connection((LOOPBACK, self._target_port), timeout=5)
            except OSError:
                client.close()
                continue
            for link in (client, server):
                link.settimeout(None)
            self._connection_count += 1
            number = self._connection_count
            threading.Thread(target=self._link, args=(number, client, server), daemon=True).start()

    def _link(self, number: int, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            back = threading.Thread(
                target=self._pass_on, args=(number, server, client, "server"), daemon=True
            )
            back.start()
            self._pass_on(number, client, server, "client")
            back.join()

    def _pass_on(
        self, connection: int, source: socket.socket, sink: socket.socket, sender: str
    ) -> None:
        buffer = bytearray()
        try:
            while chunk := source.recv(65536):
                buffer += chunk
                while (raw := _cut_frame(buffer)) is not None:
                    self._record(connection, sender, raw)
                    sink.sendall(self._rewritten(raw))
        except OSError:
            pass
        finally:
            for link in (source, sink):
                try:
                    link.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue

    def _rewritten(self, raw: bytes) -> bytes:
        for old, new in self._rewrite.items():
            raw = raw.replace(old, new)
        return raw

    def _record(self, connection: int, sender: str, raw: bytes) -> None:
        serialize, code, opaque, flag, ext = parse_head(raw)
        other = "server" if sender == "client" else "client"
        with self._lock:
            if flag & 1:
                request_code = self._asked.pop((connection, other, opaque), -1)
            else:
                request_code = code
                self._asked[connection, sender, opaque] = code
            self._note(
                Frame(
                    tap=self.name, sender=sender, connection=connection, raw=raw,
                    serialize=serialize, code=code, opaque=opaque, flag=flag, ext_fields=ext,
                    request_code=request_code,
                )
            )  # fmt: skip


def _cut_frame(buffer: bytearray) -> bytes | None:
    if len(buffer) < 4:
        return None
    size = _WORD.unpack_from(buffer)[0] + 4
    assert size <= _FRAME_BYTES_MAX, f"a frame of {size} bytes"
    if len(buffer) < size:
        return None
    raw = bytes(buffer[:size])
    del buffer[:size]
    return raw
