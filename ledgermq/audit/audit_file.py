"""AuditFile: lines are added at its end; full files become file.1, file.2, and the oldest goes.

Runs in a thread of its own, where it may wait for the disk; nothing here knows the reactor. The
file is opened for each write, so that it may be moved away by others.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

# A pipe under the name is an error; without O_NONBLOCK it would be waited for.
_FLAGS: Final = (
    os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
)
_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700


class AuditFile:
    """One file and those before it.

    Invariant: a file has whole lines only, at most `bytes_max` of them unless one line is larger.
    """

    def __init__(self, path: Path, bytes_max: int, files_max: int) -> None:
        """
        Args:
            path: of the file that is written; its folder is made.
            bytes_max: of one file.
            files_max: files that are kept, the one that is written included; 1 or more.
        """
        self.path = path
        self._bytes_max = bytes_max
        self._files_max = files_max

    @property
    def room_bytes(self) -> int:
        """Of all files that are kept."""
        return self._bytes_max * self._files_max

    @property
    def former(self) -> Path:
        """The file that was full last, there or not."""
        return self._former(1)

    def prepare(self) -> None:
        """Makes the file when it is absent; ends a last line that a program has left cut.

        Raises:
            OSError: it cannot be written.
        """
        number = self._open()
        try:
            size = os.fstat(number).st_size
            if size:
                with self.path.open("rb") as file:
                    file.seek(size - 1)
                    is_cut = file.read(1) != b"\n"
                if is_cut:
                    _append(number, b"\n", size)
        finally:
            os.close(number)

    def write(self, lines: Sequence[bytes]) -> None:
        """Adds lines, each with its end.

        Raises:
            OSError: the disk refused; no part of a line stands in the file.
        """
        rest = list(lines)
        while rest:
            number = self._open()
            try:
                size = os.fstat(number).st_size
                count = self._fitting(rest, size)
                if count:
                    _append(number, b"".join(rest[:count]), size)
            finally:
                os.close(number)
            del rest[:count]
            if rest:
                self._roll()

    def _open(self) -> int:
        try:
            return os.open(self.path, _FLAGS, _FILE_MODE)
        except FileNotFoundError:
            self.path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            return os.open(self.path, _FLAGS, _FILE_MODE)

    def _fitting(self, lines: Sequence[bytes], size_bytes: int) -> int:
        """How many of the lines the file has room for; one at least in an empty file."""
        count = 0
        for line in lines:
            size_bytes += len(line)
            if size_bytes > self._bytes_max and size_bytes > len(line):
                break
            count += 1
        return count

    def _roll(self) -> None:
        if self._files_max == 1:
            self.path.unlink(missing_ok=True)
            return
        for number in range(self._files_max - 1, 0, -1):
            source = self._former(number - 1) if number > 1 else self.path
            if source.exists():
                source.replace(self._former(number))

    def _former(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def _append(number: int, data: bytes, size_bytes: int) -> None:
    """Adds all of the data or nothing."""
    written = 0
    try:
        while written < len(data):
            written += os.write(number, data[written:])
    except OSError:
        if written:
            os.ftruncate(number, size_bytes)
        raise
