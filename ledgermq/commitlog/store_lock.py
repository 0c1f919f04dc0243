"""The lock that keeps two brokers, ours or Java's, from one store directory; and the mark `abort`.

Java's file channel locks are POSIX record locks: byte 0 of `lock`, which also holds the text
"lock". `abort` exists while a broker runs, so Java knows after a kill; LedgerMQ itself relies on
its checkpoint. A record lock goes when the process closes any descriptor of the file, so nothing
else may open `lock`. Source: DefaultMessageStore.start and shutdown.

A lock is worth nothing on a file that has no name any more: another broker would make a new one.
"""

import fcntl
import os

from ledgermq.commitlog.errors import StoreInUseError, StoreLostError
from ledgermq.dledger.store.filesystem import FILE_MODE, RealFileSystem, open_new


class StoreLock:
    """Held from `take` to `release`, or to the end of the process."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._descriptor = -1

    def take(self) -> bool:
        """Lock the store and mark it as running.

        Returns: whether the last stop was clean, by the mark of whoever ran last.

        Raises:
            StoreInUseError: another process holds the lock.
        """
        # Durably: else all that is made durable in it could go with its name.
        RealFileSystem().make_directory(self._root)
        path = os.path.join(self._root, "lock")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, FILE_MODE)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(descriptor)
            raise StoreInUseError(path) from error
        self._descriptor = descriptor
        os.pwrite(descriptor, b"lock", 0)
        abort = os.path.join(self._root, "abort")
        was_clean = not os.path.exists(abort)
        with os.fdopen(open_new(abort), "wb") as file:
            file.write(str(os.getpid()).encode("ascii"))
        return was_clean

    def check(self) -> None:
        """Look whether the lock still keeps others out; asks for a name and reads nothing.

        Raises:
            StoreLostError: the file of that name is not the one that is locked.
            OSError: nobody knows.
        """
        path = os.path.join(self._root, "lock")
        try:
            named = os.stat(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StoreLostError(path) from error
        if not os.path.samestat(named, os.fstat(self._descriptor)):
            raise StoreLostError(path)

    def release(self, *, is_clean: bool) -> None:
        """Give the store free; `abort` stays when the stop was not clean."""
        if self._descriptor < 0:
            return
        if is_clean:
            os.unlink(os.path.join(self._root, "abort"))
        os.close(self._descriptor)
        self._descriptor = -1
