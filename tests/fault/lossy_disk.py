"""A disk in memory that can stop at any operation, and lose at a power cut what was not synced.

Mapped files are written without telling anybody, as real mappings are; what differs from the synced
content in a 512-byte sector is kept or lost sector by sector. Names that were made or removed
without a sync of their directory are kept or lost one by one. A replaced file has its old content
or its new one.
"""

import random
from collections.abc import Iterator

from ledgermq.dledger.store.errors import DiskFullError

_SECTOR_BYTES = 512


class Stopped(Exception):
    """The machine stopped before an operation."""


class LossyFile:
    """A mapped file: what programs see, and what is on the platter."""

    def __init__(self, disk: "LossyDisk", size_bytes: int) -> None:
        self.disk = disk
        self.content = bytearray(size_bytes)
        self.durable = bytes(size_bytes)
        self.buffer = memoryview(self.content)

    def sync(self) -> None:
        self.disk.step("sync")
        self.durable = bytes(self.content)

    def rewrite(self, offset: int, end: int) -> None:
        """No write of this disk fails and counts as done."""

    def written_ranges(self, offset: int) -> Iterator[tuple[int, int]]:
        yield offset, len(self.content)

    def close(self) -> None:
        """The mapping of a stopped program is gone; the content stays."""

    def tear(self, rng: random.Random) -> None:
        kept = bytearray(self.durable)
        survival = rng.choice([0.0, 0.1, 0.5, 0.9, 1.0])
        for at in range(0, len(kept), _SECTOR_BYTES):
            if rng.random() < survival:
                kept[at : at + _SECTOR_BYTES] = self.content[at : at + _SECTOR_BYTES]
        self.content[:] = kept
        self.durable = bytes(kept)


class LossyDisk:
    """A FileSystem whose faults are drawn by the test."""

    def __init__(self) -> None:
        self.files: dict[str, LossyFile] = {}
        self.texts: dict[str, bytes] = {}
        # Names as they would be after a power cut.
        self.durable_names: dict[str, LossyFile] = {}
        # Operations seen, and the one before which the machine stops.
        self.steps: list[str] = []
        self.stop_at: int | None = None
        # Raised by the next operations of that kind.
        self.errors: dict[str, OSError] = {}
        self.free_bytes: int | None = None

    def step(self, kind: str) -> None:
        if len(self.steps) == self.stop_at:
            raise Stopped(kind)
        self.steps.append(kind)
        if kind in self.errors:
            raise self.errors[kind]

    def cut_power(self, rng: random.Random) -> None:
        for name in sorted(set(self.files) ^ set(self.durable_names)):
            if rng.random() < 0.5:
                continue
            if name in self.files:
                del self.files[name]
            else:
                self.files[name] = self.durable_names[name]
        for name in sorted(self.files):
            self.files[name].tear(rng)
        self.durable_names = dict(self.files)

    def make_directory(self, path: str) -> None:
        self.step("make_directory")

    def names(self, directory: str) -> list[str]:
        paths = [*self.files, *self.texts]
        inside = [path[len(directory) + 1 :] for path in paths if path.startswith(directory + "/")]
        return sorted({name.partition("/")[0] for name in inside})

    def size_bytes(self, path: str) -> int:
        if path not in self.files:
            raise FileNotFoundError(path)
        return len(self.files[path].content)

    def modified_ms(self, path: str) -> int:
        return 0

    def create(self, path: str, size_bytes: int) -> LossyFile:
        self.step("create")
        if self.free_bytes is not None and size_bytes > self.free_bytes:
            raise DiskFullError(path, size_bytes)
        self.files[path] = LossyFile(self, size_bytes)
        return self.files[path]

    def map(self, path: str) -> LossyFile:
        return self.files[path]

    def read(self, path: str) -> bytes | None:
        if path in self.files:
            return bytes(self.files[path].content)
        return self.texts.get(path)

    def replace(self, path: str, data: bytes) -> None:
        self.step("replace")
        if self.free_bytes is not None and len(data) > self.free_bytes:
            raise DiskFullError(path, len(data))
        self.texts[path] = data

    def remove(self, path: str) -> None:
        self.step("remove")
        if path in self.files:
            del self.files[path]
        else:
            del self.texts[path]

    def sync_directory(self, directory: str) -> None:
        self.step("sync_directory")
        inside = directory + "/"
        self.durable_names = {
            **{path: file for path, file in self.durable_names.items() if inside not in path},
            **{path: file for path, file in self.files.items() if path.startswith(inside)},
        }
