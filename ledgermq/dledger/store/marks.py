"""Marks: what a store remembers about its log in small files beside `data/` and `index/`.

    checkpoint   upstream's: committedIndex (read at start), endIndex; its former content is kept in
                 checkpoint.bak
    start        ours: first_index and first_position of the log, so that it may begin inside a
                 segment; generation and durable_index, see below
    durable      ours: durable_index, up to which entries were on disk for certain when it was
                 written; committed_index; generation; checksums of the checkpoint written with it
                 and of the one before

`start` is written by the thread that appends, `checkpoint` and `durable` by the one that syncs. The
claim in `durable` holds when its generation is not below that of `start`; else the one in `start`
does: a truncation below a claim writes `start` first, with the next generation and what is left of
the claim. The checkpoint has no checksum of its own, and a flipped bit in it must not make entries
committed that are not: what is taken as committed is the lower one of it and of `durable`. No claim
holds when checkpoint and copy are none that `durable` names and can be read: Java ran here
meanwhile. So each opening sees to it that both fit: one that was damaged may be the only one that
is left when the disk errs again. A store that Java wrote has neither of our files.
"""

import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from ledgermq.dledger.store.filesystem import FileSystem
from ledgermq.dledger.store.text_file import format_lines, parse_int, parse_lines, seal, unseal

CHECKPOINT = "checkpoint"
START = "start"
DURABLE = "durable"
_START_KEYS = ("first_index", "first_position", "generation", "durable_index")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where the log begins."""

    first_index: int
    first_position: int
    # Claims of a lower generation are void.
    generation: int
    # Up to here entries were on disk for certain; -1: none.
    durable_index: int


class Marks:
    """Reads and replaces the marks of one store directory."""

    def __init__(self, file_system: FileSystem, directory: str) -> None:
        self._file_system = file_system
        self._directory = directory

    def read_start(self) -> Start | None:
        """Returns where the log begins, or None when that was never written or is unreadable."""
        values = unseal(self._read(START))
        if values is None:
            return None
        numbers = {key: parse_int(values, key) for key in _START_KEYS}
        if None in numbers.values():
            return None
        return Start(**{key: number or 0 for key, number in numbers.items()})

    def write_start(self, start: Start) -> None:
        """Replaces the mark; durable on return."""
        self._replace(START, seal({key: str(getattr(start, key)) for key in _START_KEYS}))

    def read_committed(self, start: Start | None) -> int:
        """Returns the committed index in the checkpoint, -1 when there is none.

        A checkpoint older than the latest truncation or reset counts only up to where that one
        began.

        Source: DLedgerMmapFileStore.loadCheckPoint. When the file is missing, as after a stop of
        Java between its delete and its rename, the former content serves.
        """
        for name in (CHECKPOINT, CHECKPOINT + ".bak"):
            committed = parse_int(parse_lines(self._read(name)), "committedIndex")
            if committed is None:
                continue
            if start is not None and start.generation > self._claimed_generation():
                return min(committed, start.durable_index)
            return committed
        return -1

    def read_durable(self, start: Start | None) -> int | None:
        """Returns up to which index entries were on disk for certain, or None when unknown."""
        data = self._read(DURABLE)
        if not data:
            return None if start is None else start.durable_index
        values = unseal(data)
        if values is None or not self._is_latest_claim(values):
            return None
        generation, index = parse_int(values, "generation"), parse_int(values, "durable_index")
        if generation is None or index is None:
            return None
        if start is not None and generation < start.generation:
            return start.durable_index
        return index

    def read_trusted_committed(self, start: Start | None) -> int:
        """Returns up to which index entries are committed for certain; -1 when nobody can say.

        A store that Java wrote has nothing to compare its checkpoint with.
        """
        committed = self.read_committed(start)
        data = self._read(DURABLE)
        if not data:
            return committed
        claimed = parse_int(unseal(data) or {}, "committed_index")
        return min(committed, claimed) if claimed is not None else -1

    def write_claim(self, generation: int, durable_index: int, committed_index: int) -> None:
        """Replaces `durable` and then the checkpoint; both are durable on return.

        Entries go on being written meanwhile. Were the claim void between the two, a power cut
        there would leave a store that cannot tell their torn tail from damage; so the claim names
        the former checkpoint, too.
        """
        former = self._read(CHECKPOINT)
        checkpoint = _checkpoint_of(durable_index, committed_index)
        if former == checkpoint:
            # Else the copy that Java makes of our checkpoint would be the one before this claim's.
            former += b"\n"
        self._replace(
            DURABLE,
            seal(
                {
                    "durable_index": str(durable_index),
                    "committed_index": str(committed_index),
                    "generation": str(generation),
                    "checkpoint_crc32": _crc_of(checkpoint),
                    "former_checkpoint_crc32": _crc_of(former),
                }
            ),
        )
        if former:
            self._replace(CHECKPOINT + ".bak", former)
        self._replace(CHECKPOINT, checkpoint)

    def mend_claim(self, start: Start | None) -> None:
        """Writes the claim in force anew where only one of checkpoint and copy fits it.

        The next claim would, but it waits for the next sync, maybe beyond further starts.

        Raises:
            DiskFullError: the claim holds as before.
        """
        claim = unseal(self._read(DURABLE)) or {}
        fits_checkpoint, fits_copy = self._fits(claim)
        if fits_checkpoint == fits_copy:
            return  # Nothing to mend; or nothing to mend it by.
        generation, durable_index, committed_index = (
            parse_int(claim, key) for key in ("generation", "durable_index", "committed_index")
        )
        if generation is None or durable_index is None or committed_index is None:
            return
        if start is not None and generation < start.generation:
            return
        if fits_copy:
            self._replace(CHECKPOINT, _checkpoint_of(durable_index, committed_index))
        else:
            self.write_claim(generation, durable_index, committed_index)

    def read_generation(self, start: Start | None) -> int:
        """Returns the highest generation that any mark names, 0 when none does."""
        return max(start.generation if start is not None else 0, self._claimed_generation())

    def _claimed_generation(self) -> int:
        return parse_int(unseal(self._read(DURABLE)) or {}, "generation") or 0

    def _is_latest_claim(self, claim: Mapping[str, str]) -> bool:
        """Tells whether nobody else wrote a checkpoint since; Java knows no claims.

        Whoever writes one keeps the one before as a copy. So a checkpoint that fits nothing beside
        a copy that is the one before this claim's is damaged, and no other's; likewise one that
        cannot be read.
        """
        if any(self._fits(claim)):
            return True
        # Java may have stopped between its delete and its rename.
        newest = self._read(CHECKPOINT) or self._read(CHECKPOINT + ".bak")
        return parse_int(parse_lines(newest), "committedIndex") is None

    def _fits(self, claim: Mapping[str, str]) -> tuple[bool, bool]:
        """Tells whether the checkpoint and its copy are those that the claim names."""
        former = claim.get("former_checkpoint_crc32")
        return (
            _crc_of(self._read(CHECKPOINT)) in (claim.get("checkpoint_crc32"), former),
            _crc_of(self._read(CHECKPOINT + ".bak")) == former,
        )

    def _read(self, name: str) -> bytes:
        return self._file_system.read(os.path.join(self._directory, name)) or b""

    def _replace(self, name: str, data: bytes) -> None:
        self._file_system.replace(os.path.join(self._directory, name), data)


def _checkpoint_of(durable_index: int, committed_index: int) -> bytes:
    return format_lines({"committedIndex": str(committed_index), "endIndex": str(durable_index)})


def _crc_of(checkpoint: bytes) -> str:
    return f"{zlib.crc32(checkpoint):08x}"
