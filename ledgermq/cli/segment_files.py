"""Random reads from the files of one log, from outside and read-only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Self

from ledgermq.dledger.store.outside_files import OutsideFile, regular_size

SEGMENT_NAME: Final = re.compile(r"\d{20}")


def segment_paths(directory: Path) -> list[Path]:
    """Segment files of a directory in the order of their start; none where there is none.

    Raises:
        FileRefusedError: one of them is no regular file, or is too large for one of a log.
    """
    if not directory.is_dir():
        return []
    paths = sorted(path for path in directory.iterdir() if SEGMENT_NAME.fullmatch(path.name))
    for path in paths:
        regular_size(path)
    return paths


class SegmentFiles:
    """The files of one log as one range of bytes, with holes where files are missing."""

    def __init__(self, paths: list[Path]) -> None:
        """Opens the files; those that are empty count as missing."""
        self._files: dict[int, OutsideFile] = {}
        self._paths: dict[int, Path] = {}
        # Size of each file: all are made alike, so the first one that has bytes tells.
        self.segment_bytes = 0
        for path in paths:
            size = path.stat().st_size
            if size:
                self.segment_bytes = self.segment_bytes or size
                self._files[int(path.name)] = OutsideFile(path)
                self._paths[int(path.name)] = path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    @property
    def start(self) -> int:
        """Position of the first byte; 0 without files."""
        return min(self._files, default=0)

    @property
    def end(self) -> int:
        """Position behind the last byte; 0 without files."""
        if not self._files:
            return 0
        last = max(self._files)
        return last + len(self._files[last])

    def read(self, position: int, size: int) -> bytes:
        """Returns up to `size` bytes from a position; fewer where files end or are missing.

        Raises:
            UnreadableError: the disk does not give them.
        """
        parts = []
        while size > 0 and self.segment_bytes:
            offset = position % self.segment_bytes
            file = self._files.get(position - offset)
            part = file[offset : offset + size] if file is not None else b""
            if not part:
                break
            parts.append(part)
            position += len(part)
            size -= len(part)
        return b"".join(parts)

    def next_start(self, position: int) -> int:
        """Start of the first file that begins behind a position; the end where none does."""
        return min((start for start in self._files if start > position), default=self.end)

    def place(self, position: int) -> str:
        """The file and the offset in it where a position is, as a person would look for it."""
        offset = position % self.segment_bytes if self.segment_bytes else position
        path = self._paths.get(position - offset)
        return f"{path} at {offset}" if path is not None else f"a missing file, position {position}"
