"""Audit: what was done or tried through this console; in memory, and in a file of JSON lines.

Nobody drives out what others did: when there are too many entries, who has most loses its oldest,
and a minute has so many lines of one account in the file, and so many bytes; what admins changed
is always there. What changes nothing is counted by itself, so that it hides no change.

A line is in the file before the answer leaves. The file is appended to, by one program at a time; a
full one becomes FILE.1, FILE.2 and so on, and the oldest goes.
"""

import json
from collections import deque
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Final, Literal

import msgspec
from twisted.logger import Logger

from ledgermq.audit.audit_file import AuditFile
from ledgermq.console.shapes.brokers import AuditEntry
from ledgermq.protocol.networks import network_of

_ENTRIES_MAX: Final = 10_000
_DETAIL_CHARS_MAX: Final = 2_000
_OBJECT_CHARS_MAX: Final = 512
# Of one account, or address that nobody knows, in the file, in a minute: what was looked at or
# failed, and as much of what was done by who is no admin.
_LINES_MAX: Final = 600
# That many lines of some length; at this rate all files are full after ten hours.
_LINE_BYTES_MAX: Final = 256 * 1024
_MINUTE_MS: Final = 60_000
# Whose lines of this minute are counted; more begin a new one.
_COUNTED_MAX: Final = 10_000
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
        # By whose they are, each with its number; the oldest first.
        self._entries: dict[str, deque[tuple[int, AuditEntry]]] = {}
        self._count = self._last_number = 0
        # Lines and their bytes since a time, by whose they are and whether they changed nothing.
        self._counted: dict[tuple[str, bool], tuple[int, int]] = {}
        self._counted_since_ms = 0
        self._file = None
        if path is not None:
            self._file = AuditFile(path, file_bytes_max, files_max)
            self._file.prepare()
            path.chmod(0o600)
            for one in (self._file.former, path):
                if one.is_file():
                    for entry in _read(one, file_bytes_max):
                        self._keep(entry)

    def add(self, entry: AuditEntry, *, is_admin: bool = False) -> None:
        """Notes one thing; an error of the file is told in the log, for it must not stop work.

        Args:
            entry: the thing; what is long in it is cut.
            is_admin: an admin did it, or nobody is asked for an account.
        """
        entry = msgspec.structs.replace(
            entry,
            object=entry.object[:_OBJECT_CHARS_MAX],
            detail=entry.detail[:_DETAIL_CHARS_MAX],
        )
        self._keep(entry)
        if self._file is None:
            return
        # In ASCII: whoever looks at the file on a terminal sees escapes, and none acts there.
        text = json.dumps(msgspec.to_builtins(entry), separators=(",", ":"))
        line = text.encode("ascii") + b"\n"
        if self._has_line(entry, len(line), is_admin):
            try:
                self._file.write([line])
            except OSError as error:
                _log.error("audit file: {error}", error=error)

    def newest_first(self) -> list[AuditEntry]:
        """Returns all entries that there are now."""
        found = [one for part in self._entries.values() for one in part]
        found.sort(key=itemgetter(0), reverse=True)
        return [entry for _, entry in found]

    def _keep(self, entry: AuditEntry) -> None:
        self._last_number += 1
        self._entries.setdefault(_owner_of(entry), deque()).append((self._last_number, entry))
        self._count += 1
        if self._count > _ENTRIES_MAX:
            owner = max(self._entries, key=lambda one: len(self._entries[one]))
            self._entries[owner].popleft()
            self._count -= 1
            if not self._entries[owner]:
                del self._entries[owner]

    def _has_line(self, entry: AuditEntry, size: int, is_admin: bool) -> bool:
        is_idle = entry.outcome != "done" or entry.action == "view_message"
        if is_admin and not is_idle:
            return True
        if not 0 <= entry.at_ms - self._counted_since_ms < _MINUTE_MS or (
            len(self._counted) >= _COUNTED_MAX
        ):
            self._counted.clear()
            self._counted_since_ms = entry.at_ms
        owner = _owner_of(entry)
        lines, held = self._counted.get((owner, is_idle), (0, 0))
        has_room = lines < _LINES_MAX and held + size <= _LINE_BYTES_MAX
        if not has_room and lines <= _LINES_MAX:
            # One that is shorter does not come in afterwards.
            lines = _LINES_MAX
            _log.warn("audit file: more of {owner} in this minute is left out", owner=repr(owner))
        self._counted[owner, is_idle] = lines + 1, held + size
        return has_room


def _owner_of(entry: AuditEntry) -> str:
    """Whose place an entry takes: of who did not come in, anybody may have chosen the account."""
    is_unknown = entry.action == "sign_in" and entry.outcome == "refused"
    return network_of(entry.address) if is_unknown or not entry.account else entry.account


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
