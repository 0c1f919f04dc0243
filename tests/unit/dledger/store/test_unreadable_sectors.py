"""Sectors of the ledger that cannot be read: found, reported, cut or made again."""

import random
from pathlib import Path

import pytest
from crc32c import crc32c

from ledgermq.dledger.entry import EntryCodec, place
from ledgermq.dledger.store.errors import CorruptStoreError, UnreadableError
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.testing.simulation.disk import SECTOR_BYTES, SimDisk, SimFile
from tests.fault.lossy_disk import cut_power, new_disk

SEGMENT_BYTES = 4096
ROOT = "/store/dledger-n0"
# Of an entry with its head; no sector ends with one.
ENTRY_BYTES = 148
COUNT = 200


def make_store(disk: SimDisk) -> DLedgerMmapFileStore:
    codec = EntryCodec(crc32c)
    return DLedgerMmapFileStore(disk, ROOT, SEGMENT_BYTES, 32 * 64, codec)


def append(store: DLedgerMmapFileStore, count: int) -> None:
    for _ in range(count):
        body = store.end_position.to_bytes(8, "big").ljust(ENTRY_BYTES - 48, b"x")
        run = EntryCodec(crc32c).encode(
            [body],
            first_index=store.last_index + 1,
            term=1,
            position=place(store.end_position, ENTRY_BYTES, SEGMENT_BYTES),
            previous_chain_crc=store.last_chain_crc,
        )
        store.append(run)


def filled_disk() -> SimDisk:
    """A disk with a log of eight segments, all of it durable and committed."""
    disk = new_disk()
    store = make_store(disk)
    store.open()
    append(store, COUNT)
    store.write_checkpoint(store.last_index)
    store.close()
    return disk


def file_of(disk: SimDisk, part: str, number: int) -> SimFile:
    names = sorted(path for path in disk.files if path.startswith(f"{ROOT}/{part}/"))
    return disk.files[names[number]]


@pytest.mark.parametrize("number", range(7))
@pytest.mark.parametrize("sector", [0, 3, 6])
def test_damage_is_found_and_all_before_it_is_kept(number: int, sector: int) -> None:
    """Of a member with peers, once all of its log is looked at."""
    disk = filled_disk()
    bad = file_of(disk, "data", number)
    bad.fail_reads(sector * SECTOR_BYTES)
    store, found = make_store(disk), list[CorruptStoreError]()
    report = store.open(verify_all=True, on_damage=found.append)
    assert [error.path for error in found] == [bad.path]
    # Where it begins is where the log ends now: at most one entry before the sector is lost.
    end = number * SEGMENT_BYTES + sector * SECTOR_BYTES
    assert end - ENTRY_BYTES < report.end_position <= end
    assert "Input/output error" in str(found[0])
    append(store, 30)
    store.sync()
    store.close()
    again = make_store(disk)
    assert again.open(verify_all=True).last_index == report.last_index + 30


@pytest.mark.parametrize("number", range(6))
def test_an_unreadable_beginning_is_found_at_the_start(number: int) -> None:
    disk = filled_disk()
    file_of(disk, "data", number).fail_reads(0)
    store, found = make_store(disk), list[CorruptStoreError]()
    report = store.open(on_damage=found.append)
    assert len(found) == 1 and report.end_position <= number * SEGMENT_BYTES


def test_a_member_alone_starts_with_damage_in_an_old_file() -> None:
    """Nobody else has what it held; the rest is served, and the damage reported when it is read."""
    disk = filled_disk()
    file_of(disk, "data", 2).fail_reads(0)
    store = make_store(disk)
    assert store.open().last_index == COUNT - 1
    damaged = 2 * (SEGMENT_BYTES // ENTRY_BYTES)
    with pytest.raises(UnreadableError, match="Input/output error"):
        store.read(damaged, 1)
    assert store.read(damaged + 10, 1).first_index == damaged + 10


def test_a_member_alone_leaves_the_files_as_they_are() -> None:
    disk = filled_disk()
    bad = file_of(disk, "data", 7)
    bad.fail_reads(SECTOR_BYTES)
    before = {path: bytes(file.content) for path, file in disk.files.items()}
    with pytest.raises(CorruptStoreError, match="content is Input/output error"):
        make_store(disk).open()
    assert {path: bytes(file.content) for path, file in disk.files.items()} == before


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("sector", [0, 1])
def test_an_unreadable_index_is_made_from_the_data(number: int, sector: int) -> None:
    disk = filled_disk()
    file_of(disk, "index", number).fail_reads(sector * SECTOR_BYTES)
    store = make_store(disk)
    report = store.open(verify_all=True)
    assert report.rebuilt_units == COUNT and not disk.files[f"{ROOT}/index/{0:020d}"].unreadable
    assert [store.position_at(index) for index in (0, COUNT - 1)] == [0, 7 * SEGMENT_BYTES + 1480]
    assert store.read_verified(100, 1).first_index == 100


def test_a_read_that_fails_once_loses_nothing() -> None:
    disk = filled_disk()
    bad = file_of(disk, "data", 7)
    bad.fail_reads(SECTOR_BYTES)
    hits = list[str]()

    def mend(name: str) -> None:
        hits.append(name)
        if len(hits) == 2:
            bad.unreadable.clear()

    disk.hit = mend
    store, found = make_store(disk), list[CorruptStoreError]()
    assert store.open(on_damage=found.append).last_index == COUNT - 1
    assert not found and hits


@pytest.mark.parametrize("seed", range(10))
def test_an_unreadable_torn_tail_is_cut(seed: int) -> None:
    """What was never durable is no damage, whether or not it can be read."""
    disk = filled_disk()
    store = make_store(disk)
    store.open()
    append(store, 8)
    cut_power(disk, random.Random(seed))
    file_of(disk, "data", 7).fail_reads(2048, 512)
    store, found = make_store(disk), list[CorruptStoreError]()
    report = store.open(on_damage=found.append)
    assert report.last_index >= COUNT - 1 and not found


@pytest.mark.parametrize("name", ["durable", "checkpoint", "start"])
def test_a_mark_that_cannot_be_read_loses_no_entry(name: str) -> None:
    disk = filled_disk()
    disk.unreadable_texts.add(f"{ROOT}/{name}")
    store, found = make_store(disk), list[CorruptStoreError]()
    assert store.open(on_damage=found.append).last_index == COUNT - 1
    assert not found


def test_a_pull_of_entries_stops_before_the_damage(tmp_path: Path) -> None:
    disk = filled_disk()
    store = make_store(disk)
    store.open()
    found = list[UnreadableError]()
    store.mode.on_unreadable = found.append
    file_of(disk, "data", 3).fail_reads(1024)
    first = 3 * (SEGMENT_BYTES // ENTRY_BYTES)
    assert store.read(first, 700).count == 4
    with pytest.raises(UnreadableError):
        store.read(first, 1200)
    assert len(found) == 1
