"""Consume queues of an audit: the units of the log against a store's files, and files made anew."""

import dataclasses
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from ledgermq.commitlog.key_index import KeyIndex, KeyRow
from ledgermq.commitlog.layout import QUEUE_UNIT, QUEUE_UNIT_BYTES
from ledgermq.commitlog.open_files import OpenFiles
from ledgermq.commitlog.queues import ConsumeQueues
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.spark.segment_audit import QueueUnits, SegmentFindings

QueueName = tuple[str, int]

_NOTHING: Final = bytes(QUEUE_UNIT_BYTES)
_FILES_OPEN_MAX: Final = 512


def merged(findings: Iterable[SegmentFindings]) -> tuple[dict[QueueName, QueueUnits], list[str]]:
    """Returns the units of all queues over the files of one log, and the gaps between files.

    Args:
        findings: in order of the files.
    """
    queues: dict[QueueName, QueueUnits] = {}
    gaps = []
    for found in findings:
        for name, part in found.queues.items():
            queue = queues.get(name)
            if queue is not None and part.first_offset == queue.end_offset:
                queue.units += part.units
                continue
            if queue is not None:
                gaps.append(
                    f"queue {name[0]}-{name[1]}: offset {part.first_offset} follows"
                    f" {queue.end_offset - 1} in {found.path}"
                )
            queues[name] = dataclasses.replace(part, units=list(part.units))
    return queues, gaps


def compare_queue(root: Path, name: QueueName, log: QueueUnits) -> tuple[str, str]:
    """Compares a queue's files with the units that the log has.

    Returns:
        A defect and a note, each "" when there is none. A queue that ends early, or has no files,
        is made from the log at the next start of its broker: that is a note.
    """
    directory = root / "consumequeue" / name[0] / str(name[1])
    label = f"queue {name[0]}-{name[1]}"
    paths = sorted(directory.glob("[0-9]" * 20)) if directory.is_dir() else []
    if not paths:
        return "", f"{label} has no files"
    starts = {int(path.name): path for path in paths}
    size = paths[0].stat().st_size
    read = _reader(starts, size)
    for offset in range(log.first_offset, log.end_offset):
        found = read(offset)
        expected = log.units[offset - log.first_offset]
        if found == expected:
            continue
        at = offset * QUEUE_UNIT_BYTES
        place = f"{directory}/{at - at % size:020d} at {at % size}"
        if found not in (b"", _NOTHING):
            return f"{place}: {label} offset {offset} says {_shown(found)}, the log" + (
                f" says {_shown(expected)}"
            ), ""
        if any(read(later) not in (b"", _NOTHING) for later in range(offset + 1, log.end_offset)):
            return f"{place}: {label} has a hole at offset {offset}", ""
        return "", f"{label} ends before offset {offset}, the log at {log.end_offset - 1}"
    return "", ""


def _reader(starts: dict[int, Path], size: int) -> Callable[[int], bytes]:
    """Returns a function from offset to unit; it holds one file at a time."""
    held: tuple[int, bytes] = (-1, b"")

    def read(offset: int) -> bytes:
        nonlocal held
        at = offset * QUEUE_UNIT_BYTES
        start = at - at % size
        if held[0] != start:
            path = starts.get(start)
            held = (start, path.read_bytes() if path is not None else b"")
        return held[1][at - start : at - start + QUEUE_UNIT_BYTES]

    return read


def _shown(unit: bytes) -> str:
    if len(unit) < QUEUE_UNIT_BYTES:
        return f"only {len(unit)} bytes"
    physical_offset, size, tags_code = QUEUE_UNIT.unpack(unit)
    return f"{size} bytes at {physical_offset}, tags code {tags_code}"


def write_queues(directory: Path, queues: dict[QueueName, QueueUnits], segment_bytes: int) -> int:
    """Writes consume queues as a broker does and returns the number of their units.

    Args:
        directory: gets consumequeue/; must not hold one yet.
        queues: units by queue.
        segment_bytes: size of a file, mappedFileSizeConsumeQueue.
    """
    file_system = RealFileSystem()
    files = OpenFiles(file_system, _FILES_OPEN_MAX)
    made = ConsumeQueues(file_system, str(directory / "consumequeue"), files, segment_bytes)
    count = 0
    for (topic, queue_id), units in sorted(queues.items()):
        made.get(topic, queue_id).put(units.first_offset, b"".join(units.units), -1)
        count += len(units.units)
        _sync(files)
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
    files = OpenFiles(file_system, _FILES_OPEN_MAX)
    index = KeyIndex(file_system, str(directory / "index"), files, slot_count, entry_count)
    rows = list(keys)
    index.add(rows, time.time_ns() // 1_000_000)
    _sync(files)
    files.close()
    return len(rows)


def _sync(files: OpenFiles) -> None:
    """Syncs what was written, so that files may be closed again."""
    written, _ = files.take_dirty()
    for file in written:
        file.sync()
    files.synced()
