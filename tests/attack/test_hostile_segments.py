"""Segment files that somebody made to harm the Spark readers: one kind of error, with the place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from ledgermq.spark.errors import CorruptDataError, SparkSourceError
from ledgermq.spark.queue_compare import compare_units, judge_queue
from ledgermq.spark.segment_audit import QueueUnits, SegmentFindings
from ledgermq.spark.segment_plan import find_log, plan_segments
from ledgermq.spark.segment_walk import read_segment
from tests.spark.log_files import make_record, write_ledger, write_plain

TERABYTE = 1 << 40
RECORDS = [make_record("orders", number) for number in range(60)]


def read_all(directory: Path, *, verifies: bool = True) -> int:
    """Returns how many records the readers give; every column is looked at."""
    count = 0
    for part in plan_segments(find_log(str(directory)), reads_open_segment=True):
        for records in read_segment(part, verifies=verifies):
            count += len(records.queue_offsets)
            assert len(records.topics) == len(records.bodies) == len(records.store_ms)
            assert len(records.message_ids) == len(records.born_ms)
    return count


def made(directory: Path, *, is_ledger: bool) -> list[Path]:
    if is_ledger:
        return write_ledger(directory, RECORDS, committed_index=len(RECORDS) - 1)
    return write_plain(directory, RECORDS)


def pipe_instead(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def link_instead(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


HARMS: dict[str, tuple[Callable[[Path], object], str]] = {
    "terabyte": (lambda path: os.truncate(path, TERABYTE), "allowed are 2147483647"),
    "pipe": (pipe_instead, "is a named pipe"),
    "device": (link_instead, "is a character device"),
}


@pytest.mark.parametrize("is_ledger", [True, False])
@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("harm", HARMS)
def test_file_that_is_none_of_a_log_is_refused(
    tmp_path: Path, harm: str, which: int, is_ledger: bool
) -> None:
    path = made(tmp_path / "log", is_ledger=is_ledger)[which]
    change, words = HARMS[harm]
    change(path)
    with pytest.raises(CorruptDataError, match=words) as caught:
        read_all(tmp_path / "log")
    assert path.name in str(caught.value)


@pytest.mark.parametrize("name", ["checkpoint", "currterm", "checkpoint.bak"])
def test_mark_that_is_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    made(tmp_path / "log", is_ledger=True)
    pipe_instead(tmp_path / "log" / name)
    with pytest.raises(CorruptDataError, match="is a named pipe"):
        read_all(tmp_path / "log")


def test_next_file_that_is_cut_inside_its_head_is_told(tmp_path: Path) -> None:
    first, second, *others = made(tmp_path / "log", is_ledger=True)
    for path in others:
        path.unlink()
    os.truncate(second, 20)
    with pytest.raises(SparkSourceError):
        read_all(tmp_path / "log")
    assert first.exists()


@pytest.mark.parametrize("is_ledger", [True, False])
@pytest.mark.parametrize("seed", range(150))
def test_bytes_changed_at_random_raise_the_readers_own_error(
    tmp_path: Path, seed: int, is_ledger: bool
) -> None:
    """Checksums are left aside, so that what the bytes say is believed as far as it can be."""
    rng = Random(seed)
    for path in rng.sample(made(tmp_path / "log", is_ledger=is_ledger), 2):
        data = bytearray(path.read_bytes())
        for _ in range(rng.randrange(1, 6)):
            # Mostly where lengths stand: near the front of records.
            at = rng.randrange(min(len(data), 400) if rng.random() < 0.7 else len(data))
            new = rng.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(4), rng.randbytes(4)))
            data[at : at + 4] = new[: len(data) - at]
        path.write_bytes(data)
    try:
        assert read_all(tmp_path / "log", verifies=rng.random() < 0.3) <= len(RECORDS) * 10
    except SparkSourceError:
        return


def judged(root: Path, name: tuple[str, int], units: QueueUnits) -> str:
    """The defect of a queue, as an audit finds it."""
    found = SegmentFindings(path="", queues={name: units})
    compare_units(root, found, keeps_units=False)
    return judge_queue(root, name, units)[0]


@pytest.mark.parametrize("size", [0, 1, 10, 19, 21])
def test_queue_file_without_whole_units_is_a_defect(tmp_path: Path, size: int) -> None:
    """Sizes from which no step forward followed once."""
    folder = tmp_path / "consumequeue" / "orders" / "0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(bytes(size))
    units = QueueUnits(first_offset=0, units=bytearray(bytes(100)))
    defect = judged(tmp_path, ("orders", 0), units)
    assert f"has {size} bytes, no whole units" in defect


def test_queue_of_a_record_never_leaves_the_store(tmp_path: Path) -> None:
    units = QueueUnits(first_offset=0, units=bytearray(bytes(20)))
    defect = judged(tmp_path, ("../../etc", 0), units)
    assert "cannot be one" in defect
