"""Files of a store that somebody else may have made, opened by tools: never for ever, never without
a bound.

A store directory is opened by tools as it was found: from a backup, a customer, another machine.
What is named like a file of a log may be a pipe, which blocks who opens it, a device without an
end, or a sparse file of a terabyte that takes no disk and hours to read.
"""

import os
import stat
from pathlib import Path
from typing import Final

# Java's int bounds mappedFileSizeCommitLog, and all other sizes of files.
SEGMENT_BYTES_MAX: Final = 2**31 - 1
# Of an entry with its head: 16 times what a broker takes by its default settings.
ENTRY_BYTES_MAX: Final = 64 << 20
# Of marks and the like.
SMALL_BYTES_MAX: Final = 1 << 20

_KINDS: Final = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory",
}


class FileRefusedError(OSError):
    """A file is of a kind or a size that no store has; the text has path, value and limit."""


def regular_size(path: str | Path, bytes_max: int = SEGMENT_BYTES_MAX) -> int:
    """Returns the size of a file in bytes; symbolic links are followed.

    Raises:
        FileRefusedError: it is no regular file, or is larger than `bytes_max`.
        OSError: it cannot be looked at.
    """
    return _checked(path, os.stat(path), bytes_max)


def read_small(path: str | Path, bytes_max: int = SMALL_BYTES_MAX) -> bytes:
    """Returns the content of a small file.

    Raises:
        FileRefusedError: as for `regular_size`.
        OSError: it cannot be read.
    """
    # Looked at once more when it is open: it may have been replaced meanwhile.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        _checked(path, os.fstat(descriptor), bytes_max)
        return file.read(bytes_max)


def _checked(path: str | Path, found: os.stat_result, bytes_max: int) -> int:
    kind = stat.S_IFMT(found.st_mode)
    if kind != stat.S_IFREG:
        raise FileRefusedError(f"{path} is {_KINDS.get(kind, 'no file')}, expected a regular file")
    if found.st_size > bytes_max:
        raise FileRefusedError(f"{path} has {found.st_size} bytes, allowed are {bytes_max}")
    return found.st_size
