"""RepairMark: what a member must remember about damage of its store until that is repaired.

    repair    reason=, recovering=, crc32=

There are two kinds. A *suspect* store gave bytes that do not fit their checksum while it was open:
the next opening verifies all of it, and not its end alone. A *recovering* member has lost something
that it may have acknowledged, or what it voted for: it gives no vote and counts for nothing until
it has caught up with its group, over any number of restarts. An unreadable mark means recovering.
"""

import os
from typing import NamedTuple

from ledgermq.dledger.store.filesystem import FileSystem
from ledgermq.dledger.store.text_file import seal, unseal

REPAIR = "repair"


class Repair(NamedTuple):
    """What is to be repaired."""

    # What was found, for a person.
    reason: str
    # False: suspect.
    is_recovering: bool


class RepairMark:
    """The mark in one store directory."""

    def __init__(self, file_system: FileSystem, directory: str) -> None:
        self._file_system = file_system
        self._directory = directory
        self._path = os.path.join(directory, REPAIR)

    def read(self) -> Repair | None:
        """Returns the mark, or None in a store without damage."""
        data = self._file_system.read(self._path)
        if data is None:
            return None
        values = unseal(data)
        if values is None:
            return Repair("the mark of an earlier repair cannot be read", True)
        return Repair(values.get("reason", ""), values.get("recovering") != "0")

    def suspect(self, reason: str) -> None:
        """Has the next opening verify everything; a recovering store stays so. Durable."""
        known = self.read()
        if known is None:
            self._write(reason, is_recovering=False)

    def begin_recovery(self, reason: str) -> None:
        """Makes the member a recovering one; durable on return."""
        known = self.read()
        if known is None or not known.is_recovering:
            self._write(reason, is_recovering=True)

    def clear(self) -> None:
        """The store is as good as any; durable on return."""
        if self._file_system.read(self._path) is not None:
            self._file_system.remove(self._path)
            self._file_system.sync_directory(self._directory)

    def _write(self, reason: str, *, is_recovering: bool) -> None:
        self._file_system.make_directory(self._directory)
        line = " ".join(reason.split())
        values = {"reason": line, "recovering": "1" if is_recovering else "0"}
        self._file_system.replace(self._path, seal(values))
