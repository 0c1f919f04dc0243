"""A flush of the derived files: sync what was written, then say so in the checkpoint.

Three parts, because syncing blocks: `begin` in the reactor takes the state as it is, the steps in
the keeper's thread sync one file each and write the checkpoint, `end` in the reactor lets go of the
files. Between them dispatch may go on: what it writes meanwhile belongs to the next flush. Commit
point: the replaced checkpoint file.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from ledgermq.commitlog.checkpoint import Checkpoints, DispatchMark
from ledgermq.commitlog.open_files import OpenFiles
from ledgermq.dledger.store.filesystem import FileSystem, MappedFile


@dataclass(frozen=True, slots=True)
class FlushJob:
    """One flush under way; its steps may be taken in another thread, once."""

    # What will be durable.
    mark: DispatchMark
    _files: list[MappedFile]
    _directories: list[str]
    _file_system: FileSystem
    _checkpoints: Checkpoints

    def steps(self) -> Iterator[Callable[[], None]]:
        """Yield what is to be done, in order: sync each file, then write the checkpoint.

        A step that raises OSError is final for this replica, as what is on disk is not known any
        more; after DiskFullError all of it may be done again. The former checkpoint still stands.
        """
        for file in self._files:
            yield file.sync
        for directory in self._directories:
            yield partial(self._file_system.sync_directory, directory)
        yield partial(self._checkpoints.write, self.mark)

    def run(self) -> None:
        """Take all steps at once; blocks."""
        for step in self.steps():
            step()


def begin_flush(
    mark: DispatchMark,
    files: OpenFiles,
    file_system: FileSystem,
    checkpoints: Checkpoints,
) -> FlushJob:
    """Return the flush that makes `mark` true; `files.synced()` must follow its steps."""
    dirty, directories = files.take_dirty()
    return FlushJob(mark, dirty, directories, file_system, checkpoints)
