"""Compares the replicas of a group byte by byte, from their files, without the product's code.

A member's store is `dledger-<id>/`: `data/` with entries, `index/` with one 32-byte unit for each
(4 magic, 8 position, 4 size, 8 index, 8 term), and `checkpoint`, whose committedIndex says how far
the member knew its log to be final.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_UNIT: Final = struct.Struct(">iqiqq")
_BLOCK_BYTES: Final = 4 * 1024 * 1024


@dataclass(slots=True, frozen=True, kw_only=True)
class Comparison:
    """What was compared."""

    # Committed index of each member, by the name of its directory.
    committed: dict[str, int]
    # The log was compared in [0, compared_bytes).
    compared_bytes: int
    # First position at which two members differ; None when they do not.
    first_difference: int | None


class LogFiles:
    """The files of one directory as one run of bytes."""

    def __init__(self, directory: Path) -> None:
        self._files = sorted(path for path in directory.iterdir() if path.name.isdigit())
        assert self._files, f"{directory} holds no log"
        self._size = self._files[0].stat().st_size
        self._first = int(self._files[0].name)

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes at `position`; fewer only at the end of the last file."""
        parts = []
        while size > 0:
            number, offset = divmod(position - self._first, self._size)
            if not 0 <= number < len(self._files):
                break
            with self._files[number].open("rb") as file:
                file.seek(offset)
                part = file.read(min(size, self._size - offset))
            parts.append(part)
            position += len(part)
            size -= len(part)
        return b"".join(parts)


def find_members(data: Path) -> list[Path]:
    """Return the `dledger-*` directories below a directory."""
    return sorted(path for path in data.rglob("dledger-*") if path.is_dir())


def committed_index(member: Path) -> int:
    """Return the committed index of a member's checkpoint."""
    lines = (member / "checkpoint").read_text().splitlines()
    return int(dict(line.split("=", 1) for line in lines if "=" in line)["committedIndex"])


def compare(members: list[Path]) -> Comparison:
    """Compare data and index of all members up to the smallest committed entry."""
    committed = {member.name: committed_index(member) for member in members}
    last_index = min(committed.values())
    logs = [LogFiles(member / "data") for member in members]
    indexes = [LogFiles(member / "index") for member in members]
    unit = indexes[0].read(last_index * _UNIT.size, _UNIT.size)
    _magic, position, size, index, _term = _UNIT.unpack(unit)
    assert index == last_index, f"the unit of entry {last_index} names {index}"
    end = position + size
    difference = _first_difference(indexes, (last_index + 1) * _UNIT.size)
    if difference is None:
        difference = _first_difference(logs, end)
    return Comparison(committed=committed, compared_bytes=end, first_difference=difference)


def _first_difference(runs: list[LogFiles], end: int) -> int | None:
    for position in range(0, end, _BLOCK_BYTES):
        blocks = [run.read(position, min(_BLOCK_BYTES, end - position)) for run in runs]
        for block in blocks[1:]:
            if block != blocks[0]:
                pairs = zip(block, blocks[0], strict=False)
                same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(map(len, blocks)))
                return position + same
    return None
