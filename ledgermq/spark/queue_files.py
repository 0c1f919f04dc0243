"""Consume queues of an audit: the units of a log's files put together, and files made of them."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from ledgermq.commitlog.derived_files import DerivedFiles
from ledgermq.commitlog.key_index import KeyIndex, KeyRow
from ledgermq.commitlog.queues import ConsumeQueues, is_queue_name
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.spark.segment_audit import QueueName, QueueUnits, SegmentFindings

_FILES_OPEN_MAX: Final = 512


class MergedQueues(NamedTuple):
    """The units of all queues over the files of one log."""

    # Of each queue, those behind its last gap.
    queues: dict[QueueName, QueueUnits]
    # Those before a gap, which may be a file that is damaged.
    before_gaps: list[tuple[QueueName, QueueUnits]]
    gaps: list[str]


def merged(findings: Iterable[SegmentFindings]) -> MergedQueues:
    """Returns the units of all queues over the files of one log, and the gaps between files.

    Args:
        findings: in order of the files.
    """
    queues: dict[QueueName, QueueUnits] = {}
    before_gaps: list[tuple[QueueName, QueueUnits]] = []
    gaps = []
    for found in findings:
        for name, part in found.queues.items():
            queue = queues.get(name)
            if queue is not None and part.first_offset == queue.end_offset:
                queue.go_on_with(part)
                continue
            if queue is not None:
                before_gaps.append((name, queue))
                gaps.append(
                    f"queue {name[0]}-{name[1]}: offset {part.first_offset} follows"
                    f" {queue.end_offset - 1} in {found.path}"
                )
            queues[name] = QueueUnits(first_offset=part.first_offset)
            queues[name].go_on_with(part)
        for name, runs in found.light.items():
            for run in runs:
                _put_light(queues, name, run)
    return MergedQueues(queues, before_gaps, gaps)


def _put_light(queues: dict[QueueName, QueueUnits], name: QueueName, run: QueueUnits) -> None:
    """Puts units into a light queue where it goes on, as brokers do; others are left out.

    A Java broker of 4.9.3 begins to count at 0 again after its restart.
    """
    queue = queues.get(name)
    if queue is None:
        queue = queues[name] = QueueUnits(first_offset=run.first_offset)
    if run.first_offset <= queue.end_offset < run.end_offset:
        queue.go_on_with(run)


def without_units(log: QueueUnits) -> QueueUnits:
    """Returns units without those that need no other look."""
    if not log.units:
        return log
    found = QueueUnits(first_offset=log.first_offset, unlike=log.unlike)
    found.count = log.count
    return found


def write_queues(directory: Path, queues: dict[QueueName, QueueUnits], segment_bytes: int) -> int:
    """Writes consume queues as a broker does and returns the number of their units.

    Args:
        directory: gets consumequeue/; must not hold one yet.
        queues: units by queue.
        segment_bytes: size of a file, mappedFileSizeConsumeQueue.
    """
    file_system = RealFileSystem()
    files = DerivedFiles(file_system, _FILES_OPEN_MAX)
    made = ConsumeQueues(file_system, str(directory / "consumequeue"), files, segment_bytes)
    count = 0
    for (topic, queue_id), units in sorted(queues.items()):
        if not is_queue_name(topic, queue_id):
            continue
        made.get(topic, queue_id).put(units.first_offset, bytes(units.units), -1)
        count += units.end_offset - units.first_offset
        files.write_out()
    files.close()
    return count


def write_key_index(
    directory: Path, keys: Iterable[KeyRow], slot_count: int, entry_count: int
) -> int:
    """Writes key index files as a broker does and returns the number of their entries.

    Args:
        directory: gets index/.
        keys: in order of the log.
        slot_count: of each file, maxHashSlotNum.
        entry_count: of each file, maxIndexNum.
    """
    file_system = RealFileSystem()
    files = DerivedFiles(file_system, _FILES_OPEN_MAX)
    index = KeyIndex(file_system, str(directory / "index"), files, slot_count, entry_count)
    rows = list(keys)
    index.add(rows, time.time_ns() // 1_000_000)
    index.settle()
    files.write_out()
    files.close()
    return len(rows)
