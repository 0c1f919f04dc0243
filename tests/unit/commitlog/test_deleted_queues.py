"""A queue whose topic was deleted and made again, stopped at every step of what follows.

Its new units stand in a file of the same name as the old ones did, which the mark on disk still
calls whole. Once a process that ended between the two left a queue of blanks: no message of it
could be read, and its member made everything again from the log.
"""

import random

import pytest

from ledgermq.commitlog.consume_queue import ConsumeQueue
from ledgermq.commitlog.derived_files import DerivedFiles
from ledgermq.commitlog.layout import QUEUE_UNIT
from ledgermq.dledger.store.errors import DiskFullError
from ledgermq.testing.simulation.disk import MachineStoppedError, SimDisk
from tests.fault.lossy_disk import cut_power, new_disk, stop_after
from tests.unit.commitlog.flushed import flush, run
from tests.unit.commitlog.single_member import Broker, message

# Units in a file of a queue.
SEGMENT_UNITS = 20
OLD = 12


def opened(disk: SimDisk) -> Broker:
    return Broker(
        "/store",
        file_system=disk,
        segment_bytes=8192,
        queue_segment_bytes=20 * SEGMENT_UNITS,
        index_slot_count=20,
        index_entry_count=40,
        open_files_max=5,
    )


def made_again(old_count: int = OLD) -> tuple[SimDisk, Broker]:
    """A topic with messages on disk, deleted, and with one new message that is not on disk yet."""
    disk = new_disk()
    broker = opened(disk).lead()
    for number in range(old_count):
        broker.send(message(b"old %d" % number, "T"), message(b"%d" % number, "Other"))
    broker.store.flush()
    broker.store.delete_topic("T")
    broker.send(message(b"new", "T"))
    broker.ledger_store.sync()
    return disk, broker


def check(broker: Broker, old_count: int = OLD) -> None:
    """The new message can be read; the former ones are as they were, or gone."""
    store = broker.store
    low, high = store.min_offset("T", 0), store.max_offset("T", 0)
    assert (low in (0, old_count), high) == (True, old_count + 1)
    for offset in range(low, high):
        body = b"old %d" % offset if offset < old_count else b"new"
        assert body in broker.pull("T", 0, offset, 1).parts[0]
    assert store.max_offset("Other", 0) == old_count
    scrub = store.make_scrub()
    while scrub.step(1 << 20):
        pass


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
@pytest.mark.parametrize("step", range(12))
def test_a_flush_that_ends_anywhere_leaves_a_queue_that_can_be_read(step, power):
    disk, broker = made_again()
    stop_after(disk, step)
    try:
        broker.store.flush()
    except MachineStoppedError:
        pass
    disk.restart()
    if power:
        cut_power(disk, random.Random(step))
    check(opened(disk))


def test_a_queue_of_several_files_is_read_likewise():
    disk, broker = made_again(3 * SEGMENT_UNITS + 5)
    stop_after(disk, 4)
    with pytest.raises(MachineStoppedError):
        broker.store.flush()
    disk.restart()
    check(opened(disk), 3 * SEGMENT_UNITS + 5)


def test_what_is_written_out_while_a_store_opens_takes_the_word_of_the_mark_back():
    disk, broker = made_again()
    broker.store._files.write_out()
    disk.restart()
    check(opened(disk))


def test_a_flush_without_a_mark_takes_the_word_of_the_former_one_back():
    disk, broker = made_again()
    run(broker.store._files.take().steps())
    disk.restart()
    check(opened(disk))


def test_a_mark_that_finds_no_room_leaves_the_old_files_as_they_are():
    disk, broker = made_again()
    replace = disk.replace

    def refuse(path: str, data: bytes) -> None:
        raise DiskFullError(path, len(data))

    disk.replace = refuse
    with pytest.raises(DiskFullError):
        broker.store.flush()
    broker.store.take_back_flush()
    disk.replace = replace
    disk.restart()
    check(opened(disk))


def test_a_removal_that_only_cuts_the_end_takes_no_word_back():
    """The mark speaks of the units before the file that is made anew."""
    disk = new_disk()
    broker = opened(disk).lead()
    for number in range(SEGMENT_UNITS):
        broker.send(message(b"%d" % number, "T"))
    broker.store.flush()
    broker.send(message(b"behind", "T"))
    broker.ledger_store.sync()
    # Made, and the mark does not know of it.
    run(broker.store._files.take().steps())
    disk.restart()
    again = opened(disk)
    assert (again.store.min_offset("T", 0), again.store.max_offset("T", 0)) == (0, 21)
    disk.restart()
    assert opened(disk).report.dispatched_count == 0


def test_a_queue_that_is_made_again_alone_begins_where_it_did():
    """The log still has the messages of the deleted topic."""
    disk, broker = made_again()
    broker.store.flush()
    disk.restart()
    for path in [path for path in disk.files if "/consumequeue/T/" in path]:
        disk.remove(path)
    again = opened(disk)
    assert again.report.rebuilt_queues == ["T-0"]
    assert (again.store.min_offset("T", 0), again.store.max_offset("T", 0)) == (OLD, OLD + 1)
    check(again)


def test_a_file_that_was_removed_is_not_read_any_more():
    """Its handle came from changes that found no room, and no further file may stay open."""
    disk = new_disk()
    files = DerivedFiles(disk, 1)
    queue = ConsumeQueue("T", 0, "/store/T/0", files, 20 * SEGMENT_UNITS)
    queue.put(0, QUEUE_UNIT.pack(7, 70, 700), 0)
    run(files.take().steps())
    files.take_back()
    queue.delete()
    flush(files)
    queue.put(1, QUEUE_UNIT.pack(8, 80, 800), 1)
    flush(files)
    assert queue.unit(1) == (8, 80, 800)
