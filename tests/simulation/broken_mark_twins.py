"""Mistakes with files that say what others hold, planted into the product's classes."""

from typing import Any

from ledgermq.commitlog.checkpoint import (
    STORE_CHECKPOINT,
    STORE_CHECKPOINT_BYTES,
    Checkpoints,
    encode_mark,
)
from ledgermq.dledger.store.vote_file import VoteFile
from tests.simulation.broken_twins import Patch


def cut_saves_of_votes_not_ended() -> list[Patch]:
    """A start knows the vote from the one file, and leaves the other as it is."""
    return [(VoteFile, "_end_save", lambda self, state: None)]


def mark_before_the_last_file() -> list[Patch]:
    """The mark stands before the flush has found room for all of its files."""

    def write(self: Any, mark: Any) -> None:
        self._file_system.replace(self._mark_path, encode_mark(mark))
        times = STORE_CHECKPOINT.pack(mark.timestamp, mark.timestamp, mark.index_timestamp)
        data = times.ljust(STORE_CHECKPOINT_BYTES, b"\0")
        self._file_system.replace(self._upstream_path, data)

    return [(Checkpoints, "write", write)]
