"""The file store, stopped before each operation of a workload, by a kill and by a power cut.

After each stop the store opens again and holds a prefix of what was written: nothing that was
synced is missing, nothing comes back that a returned truncation had dropped, and each entry is the
one that was written. Opening is stopped at each of its operations too.
"""

import random
from collections.abc import Callable

import pytest

from ledgermq.dledger.entry import ENTRY_MAGIC, INDEX_UNIT, EntrySlice, place
from ledgermq.dledger.store.errors import CorruptStoreError
from ledgermq.testing.simulation.disk import MachineStoppedError, SimDisk
from tests.fault.lossy_disk import cut_power, new_disk, stop_after
from tests.fault.store_workload import DIRECTORY, SEGMENT_BYTES, Workload, make_store

Crash = Callable[[SimDisk, random.Random], None]


def kill(disk: SimDisk, rng: random.Random) -> None:
    """The page cache stays."""


@pytest.mark.parametrize("crash", [kill, cut_power])
@pytest.mark.parametrize("seed", range(6))
def test_a_stop_at_any_operation_leaves_a_good_prefix(seed: int, crash: Crash) -> None:
    dry = Workload(new_disk(), seed)
    dry.run(40)
    for stop_at in range(dry.disk.step_count):
        disk = new_disk()
        stop_after(disk, stop_at)
        workload = Workload(disk, seed)
        with pytest.raises(MachineStoppedError):
            workload.run(40)
        disk.restart()
        crash(disk, random.Random(stop_at))
        workload.check()


@pytest.mark.parametrize("seed", range(4))
def test_a_stop_during_recovery_changes_nothing(seed: int) -> None:
    """The second opening finds what the first one would have, wherever that one stopped."""
    for count in range(12):
        disk = new_disk()
        workload = Workload(disk, seed)
        workload.run(30)
        workload.append()
        cut_power(disk, random.Random(seed))
        stop_after(disk, count)
        try:
            make_store(disk).open()
        except MachineStoppedError:
            cut_power(disk, random.Random(count))
        disk.restart()
        workload.check()


def filled(seed: int = 5) -> Workload:
    workload = Workload(new_disk(), seed)
    workload.store.open()
    for _ in range(12):
        workload.append()
    return workload


def test_a_flipped_byte_above_the_durable_mark_is_cut_and_copied_aside() -> None:
    workload = filled()
    workload.sync()
    workload.note()
    workload.sync()
    durable = workload.last_index
    workload.append()
    position = workload.store.position_at(durable + 2)
    flip(workload, position + 60)
    store = make_store(workload.disk)
    report = store.open()
    assert report.last_index == durable + 1
    assert report.cut_reason is not None and "crc" in report.cut_reason
    copy = workload.disk.texts[report.copies[0]]
    assert copy[:4] == b"\0\0\0\1"
    assert store.end_position == position
    assert not any(workload.disk.files[file_of(position)].content[position % SEGMENT_BYTES :])


@pytest.mark.parametrize("part", [0, 9, 20, 30, 44, 60])
def test_a_flipped_byte_below_the_durable_mark_is_damage(part: int) -> None:
    workload = filled()
    workload.note()
    workload.store.close()
    index = workload.last_index - 1
    position = workload.store.position_at(index)
    before = flip(workload, position + part)
    with pytest.raises(CorruptStoreError) as caught:
        make_store(workload.disk).open()
    assert caught.value.path == file_of(position)
    assert caught.value.offset == position % SEGMENT_BYTES
    assert caught.value.index == index
    assert workload.disk.files[file_of(position)].content == before


def test_a_lost_last_segment_is_damage() -> None:
    workload = filled()
    workload.note()
    workload.store.close()
    del workload.disk.files[file_of(workload.store.end_position)]
    with pytest.raises(CorruptStoreError):
        make_store(workload.disk).open()


def test_a_store_without_its_data_is_damage() -> None:
    workload = filled()
    workload.note()
    workload.store.close()
    for path in [path for path in workload.disk.files if "/data/" in path]:
        del workload.disk.files[path]
    with pytest.raises(CorruptStoreError):
        make_store(workload.disk).open()


def test_a_deleted_index_is_made_anew_byte_for_byte() -> None:
    workload = filled()
    workload.store.close()
    files = workload.disk.files
    index = {path: bytes(files[path].content) for path in files if "/index/" in path}
    for path in index:
        del files[path]
    store = make_store(workload.disk)
    report = store.open()
    assert report.rebuilt_units == store.last_index + 1
    assert {path: bytes(files[path].content) for path in files if "/index/" in path} == index


def test_units_that_a_power_cut_took_are_made_anew() -> None:
    """A sync is of entries alone: units follow with the checkpoint or the next segment."""
    workload = filled()
    workload.sync()
    segment = workload.store.end_position // SEGMENT_BYTES
    while workload.store.end_position // SEGMENT_BYTES == segment:
        workload.append()
    for _ in range(2):
        workload.sync()
        synced_units = units_on_disk(workload)
        assert synced_units == workload.store.last_index + 1
        workload.store.append(next_entry(workload))
        workload.sync()
        assert units_on_disk(workload) == synced_units
        workload.note()
    for file in workload.disk.files.values():
        file.content[:] = file.durable
    store = make_store(workload.disk)
    assert store.open().rebuilt_units == 1
    assert store.last_index == synced_units
    assert store.term_at(synced_units) == workload.term


def next_entry(workload: Workload) -> EntrySlice:
    store = workload.store
    return workload.codec.encode(
        [b"small"],
        first_index=store.last_index + 1,
        term=workload.term,
        position=place(store.end_position, 5 + 48, SEGMENT_BYTES),
        previous_chain_crc=store.last_chain_crc,
    )


def units_on_disk(workload: Workload) -> int:
    files = [file for path, file in workload.disk.files.items() if "/index/" in path]
    units = [unit for file in files for unit in INDEX_UNIT.iter_unpack(file.durable)]
    return sum(unit[0] == ENTRY_MAGIC for unit in units)


def file_of(position: int) -> str:
    return f"{DIRECTORY}/data/{position - position % SEGMENT_BYTES:020d}"


def flip(workload: Workload, position: int) -> bytes:
    """Changes one byte on the disk; returns what the file holds then."""
    file = workload.disk.files[file_of(position)]
    file.content[position % SEGMENT_BYTES] ^= 0x40
    file.durable = bytes(file.content)
    return file.durable
