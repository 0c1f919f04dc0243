"""A raw look at a group from outside: who accepts writes, and how far the queues reach.

It speaks just enough of the remoting protocol, by hand and with blocking sockets, so that what it
says does not depend on any client or on code of the product. It signs with the account of the
environment, if there is one.
"""

from __future__ import annotations

import base64
import hmac
import itertools
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from tests.processes import LOOPBACK
from tests.waiting import wait_until

_SEND_MESSAGE_V2: Final = 310
_GET_MAX_OFFSET: Final = 30
_SUCCESS: Final = 0
_TRY_EVERY_SECONDS: Final = 0.02
_ANSWER_SECONDS: Final = 1.0


class RawLink:
    """One connection to one broker; a request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((LOOPBACK, port), timeout=_ANSWER_SECONDS)
        self._opaque = itertools.count(1)

    def ask(self, code: int, fields: dict[str, str], body: bytes = b"") -> dict[str, Any]:
        """Send a request and return the head of its answer.

        Raises:
            OSError: no connection, no answer in time, or a cut-off one.
        """
        opaque = next(self._opaque)
        head = json.dumps(
            {
                "code": code, "flag": 0, "language": "JAVA", "version": 399, "opaque": opaque,
                "serializeTypeCurrentRPC": "JSON", "extFields": _signed(fields, body),
            }
        ).encode()  # fmt: skip
        self._socket.sendall(struct.pack(">ii", 4 + len(head) + len(body), len(head)) + head + body)
        while True:
            size, head_size = struct.unpack(">ii", self._read(8))
            rest = self._read(size - 4)
            answer: dict[str, Any] = json.loads(rest[: head_size & 0xFFFFFF])
            if answer["opaque"] == opaque and answer["flag"] & 1:
                return answer

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts += part
        return bytes(parts)


def _signed(fields: dict[str, str], body: bytes) -> dict[str, str]:
    """Fields with a signature: HMAC-SHA1 over their values in the order of names, and the body."""
    access_key = os.environ.get("INTEROP_ACCESS_KEY")
    if access_key is None:
        return fields
    fields = {**fields, "AccessKey": access_key}
    content = "".join(value for _, value in sorted(fields.items())).encode() + body
    key = os.environ["INTEROP_SECRET_KEY"].encode()
    digest = hmac.digest(key, content, "sha1")
    return {**fields, "Signature": base64.b64encode(digest).decode()}


class WriteProbe:
    """Writes tiny messages to every broker of a group and notes when one is accepted."""

    def __init__(self, ports: Iterable[int], topic: str) -> None:
        self._topic = topic
        self._stop = threading.Event()
        self._lock = threading.Lock()
        # Monotonic times at which each accepted write was sent and answered, in order of answers.
        self._accepted: list[tuple[float, float]] = []
        self._threads = [
            threading.Thread(target=self._try, args=(port,), daemon=True) for port in ports
        ]

    def start(self) -> None:
        """Begin to write."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End all writing."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for_write(
        self, since: float, *, seconds: float, detail: Callable[[], str] = str
    ) -> float:
        """Wait for a write sent after `since`; returns the seconds from then to its acceptance."""
        found: list[float] = []

        def look() -> bool:
            with self._lock:
                found[:] = [answered for sent, answered in self._accepted if sent > since][:1]
            return bool(found)

        wait_until(look, what="an accepted write", deadline_s=seconds, detail=detail)
        return found[0] - since

    def _try(self, port: int) -> None:
        link: RawLink | None = None
        while not self._stop.is_set():
            begin = time.monotonic()
            try:
                link = link or RawLink(port)
                answer = link.ask(_SEND_MESSAGE_V2, self._fields(), b"probe")
                if answer["code"] == _SUCCESS:
                    with self._lock:
                        self._accepted.append((begin, time.monotonic()))
            except OSError:
                if link is not None:
                    link.close()
                link = None
            self._stop.wait(_TRY_EVERY_SECONDS)
        if link is not None:
            link.close()

    def _fields(self) -> dict[str, str]:
        return {
            "a": "probe", "b": self._topic, "c": "TBW102", "d": "4", "e": "0", "f": "0",
            "g": str(int(time.time() * 1000)), "h": "0", "i": "TAGS\u0001probe", "j": "0",
            "k": "false", "l": "0", "m": "false",
        }  # fmt: skip


def max_offsets(port: int, topic: str, queues: int, *, seconds: float = 20.0) -> list[int]:
    """Return the end offset of each queue as the broker at `port` tells it.

    Raises:
        AssertionError: it gave no answer, or refused, until the deadline.
    """
    refusals = [""]

    def ask() -> list[int] | None:
        try:
            link = RawLink(port)
            try:
                return [_max_offset(link, topic, queue) for queue in range(queues)]
            finally:
                link.close()
        except (OSError, ValueError) as error:
            refusals.append(str(error))
            return None

    ends = wait_until(
        ask,
        what=f"end offsets of {topic} from port {port}",
        deadline_s=seconds,
        detail=lambda: refusals[-1],
    )
    assert ends is not None
    return ends


def _max_offset(link: RawLink, topic: str, queue: int) -> int:
    answer = link.ask(_GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue)})
    if answer["code"] != _SUCCESS:
        raise ValueError(f"code {answer['code']}: {answer.get('remark')}")
    return int(answer["extFields"]["offset"])
