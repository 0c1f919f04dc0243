"""SpareMemory: memory that a flood took and nobody uses any more is given back to the system.

The C library keeps what was freed for the next time: 2,000 connections with TLS leave 40 MB behind
that no object has. It gives them back when it is asked to, which takes some milliseconds, so it is
asked only when the process has got larger by a good deal since the last time.
"""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

# Between two looks.
LOOK_MS: Final = 15_000
# So much more than after the last time is worth the work.
GROWTH_BYTES: Final = 8 << 20
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class SpareMemory:
    """Looks at the size of this process from time to time."""

    def __init__(self, resident_bytes: Callable[[], int], trim: Callable[[], object]) -> None:
        """
        Args:
            resident_bytes: tells what the process has of its own.
            trim: gives back what nobody uses.
        """
        self._resident_bytes, self._trim = resident_bytes, trim
        # What there was after the last time.
        self._kept_bytes = resident_bytes()

    def look(self) -> None:
        """Gives memory back when there is more than there was."""
        now_bytes = self._resident_bytes()
        if now_bytes > self._kept_bytes + GROWTH_BYTES:
            self._trim()
            now_bytes = self._resident_bytes()
        # A process that got smaller may grow again; one that needs what it has is left alone.
        self._kept_bytes = now_bytes


def find_spare_memory() -> SpareMemory | None:
    """Returns what looks after this process; None where the C library or system is another one."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    statm = Path("/proc/self/statm")
    if trim is None or not statm.exists():
        return None

    def resident_bytes() -> int:
        """Without what is shared with files, as mapped segments are."""
        words = statm.read_text().split()
        return (int(words[1]) - int(words[2])) * _PAGE_BYTES

    return SpareMemory(resident_bytes, lambda: trim(0))
