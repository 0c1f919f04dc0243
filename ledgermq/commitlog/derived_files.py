"""The files that are made from the log: what has yet to be written to them, and those open to read.

    dispatch ──► an owner keeps what it makes in memory, and says `touch`
    take     ──► Changes: what to write where, file by file          (the thread that dispatches)
    steps    ──► each file written and synced                        (any one thread)
    landed   ──► the owners let go of what is in the files           (the thread that dispatches)

Nothing here waits for a disk while messages are dispatched: files are made, written, synced and
removed by `Changes` alone.

An owner is read by the thread that dispatches: from memory what has not landed, else from the file.
What waits in memory is bounded: at `held_max` it is written at once where no changes are under way,
as while a store opens; where some are, `is_behind` says that no more messages should be taken.

Changes that found no room are taken back, and become a part of the next ones: what was done of
them is done once more, with the same result.

A file whose removal was asked for, and which the same changes make anew, may be one that the mark
on disk calls whole: `disown` takes its word back first.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from ledgermq.commitlog.errors import DamagedFileError
from ledgermq.dledger.errors import ColdDataError
from ledgermq.dledger.store.errors import DiskFullError
from ledgermq.dledger.store.filesystem import File, FileSystem, disk_error
from ledgermq.dledger.store.segment import ReadMode

# Units and entries, of 20 bytes each, that wait in memory: more than a flush ever leaves behind
# unless the disk hangs.
HELD_MAX: Final = 4_000_000
# Zeros are looked for and written in blocks of this size.
_BLOCK_BYTES: Final = 1 << 16

# What an owner asks for: a path, a number and bytes.
# Make the file, of zeros with reserved blocks, so many bytes long; one of that name is replaced.
MAKE: Final = 0
# Zero the file from this byte on.
WIPE: Final = 1
# Write at this offset; the bytes change no more.
WRITE: Final = 2
# Have the file begin with these bytes, which do not change until they landed. With the number 0
# blocks of zeros are left out: nothing else ever stood there.
RENEW: Final = 3
# Remove the file at the end, unless it is made anew.
REMOVE: Final = 4
Bytes = bytes | bytearray | memoryview
Operation = tuple[int, str, int, Bytes]
# Makes durable that nothing is promised of files with these paths any more; in the keeper's thread.
Disown = Callable[[Collection[str]], None]


class Owner(Protocol):
    """What keeps a part of the files in memory until it is written."""

    def take(self, changes: "Changes") -> None:
        """Adds all that is only in memory to `operations`; it stays readable until it landed.

        Takes the time of a turn of the reactor, thousands of owners one after the other.
        """

    def landed(self, changes: "Changes") -> None:
        """Lets go of what these changes have brought into the files."""


class Changes:
    """File operations of one flush.

    The thread that dispatches makes them and gives them away; then they are somebody else's, who
    takes the steps, until that thread has them back with `landed`. Of the owners they know bytes
    only that do not change meanwhile.
    """

    def __init__(self, file_system: FileSystem, disown: Disown) -> None:
        """Begins without any; `disown` is told which former files are about to be replaced."""
        # Who has asked for them, each once.
        self.owners: dict[Owner, None] = {}
        # What they ask for, in their order.
        self.operations: list[Operation] = []
        # Paths of files to be removed at the end; known when the steps are taken.
        self.removals: set[str] = set()
        # Handles that may be used, and how many more may be kept.
        self.open_files: dict[str, File] = {}
        self.spare = 0
        # Units and entries in them.
        self.held_count = 0
        # Handles that were opened on the way.
        self.opened: dict[str, File] = {}
        self._file_system = file_system
        self._disown = disown
        # Directories with new names.
        self._directories: set[str] = set()

    def steps(self) -> Iterator[Callable[[], None]]:
        """Yields what is to be done, in order: write and sync a file in each step, then sync the
        directories of new ones.

        A step raises DiskFullError where there is no room, and OSError: what is on disk is not
        known then. After either, what is in the files may be done once more, from the first step.
        """
        files: dict[str, list[Operation]] = {}
        replaced: set[str] = set()
        self.removals.clear()
        for operation in self.operations:
            kind, path, _, _ = operation
            if kind == MAKE and path in self.removals:
                replaced.add(path)
            if kind in (MAKE, REMOVE):
                # What was asked for before was asked of a file that is gone.
                files.pop(path, None)
                self.removals.discard(path)
            if kind == REMOVE:
                self.removals.add(path)
            else:
                files.setdefault(path, []).append(operation)
        if replaced:
            yield partial(self._disown, replaced)
        for path, operations in files.items():
            yield partial(self._write, path, operations)
        for directory in sorted(self._directories):
            yield partial(self._file_system.sync_directory, directory)

    def removal_steps(self) -> Iterator[Callable[[], None]]:
        """Yields the removals; to be done when nothing on disk names those files any more.

        Raises:
            OSError: as `steps`.
        """
        directories: set[str] = set()
        for path in sorted(self.removals):
            yield partial(self._remove, path, directories)
        for directory in sorted(directories):
            yield partial(self._file_system.sync_directory, directory)

    def _write(self, path: str, operations: list[Operation]) -> None:
        try:
            file = self._open(path, operations)
            for kind, _, number, data in operations:
                if kind == WRITE:
                    file.write(number, data)
                elif kind == WIPE:
                    _wipe(file, number)
                elif kind == RENEW:
                    _renew(file, data, with_zeros=number != 0)
            file.sync()
        except OSError as error:
            size_bytes = sum(len(data) for _, _, _, data in operations)
            raise disk_error(error, path, size_bytes) from error
        if len(self.opened) < self.spare:
            self.opened[path] = file

    def _open(self, path: str, operations: list[Operation]) -> File:
        kind, _, number, _ = operations[0]
        if kind != MAKE:
            return (
                self.opened.get(path) or self.open_files.get(path) or self._file_system.open(path)
            )
        directory = os.path.dirname(path)
        self._directories.update(self._file_system.add_directory(directory))
        self._directories.add(directory)
        self.opened.pop(path, None)
        return self._file_system.reserve(path, number)

    def _remove(self, path: str, directories: set[str]) -> None:
        try:
            self._file_system.remove(path)
        except FileNotFoundError:
            return
        directories.add(os.path.dirname(path))


def _wipe(file: File, from_byte: int) -> None:
    for range_start, range_end in list(file.written_ranges(from_byte)):
        for start in range(max(range_start, from_byte), range_end, _BLOCK_BYTES):
            found = file.read(start, min(range_end - start, _BLOCK_BYTES))
            if found.strip(b"\0"):
                file.write(start, bytes(len(found)))


def _renew(file: File, data: Bytes, *, with_zeros: bool) -> None:
    """Writes the first bytes of a file, also those that it has.

    A page whose writing failed counts as clean and reads as it should be: it must be written anew.
    """
    for start in range(0, len(data), _BLOCK_BYTES):
        block = bytes(data[start : start + _BLOCK_BYTES])
        if with_zeros or block.strip(b"\0"):
            file.write(start, block)


class _ColdFile:
    """A file to be read by a thread that may wait."""

    def __init__(self, path: str, file: File) -> None:
        self.path = path
        self._file = file

    def load(self, offset: int, size_bytes: int) -> None:
        """Brings bytes into the page cache; an error is left to the reader that wants them."""
        with suppress(OSError):
            self._file.read(offset, size_bytes)


class DerivedFiles:
    """What all owners of a store share; used by the thread that dispatches."""

    def __init__(
        self, file_system: FileSystem, open_max: int, mode: ReadMode | None = None
    ) -> None:
        self._mode = ReadMode() if mode is None else mode
        self._file_system = file_system
        self._open_max = open_max
        # Files open for reading, and for the next changes: the last used at the end. A handle is
        # never closed, it goes with the last reference: changes under way may have it, too.
        self._open: OrderedDict[str, File] = OrderedDict()
        # Owners with something that is only in memory, in the order in which they said so.
        self._touched: dict[Owner, None] = {}
        # Files that nothing needs any more.
        self._removals: set[str] = set()
        # Taken, neither landed nor taken back.
        self._under_way: Changes | None = None
        # Those for which there was no room.
        self._taken_back: Changes | None = None
        # Rises with each `take`. Who was told one at `touch` is taken by the next `take` as long as
        # it is the same.
        self.lease = 0
        # Units and entries that wait in memory, and how many may; those under way are not counted.
        self.held_count = 0
        self.held_max = HELD_MAX
        # Told of a file that cannot be read, before the read fails.
        self.on_damage: Callable[[DamagedFileError], None] = lambda damage: None
        # Given to the changes.
        self.disown: Disown = lambda paths: None

    @property
    def open_count(self) -> int:
        """How many files are open."""
        return len(self._open)

    @property
    def is_behind(self) -> bool:
        """Whether too much waits in memory, behind changes that take too long."""
        taken_back = self._taken_back
        waiting = self.held_count + (taken_back.held_count if taken_back is not None else 0)
        return waiting > self.held_max

    @property
    def has_removals(self) -> bool:
        """Whether there are files to be removed."""
        return bool(self._removals)

    def read(self, path: str, offset: int, size_bytes: int) -> bytes:
        """Return so many bytes of a file.

        Raises:
            DamagedFileError: it has not so many, or they cannot be read.
            ColdDataError: the disk would have to be waited for, and must not.
        """
        found: object
        try:
            file = self._open.get(path)
            if file is None:
                file = self._file_system.open(path)
                self._keep(path, file)
            else:
                self._open.move_to_end(path)
            if not self._mode.may_wait:
                cached = bytearray(size_bytes)
                if file.read_cached(offset, cached):
                    return bytes(cached)
                if file.knows_cache:
                    raise ColdDataError([(_ColdFile(path, file), offset, size_bytes)])
            data = file.read(offset, size_bytes)
            if len(data) == size_bytes:
                return data
            found = len(data)
        except OSError as error:
            found = error
        self._open.pop(path, None)
        damage = DamagedFileError(path, f"at {offset}", f"{size_bytes} bytes", found)
        self.on_damage(damage)
        raise damage

    def touch(self, owner: Owner) -> int:
        """Have the next `take` ask this owner; returns the lease."""
        self._touched[owner] = None
        return self.lease

    def forget(self, owner: Owner) -> None:
        """Do not ask this owner: what it has in memory is needed no more."""
        self._touched.pop(owner, None)

    def remove(self, path: str) -> None:
        """Have a file removed by a later flush, unless that makes it anew."""
        self._open.pop(path, None)
        self._removals.add(path)

    def made(self, count: int) -> None:
        """Note that so many units and entries more wait in memory.

        Raises:
            DiskFullError, OSError: they were too many, and the disk refuses.
        """
        self.held_count += count
        if self.held_count > self.held_max and self._under_way is None:
            self.write_out()

    def take(self) -> Changes:
        """Hand out all that is only in memory; `landed` or `take_back` must follow."""
        assert self._under_way is None, "changes are under way"
        self.lease += 1
        changes = self._taken_back or Changes(self._file_system, self.disown)
        self._taken_back = None
        changes.open_files = dict(self._open)
        changes.spare = max(0, self._open_max - len(self._open))
        changes.operations += [(REMOVE, path, 0, b"") for path in sorted(self._removals)]
        changes.held_count += self.held_count
        self._removals, self.held_count = set(), 0
        touched, self._touched = self._touched, {}
        for owner in touched:
            owner.take(changes)
        changes.owners |= touched
        self._under_way = changes
        return changes

    def landed(self, changes: Changes, *, is_marked: bool = True) -> None:
        """Note that these changes are done; without a mark the files that the one before names are
        still to be removed.
        """
        assert changes is self._under_way, "other changes are under way"
        self._under_way = None
        if not is_marked:
            self._removals |= changes.removals
        for owner in changes.owners:
            owner.landed(changes)
        for path, file in changes.opened.items():
            if path not in self._removals and path not in changes.removals:
                self._keep(path, file)

    def take_back(self) -> None:
        """Note that there was no room for the changes that are under way."""
        self._taken_back, self._under_way = self._under_way, None

    def write_out(self) -> None:
        """Write all that is only in memory; no changes are under way.

        Raises:
            DiskFullError: there is no room; it is still to be written.
            OSError: the disk fails.
        """
        changes = self.take()
        try:
            for step in changes.steps():
                step()
        except DiskFullError:
            self.take_back()
            raise
        self.landed(changes, is_marked=False)

    def close(self) -> None:
        """Close all files."""
        self._open.clear()

    def _keep(self, path: str, file: File) -> None:
        self._open[path] = file
        self._open.move_to_end(path)
        while len(self._open) > self._open_max:
            self._open.popitem(last=False)
