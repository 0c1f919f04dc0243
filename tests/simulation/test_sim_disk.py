"""The simulated disk loses what a disk may lose, and a store on it loses no more."""

import random

import pytest

from ledgermq.dledger.entry import EntryCodec, place
from ledgermq.dledger.store.errors import DiskFullError
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.protocol.checksum import crc32c
from ledgermq.testing.simulation.disk import MachineStoppedError, SimDisk

SEGMENT_BYTES = 4096


def new_disk(seed: int = 0) -> SimDisk:
    return SimDisk(random.Random(seed), lambda name: None)


def open_store(disk: SimDisk) -> DLedgerMmapFileStore:
    store = DLedgerMmapFileStore(
        disk, "/store/dledger-n0", SEGMENT_BYTES, 32 * 64, EntryCodec(crc32c)
    )
    store.open()
    return store


def append(store: DLedgerMmapFileStore, count: int) -> None:
    codec = EntryCodec(crc32c)
    for _ in range(count):
        body = bytes(300)
        run = codec.encode(
            [body],
            first_index=store.last_index + 1,
            term=1,
            position=place(store.end_position, len(body) + 48, SEGMENT_BYTES),
            previous_chain_crc=store.last_chain_crc,
        )
        store.append(run)


@pytest.mark.parametrize("seed", range(20))
def test_what_a_killed_process_left_unsynced_is_synced_by_the_next(seed: int) -> None:
    """The next process takes for durable what it finds, so its first sync must cover it all: also
    what stands in a full segment, and the names of files."""
    disk = new_disk(seed)
    append(open_store(disk), 30)
    store = open_store(disk)
    assert store.last_index == 29
    store.sync()
    disk.cut_power()
    assert open_store(disk).last_index == 29


def test_a_power_cut_loses_what_was_not_synced() -> None:
    lost = 0
    for seed in range(50):
        disk = new_disk(seed)
        store = open_store(disk)
        append(store, 10)
        store.sync()
        append(store, 10)
        disk.cut_power()
        lost += open_store(disk).last_index < 19
    assert lost > 10


def test_a_machine_stops_before_the_chosen_operation() -> None:
    disk = new_disk()
    disk.stop_at = 3
    with pytest.raises(MachineStoppedError):
        append(open_store(disk), 100)
    with pytest.raises(MachineStoppedError):
        disk.reserve("/store/x", 10)
    disk.restart()
    open_store(disk)


def test_a_failed_write_counts_as_clean() -> None:
    """As Linux has it: the second sync succeeds, and what the first one lost stays lost."""
    disk = new_disk()
    file = disk.reserve("/store/x", 4096)
    disk.sync_directory("/store")
    file.write(0, b"lost")
    disk.sync_errors = 1
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.sync()
    assert file.read(0, 4) == b"lost"
    disk.cut_power()
    assert disk.files["/store/x"].read(0, 4) == bytes(4)


def test_retention_on_a_full_disk_changes_nothing() -> None:
    """The mark that says where the log begins cannot be written: so it begins where it did."""
    disk = new_disk()
    store = open_store(disk)
    append(store, 40)
    store.sync()
    disk.free_bytes = 0
    with pytest.raises(DiskFullError):
        store.drop_before(2 * SEGMENT_BYTES)
    assert (store.first_index, store.first_position) == (0, 0)
    disk.free_bytes = None
    assert store.drop_before(2 * SEGMENT_BYTES) > 0


def replaced(seed: int, stop_at: int) -> tuple[bytes | None, int]:
    """What a power cut leaves of a file whose replacement stops before an operation, and how much
    of the file beside it.
    """
    disk = new_disk(seed)
    disk.replace("/store/x", b"old")
    disk.stop_at = disk.step_count + stop_at
    with pytest.raises(MachineStoppedError):
        disk.replace("/store/x", b"n" * 1500)
    disk.restart()
    disk.cut_power()
    beside = disk.read("/store/x.tmp")
    return disk.read("/store/x"), -1 if beside is None else len(beside)


def test_a_replacement_may_stop_in_each_of_its_steps() -> None:
    """Written, synced, renamed, the directory synced: a cut leaves the old content or the new."""
    old, new = b"old", b"n" * 1500
    found = [{replaced(seed, stop_at) for seed in range(60)} for stop_at in range(1, 5)]
    assert all({content for content, _ in one} <= {old, new} for one in found)
    assert [{content == new for content, _ in one} for one in found] == [
        {False},
        {False},
        {False},
        {False, True},
    ]
    # The file beside it is there in part, then whole if its name is there.
    for one in found[:2]:
        assert len({length for _, length in one}) > 3
    assert {length for _, length in found[2]} == {-1, 1500}


@pytest.mark.parametrize("fault", ["write_errors", "sync_errors", "free_bytes"])
def test_a_replacement_that_fails_leaves_the_old_content(fault: str) -> None:
    disk = new_disk()
    disk.replace("/store/x", b"old")
    setattr(disk, fault, 0 if fault == "free_bytes" else 1)
    with pytest.raises(DiskFullError if fault == "free_bytes" else OSError):
        disk.replace("/store/x", b"new")
    assert disk.texts == {"/store/x": b"old"}
    disk.cut_power()
    assert disk.read("/store/x") == b"old"


def test_a_write_over_a_whole_sector_makes_it_readable() -> None:
    disk = new_disk()
    file = disk.reserve("/store/x", 4096)
    file.fail_reads(600)
    with pytest.raises(OSError, match="Input/output error"):
        file.read(0, 1000)
    with pytest.raises(OSError, match="Input/output error"):
        file.write(100, bytes(500))
    file.write(100, b"n" * 1000)
    assert file.read(500, 600) == b"n" * 600
