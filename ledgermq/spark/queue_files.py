"""Consume queues of an audit: the units of the log against a store's files, and files made anew."""

import dataclasses
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from ledgermq.commitlog.config import DEFAULT_DELAYS_MS, SCHEDULE_TOPIC
from ledgermq.commitlog.derived_files import DerivedFiles
from ledgermq.commitlog.key_index import KeyIndex, KeyRow
from ledgermq.commitlog.layout import QUEUE_UNIT, QUEUE_UNIT_BYTES
from ledgermq.commitlog.queues import ConsumeQueues, is_queue_name
from ledgermq.commitlog.rows import may_be_delivery_time
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.spark.paths import file_size
from ledgermq.spark.segment_audit import QueueUnits, SegmentFindings

QueueName = tuple[str, int]

# A hash of tags is an int of 32 bits.
_HASH_MAX: Final = 2**31 - 1
_NOTHING: Final = bytes(QUEUE_UNIT_BYTES)
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
                queue.units += part.units
                continue
            if queue is not None:
                before_gaps.append((name, queue))
                gaps.append(
                    f"queue {name[0]}-{name[1]}: offset {part.first_offset} follows"
                    f" {queue.end_offset - 1} in {found.path}"
                )
            queues[name] = dataclasses.replace(part, units=bytearray(part.units))
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
        queues[name] = dataclasses.replace(run, units=bytearray(run.units))
    elif run.first_offset <= queue.end_offset < run.end_offset:
        queue.units += run.units[(queue.end_offset - run.first_offset) * QUEUE_UNIT_BYTES :]


def compare_queue(root: Path, name: QueueName, log: QueueUnits) -> tuple[str, str]:
    """Compares a queue's files with the units that the log has.

    Returns:
        A defect and a note, each "" when there is none. A queue that ends early, or has no files,
        is made from the log at the next start of its broker: that is a note. The time at which a
        delayed message is delivered may be another one than the log's units say: nothing in a store
        tells what messageDelayLevel was when it came.
    """
    if not is_queue_name(*name):
        # It would be a path to somewhere else.
        return f"a record names the queue {name[1]} of {name[0]!r}, which cannot be one", ""
    directory = root / "consumequeue" / name[0] / str(name[1])
    label = f"queue {name[0]}-{name[1]}"
    paths = sorted(directory.glob("[0-9]" * 20)) if directory.is_dir() else []
    if not paths:
        return "", f"{label} has no files"
    starts = {int(path.name): path for path in paths}
    for path in paths:
        # A size of no whole units leaves places between files, or none at all.
        found_bytes = file_size(str(path))
        if not found_bytes or found_bytes % QUEUE_UNIT_BYTES:
            return f"{path} has {found_bytes} bytes, no whole units", ""
    size = file_size(str(paths[0]))
    for offset, end, found in _pieces(starts, size, log.first_offset, log.end_offset):
        at = (offset - log.first_offset) * QUEUE_UNIT_BYTES
        expected = bytes(log.units[at : at + (end - offset) * QUEUE_UNIT_BYTES])
        first = None if found == expected else _first_other(name, found, expected)
        if first is not None:
            return _difference(directory, label, log, starts, size, offset + first)
    return "", ""


def _pieces(
    starts: dict[int, Path], size: int, first_offset: int, end_offset: int
) -> Iterator[tuple[int, int, bytes]]:
    """Yields the units of a queue file by file: first offset, end, and what is there of them."""
    while first_offset < end_offset:
        at = first_offset * QUEUE_UNIT_BYTES
        start = at - at % size
        end = min(end_offset, (start + size) // QUEUE_UNIT_BYTES)
        path = starts.get(start)
        data = b""
        if path is not None:
            with open(path, "rb") as file:
                file.seek(at - start)
                data = file.read(end * QUEUE_UNIT_BYTES - at)
        yield first_offset, end, data
        first_offset = end


def _first_other(name: QueueName, found: bytes, expected: bytes) -> int | None:
    """Returns the number of the first unit that is not as expected; None when all are."""
    for number in range(len(expected) // QUEUE_UNIT_BYTES):
        one, other = _unit(found, number), _unit(expected, number)
        if one != other and not _is_delayed_otherwise(name, one, other):
            return number
    return None


def _is_delayed_otherwise(name: QueueName, found: bytes, expected: bytes) -> bool:
    """Tells whether a unit differs only in the delay of its message."""
    topic, queue_id = name
    if topic != SCHEDULE_TOPIC or len(found) < QUEUE_UNIT_BYTES:
        return False
    *place, delivery_time = QUEUE_UNIT.unpack(found)
    *expected_place, expected_time = QUEUE_UNIT.unpack(expected)
    # The queue of a level has the number before it; a hash of tags is smaller than any time.
    delay_ms = DEFAULT_DELAYS_MS[min(queue_id, len(DEFAULT_DELAYS_MS) - 1)]
    return (
        place == expected_place
        and expected_time > _HASH_MAX
        and may_be_delivery_time(delivery_time, expected_time - delay_ms)
    )


def _unit(units: bytes | bytearray, number: int) -> bytes:
    return bytes(units[number * QUEUE_UNIT_BYTES : (number + 1) * QUEUE_UNIT_BYTES])


def _difference(
    directory: Path, label: str, log: QueueUnits, starts: dict[int, Path], size: int, offset: int
) -> tuple[str, str]:
    """Returns what is wrong from an offset on, as a defect and a note."""
    at = offset * QUEUE_UNIT_BYTES
    place = f"{directory}/{at - at % size:020d} at {at % size}"
    ((_, _, found),) = _pieces(starts, size, offset, offset + 1)
    if found not in (b"", _NOTHING):
        expected = _unit(log.units, offset - log.first_offset)
        return (
            f"{place}: {label} offset {offset} says {_shown(found)}, the log says"
            f" {_shown(expected)}"
        ), ""
    later = (part for _, _, part in _pieces(starts, size, offset + 1, log.end_offset))
    if any(part.strip(b"\0") for part in later):
        return f"{place}: {label} has a hole at offset {offset}", ""
    return "", f"{label} ends before offset {offset}, the log at {log.end_offset - 1}"


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
