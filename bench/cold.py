"""Takes the log of a running member out of the page cache, so that reads of it come from the disk.

A page that a process has mapped stays where it is when `posix_fadvise` asks for it to go; so the
member's mappings are paged out first, as when memory is short (`process_madvise`, Linux 5.10).
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

# Number of the call on x86-64 and arm64, its advice, and an address range as it takes it.
PROCESS_MADVISE = 440
MADV_PAGEOUT = 21
# One call takes less than 2 GiB.
STEP_BYTES = 1 << 30
LEFT_MAX = 0.1
_LIBC = ctypes.CDLL(None, use_errno=True)


class _Range(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("size", ctypes.c_size_t))


def mapped_ranges(pid: int, folder: Path) -> Iterator[tuple[int, int, Path]]:
    """Of each file of a log that a process has mapped: address, end, path."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and words[5].startswith(str(folder)) and "/data/" in words[5]:
            begin, end = (int(word, 16) for word in words[0].split("-"))
            yield begin, end, Path(words[5])


def resident_bytes(path: Path) -> int:
    """How much of a file is in the page cache."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        mapping = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
    pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
    found = (ctypes.c_ubyte * pages)()
    with contextlib.closing(mapping):
        start = ctypes.c_char.from_buffer(mapping)
        status = _LIBC.mincore(
            ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), found
        )
        del start
    if status:
        raise OSError(ctypes.get_errno(), f"mincore of {path}")
    return sum(page & 1 for page in bytes(found)) * mmap.PAGESIZE


def page_out(pid: int, begin: int, end: int) -> None:
    """Unmaps pages of another process; they come back when it touches them."""
    descriptor = os.pidfd_open(pid)
    try:
        for address in range(begin, end, STEP_BYTES):
            area = _Range(address, min(STEP_BYTES, end - address))
            _LIBC.syscall(PROCESS_MADVISE, descriptor, ctypes.byref(area), 1, MADV_PAGEOUT, 0)
    finally:
        os.close(descriptor)


def drop(pid: int, folder: Path) -> dict[str, float]:
    """Takes the log that a member has open out of the page cache.

    Returns:
        How many MB of it were there, before and after.

    Raises:
        RuntimeError: more than a tenth is left.
    """
    # Only clean pages may go.
    os.sync()
    ranges = list(mapped_ranges(pid, folder))
    files = sorted({file for _, _, path in ranges for file in path.parent.iterdir()})
    before = sum(map(resident_bytes, files))
    for begin, end, _ in ranges:
        page_out(pid, begin, end)
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    after = sum(map(resident_bytes, files))
    if not before or after > LEFT_MAX * before:
        raise RuntimeError(f"{after / 1e6:.0f} of {before / 1e6:.0f} MB stay in the page cache")
    return {"cached_before_mb": before / 1e6, "cached_after_mb": after / 1e6}
