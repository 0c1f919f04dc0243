"""A flush of the derived files: sync what was written, then say so in the checkpoint.

Three steps, because syncing blocks: `begin` in the reactor takes the state as it is, `run` in the
flusher's thread syncs and writes the checkpoint, `end` in the reactor lets go of the files. Between
them dispatch may go on: what it writes meanwhile belongs to the next flush. Commit point: the
replaced checkpoint file.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ledgermq.commitlog.checkpoint import Checkpoints, DispatchMark
from ledgermq.commitlog.open_files import OpenFiles
from ledgermq.dledger.store.filesystem import FileSystem, MappedFile


@dataclass(frozen=True, slots=True)
class FlushJob:
    """One flush under way; `run` may be called in another thread, once."""

    # What will be durable.
    mark: DispatchMark
    _files: list[MappedFile]
    _directories: list[str]
    _file_system: FileSystem
    _checkpoints: Checkpoints
    # Makes the log itself durable first, so that the checkpoint tells of it, too.
    _sync_log: Callable[[], None]

    def run(self) -> None:
        """Sync and write the checkpoint; blocks.

        Raises:
            OSError: final for this replica, as what is on disk is not known any more; the former
            checkpoint still stands.
        """
        self._sync_log()
        for file in self._files:
            file.sync()
        for directory in self._directories:
            self._file_system.sync_directory(directory)
        self._checkpoints.write(self.mark)


def begin_flush(
    mark: DispatchMark,
    files: OpenFiles,
    file_system: FileSystem,
    checkpoints: Checkpoints,
    sync_log: Callable[[], None],
) -> FlushJob:
    """Return the flush that makes `mark` true; `files.synced()` must follow its run."""
    dirty, directories = files.take_dirty()
    return FlushJob(mark, dirty, directories, file_system, checkpoints, sync_log)
