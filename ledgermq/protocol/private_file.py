"""Files that hold a secret: read whole, and only when nobody but their owner may.

A file of root's that this process's own group may read, and nobody else, counts as its own: so do
orchestrators and packages give secrets to programs that are not root.
"""

import os
import stat
from pathlib import Path
from typing import Final

from ledgermq.protocol.regular_file import read_regular_file

_OTHERS_BITS: Final = stat.S_IRWXG | stat.S_IRWXO


class PrivateFileError(ValueError):
    """A file that is not used; names it and says why, and shows nothing of what is in it."""


def read_private_file(path: Path, what: str, bytes_max: int) -> bytes:
    """Reads a file that others may neither read nor write.

    Args:
        path: of the file.
        what: names it to people.
        bytes_max: longer ones are no secrets but other files.

    Raises:
        PrivateFileError: no such file, no regular one, a longer one, or one that others may read.
    """
    try:
        data, status = read_regular_file(path, bytes_max)
    except OSError as error:
        raise PrivateFileError(f"{what} {path}: {error.strerror}") from error
    if wide := find_wide_mode(path, status):
        raise PrivateFileError(f"{what} {wide}")
    return data


def find_wide_mode(path: Path, status: os.stat_result) -> str | None:
    """Returns what is wrong with the mode of a file that holds a secret, and what helps; None when
    others may neither read nor write it.
    """
    mode = status.st_mode
    is_given = status.st_uid == 0 and status.st_gid == os.getegid() != 0
    if not mode & (_OTHERS_BITS & ~stat.S_IRGRP if is_given else _OTHERS_BITS):
        return None
    return f"{path} has mode {mode & 0o777:04o}: others may read or write it; chmod 0600 {path}"
