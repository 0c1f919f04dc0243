"""A state file of the broker on a simulated disk."""

from typing import Any, Final

from ledgermq.broker.storage.state_files import parse_tolerant
from ledgermq.testing.simulation.disk import SimDisk

_FOLDER: Final = "/store/config"


class SimStateFile:
    """One file; each write of it is durable."""

    def __init__(self, disk: SimDisk, name: str) -> None:
        self._disk = disk
        self._path = f"{_FOLDER}/{name}"
        self.is_durable = False

    def __str__(self) -> str:
        return self._path

    def check(self, size_bytes: int) -> None:
        """All tables of a simulation fit."""

    def write(self, content: bytes, *, is_durable: bool) -> None:
        """Replaces the content."""
        self._disk.replace(self._path, content)
        self.is_durable = True

    def load(self) -> Any:
        """Returns what was written last, None when nothing was."""
        content = self._disk.read(self._path)
        return parse_tolerant(content.decode("utf-8")) if content else None
