"""Where segment files lie: in directories that all workers see, or in an object store.

Planning and reading ask both for the same: the names in a directory, sizes, some bytes of a file
from a place on. Nothing is fetched that is not looked at: of a file in an object store ranges are
read, one request for each window of some MiB, up to what is committed. Keys and endpoint of the
store travel with the read, for tasks run where the driver's environment is not.
"""

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from pyarrow.fs import FileSelector, FileType

from ledgermq.dledger.store.errors import UnreadableError
from ledgermq.dledger.store.outside_files import (
    SEGMENT_BYTES_MAX,
    SMALL_BYTES_MAX,
    FileRefusedError,
    OutsideFile,
    regular_size,
)
from ledgermq.spark.errors import CorruptDataError, ObjectStoreError, PathNotSeenError
from ledgermq.spark.paths import file_size, local_path, this_worker
from ledgermq.spark.tables.storage import Storage, StoreKeys

# Of a file, in one piece; of an object store in one request, which costs more of them.
WINDOW_BYTES: Final = 4 * 1024 * 1024
_STORE_WINDOW_BYTES: Final = 2 * WINDOW_BYTES
_STORE_SCHEME: Final = "s3a://"
# What Amazon's client does not try again by itself: a connection that breaks in the midst of an
# answer. All else it has tried eight times.
_BROKEN: Final = ("INTERNAL_FAILURE", "NETWORK_CONNECTION")
_TRIES: Final = 4
_PAUSE_S: Final = 0.2
_T = TypeVar("_T")


class SegmentBytes(Protocol):
    """An open segment file."""

    @property
    def size(self) -> int:
        """In bytes."""
        ...

    def window(self, offset: int, least: int) -> bytes | memoryview:
        """Returns bytes from a place on: so many at least, or all up to the end of the file."""
        ...


class SegmentFiles(Protocol):
    """Directories of segment files; paths are absolute, as text."""

    def names(self, directory: str) -> list[str]:
        """Returns what is in a directory, in order; nothing where there is none."""
        ...

    def size(self, path: str) -> int:
        """Returns the size of a segment file."""
        ...

    def head(self, path: str, offset: int, count: int) -> bytes:
        """Returns so many bytes of a file, fewer at its end."""
        ...

    def opened(self, path: str) -> contextlib.AbstractContextManager[SegmentBytes]:
        """Opens a segment file."""
        ...

    def marks(self, directory: str, names: list[str]) -> contextlib.AbstractContextManager[str]:
        """Yields a directory of this machine with some small files of a directory."""
        ...


def is_in_store(text: str) -> bool:
    """Tells a place in an object store from a path of this machine."""
    return text.startswith(_STORE_SCHEME)


def find_place(option: str, text: str, keys: StoreKeys) -> tuple[SegmentFiles, str]:
    """Returns the files that a user means, and the absolute path of their directory.

    Args:
        option: by which it was given, for the error.
        text: a path of this machine, or ``s3a://BUCKET/PREFIX``.
        keys: of the object store.

    Raises:
        OptionError: it is on another kind of file system.
    """
    if not is_in_store(text):
        return DiskFiles(), str(local_path(option, text))
    storage = Storage(option, text, keys)
    return StoreFiles(storage.files), storage.spark_root


def files_of(path: str, keys: StoreKeys) -> SegmentFiles:
    """Returns the files among which one lies, by its absolute path."""
    if not is_in_store(path):
        return DiskFiles()
    return StoreFiles(Storage("path", path, keys).files)


class DiskFiles:
    """Files of this machine, or of a disk that it has mounted."""

    def names(self, directory: str) -> list[str]:
        """Returns what is in a directory."""
        path = Path(directory)
        return sorted(found.name for found in path.iterdir()) if path.is_dir() else []

    def size(self, path: str) -> int:
        """Returns the size of a segment file.

        Raises:
            PathNotSeenError: it is not there.
            CorruptDataError: it is no regular file, or too large.
        """
        return file_size(path)

    def head(self, path: str, offset: int, count: int) -> bytes:
        """Returns some bytes of a file.

        Raises:
            PathNotSeenError: it is not there.
        """
        try:
            with open(path, "rb") as file:
                file.seek(offset)
                return file.read(count)
        except FileNotFoundError:
            raise PathNotSeenError(path, this_worker()) from None

    @contextlib.contextmanager
    def opened(self, path: str) -> Iterator[SegmentBytes]:
        """Opens a file, which must not be empty."""
        size = file_size(path)
        if size == 0:
            raise CorruptDataError(path, "the file is empty")
        with OutsideFile(path) as file:
            yield _Windows(file)

    @contextlib.contextmanager
    def marks(self, directory: str, names: list[str]) -> Iterator[str]:
        """Yields the directory itself.

        Raises:
            CorruptDataError: one of the files is none that a store has.
        """
        for name in names:
            path = Path(directory, name)
            try:
                if not path.is_dir():
                    regular_size(path, SMALL_BYTES_MAX)
            except FileRefusedError as error:
                raise CorruptDataError(str(path), str(error)) from error
        yield directory


