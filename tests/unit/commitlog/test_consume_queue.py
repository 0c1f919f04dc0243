"""One queue: its units, its segments, and what it refuses."""

import os

import pytest

from ledgermq.commitlog.consume_queue import ConsumeQueue, QueueUnit
from ledgermq.commitlog.derived_files import DerivedFiles
from ledgermq.commitlog.errors import DispatchError
from ledgermq.commitlog.layout import PRE_BLANK, QUEUE_UNIT
from ledgermq.dledger.store.filesystem import RealFileSystem
from tests.unit.commitlog.flushed import flush

UNITS_IN_SEGMENT = 10
SEGMENT_BYTES = 20 * UNITS_IN_SEGMENT


def units(first: int, count: int) -> bytes:
    return b"".join(QUEUE_UNIT.pack(1000 * n + 1, 100, n) for n in range(first, first + count))


@pytest.fixture
def queue(tmp_path):
    files = DerivedFiles(RealFileSystem(), 100)
    yield ConsumeQueue("T", 0, str(tmp_path / "q"), files, SEGMENT_BYTES)
    files.close()


def reloaded(queue: ConsumeQueue) -> ConsumeQueue:
    flush(queue.files)
    directory = queue._directory
    files = DerivedFiles(RealFileSystem(), 100)
    again = ConsumeQueue("T", 0, directory, files, SEGMENT_BYTES)
    again.load(os.listdir(directory) if os.path.isdir(directory) else [])
    return again


def segments(queue: ConsumeQueue) -> dict[str, bytes]:
    """The files by name, once all is written."""
    flush(queue.files)
    found = {}
    for name in sorted(os.listdir(queue._directory)) if os.path.isdir(queue._directory) else []:
        with open(f"{queue._directory}/{name}", "rb") as file:
            found[name] = file.read()
    return found


def test_units_are_read_back_over_segment_borders(queue):
    queue.put(0, units(0, 7), 0)
    queue.put(7, units(7, 28), 0)
    assert (queue.min_offset, queue.max_offset) == (0, 35)
    assert queue.units(0, 100) == units(0, 35)
    assert queue.units(8, 5) == units(8, 5)
    assert queue.unit(34) == QueueUnit(34001, 100, 34)
    assert list(segments(queue)) == [f"{n * SEGMENT_BYTES:020d}" for n in range(4)]
    assert b"".join(segments(queue).values()) == units(0, 35) + bytes(100)


def test_nothing_is_read_outside_of_the_queue(queue):
    queue.put(0, units(0, 3), 0)
    assert queue.units(3, 1) == queue.units(-1, 1) == queue.units(100, 1) == b""


def test_same_units_put_once_more_change_nothing(queue):
    queue.put(0, units(0, 12), 0)
    before = segments(queue)
    queue.put(0, units(0, 12), 0)
    queue.put(5, units(5, 3), 0)
    assert segments(queue) == before
    queue.put(9, units(9, 5), 0)
    assert queue.units(0, 99) == units(0, 14)


def test_gap_is_refused(queue):
    queue.put(0, units(0, 3), 0)
    with pytest.raises(DispatchError, match="gap"):
        queue.put(4, units(4, 1), 9)
    assert queue.max_offset == 3


def test_other_unit_for_a_known_offset_is_refused(queue):
    queue.put(0, units(0, 3), 0)
    with pytest.raises(DispatchError, match="unit 2 of queue T-0 would change"):
        queue.put(2, units(7, 1), 9)
    assert queue.units(0, 9) == units(0, 3)


def test_queue_that_begins_in_the_middle_is_filled_with_blanks(queue):
    queue.put(13, units(13, 4), 0)
    assert (queue.min_offset, queue.max_offset) == (13, 17)
    assert segments(queue) == {
        f"{SEGMENT_BYTES:020d}": PRE_BLANK * 3 + units(13, 4) + bytes(3 * 20)
    }


def test_records_removed_from_the_log_raise_the_minimum_and_free_segments(queue):
    queue.put(0, units(0, 35), 0)
    assert queue.drop_before(12001) == 1
    assert queue.min_offset == 12
    assert queue.first_offset_at(20002) == 21
    assert queue.units(11, 1) == b""
    # The last segment stays whatever happens.
    assert queue.drop_before(1 << 40) == 2
    assert (queue.min_offset, queue.max_offset) == (35, 35)
    queue.put(35, units(35, 1), 0)
    assert queue.unit(35) == QueueUnit(35001, 100, 35)


def test_units_below_the_minimum_are_not_compared(queue):
    queue.put(0, units(0, 35), 0)
    queue.drop_before(12001)
    queue.put(0, units(0, 36), 0)
    assert queue.max_offset == 36


def test_restore_goes_back_and_leaves_zeros_behind(queue):
    queue.put(0, units(0, 35), 0)
    again = reloaded(queue)
    assert again.covers(0, 35)
    again.restore(0, 12)
    assert again.max_offset == 12
    assert b"".join(segments(again).values()) == units(0, 12) + bytes(8 * 20)
    again.put(12, units(12, 23), 0)
    assert again.units(0, 99) == units(0, 35)


def test_restore_at_a_segment_border_removes_what_is_behind(queue):
    queue.put(0, units(0, 35), 0)
    again = reloaded(queue)
    again.restore(0, 20)
    assert len(segments(again)) == 2
    again.put(20, units(20, 1), 0)
    assert again.units(0, 99) == units(0, 21)


@pytest.mark.parametrize("missing", [0, 1, 3])
def test_missing_segment_is_noticed(queue, missing):
    queue.put(0, units(0, 35), 0)
    flush(queue.files)
    os.unlink(f"{queue._directory}/{missing * SEGMENT_BYTES:020d}")
    assert not reloaded(queue).covers(0, 35)


def test_cut_drops_units_of_records_that_the_log_lost(queue):
    queue.put(0, units(0, 35), 0)
    queue.cut_at(14001)
    assert queue.units(0, 99) == units(0, 14)


def test_deleted_queue_goes_on_with_its_numbering(queue):
    queue.put(0, units(0, 13), 0)
    assert len(segments(queue)) == 2
    queue.delete()
    assert (queue.min_offset, queue.max_offset, queue.has_files) == (13, 13, False)
    assert segments(queue) == {}
    queue.put(13, units(13, 2), 0)
    assert queue.units(13, 9) == units(13, 2)


def test_deleted_queue_may_begin_anew_at_zero(queue):
    """A Java leader restarts a topic's queues at 0 when it was deleted and made again."""
    queue.put(0, units(0, 13), 0)
    queue.delete()
    queue.put(0, units(50, 1), 0)
    assert (queue.min_offset, queue.max_offset) == (0, 1)
    assert queue.unit(0) == QueueUnit(50001, 100, 50)
