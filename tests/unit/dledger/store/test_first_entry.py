"""The first entry of a log that begins behind 0: nothing before it vouches for its term."""

import os
import random
import struct
from pathlib import Path

import pytest
from crc32c import crc32c

from ledgermq.dledger.entry import EntryCodec, place
from ledgermq.dledger.store import FileSystem, RealFileSystem
from ledgermq.dledger.store.errors import CorruptStoreError
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from tests.fault.lossy_disk import cut_power, new_disk

SEGMENT_BYTES = 1024
FIRST = 324
TERM = 6
TERM_AT = 16
UNIT_TERM_AT = 24


def make_store(directory: Path, disk: FileSystem | None = None) -> DLedgerMmapFileStore:
    codec = EntryCodec(crc32c)
    root = str(directory / "dledger-n0")
    return DLedgerMmapFileStore(disk or RealFileSystem(), root, SEGMENT_BYTES, 32 * 8, codec)


def append(store: DLedgerMmapFileStore, count: int) -> None:
    for _ in range(count):
        entries = EntryCodec(crc32c).encode(
            [b"copied"],
            first_index=store.last_index + 1,
            term=TERM,
            position=place(store.end_position, 54, SEGMENT_BYTES),
            previous_chain_crc=store.last_chain_crc,
        )
        store.append(entries)


def with_beginning(directory: Path, count: int) -> Path:
    """Makes a log that another member's was copied into from `FIRST` on; returns its data file."""
    store = make_store(directory)
    store.open()
    store.reset(FIRST, SEGMENT_BYTES)
    append(store, count)
    store.sync()
    store.write_checkpoint(store.last_index)
    store.close()
    return directory / f"dledger-n0/data/{SEGMENT_BYTES:020d}"


def write_term(path: Path, offset: int, term: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        assert struct.unpack(">q", file.read(8)) == (TERM,)
        file.seek(offset)
        file.write(struct.pack(">q", term))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("term", [TERM | 1 << 9, TERM & ~2])
def test_a_term_that_the_disk_made_up_is_damage(tmp_path: Path, count: int, term: int) -> None:
    """A member that took it for a term would raise its group's, or be ahead of the others."""
    data = with_beginning(tmp_path, count)
    write_term(data, TERM_AT, term)
    with pytest.raises(CorruptStoreError, match=r"\(entry 324\)"):
        make_store(tmp_path).open()
    found: list[CorruptStoreError] = []
    store = make_store(tmp_path)
    store.open(on_damage=found.append)
    assert len(found) == 1
    assert (store.first_index, store.last_index, store.last_term) == (0, -1, -1)
    store.close()


def test_so_is_an_index_that_says_otherwise(tmp_path: Path) -> None:
    """One of the two is wrong, and nothing tells which."""
    with_beginning(tmp_path, 2)
    unit = tmp_path / f"dledger-n0/index/{FIRST * 32 // 256 * 256:020d}"
    write_term(unit, FIRST * 32 % 256 + UNIT_TERM_AT, TERM + 1)
    with pytest.raises(CorruptStoreError):
        make_store(tmp_path).open()


def test_without_its_index_the_entry_is_believed(tmp_path: Path) -> None:
    with_beginning(tmp_path, 2)
    for path in (tmp_path / "dledger-n0/index").iterdir():
        os.unlink(path)
    store = make_store(tmp_path)
    report = store.open()
    assert (store.first_index, store.last_index, store.last_term) == (FIRST, FIRST + 1, TERM)
    assert report.rebuilt_units == 2
    store.close()


@pytest.mark.parametrize("seed", range(5))
def test_its_index_is_on_the_disk_with_the_first_sync(seed: int) -> None:
    """A power cut may not take the one witness that there is."""
    disk = new_disk()
    store = make_store(Path("/store"), disk)
    store.open()
    append(store, 20)
    store.reset(FIRST, SEGMENT_BYTES)
    append(store, 1)
    store.sync()
    cut_power(disk, random.Random(seed))
    path = f"/store/dledger-n0/index/{FIRST * 32 // 256 * 256:020d}"
    unit = (disk.read(path) or b"")[FIRST * 32 % 256 :][:32]
    assert unit == struct.pack(">iqiqq", 1, SEGMENT_BYTES, 54, FIRST, TERM)
