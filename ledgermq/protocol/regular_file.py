"""Files that are read whole, whatever stands under their name."""

import errno
import os
import stat
from pathlib import Path
from typing import Final

_PART_BYTES: Final = 1 << 20


def read_regular_file(path: Path, bytes_max: int) -> tuple[bytes, os.stat_result]:
    """Reads a file.

    Args:
        path: of the file. A pipe that nobody writes to is not waited for.
        bytes_max: of a longer one nothing is read.

    Returns:
        Its bytes; and what it is, of the same file, whatever the name becomes in between.

    Raises:
        OSError: it cannot be read; EINVAL: it is no regular file; EFBIG: it is longer.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        size, parts = status.st_size, []
        # A part at a time: for a whole it would take all memory that is allowed, and give it back.
        while size <= bytes_max and (part := file.read(_PART_BYTES)):
            parts.append(part)
            size = max(size, sum(map(len, parts)))
        if size > bytes_max:
            raise OSError(errno.EFBIG, f"{size} bytes, more than {bytes_max} bytes", str(path))
        return b"".join(parts), status
