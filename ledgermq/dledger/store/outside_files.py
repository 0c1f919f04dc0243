"""Files of a store that somebody else may have made, opened by tools: never for ever, never without
a bound.

A store directory is opened by tools as it was found: from a backup, a customer, another machine.
What is named like a file of a log may be a pipe, which blocks who opens it, a device without an
end, or a sparse file of a terabyte that takes no disk and hours to read.
"""

import os
import stat
from pathlib import Path
from typing import Final, Self

from ledgermq.dledger.store.errors import UnreadableError

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


# Read at once where little is wanted.
_WINDOW_BYTES: Final = 1 << 20


class FileRefusedError(OSError):
    """A file is of a kind or a size that no store has; the text has path, value and limit."""


class OutsideFile:
    """A file that is read in slices, `file[begin:end]`; never mapped, so no read ends the process.

    Each slice may raise UnreadableError.
    """

    def __init__(self, path: str | Path) -> None:
        """Opens a file for reading; its size is that of this moment."""
        self.path = str(path)
        self._number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._size = os.fstat(self._number).st_size
        # What was read last, and from where on.
        self._held, self._held_at = b"", 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        os.close(self._number)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        begin, end, _ = part.indices(self._size)
        size_bytes = max(end - begin, 0)
        if not self._held_at <= begin <= end <= self._held_at + len(self._held):
            ahead = min(max(size_bytes, _WINDOW_BYTES), self._size - begin)
            try:
                self._held, self._held_at = self._read(begin, ahead), begin
            except UnreadableError:
                # What is wanted may stand before the place that cannot be read.
                return self._read(begin, size_bytes)
        at = begin - self._held_at
        return self._held[at : at + size_bytes]

    def find(self, pattern: bytes, offset: int) -> int:
        """Returns where a pattern stands first, from `offset` on; -1 where it does not."""
        while offset < self._size:
            block = self[offset : offset + _WINDOW_BYTES]
            place = block.find(pattern)
            if place >= 0:
                return offset + place
            if offset + len(block) >= self._size:
                break
            offset += len(block) - len(pattern) + 1
        return -1

    def _read(self, offset: int, size_bytes: int) -> bytes:
        parts, at, left = [], offset, size_bytes
        try:
            while left > 0:
                data = os.pread(self._number, left, at)
                if not data:
                    break
                parts.append(data)
                at, left = at + len(data), left - len(data)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UnreadableError(self.path, offset, size_bytes, reason) from error
        if left > 0:
            reason = f"the file ends after {size_bytes - left} of them"
            raise UnreadableError(self.path, offset, size_bytes, reason)
        return parts[0] if len(parts) == 1 else b"".join(parts)


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
