"""Outbox: bytes that wait for a socket, sent with as few calls and copies as they allow.

Small pieces are joined and sent by one `send`; large ones go to `sendmsg` as they are. No Twisted
and no timer: the caller decides when to send and what to do when the socket takes no more.
"""

from collections.abc import Sequence
from typing import Final, Protocol

# A view is one of single bytes.
Part = bytes | memoryview

# Above this joining costs more than the longer system call.
_JOIN_BYTES_MAX: Final = 65_536
# Pieces of one sendmsg; Linux refuses more than 1,024.
_GATHER_COUNT_MAX: Final = 512


class StreamSocket(Protocol):
    """What is needed of a non-blocking socket."""

    def send(self, data: Part, /) -> int: ...

    def sendmsg(self, buffers: Sequence[Part], /) -> int: ...


class Outbox:
    """Unsent pieces in order."""

    __slots__ = ("_parts", "size_bytes")

    def __init__(self) -> None:
        self._parts: list[Part] = []
        # Bytes of all pieces.
        self.size_bytes = 0

    def append(self, part: Part) -> None:
        """Adds a piece; a view must stay valid until it is sent or `own` was called."""
        self._parts.append(part)
        self.size_bytes += len(part)

    def extend(self, parts: Sequence[Part]) -> None:
        """Adds pieces as `append` does."""
        self._parts += parts
        self.size_bytes += sum(map(len, parts))

    def own(self) -> None:
        """Copies the views among the unsent pieces, so that their owner may close the buffer."""
        self._parts = [
            bytes(part) if isinstance(part, memoryview) else part for part in self._parts
        ]

    def clear(self) -> None:
        """Forgets everything unsent."""
        self._parts.clear()
        self.size_bytes = 0

    def send_to(self, sock: StreamSocket) -> bool:
        """Sends until nothing is left or the socket takes no more.

        Returns:
            True when nothing is left.

        Raises:
            OSError: the connection is broken; the outbox is as it was before the failing call.
        """
        while self._parts:
            parts = self._parts
            try:
                if len(parts) == 1:
                    sent = sock.send(parts[0])
                elif self.size_bytes <= _JOIN_BYTES_MAX:
                    parts = self._parts = [b"".join(parts)]
                    sent = sock.send(parts[0])
                else:
                    sent = sock.sendmsg(parts[:_GATHER_COUNT_MAX])
            except (BlockingIOError, InterruptedError):
                return False
            if sent == self.size_bytes:
                parts.clear()
                self.size_bytes = 0
                return True
            self._drop(sent)
        return True

    def take(self, bytes_max: int) -> bytes:
        """Removes and returns up to `bytes_max` bytes from the front, as a copy."""
        taken: list[Part] = []
        wanted = bytes_max
        for part in self._parts:
            if wanted <= 0:
                break
            piece = memoryview(part)[:wanted]
            taken.append(piece)
            wanted -= len(piece)
        front = b"".join(taken)
        self._drop(len(front))
        return front

    def _drop(self, sent: int) -> None:
        """Removes `sent` bytes from the front."""
        self.size_bytes -= sent
        parts = self._parts
        count = 0
        while sent:
            part = parts[count]
            size = len(part)
            if sent < size:
                parts[count] = memoryview(part)[sent:]
                break
            sent -= size
            count += 1
        del parts[:count]
