"""What the stores ask of a disk: one seam, so that a simulated disk can stand below the same code.

Three kinds of files pass it. Segments have a fixed size from their first moment; those of a log are
read through a mapping and written by `write` (`create`, `map`), others are never mapped (`reserve`,
`open`). Small files are replaced as a whole, durably (`read`, `replace`).
Directories are listed and synced. Paths are strings that `RealFileSystem` hands to the operating
system as they are.

What may be assumed after a crash: bytes written to a mapped file may be on disk in part and in any
order until `sync` returned; a name that was made, replaced or removed may be there or not until
`sync_directory` returned; `replace` leaves either the old content or the new one.
"""

import errno
import mmap
import os
import stat
from collections.abc import Iterator
from typing import Final, Protocol

from ledgermq.dledger.store.errors import DiskFullError


class File(Protocol):
    """An open file of fixed size. Nobody closes it: its descriptor goes with the last reference."""

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Returns so many bytes, fewer at the end of the file.

        Raises:
            OSError: they cannot be read.
        """

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Puts bytes where `read`, and the mapping if there is one, have them at once; they fit.

        Cheaper than a mapping for a log that grows: there each new page costs a fault, a look at
        the disk, and zeros that are written over.

        Raises:
            OSError: some of them may be there.
        """

    def sync(self) -> None:
        """Returns when all bytes written before the call are on disk; may run in another thread.

        Raises:
            OSError: what is on disk is unknown from here on; asking again proves nothing.
        """

    def written_ranges(self, offset: int) -> Iterator[tuple[int, int]]:
        """Yields ranges from `offset` on; outside of them the file was never written: zeros."""


class MappedFile(File, Protocol):
    """A file that is mapped; its maker owns the mapping and ends all views before `close`."""

    # All of the file, to be read: a store into it could end the process where a write is an error.
    buffer: memoryview

    def rewrite(self, offset: int, end: int) -> None:
        """Writes the bytes from `offset` up to `end` anew, as they are.

        Pages whose writing failed count as clean afterwards, and no later sync writes them: they
        are read from memory and are not on disk.

        Raises:
            OSError: some of them may be.
        """

    def close(self) -> None:
        """Gives the mapping back; a `sync` does nothing from here on.

        A view that is still held keeps the memory, not the file name.
        """


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

    def create(self, path: str, size_bytes: int) -> MappedFile:
        """Makes a file of zeros whose blocks are reserved, and maps it.

        The name appears with the full size or not at all, also after a kill; it is durable after
        `sync` of the file and `sync_directory`. A file of that name is replaced.

        Raises:
            DiskFullError: there is no such file then.
        """

    def map(self, path: str) -> MappedFile:
        """Maps a file that exists, at its present size."""

    def reserve(self, path: str, size_bytes: int) -> File:
        """Makes a file as `create` does, without a mapping."""

    def open(self, path: str) -> File:
        """Opens a file that exists, without a mapping."""

    def read(self, path: str) -> bytes | None:
        """Returns a whole file, or None when there is no such file."""

    def replace(self, path: str, data: bytes) -> None:
        """Replaces the file's content by way of `<path>.tmp`; durable on return.

        Raises:
            DiskFullError: the file has its old content then.
        """

    def remove(self, path: str) -> None:
        """Removes a file; durable after `sync_directory`."""

    def sync_directory(self, directory: str) -> None:
        """Returns when the names in the directory are on disk."""


class _Descriptor:
    """A file descriptor that closes when nobody refers to it: a sync in another thread keeps it."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class _RealFile:
    """A file by its descriptor."""

    __slots__ = ("_descriptor",)

    def __init__(self, number: int) -> None:
        self._descriptor: _Descriptor | None = _Descriptor(number)

    def read(self, offset: int, size_bytes: int) -> bytes:
        descriptor = self._held()
        return os.pread(descriptor.number, size_bytes, offset)

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        descriptor = self._held()
        written = os.pwrite(descriptor.number, data, offset)
        while written < len(data):
            rest = memoryview(data)[written:]
            written += os.pwrite(descriptor.number, rest, offset + written)

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

    def _held(self) -> _Descriptor:
        """Returns the descriptor, which cannot be closed while somebody refers to it."""
        descriptor = self._descriptor
        if descriptor is None:
            raise OSError(errno.EBADF, "the file is closed")
        return descriptor


class _RealMappedFile(_RealFile):
    """A file mapped into memory."""

    __slots__ = ("_mapping", "buffer")

    def __init__(self, number: int, size_bytes: int) -> None:
        super().__init__(number)
        self._mapping = mmap.mmap(number, size_bytes, access=mmap.ACCESS_READ)
        self.buffer = memoryview(self._mapping)

    def rewrite(self, offset: int, end: int) -> None:
        # A byte makes its page dirty. One page after the other: in whole they may be a gigabyte.
        for at in range(offset - offset % mmap.PAGESIZE, end, mmap.PAGESIZE):
            self.write(at, self.buffer[at : at + 1])

    def close(self) -> None:
        self._descriptor = None
        self.buffer.release()
        try:
            self._mapping.close()
        except BufferError:
            # A view is alive, so the memory is: it goes with the last view.
            pass


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

    def create(self, path: str, size_bytes: int) -> MappedFile:
        return _RealMappedFile(_reserve(path, size_bytes), size_bytes)

    def map(self, path: str) -> MappedFile:
        number = _open_known(path)
        return _RealMappedFile(number, os.fstat(number).st_size)

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

    def replace(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        try:
            with os.fdopen(open_new(temporary), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise disk_error(error, path, len(data)) from error
        os.replace(temporary, path)
        self.sync_directory(os.path.dirname(path))

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
