"""Audit: what was done or tried through this console; in memory, and in a file of JSON lines.

A line is in the file before the answer leaves. The file is appended to, by one program at a time; a
full one becomes FILE.1, FILE.2 and so on, and the oldest goes.
"""

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec
from twisted.logger import Logger

from ledgermq.audit.audit_file import AuditFile
from ledgermq.console.shapes.brokers import AuditEntry

_ENTRIES_MAX: Final = 10_000
_DETAIL_CHARS_MAX: Final = 2_000
# As broker and name server have it by default.
FILE_BYTES_MAX: Final = 16 * 1024 * 1024
FILES_MAX: Final = 10

Outcome = Literal["done", "refused", "failed"]
_log = Logger()


class Audit:
    """Entries, the newest last."""

    def __init__(
        self,
        path: Path | None,
        *,
        file_bytes_max: int = FILE_BYTES_MAX,
        files_max: int = FILES_MAX,
    ) -> None:
        """Reads what an earlier run wrote.

        Args:
            path: of the file, which is made when it is absent; None keeps entries in memory alone.
            file_bytes_max: of one file.
            files_max: files that are kept, the one that is written included.

        Raises:
            OSError: it cannot be read or written.
        """
        self._entries: deque[AuditEntry] = deque(maxlen=_ENTRIES_MAX)
        self._file = None
        if path is not None:
            self._file = AuditFile(path, file_bytes_max, files_max)
            self._file.prepare()
            path.chmod(0o600)
            for one in (self._file.former, path):
                if one.is_file():
                    self._entries.extend(_read(one, file_bytes_max))

    def add(self, entry: AuditEntry) -> None:
        """Notes one thing; an error of the file is told in the log, for it must not stop work."""
        cut = entry.detail[:_DETAIL_CHARS_MAX]
        entry = msgspec.structs.replace(entry, detail=cut)
        self._entries.append(entry)
        if self._file is not None:
            try:
                self._file.write([msgspec.json.encode(entry) + b"\n"])
            except OSError as error:
                _log.error("audit file: {error}", error=error)

    def newest_first(self) -> Iterator[AuditEntry]:
        """Returns all entries."""
        return reversed(self._entries)


def _read(path: Path, bytes_max: int) -> Iterator[AuditEntry]:
    """The last entries of a file; lines that are cut are left out."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - bytes_max, 0))
        for line in file:
            try:
                yield msgspec.json.decode(line, type=AuditEntry)
            except (msgspec.MsgspecError, RecursionError):
                continue
