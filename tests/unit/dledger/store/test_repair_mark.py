"""What a store remembers of its damage."""

from ledgermq.dledger.store.repair_mark import Repair, RepairMark
from tests.fault.recording_disk import RecordingDisk


def test_a_sound_store_has_no_mark() -> None:
    mark = RepairMark(RecordingDisk(), "/n0")
    assert mark.read() is None
    mark.clear()
    assert mark.read() is None


def test_a_recovering_store_stays_so_until_it_is_cleared() -> None:
    disk = RecordingDisk()
    mark = RepairMark(disk, "/n0")
    mark.begin_recovery("entry 7\nis bad")
    mark.suspect("something else")
    mark.begin_recovery("another thing")
    assert RepairMark(disk, "/n0").read() == Repair("entry 7 is bad", True)
    mark.clear()
    assert mark.read() is None


def test_a_suspect_store_may_turn_out_to_be_damaged() -> None:
    mark = RepairMark(RecordingDisk(), "/n0")
    mark.suspect("a unit does not fit")
    assert mark.read() == Repair("a unit does not fit", False)
    mark.begin_recovery("entry 7 is bad")
    assert mark.read() == Repair("entry 7 is bad", True)


def test_an_unreadable_mark_means_recovering() -> None:
    disk = RecordingDisk({"/n0/repair": b"reason=x\nrecovering=0\ncrc32=00000000\n"})
    found = RepairMark(disk, "/n0").read()
    assert found is not None and found.is_recovering
