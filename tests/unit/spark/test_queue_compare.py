"""What is said of a consume queue does not depend on how the log is cut into files."""

import pickle
import random
import re
from pathlib import Path

import pytest

from ledgermq.commitlog.layout import QUEUE_UNIT, QUEUE_UNIT_BYTES
from ledgermq.spark.queue_compare import compare_units, judge_queue
from ledgermq.spark.queue_files import merged, without_units
from ledgermq.spark.segment_audit import QueueUnits, SegmentFindings

NAME, LIGHT = ("Orders", 0), ("%LMQ%a", 0)
COUNT = 60
FILE_UNITS = 20


def unit(offset: int, life: int = 0) -> bytes:
    return QUEUE_UNIT.pack(1000 * life + 10 * offset, 100, offset)


def units_of(start: int, end: int, life: int = 0) -> QueueUnits:
    data = b"".join(unit(offset, life) for offset in range(start, end))
    return QueueUnits(first_offset=start, units=bytearray(data))


def write_files(root: Path, name: tuple[str, int], data: bytes) -> None:
    folder = root / "consumequeue" / name[0] / str(name[1])
    folder.mkdir(parents=True)
    size = FILE_UNITS * QUEUE_UNIT_BYTES
    for at in range(0, len(data), size):
        (folder / f"{at:020d}").write_bytes(data[at : at + size])


def said_of(root: Path, parts: list[SegmentFindings]) -> list[tuple[str, str]]:
    """What an audit says of all queues; what travels between its steps is pickled."""
    found = []
    for part in parts:
        compare_units(root, part, keeps_units=False)
        found.append(pickle.loads(pickle.dumps(part)))
    whole = merged(found)
    queues = [*whole.before_gaps, *whole.queues.items()]
    return [judge_queue(root, name, without_units(log)) for name, log in queues if log.unlike]


def cut(draws: random.Random, count: int) -> list[tuple[int, int]]:
    borders = sorted({0, count, *(draws.randrange(count) for _ in range(draws.randrange(6)))})
    return list(zip(borders, borders[1:], strict=False))


def damaged(draws: random.Random) -> bytes:
    """The files of a queue: good, cut off, with a hole, or with another unit somewhere."""
    data = bytearray(units_of(0, COUNT).units)
    for _ in range(draws.randrange(3)):
        at = draws.randrange(COUNT) * QUEUE_UNIT_BYTES
        match draws.choice(("end", "hole", "other")):
            case "end":
                data[at:] = bytes(len(data) - at)
            case "hole":
                data[at : at + QUEUE_UNIT_BYTES] = bytes(QUEUE_UNIT_BYTES)
            case "other":
                data[at + draws.randrange(QUEUE_UNIT_BYTES)] ^= 1
    return bytes(data)


@pytest.mark.parametrize("seed", range(60))
def test_parts_are_judged_as_the_whole(seed: int, tmp_path: Path) -> None:
    draws = random.Random(seed)
    write_files(tmp_path, NAME, damaged(draws))
    whole = [SegmentFindings(path="a", queues={NAME: units_of(0, COUNT)})]
    parts = [
        SegmentFindings(path=str(start), queues={NAME: units_of(start, end)})
        for start, end in cut(draws, COUNT)
    ]
    assert said_of(tmp_path, parts) == said_of(tmp_path, whole)


@pytest.mark.parametrize("seed", range(60))
def test_light_queues_are_judged_by_the_units_that_count(seed: int, tmp_path: Path) -> None:
    """A second life that begins at 0 again puts nothing in until it is where the first one was."""
    draws = random.Random(seed)
    first_end = draws.randrange(10, 40)
    data = bytearray(damaged(draws))
    for offset in range(first_end, COUNT):
        # Of the second life; what is damaged stays so.
        place = offset * QUEUE_UNIT_BYTES
        if data[place : place + QUEUE_UNIT_BYTES] == unit(offset):
            data[place : place + QUEUE_UNIT_BYTES] = unit(offset, 1)
    write_files(tmp_path, LIGHT, bytes(data))
    runs = [(0, first_end, 0), *((start, end, 1) for start, end in cut(draws, COUNT))]
    parts = [
        SegmentFindings(path=str(number), light={LIGHT: [units_of(*run)]})
        for number, run in enumerate(runs)
    ]
    expected = bytes(units_of(0, first_end).units + units_of(first_end, COUNT, 1).units)
    found = said_of(tmp_path, parts)
    first = next(
        (
            offset
            for offset in range(COUNT)
            if data[offset * QUEUE_UNIT_BYTES :][:QUEUE_UNIT_BYTES]
            != expected[offset * QUEUE_UNIT_BYTES :][:QUEUE_UNIT_BYTES]
        ),
        None,
    )
    said = [text for pair in found for text in pair if text]
    if first is None:
        assert said == []
        return
    assert len(said) == 1
    assert re.search(rf"offset {first}\b", said[0]), said


def test_what_is_alike_does_not_travel(tmp_path: Path) -> None:
    write_files(tmp_path, NAME, bytes(units_of(0, COUNT).units))
    sizes = []
    for end in (COUNT // 4, COUNT):
        found = SegmentFindings(path="a", queues={NAME: units_of(0, end)})
        compare_units(tmp_path, found, keeps_units=False)
        assert found.queues[NAME].end_offset == end and not found.queues[NAME].unlike
        sizes.append(len(pickle.dumps(found)))
    assert sizes[0] == sizes[1]


def test_units_are_kept_where_queues_are_made_of_them(tmp_path: Path) -> None:
    parts = [SegmentFindings(path="a", queues={NAME: units_of(0, 7)})]
    parts.append(SegmentFindings(path="b", queues={NAME: units_of(7, COUNT)}))
    for part in parts:
        compare_units(tmp_path, part, keeps_units=True)
    assert merged(parts).queues[NAME].units == units_of(0, COUNT).units
