"""What the stores ask of a disk: one seam, so that a simulated disk can stand below the same code.

Two kinds of files pass it. Segments have a fixed size from their first moment (`reserve`, `open`).
Small files are replaced as a whole, durably (`read`, `replace`). Directories are listed and synced.
Paths are strings that `RealFileSystem` hands to the operating system as they are.

Where a page of a mapping cannot be read, or finds no room, the process ends by a signal (SIGBUS);
`read` and `write` raise OSError there. So nothing is written through a mapping, and what is read
through one (`view`) was written by this process and never came from the disk.

What may be assumed after a crash: bytes written to a segment may be on disk in part and in any
order until `sync` returned; a name that was made, replaced or removed may be there or not until
`sync_directory` returned; `replace` leaves either the old content or the new one.
"""

import errno
import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, Protocol

from ledgermq.dledger.store.errors import DiskFullError


class File(Protocol):
    """An open file of fixed size. Its descriptor is closed with the last reference to it."""

    # Whether the file system can tell what is in the page cache; certain after a `read_cached`.
    knows_cache: bool

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Returns so many bytes, fewer at the end of the file; may wait for the disk.

        Raises:
            OSError: they cannot be read.
        """

    def read_cached(self, offset: int, buffer: bytearray | memoryview) -> bool:
        """Fills a buffer as `read` does if no byte has to come from the disk; else returns False.

        False also where the file system cannot tell: see `knows_cache`.

        Raises:
            OSError: they cannot be read.
        """

    def view(self, offset: int, size_bytes: int) -> memoryview:
        """Returns bytes in place, by a mapping: only for what this process has just written."""

    def end_views(self) -> None:
        """Gives the mapping back; views that are held stay good."""

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Puts bytes where `read` has them at once; they fit.

        Raises:
            OSError: some of them may be there.
        """

    def rewrite(self, offset: int, end: int) -> None:
        """Writes the bytes from `offset` up to `end` again, as they are.

        Pages whose writing failed count as clean afterwards, and no later sync writes them: they
        are read from memory and are not on disk.

        Raises:
            OSError: some of them may be, or they cannot be read.
        """

    def sync(self) -> None:
        """Returns when all bytes written before the call are on disk; may run in another thread.

        Raises:
            OSError: what is on disk is unknown from here on; asking again proves nothing.
        """

    def written_ranges(self, offset: int) -> Iterator[tuple[int, int]]:
        """Yields ranges from `offset` on; outside of them the file was never written: zeros."""

    def close(self) -> None:
        """Gives the file back; a `sync` does nothing from here on, a `read` raises OSError."""


class FileSystem(Protocol):
    """Files by path. Every method may raise OSError."""

    def make_directory(self, path: str) -> None:
        """Makes the directory and its parents, durably; it may be there already."""

    def add_directory(self, path: str) -> list[str]:
        """Makes the directory and its parents; nothing waits for the disk.

        Returns:
            The directories that got a new name: what was made is durable after a `sync_directory`
            of each.
        """

    def names(self, directory: str) -> list[str]:
        """Returns the names in a directory, sorted; none when it does not exist."""

    def size_bytes(self, path: str) -> int:
        """Returns the length of the file."""

    def modified_ms(self, path: str) -> int:
        """Returns when the file was last written, in ms of the wall clock."""

    def reserve(self, path: str, size_bytes: int) -> File:
        """Makes a file of zeros whose blocks are reserved.

        The name appears with the full size or not at all, also after a kill; it is durable after
        `sync` of the file and `sync_directory`. A file of that name is replaced.

        Raises:
            DiskFullError: there is no such file then.
        """

    def open(self, path: str) -> File:
        """Opens a file that exists."""

    def read(self, path: str) -> bytes | None:
        """Returns a whole file, or None when there is no such file.

        A file whose content the disk does not give (EIO) is returned as `UNREADABLE`, which is
        what a damaged file is to every reader of such files.
        """

    def replace(self, path: str, data: bytes) -> None:
        """Replaces the file's content by way of `<path>.tmp`; durable on return.

        Raises:
            DiskFullError: the file has its old content then.
        """

    def remove(self, path: str) -> None:
        """Removes a file; durable after `sync_directory`."""

    def sync_directory(self, directory: str) -> None:
        """Returns when the names in the directory are on disk."""


# What `FileSystem.read` returns for a file that cannot be read: no key, no value, no checksum.
UNREADABLE: Final = b"\0"
# Of a read: fail with EAGAIN where it would wait for the disk (Linux 4.14).
_CACHED_ONLY: Final = getattr(os, "RWF_NOWAIT", 0)
# How such a read fails where the file system, or the kernel, has none.
_CANNOT_TELL: Final = frozenset((errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL))
_PAGE_BYTES: Final = 4096
_REWRITTEN_BYTES: Final = 1 << 18


class _Synced(Protocol):
    def sync(self) -> None: ...


