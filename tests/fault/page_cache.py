"""What the kernel says of a file's pages: how many are dirty, how many are being written.

`cachestat` (Linux 6.5 and later) answers for any range of a file, whoever wrote it. Nothing of ours
stands between the question and the answer.
"""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path
from typing import NamedTuple

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# The same number on all architectures: it is younger than their common table.
_CACHESTAT = 451
_KERNEL_MIN = (6, 5)


class PageCounts(NamedTuple):
    """Pages of a range; those that are neither dirty nor being written are on the disk."""

    cached: int
    dirty: int
    written_back: int


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("size", ctypes.c_uint64))


class _Counts(ctypes.Structure):
    _fields_ = (
        ("cached", ctypes.c_uint64),
        ("dirty", ctypes.c_uint64),
        ("written_back", ctypes.c_uint64),
        ("evicted", ctypes.c_uint64),
        ("recently_evicted", ctypes.c_uint64),
    )


_libc = ctypes.CDLL(None, use_errno=True)


def page_counts(number: int, offset: int, size_bytes: int) -> PageCounts:
    """Returns what the kernel holds of a range of an open file.

    Raises:
        OSError: it does not say.
    """
    asked, told = _Range(offset, size_bytes), _Counts()
    if _libc.syscall(_CACHESTAT, number, ctypes.byref(asked), ctypes.byref(told), 0):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), "cachestat")
    return PageCounts(told.cached, told.dirty, told.written_back)


def why_silent(folder: Path) -> str | None:
    """Returns why the kernel cannot be asked about files in a folder; None when it can."""
    release = platform.release()
    version = tuple(int(part) for part in release.split("-")[0].split(".")[:2])
    if version < _KERNEL_MIN:
        return f"the kernel {release} has no cachestat, which came with 6.5"
    probe = folder / "probe"
    probe.write_bytes(bytes(PAGE_BYTES))
    number = os.open(probe, os.O_RDWR)
    try:
        if not page_counts(number, 0, PAGE_BYTES).dirty:
            return f"a page just written in {folder} is not dirty"
        os.fdatasync(number)
        if any(page_counts(number, 0, PAGE_BYTES)[1:]):
            return f"a page just synced in {folder} is dirty: it lies on no disk"
    except OSError as error:
        return str(error)
    finally:
        os.close(number)
        probe.unlink()
    return None
