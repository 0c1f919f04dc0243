"""Checks of a store from outside: its log, index and consume queues against each other.

Every check names the file, the place, what was found and what was expected. Only what is committed
(by the checkpoint) must be whole; a torn last entry behind it is told, but is no defect. A broker
may run on the store meanwhile: what it adds behind the checkpoint read at the start does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ledgermq.cli.queue_check import QueueCheck
from ledgermq.cli.replica_compare import Extent
from ledgermq.cli.segment_files import SegmentFiles
from ledgermq.cli.store_walk import StoreDirectory, StoreWalk
from ledgermq.dledger.entry import HEAD_BYTES, INDEX_UNIT, INDEX_UNIT_BYTES, EntrySlice
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.record import decode_record_head

# Defects of one store that are told one by one; the rest is counted.
DEFECTS_MAX: Final = 100


@dataclass(slots=True)
class StoreReport:
    """What one pass over a store found."""

    # The ledger's, or the folder of a plain log.
    directory: Path
    is_plain: bool = False
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
    # All that were found, also those that are not told.
    defect_count: int = 0
    notes: list[str] = field(default_factory=list)
    # Position behind the last committed entry; what replicas are compared up to.
    committed_position: int = 0
    first_position: int = 0

    @property
    def extent(self) -> Extent:
        """The committed range of the log, for a comparison with other replicas."""
        folder = self.directory if self.is_plain else self.directory / "data"
        return Extent(folder, self.first_position, self.committed_position)

    def add_defect(self, text: str) -> None:
        """Keeps a defect, up to a number that a person can read."""
        self.defect_count += 1
        if len(self.defects) < DEFECTS_MAX:
            self.defects.append(text)


def check_store(
    store: StoreDirectory, tell: Callable[[int, int], object] = lambda count, size: None
) -> StoreReport:
    """Walks one store and checks log, index and consume queues against each other.

    Args:
        store: may be in use.
        tell: told of entries that are checked, and their bytes.

    Raises:
        OSError: a file cannot be read.
    """
    report = StoreReport(store.ledger, committed_index=store.checkpoint())
    walk = StoreWalk(store)
    queues = QueueCheck(report.add_defect, report.notes.append)
    with SegmentFiles(store.segments("index")) as index:
        for run in walk.runs():
            if report.entries == 0:
                report.first_position = report.committed_position = run.position
            report.entries += run.count
            report.data_bytes += len(run.data)
            _check_index(run, index, report)
            _check_records(run, queues, report)
            tell(run.count, len(run.data))
    report.unfilled_checksums = walk.unfilled_count
    if walk.first_id is not None and walk.last_id is not None:
        report.first_index = walk.first_id.index
        report.last_index, report.last_term = walk.last_id.index, walk.last_id.term
    _judge_end(walk, report)
    report.queues, report.queue_units = queues.queue_count, queues.unit_count
    queues.check_files(store.root, report.committed_position)
    return report


def _judge_end(walk: StoreWalk, report: StoreReport) -> None:
    committed = report.committed_index
    if committed is None:
        report.notes.append("no checkpoint: nothing is known to be committed")
    elif committed > report.last_index:
        report.add_defect(
            f"the checkpoint says {committed} is committed, the log ends at {report.last_index}: "
            f"{walk.end_place}"
        )
    if walk.defect is not None:
        behind = committed is None or report.last_index >= committed
        (report.notes.append if behind else report.add_defect)(walk.defect)


def _check_index(run: EntrySlice, index: SegmentFiles, report: StoreReport) -> None:
    """Compares the index units of a run with its heads, all at once where they agree."""
    expected = bytearray()
    for i in range(run.first_index, run.last_index + 1):
        head = run.head_at(i)
        expected += INDEX_UNIT.pack(head.magic, head.position, head.size, head.index, head.term)
    start = run.first_index * INDEX_UNIT_BYTES
    found = index.read(start, len(expected))
    if found == expected:
        report.index_units += run.count
        return
    differing = (
        i
        for i in range(run.count)
        if found[i * INDEX_UNIT_BYTES : (i + 1) * INDEX_UNIT_BYTES]
        != expected[i * INDEX_UNIT_BYTES : (i + 1) * INDEX_UNIT_BYTES]
    )
    first = next(differing)
    report.index_units += first
    unit = found[first * INDEX_UNIT_BYTES : (first + 1) * INDEX_UNIT_BYTES]
    wanted = INDEX_UNIT.unpack_from(expected, first * INDEX_UNIT_BYTES)
    text = (
        f"index unit of entry {run.first_index + first}: "
        f"{index.place(start + first * INDEX_UNIT_BYTES)} says "
        f"{INDEX_UNIT.unpack(unit) if len(unit) == INDEX_UNIT_BYTES else 'nothing'}, "
        f"the log (magic, position, size, index, term) {wanted}"
    )
    # The index of what a running broker appends may come an instant after the entry.
    is_committed = run.first_index + first <= _committed(report)
    (report.add_defect if is_committed else report.notes.append)(text)


def _committed(report: StoreReport) -> int:
    return -1 if report.committed_index is None else report.committed_index


def _check_records(run: EntrySlice, queues: QueueCheck, report: StoreReport) -> None:
    """Looks into the records of the committed entries of a run."""
    limit = _committed(report)
    for i, body in enumerate(run.bodies()):
        index = run.first_index + i
        if index > limit:
            return
        position = run.position + run.starts[i]
        report.committed_position = position + HEAD_BYTES + len(body)
        try:
            head = decode_record_head(bytes(body))
        except RemoteProtocolError as error:
            report.add_defect(f"entry {index} at position {position} holds no record: {error}")
            continue
        if head.physical_offset != position + HEAD_BYTES:
            report.add_defect(
                f"entry {index}: its record says physical offset {head.physical_offset}, "
                f"it stands at {position + HEAD_BYTES}"
            )
        queues.add(head)
