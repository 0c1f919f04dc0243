"""only_job: of the jobs that change one place, one at a time.

It is a lock on a file (flock), which ends with its process, however that ends. On a file system
that keeps locks for all hosts, as NFS does, it keeps out drivers on other hosts, too. Where there
are no locks, a job goes on without one, and says so in its log.
"""

import errno
import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ledgermq.spark.errors import OptionError

_NO_LOCKS: Final = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_HOLDER_BYTES: Final = 200
_log = logging.getLogger("ledgermq.spark")


@contextmanager
def only_job(option: str, place: Path, file: Path) -> Iterator[None]:
    """Holds the lock of a place in a `with` block.

    Args:
        option: by which the place was given, for the error.
        place: what jobs change.
        file: of the lock, which stays there; its directory is made.

    Raises:
        OptionError: another job is at work there.
        OSError: the file cannot be made.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, _HOLDER_BYTES, 0).decode(errors="replace")
            allowed = f"a place where no other job is at work; {holder or 'another process'} is"
            raise OptionError(option, str(place), allowed) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            _log.warning("%s keeps no locks: start one job at a time at %s", file.parent, place)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield
    finally:
        os.close(descriptor)
