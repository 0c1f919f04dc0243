"""A state file of the broker on a simulated disk."""

from typing import Final

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

    @property
    def name(self) -> str:
        """Without its folder."""
        return self._path.rpartition("/")[2]

    def read(self, *, copy: bool = False) -> bytes | None:
        """Returns what was written last, None when nothing was; there is no copy."""
        return None if copy else self._disk.read(self._path)

    def set_aside(self) -> None:
        """The simulation does not read it."""

    def check(self, size_bytes: int) -> None:
        """All tables of a simulation fit."""

    def write(self, content: bytes, *, is_durable: bool) -> None:
        """Replaces the content."""
        self._disk.replace(self._path, content)
        self.is_durable = True
