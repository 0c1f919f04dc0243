"""Compares the units that a log says its consume queues have with the files of these queues.

Each segment file has its part of each queue, and the task that walks over it compares that part:
what is equal need not travel. Which of the parts count, and what follows from one that is unlike,
shows only when all are put together; then one more look at that queue says what is wrong.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ledgermq.commitlog.config import DEFAULT_DELAYS_MS, SCHEDULE_TOPIC
from ledgermq.commitlog.layout import QUEUE_UNIT, QUEUE_UNIT_BYTES
from ledgermq.commitlog.queues import is_queue_name
from ledgermq.commitlog.rows import may_be_delivery_time
from ledgermq.spark.paths import file_size
from ledgermq.spark.segment_audit import QueueName, QueueUnits, SegmentFindings

# A hash of tags is an int of 32 bits.
_HASH_MAX: Final = 2**31 - 1
_NOTHING: Final = bytes(QUEUE_UNIT_BYTES)


def compare_units(root: Path, found: SegmentFindings, *, keeps_units: bool) -> None:
    """Notes which units of a segment file the files of their queues have otherwise, or not at all.

    Args:
        root: the store directory, with consumequeue/.
        found: in the segment file; its units are dropped.
        keeps_units: whether they are not.

    Raises:
        PathNotSeenError: a file is not there any more.
        CorruptDataError: a file is no regular one.
    """
    parts = [(name, units, False) for name, units in found.queues.items()]
    parts += [(name, units, True) for name, runs in found.light.items() for units in runs]
    for name, units, is_light in parts:
        offset = _first_unlike(root, name, units)
        if offset is not None:
            at = (offset - units.first_offset) * QUEUE_UNIT_BYTES
            # Of a light queue units may be left out that are before those that count.
            end = len(units.units) if is_light else at + QUEUE_UNIT_BYTES
            units.unlike.append((offset, bytes(units.units[at:end])))
    if not keeps_units:
        drop_units(found)


def drop_units(found: SegmentFindings) -> None:
    """Keeps of the queues in a segment file where they begin and end there."""
    light = [units for runs in found.light.values() for units in runs]
    for units in (*found.queues.values(), *light):
        units.units = bytearray()


def _first_unlike(root: Path, name: QueueName, log: QueueUnits) -> int | None:
    """Returns the first offset at which a queue's files are not as the log's units."""
    starts = {} if not is_queue_name(*name) else _files_of(root, name)
    if not starts or _odd_size(starts):
        # What is wrong, if it is, is wrong for the whole queue.
        return log.first_offset
    size = file_size(str(starts[min(starts)]))
    for offset, end, found in _pieces(starts, size, log.first_offset, log.end_offset):
        at = (offset - log.first_offset) * QUEUE_UNIT_BYTES
        expected = bytes(log.units[at : at + (end - offset) * QUEUE_UNIT_BYTES])
        first = None if found == expected else _first_other(name, found, expected)
        if first is not None:
            return offset + first
    return None


def judge_queue(root: Path, name: QueueName, log: QueueUnits) -> tuple[str, str]:
    """Says what is wrong with a queue that has units unlike those of its log.

    Args:
        root: the store directory, with consumequeue/.
        name: of the queue.
        log: over the files of the log; only what was noted as unlike is looked at.

    Returns:
        A defect and a note, each "" when there is none. A queue that ends early, or has no files,
        is made from the log at the next start of its broker: that is a note. The time at which a
        delayed message is delivered may be another one than the log's units say: nothing in a store
        tells what messageDelayLevel was when it came.
    """
    if not is_queue_name(*name):
        # It would be a path to somewhere else.
        return f"a record names the queue {name[1]} of {name[0]!r}, which cannot be one", ""
    label = f"queue {name[0]}-{name[1]}"
    starts = _files_of(root, name)
    if not starts:
        return "", f"{label} has no files"
    odd = _odd_size(starts)
    if odd:
        return odd, ""
    for offset, units in log.unlike:
        part = QueueUnits(first_offset=offset, units=bytearray(units))
        unlike = _first_unlike(root, name, part)
        if unlike is not None:
            at = (unlike - offset) * QUEUE_UNIT_BYTES
            expected = units[at : at + QUEUE_UNIT_BYTES]
            directory = starts[min(starts)].parent
            return _difference(directory, label, log, starts, unlike, expected)
    return "", ""


def _files_of(root: Path, name: QueueName) -> dict[int, Path]:
    """Returns the files of a queue by the position of their first byte."""
    directory = root / "consumequeue" / name[0] / str(name[1])
    paths = directory.glob("[0-9]" * 20) if directory.is_dir() else ()
    return {int(path.name): path for path in sorted(paths)}


def _odd_size(starts: dict[int, Path]) -> str:
    """Returns what is wrong with the sizes of a queue's files, "" when nothing is."""
    for path in starts.values():
        # A size of no whole units leaves places between files, or none at all.
        found_bytes = file_size(str(path))
        if not found_bytes or found_bytes % QUEUE_UNIT_BYTES:
            return f"{path} has {found_bytes} bytes, no whole units"
    return ""


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
    directory: Path,
    label: str,
    log: QueueUnits,
    starts: dict[int, Path],
    offset: int,
    expected: bytes,
) -> tuple[str, str]:
    """Returns what is wrong from an offset on, as a defect and a note."""
    size = file_size(str(starts[min(starts)]))
    at = offset * QUEUE_UNIT_BYTES
    place = f"{directory}/{at - at % size:020d} at {at % size}"
    ((_, _, found),) = _pieces(starts, size, offset, offset + 1)
    if found not in (b"", _NOTHING):
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
