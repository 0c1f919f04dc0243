"""Checks of a store from outside: log, index, consume queues, and equality of replicas.

Every check names the file, the place, what was found and what was expected. Only what is committed
(by the checkpoint) must be whole; a torn last entry behind it is told, but is no defect.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ledgermq.cli.store_walk import SEGMENT_NAME, StoreDirectory, StoreWalk
from ledgermq.dledger.entry import HEAD_BYTES, INDEX_UNIT, INDEX_UNIT_BYTES, EntrySlice
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.java_hash import java_string_hash
from ledgermq.protocol.properties import TAGS, find_property
from ledgermq.protocol.record import decode_record_head
from ledgermq.protocol.sysflag import is_queued

QUEUE_UNIT: Final = struct.Struct(">qiq")
# Defects of one store that are told one by one; the rest is counted.
DEFECTS_MAX: Final = 100
_TAGS: Final = TAGS.encode()


@dataclass(slots=True)
class StoreReport:
    """What one pass over a store found."""

    directory: Path
    first_index: int = 0
    last_index: int = -1
    last_term: int = -1
    committed_index: int | None = None
    entries: int = 0
    data_bytes: int = 0
    unfilled_checksums: int = 0
    queues: int = 0
    queue_units: int = 0
    index_units: int = 0
    defects: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # Position behind the last committed entry; what replicas are compared up to.
    committed_position: int = 0
    first_position: int = 0

    def add_defect(self, text: str) -> None:
        """Keeps a defect, up to a number that a person can read."""
        if len(self.defects) < DEFECTS_MAX:
            self.defects.append(text)


class _SegmentFiles:
    """Random reads from a run of segment files, read-only."""

    def __init__(self, paths: list[Path]) -> None:
        self._maps: dict[int, mmap.mmap] = {}
        self.size = paths[0].stat().st_size if paths else 0
        for path in paths:
            with open(path, "rb") as file:
                size = path.stat().st_size
                self._maps[int(path.name)] = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)

    def read(self, position: int, size: int) -> bytes | None:
        """Returns bytes of one segment; None where there is no file."""
        if not self.size:
            return None
        data = self._maps.get(position - position % self.size)
        return None if data is None else data[position % self.size : position % self.size + size]

    def end(self) -> int:
        """Position behind the last file."""
        return max(self._maps) + self.size if self._maps else 0

    def start(self) -> int:
        """Position of the first file."""
        return min(self._maps, default=0)

    def close(self) -> None:
        """Gives the mappings back."""
        for data in self._maps.values():
            data.close()


def check_store(store: StoreDirectory) -> StoreReport:
    """Walks one store and checks log, index and consume queues against each other."""
    report = StoreReport(store.ledger, committed_index=store.checkpoint())
    walk = StoreWalk(store)
    index = _SegmentFiles(store.segments("index"))
    queues: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
    limit = report.committed_index if report.committed_index is not None else -1
    try:
        for run in walk.runs():
            if report.entries == 0:
                report.first_position = run.position
            report.entries += run.count
            report.data_bytes += len(run.data)
            _check_index(run, index, report)
            _collect_units(run, limit, queues, report)
    finally:
        index.close()
    report.unfilled_checksums = walk.unfilled_count
    if walk.first_id is not None and walk.last_id is not None:
        report.first_index = walk.first_id.index
        report.last_index, report.last_term = walk.last_id.index, walk.last_id.term
    _judge_end(walk, report)
    _check_queues(store.root, queues, report)
    return report


def _judge_end(walk: StoreWalk, report: StoreReport) -> None:
    committed = report.committed_index
    if committed is None:
        report.notes.append("no checkpoint: nothing is known to be committed")
    elif committed > report.last_index:
        report.add_defect(
            f"the checkpoint says {committed} is committed, the log ends at {report.last_index}"
        )
    if walk.defect is not None:
        behind = committed is not None and report.last_index >= committed
        (report.notes.append if behind else report.add_defect)(walk.defect)


def _check_index(run: EntrySlice, index: _SegmentFiles, report: StoreReport) -> None:
    """Compares the index units of a run with its heads, all at once where they agree."""
    expected = bytearray()
    for i in range(run.first_index, run.last_index + 1):
        head = run.head_at(i)
        expected += INDEX_UNIT.pack(head.magic, head.position, head.size, head.index, head.term)
    position = run.first_index * INDEX_UNIT_BYTES
    done = 0
    while done < len(expected):
        rest = index.size - (position + done) % index.size if index.size else len(expected)
        size = min(rest, len(expected) - done)
        found = index.read(position + done, size)
        if found != bytes(expected[done : done + size]):
            report.add_defect(
                f"index units of entries {run.first_index}..{run.last_index} differ from the log"
            )
            return
        done += size
    report.index_units += run.count


def _collect_units(
    run: EntrySlice,
    limit: int,
    queues: dict[tuple[str, int], list[tuple[int, bytes]]],
    report: StoreReport,
) -> None:
    """Derives the consume-queue units that the committed entries of a run must have."""
    for i, body in enumerate(run.bodies()):
        index = run.first_index + i
        if index > limit:
            return
        position = run.position + run.starts[i]
        report.committed_position = position + HEAD_BYTES + len(body)
        try:
            head = decode_record_head(bytes(body))
        except RemoteProtocolError as error:
            report.add_defect(f"entry {index} holds no record: {error}")
            continue
        if head.physical_offset != position + HEAD_BYTES:
            report.add_defect(
                f"entry {index}: its record says physical offset {head.physical_offset}, "
                f"it stands at {position + HEAD_BYTES}"
            )
        if is_queued(head.sys_flag):
            tags = find_property(head.properties, _TAGS).decode(errors="replace")
            code = java_string_hash(tags) if tags else 0
            unit = QUEUE_UNIT.pack(head.physical_offset, head.size_bytes, code)
            key = (head.topic.decode(errors="replace"), head.queue_id)
            queues.setdefault(key, []).append((head.queue_offset, unit))


def _check_queues(
    root: Path, queues: dict[tuple[str, int], list[tuple[int, bytes]]], report: StoreReport
) -> None:
    for (topic, queue_id), units in sorted(queues.items()):
        report.queues += 1
        report.queue_units += len(units)
        name = f"{topic}-{queue_id}"
        for (before, _), (after, _) in zip(units, units[1:], strict=False):
            if after != before + 1:
                report.add_defect(f"queue {name}: offset {after} follows {before} in the log")
                break
        directory = root / "consumequeue" / topic / str(queue_id)
        if not directory.is_dir():
            report.notes.append(f"queue {name} has no files (they are made from the log)")
            continue
        paths = sorted(p for p in directory.iterdir() if SEGMENT_NAME.fullmatch(p.name))
        files = _SegmentFiles(paths)
        try:
            _check_queue_files(name, units, files, report)
        finally:
            files.close()


def _check_queue_files(
    name: str, units: list[tuple[int, bytes]], files: _SegmentFiles, report: StoreReport
) -> None:
    for queue_offset, unit in units:
        position = queue_offset * QUEUE_UNIT.size
        if position < files.start():
            continue
        found = files.read(position, QUEUE_UNIT.size)
        if found == unit:
            continue
        if found is None or found == bytes(QUEUE_UNIT.size):
            # What was committed a moment ago may not have reached the queue's file yet.
            report.notes.append(f"queue {name} ends at {queue_offset}, the log at {units[-1][0]}")
            return
        report.add_defect(
            f"queue {name} offset {queue_offset}: file says {QUEUE_UNIT.unpack(found)}, "
            f"log says {QUEUE_UNIT.unpack(unit)}"
        )


def compare_replicas(reports: list[StoreReport]) -> tuple[int, int, list[str]]:
    """Compares the data of replicas byte for byte over the range that all have committed.

    Returns:
        Start and end position of that range, and the differences found.
    """
    start = max(report.first_position for report in reports)
    end = min(report.committed_position for report in reports)
    if end <= start:
        return start, start, []
    differences = []
    first = list(_digests(reports[0], start, end))
    for report in reports[1:]:
        for (position, mine), (_, theirs) in zip(first, _digests(report, start, end), strict=True):
            if mine != theirs:
                differences.append(
                    f"{report.directory} differs from {reports[0].directory} "
                    f"within 1 MiB behind position {position}"
                )
                break
    return start, end, differences


def _digests(report: StoreReport, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yields (position, digest) of each MiB of the range."""
    files = _SegmentFiles(StoreDirectory(report.directory).segments())
    try:
        position = start
        while position < end:
            stop = min(end, position - position % 1_048_576 + 1_048_576)
            size = min(stop - position, files.size - position % files.size)
            yield position, hashlib.sha256(files.read(position, size) or b"").digest()
            position += size
    finally:
        files.close()