class _Windows:
    """A file of a disk; windows are copies."""

    def __init__(self, file: OutsideFile) -> None:
        self._file = file
        self.size = len(file)

    def window(self, offset: int, least: int) -> bytes:
        try:
            return self._file[offset : offset + max(least, WINDOW_BYTES)]
        except UnreadableError:
            # What is wanted may stand before the place that cannot be read.
            pass
        try:
            return self._file[offset : offset + least]
        except UnreadableError as error:
            reason = f"{error.reason} ({error.size_bytes} bytes at offset {error.offset})"
            raise CorruptDataError(error.path, reason) from error


class StoreFiles:
    """Files of an object store."""

    def __init__(self, files: Any) -> None:
        """Takes a file system of pyarrow's."""
        self._files = files
        # Sizes of files, as listings told them.
        self._sizes: dict[str, int] = {}

    def names(self, directory: str) -> list[str]:
        """Returns what is in a directory.

        Raises:
            ObjectStoreError: the store does not tell.
        """
        selector = FileSelector(_key(directory), allow_not_found=True)
        found = _asked(directory, lambda: self._files.get_file_info(selector))
        for info in found:
            if info.type is FileType.File:
                self._sizes[f"{directory}/{info.base_name}"] = info.size
        return sorted(info.base_name for info in found)

    def folders(self, directory: str) -> list[str]:
        """Returns the paths of what is in a directory and is one itself.

        Raises:
            ObjectStoreError: the store does not tell.
        """
        paths = [f"{directory}/{name}" for name in self.names(directory)]
        return [path for path in paths if path not in self._sizes]

    def size(self, path: str) -> int:
        """Returns the size of a segment file.

        Raises:
            CorruptDataError: it is too large for one.
            ObjectStoreError: the store does not tell.
            PathNotSeenError: it is not there.
        """
        size = self._sizes.get(path)
        if size is None:
            with self.opened(path) as file:
                size = self._sizes[path] = file.size
        if size > SEGMENT_BYTES_MAX:
            raise CorruptDataError(path, f"it has {size} bytes, allowed are {SEGMENT_BYTES_MAX}")
        return size

    def head(self, path: str, offset: int, count: int) -> bytes:
        """Returns some bytes of a file.

        Raises:
            ObjectStoreError: the store does not give them.
            PathNotSeenError: it is not there.
        """
        with self.opened(path) as file:
            return file.read(offset, min(count, file.size - offset))

    @contextlib.contextmanager
    def opened(self, path: str) -> Iterator["_Ranges"]:
        """Opens a file.

        Raises:
            ObjectStoreError: the store does not give it.
            PathNotSeenError: it is not there.
        """
        with _asked(path, lambda: self._files.open_input_file(_key(path))) as file:
            yield _Ranges(file, path, _asked(path, file.size))

    @contextlib.contextmanager
    def marks(self, directory: str, names: list[str]) -> Iterator[str]:
        """Yields a copy of the small files, gone afterwards.

        Raises:
            CorruptDataError: one of them is none that a store has.
        """
        with tempfile.TemporaryDirectory(prefix="ledgermq-marks-") as folder:
            for name in names:
                path = f"{directory}/{name}"
                size = self._sizes.get(path)
                if size is None:
                    # A directory.
                    continue
                if size > SMALL_BYTES_MAX:
                    reason = f"it has {size} bytes, allowed are {SMALL_BYTES_MAX}"
                    raise CorruptDataError(path, reason)
                Path(folder, name).write_bytes(self.head(path, 0, size))
            yield folder


class _Ranges:
    """A file of an object store, of which ranges are read."""

    def __init__(self, file: Any, path: str, size: int) -> None:
        self._file = file
        self._path = path
        self.size = size
        # What was read last, and from where on; with the range on its way, two are in memory.
        self._held = b""
        self._held_at = 0

    def window(self, offset: int, least: int) -> memoryview:
        least = min(least, self.size - offset)
        if least <= 0:
            return memoryview(b"")
        if not self._held_at <= offset <= self._held_at + len(self._held) - least:
            count = min(max(least, _STORE_WINDOW_BYTES), self.size - offset)
            self._held, self._held_at = self.read(offset, count), offset
        return memoryview(self._held)[offset - self._held_at :]

    def read(self, offset: int, count: int) -> bytes:
        """Returns a range, which must lie in the file; nothing where it is empty."""
        if count <= 0:
            return b""
        found = bytes(_asked(self._path, lambda: self._file.read_at(count, offset)))
        if len(found) < count:
            reason = f"{len(found)} bytes came of {count} from {offset} on"
            raise ObjectStoreError(self._path, reason, this_worker())
        return found


def _asked(path: str, ask: Callable[[], _T]) -> _T:
    """Returns what a store gives; says where a file is missed, and where and why it does not answer
    well.
    """
    tries = 0
    while True:
        try:
            return ask()
        except FileNotFoundError:
            raise PathNotSeenError(path, this_worker()) from None
        except OSError as error:
            tries += 1
            if tries == _TRIES or not any(word in str(error) for word in _BROKEN):
                raise ObjectStoreError(path, str(error), this_worker()) from error
        threading.Event().wait(tries * _PAUSE_S)


def _key(path: str) -> str:
    """Returns bucket and key of a URL."""
    return path.removeprefix(_STORE_SCHEME)
