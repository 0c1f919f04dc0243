"""Takes the log of a running member out of the page cache: reads of it come from the disk then."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from pathlib import Path

LEFT_MAX = 0.1
_LIBC = ctypes.CDLL(None, use_errno=True)


def log_files(pid: int, folder: Path) -> list[Path]:
    """The files of the log that a process has open, and those beside them."""
    opened = (Path(os.readlink(entry)) for entry in Path(f"/proc/{pid}/fd").iterdir())
    folders = {path.parent for path in opened if str(path).startswith(f"{folder}/")}
    return sorted(path for found in folders if found.name == "data" for path in found.iterdir())


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


def drop(pid: int, folder: Path) -> dict[str, float]:
    """Takes the log that a member has open out of the page cache.

    Returns:
        How many MB of it were there, before and after.

    Raises:
        RuntimeError: more than a tenth is left.
    """
    # Only clean pages may go.
    os.sync()
    files = log_files(pid, folder)
    before = sum(map(resident_bytes, files))
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    after = sum(map(resident_bytes, files))
    if not before or after > LEFT_MAX * before:
        raise RuntimeError(f"{after / 1e6:.0f} of {before / 1e6:.0f} MB stay in the page cache")
    return {"cached_before_mb": before / 1e6, "cached_after_mb": after / 1e6}
