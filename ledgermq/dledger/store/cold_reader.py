"""ColdReader: reads what is not in the page cache, in a thread, so that no reactor turn waits.

    reactor   read ──► ColdDataError ──► load(...)                 done(error) ──► the same read
    thread                                  └──► each part is read ──┘

The bytes stay in the page cache; the reader that failed tries again. What waits is bounded.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from ledgermq.dledger.errors import ColdDataError, LedgerError, Readable
from ledgermq.dledger.store.disk_thread import DiskThread, WorkerThread

# Reads that wait, and their bytes: far more than a disk does in the time that a client waits.
READS_MAX: Final = 1024
BYTES_MAX: Final = 256 << 20
# A reader that was told to try again so often, and still lacks bytes, should wait for the disk.
LOADS_MAX: Final = 4

# Called in the reactor: the bytes are in memory, or the error why they are not.
Done = Callable[[LedgerError | None], object]


class Reactor(Protocol):
    """What is needed of the reactor."""

    def callFromThread(self, function: Callable[..., Any], *arguments: Any) -> object:
        """Has a function called in the reactor's thread."""


class ColdReader:
    """One thread that reads ahead of the reactor."""

    def __init__(self, reactor: Reactor, name: str, thread: WorkerThread | None = None) -> None:
        """The thread starts with the first read.

        Args:
            reactor: the loop that is told of what was read.
            name: of the thread, for debuggers.
            thread: does the reads; None makes one, which `stop` ends.
        """
        self._reactor = reactor
        self._own_thread = DiskThread(name) if thread is None else None
        self._thread: WorkerThread | None = thread or self._own_thread
        self._is_stopped = False
        # Reads that wait or are under way, and their bytes.
        self.read_count = self.byte_count = 0
        # Reads that were done since the start.
        self.done_count = 0

    def load(self, cold: ColdDataError, done: Done) -> bool:
        """Has the parts read that a reader lacks.

        Returns:
            False when too many reads wait, or this reader has stopped; `done` is not called then.
        """
        size_bytes = sum(part[2] for part in cold.parts)
        is_full = self.read_count >= READS_MAX or self.byte_count + size_bytes > BYTES_MAX
        if self._is_stopped or self._thread is None or (is_full and self.read_count):
            return False
        self.read_count += 1
        self.byte_count += size_bytes

        def answer(is_done: bool, result: Any) -> None:
            error = result if is_done else None
            self._reactor.callFromThread(self._ended, size_bytes, done, error)

        self._thread.callInThreadWithCallback(answer, _load, cold.parts)
        return True

    def stop(self) -> None:
        """Takes no more reads and reports none; the thread ends with the read under way."""
        self._is_stopped = True
        self._end_when_idle()

    def _ended(self, size_bytes: int, done: Done, error: LedgerError | None) -> None:
        self.read_count -= 1
        self.byte_count -= size_bytes
        self.done_count += 1
        if not self._is_stopped:
            done(error)
        self._end_when_idle()

    def _end_when_idle(self) -> None:
        if self._is_stopped and not self.read_count and self._own_thread is not None:
            self._own_thread.stop()


def _load(parts: Sequence[tuple[Readable, int, int]]) -> LedgerError | None:
    """In the thread: reads the parts; returns why one cannot be read."""
    try:
        for file, offset, size_bytes in parts:
            file.load(offset, size_bytes)
    except LedgerError as error:
        return error
    return None
