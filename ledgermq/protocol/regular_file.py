"""Files that are read whole, whatever stands under their name."""

import errno
import os
import stat
from pathlib import Path


def read_regular_file(path: Path, bytes_max: int) -> tuple[bytes, os.stat_result]:
    """Reads a file.

    Args:
        path: of the file. A pipe that nobody writes to is not waited for.
        bytes_max: nothing behind one more than so many bytes is read.

    Returns:
        Its bytes, more than `bytes_max` when it is too long; and what it is, of the same file,
        whatever the name becomes in between.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        return file.read(bytes_max + 1), status
