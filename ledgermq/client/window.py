"""SendWindow: how many sends, and how many bytes of them, may be on their way; the rest waits.

Whoever waits is let in first come, first served. One send always fits, however large.
"""

import asyncio
import contextlib
from collections import deque


class SendWindow:
    """The account of what is on its way.

    Invariant: while anyone waits, or was let in and has not yet gone on, whoever comes later waits
    behind.
    """

    __slots__ = ("_bytes", "_bytes_max", "_count", "_count_max", "_entering", "_waiting")

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._count = 0
        self._bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        # Those who were let in by another one's leaving, and whose turn of the loop has not come.
        self._entering = 0

    @property
    def count(self) -> int:
        """Sends that have room."""
        return self._count

    @property
    def waiting_count(self) -> int:
        """Sends that wait for room."""
        return len(self._waiting)

    def resize(self, count_max: int) -> None:
        """Allows more or fewer sends; those that have room keep it."""
        self._count_max = count_max
        self._admit()

    def enter(self, size_bytes: int) -> bool:
        """Takes room for a send; False when there is none, so that the caller must wait."""
        if self._waiting or self._entering or not self._has_room(size_bytes):
            return False
        self._count += 1
        self._bytes += size_bytes
        return True

    async def wait(self, size_bytes: int) -> None:
        """Returns with the room taken."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (size_bytes, future)
        self._waiting.append(place)
        # There may be room: somebody who was let in has just not gone on yet.
        self._admit()
        try:
            await future
            self._entering -= 1
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                # Room was taken in the same turn of the loop.
                self._entering -= 1
                self.release(size_bytes)
            else:
                with contextlib.suppress(ValueError):
                    self._waiting.remove(place)
                self._admit()
            raise

    def release(self, size_bytes: int) -> None:
        """Gives room back and lets in whoever fits now."""
        self._count -= 1
        self._bytes -= size_bytes
        self._admit()

    def _has_room(self, size_bytes: int) -> bool:
        return self._count == 0 or (
            self._count < self._count_max and self._bytes + size_bytes <= self._bytes_max
        )

    def _admit(self) -> None:
        while self._waiting and self._has_room(self._waiting[0][0]):
            size_bytes, future = self._waiting.popleft()
            if not future.done():
                self._entering += 1
                self._count += 1
                self._bytes += size_bytes
                future.set_result(None)
