"""Equality of replicas: their data logs byte for byte, as far as all of them have committed."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from ledgermq.cli.segment_files import SegmentFiles, segment_paths

_PIECE_BYTES: Final = 1024 * 1024


class Extent(NamedTuple):
    """The folder of a replica's log, and which positions of it are committed."""

    directory: Path
    start_position: int
    end_position: int


def compare_replicas(replicas: list[Extent]) -> tuple[int, int, list[str]]:
    """Compares the replicas with the first of them.

    Returns:
        Start and end of the range that all have committed (equal when there is none), and a text
        for each replica that differs, with the first byte where it does.
    """
    start = max(replica.start_position for replica in replicas)
    end = max(start, min(replica.end_position for replica in replicas))
    differences = []
    with SegmentFiles(segment_paths(replicas[0].directory)) as first:
        for replica in replicas[1:]:
            with SegmentFiles(segment_paths(replica.directory)) as other:
                position = _first_difference(first, other, start, end)
                if position is not None:
                    differences.append(
                        f"{other.place(position)} differs from {first.place(position)} "
                        f"(position {position} of the log)"
                    )
    return start, end, differences


def _first_difference(one: SegmentFiles, other: SegmentFiles, start: int, end: int) -> int | None:
    """Position of the first byte that differs or is missing in one of them; None when none does."""
    for position in range(start, end, _PIECE_BYTES):
        size = min(_PIECE_BYTES, end - position)
        mine, theirs = one.read(position, size), other.read(position, size)
        if mine == theirs and len(mine) == size:
            continue
        if mine == theirs:
            return position + len(mine)
        pairs = zip(mine, theirs, strict=False)
        shorter = min(len(mine), len(theirs))
        return position + next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)
    return None
