"""The mapped files that are open now: a bounded number, the least recently used closed first.

A broker may have thousands of queues, and each segment that is mapped costs a file descriptor and
an area of the address space. A file that was written since the last completed flush is not
closed, whatever the bound says: only an open file can be synced. So the bound can be passed by as
many files as are written between two flushes (`dirty_count` tells how many), and a quarter.

A flush takes the dirty files with `take_dirty` (reactor), syncs them (keeper's thread), and gives
them back with `synced` or, where it found no room for its checkpoint, `not_synced` (reactor).

Whoever writes to one file again and again may keep what `writable` gave, with the `lease` of that
moment: while the lease is the same the file is open and counts as dirty. It counts as used, too,
from its first write in a lease only.
"""

from collections import OrderedDict
from typing import Final

from ledgermq.dledger.store.filesystem import FileSystem, MappedFile

# A look for files to close is repeated when so large a part of the bound was opened since.
CROWD_SHARE: Final = 4


class OpenFiles:
    """Open mapped files by path."""

    def __init__(self, file_system: FileSystem, open_max: int) -> None:
        self._file_system = file_system
        self._open_max = open_max
        # The last used at the end.
        self._files: OrderedDict[str, MappedFile] = OrderedDict()
        # Written since the last take_dirty.
        self._dirty: set[str] = set()
        # Taken by a flush that has not ended.
        self._in_flush: set[str] = set()
        # So many files are open before the next look for some to close: a look that found too few
        # need not be repeated for each file; a completed flush changes that.
        self._looks_at = 0
        # Rises whenever a dirty file ceases to be one: with each take_dirty, and with each file
        # that is closed whatever its state.
        self.lease = 0
        # Directories that got a new file since the last take_dirty.
        self._new_directories: set[str] = set()
        # Those that were taken by a flush that has not ended.
        self._directories_in_flush: list[str] = []

    @property
    def open_count(self) -> int:
        """How many files are mapped."""
        return len(self._files)

    @property
    def dirty_count(self) -> int:
        """How many files wait for a flush."""
        return len(self._dirty)

    def buffer(self, path: str) -> memoryview:
        """Return the mapping of an existing file, for reading; it is good until the next call."""
        file = self._files.get(path)
        if file is None:
            file = self._file_system.map(path)
            self._keep(path, file)
        else:
            self._files.move_to_end(path)
        return file.buffer

    def file(self, path: str) -> MappedFile:
        """Return an existing file; it is good until the next call."""
        self.buffer(path)
        return self._files[path]

    def writable(self, path: str) -> memoryview:
        """Return the mapping of an existing file, for writing; the file is dirty from now on.

        It may be written until `lease` changes.
        """
        buffer = self.buffer(path)
        self._dirty.add(path)
        return buffer

    def create(self, directory: str, name: str, size_bytes: int) -> memoryview:
        """Make a file of zeros with reserved blocks, and return its mapping for writing.

        Raises:
            OSError, DiskFullError: there is no such file then.
        """
        self._new_directories.update(self._file_system.add_directory(directory))
        path = f"{directory}/{name}"
        self.forget(path)
        file = self._file_system.create(path, size_bytes)
        self._dirty.add(path)
        self._new_directories.add(directory)
        self._keep(path, file)
        return file.buffer

    def remove(self, directory: str, name: str) -> None:
        """Close and remove a file; the removal is durable after the next flush."""
        path = f"{directory}/{name}"
        self.forget(path)
        self._file_system.remove(path)
        self._new_directories.add(directory)

    def forget(self, path: str) -> None:
        """Close a file, whatever its state."""
        file = self._files.pop(path, None)
        self._dirty.discard(path)
        if file is not None:
            self.lease += 1
            file.close()

    def take_dirty(self) -> tuple[list[MappedFile], list[str]]:
        """Hand out the files to sync and the directories to sync after them."""
        assert not self._in_flush, "a flush is running"
        self.lease += 1
        self._in_flush, self._dirty = self._dirty, set()
        directories, self._new_directories = sorted(self._new_directories), set()
        self._directories_in_flush = directories
        return [self._files[path] for path in sorted(self._in_flush)], directories

    def synced(self) -> None:
        """Note that all that take_dirty handed out is durable."""
        self._in_flush = set()
        self._looks_at = 0
        self._shrink()

    def not_synced(self) -> None:
        """Note that what take_dirty handed out has to be synced again."""
        self._dirty.update(path for path in self._in_flush if path in self._files)
        self._new_directories.update(self._directories_in_flush)
        self._in_flush = set()

    def close(self) -> None:
        """Close all files."""
        self.lease += 1
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._dirty.clear()

    def _keep(self, path: str, file: MappedFile) -> None:
        # Twenty bytes at the end of one queue of thousands, a slot of an index: one page each.
        file.read_pages_singly()
        self._files[path] = file
        if len(self._files) > self._open_max:
            self._shrink()

    def _shrink(self) -> None:
        surplus = len(self._files) - self._open_max
        if surplus <= 0 or len(self._files) < self._looks_at:
            return
        # The newest one was asked for just now and stays.
        for path in list(self._files)[:-1]:
            if path in self._dirty or path in self._in_flush:
                continue
            self._files.pop(path).close()
            surplus -= 1
            if surplus <= 0:
                return
        self._looks_at = len(self._files) + max(1, self._open_max // CROWD_SHARE)