class _Replacing(Protocol):
    """What the replacement of a file is made of."""

    def write_new(self, path: str, data: bytes) -> _Synced: ...

    def rename(self, path: str, target: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def sync_directory(self, directory: str) -> None: ...


def replace_file(disk: _Replacing, path: str, data: bytes) -> None:
    """Does what `FileSystem.replace` says, on every disk in the same steps."""
    temporary = path + ".tmp"
    try:
        disk.write_new(temporary, data).sync()
    except OSError as error:
        with suppress(FileNotFoundError):
            disk.remove(temporary)
        raise disk_error(error, path, len(data)) from error
    disk.rename(temporary, path)
    disk.sync_directory(os.path.dirname(path))


class _Descriptor:
    """A file descriptor that closes with its last reference: a sync in another thread keeps it."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class _RealFile:
    """A file by its descriptor."""

    __slots__ = ("_descriptor", "_pages", "knows_cache")

    def __init__(self, number: int) -> None:
        self.knows_cache = True
        # The whole file, mapped by the first view; it goes with the last one.
        self._pages: memoryview | None = None
        self._descriptor: _Descriptor | None = _Descriptor(number)

    def read(self, offset: int, size_bytes: int) -> bytes:
        descriptor = self._held()
        data = os.pread(descriptor.number, size_bytes, offset)
        if len(data) == size_bytes:
            return data
        # A read ends early at the end of the file, and before a page that cannot be read.
        parts = [data]
        while data:
            offset += len(data)
            size_bytes -= len(data)
            data = os.pread(descriptor.number, size_bytes, offset)
            parts.append(data)
        return b"".join(parts)

    def read_cached(self, offset: int, buffer: bytearray | memoryview) -> bool:
        descriptor = self._held()
        try:
            size = os.preadv(descriptor.number, [buffer], offset, _CACHED_ONLY)
        except OSError as error:
            if error.errno in _CANNOT_TELL:
                self.knows_cache = False
            elif error.errno != errno.EAGAIN:
                raise
            return False
        return size == len(buffer)

    def view(self, offset: int, size_bytes: int) -> memoryview:
        pages = self._pages
        if pages is None:
            number = self._held().number
            pages = self._pages = memoryview(mmap.mmap(number, 0, access=mmap.ACCESS_READ))
        return pages[offset : offset + size_bytes]

    def end_views(self) -> None:
        self._pages = None

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        descriptor = self._held()
        written = os.pwrite(descriptor.number, data, offset)
        while written < len(data):
            rest = memoryview(data)[written:]
            written += os.pwrite(descriptor.number, rest, offset + written)

    def rewrite(self, offset: int, end: int) -> None:
        # In whole pages: one byte of a page makes it dirty, and its neighbors may be unreadable.
        begin = offset - offset % _PAGE_BYTES
        for at in range(begin, end, _REWRITTEN_BYTES):
            self.write(at, self.read(at, min(_REWRITTEN_BYTES, end - at)))

    def sync(self) -> None:
        descriptor = self._descriptor
        if descriptor is not None:
            os.fdatasync(descriptor.number)

    def written_ranges(self, offset: int) -> Iterator[tuple[int, int]]:
        descriptor = self._descriptor
        if descriptor is None:
            return
        end = os.fstat(descriptor.number).st_size
        while offset < end:
            try:
                start = os.lseek(descriptor.number, offset, os.SEEK_DATA)
                offset = os.lseek(descriptor.number, start, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return
                raise
            yield start, offset

    def close(self) -> None:
        self._descriptor = self._pages = None

    def _held(self) -> _Descriptor:
        """Returns the descriptor, which stays open while it is referred to."""
        descriptor = self._descriptor
        if descriptor is None:
            raise OSError(errno.EBADF, "the file is closed")
        return descriptor


# What is made is for the user of this process alone: messages, names and votes stand in it.
FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700


class RealFileSystem:
    """The operating system's files."""

    def make_directory(self, path: str) -> None:
        for directory in self.add_directory(path):
            self.sync_directory(directory)

    def add_directory(self, path: str) -> list[str]:
        path = os.path.abspath(path)
        missing = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for directory in reversed(missing):
            os.makedirs(directory, mode=_FOLDER_MODE, exist_ok=True)
        return [os.path.dirname(directory) for directory in reversed(missing)]

    def names(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []

    def size_bytes(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def reserve(self, path: str, size_bytes: int) -> File:
        return _RealFile(_reserve(path, size_bytes))

    def open(self, path: str) -> File:
        return _RealFile(_open_known(path))

    def read(self, path: str) -> bytes | None:
        try:
            with open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return UNREADABLE

    def replace(self, path: str, data: bytes) -> None:
        replace_file(self, path, data)

    def write_new(self, path: str, data: bytes) -> File:
        """Makes a file, or empties the one that is there, and writes it; nothing is synced."""
        file = _RealFile(open_new(path))
        file.write(0, data)
        return file

    def rename(self, path: str, target: str) -> None:
        """Renames a file over the one that has the other name; durable after `sync_directory`."""
        os.replace(path, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def sync_directory(self, directory: str) -> None:
        number = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def open_new(path: str) -> int:
    """Makes a file, or empties the one that is there; for this user alone, and never by way of a
    link that somebody has put under that name.

    Returns:
        Its descriptor, for reading and writing.

    Raises:
        OSError: it cannot be made.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, FILE_MODE)


def _open_known(path: str) -> int:
    """Opens what has to be a file; returns its descriptor."""
    number = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "no regular file", path)
    return number


def _reserve(path: str, size_bytes: int) -> int:
    """Makes a file of zeros with its blocks; returns its descriptor."""
    # Beside the directory, not in it: every name inside a segment directory must be a segment.
    directory = os.path.dirname(path)
    temporary = f"{directory}-{os.path.basename(path)}.tmp"
    try:
        number = open_new(temporary)
    except OSError as error:
        # There may be room for bytes and none for one more file.
        raise disk_error(error, path, size_bytes) from error
    try:
        os.posix_fallocate(number, 0, size_bytes)
        os.rename(temporary, path)
    except OSError as error:
        os.close(number)
        os.unlink(temporary)
        raise disk_error(error, path, size_bytes) from error
    return number


def disk_error(error: OSError, path: str, needed_bytes: int) -> Exception:
    """Returns DiskFullError for a disk without room, else the error itself."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(path, needed_bytes)
    return error
