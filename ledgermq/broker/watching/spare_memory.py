"""SpareMemory: memory that a flood took and nobody uses any more is given back to the system.

The C library keeps what was freed for the next time: 2,000 connections with TLS leave 40 MB behind
that no object has. It gives them back when it is asked to, which takes some milliseconds, so it is
asked only when the process has grown by a good deal since the last time, or a good deal more is
free: a process is as large when a flood has freed everything as before. To count what is free takes
as long, so that is done only while the process is larger than it was once.
"""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

# Between two looks.
LOOK_MS: Final = 15_000
# So much more is worth the work.
SPARE_BYTES: Final = 8 << 20
# Members of `struct mallinfo2`, and of `struct mallinfo` before it, whose numbers are ints.
_MEMBERS: Final = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd",
    "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
)  # fmt: skip
_INT_MASK: Final = 0xFFFF_FFFF
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE") if os.name == "posix" else 0


class SpareMemory:
    """Looks from time to time at what is free in this process."""

    def __init__(
        self,
        resident_bytes: Callable[[], int],
        free_bytes: Callable[[], int],
        trim: Callable[[], object],
    ) -> None:
        """
        Args:
            resident_bytes: tells what the process has of its own.
            free_bytes: tells what the C library keeps for the next time, also of pages that it has
                given back since they were used last.
            trim: gives back what nobody uses.
        """
        self._resident_bytes, self._free_bytes, self._trim = resident_bytes, free_bytes, trim
        # The least that the process has had, and what it had after the last time.
        self._least_bytes = self._kept_bytes = resident_bytes()
        # The least that was free since the last time.
        self._left_bytes = free_bytes()

    def look(self) -> None:
        """Gives memory back when the process has grown, or more is free than was left."""
        size_bytes = self._resident_bytes()
        if size_bytes <= self._least_bytes + SPARE_BYTES:
            self._least_bytes = min(self._least_bytes, size_bytes)
            self._kept_bytes = size_bytes
            return
        free_bytes = self._free_bytes()
        # Of what is free a part was given back, so a process that has grown may have freed as much.
        has_grown = size_bytes > self._kept_bytes + SPARE_BYTES
        if has_grown or free_bytes > self._left_bytes + SPARE_BYTES:
            self._trim()
            self._kept_bytes, self._left_bytes = self._resident_bytes(), self._free_bytes()
        else:
            self._kept_bytes = min(self._kept_bytes, size_bytes)
            self._left_bytes = min(self._left_bytes, free_bytes)


def find_spare_memory() -> SpareMemory | None:
    """Returns what looks after this process; None where the C library or system is another one."""
    if os.name != "posix":
        return None
    library = ctypes.CDLL(None)
    trim = getattr(library, "malloc_trim", None)
    free_bytes = _free_bytes(library, "mallinfo2", ctypes.c_size_t) or _free_bytes(
        library, "mallinfo", ctypes.c_int
    )
    statm = Path("/proc/self/statm")
    if trim is None or free_bytes is None or not statm.exists():
        return None

    def resident_bytes() -> int:
        """Without what is shared with files, as mapped segments are."""
        words = statm.read_text().split()
        return (int(words[1]) - int(words[2])) * _PAGE_BYTES

    return SpareMemory(resident_bytes, free_bytes, lambda: trim(0))


def _free_bytes(library: ctypes.CDLL, name: str, number: Any) -> Callable[[], int] | None:
    """Returns what tells how much the C library keeps; None where it has no such function."""
    function = getattr(library, name, None)
    if function is None:
        return None

    class Info(ctypes.Structure):
        _fields_ = [(member, number) for member in _MEMBERS]

    function.restype = Info
    mask = _INT_MASK if number is ctypes.c_int else -1
    return lambda: function().fordblks & mask
