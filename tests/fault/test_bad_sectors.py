"""Unreadable sectors of a real device: damage that is reported and repaired, never a signal."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from crc32c import crc32c

from ledgermq.dledger.entry import EntryCodec, place
from ledgermq.dledger.store import RealFileSystem
from ledgermq.dledger.store.errors import CorruptStoreError, UnreadableError
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from tests.fault.bad_sectors import BadSectors, require_loop_devices
from tests.fault.up_group import (
    Load,
    addresses,
    is_whole,
    small_group,
    stop_and_verify,
    wait_until_whole,
)
from tests.waiting import wait_until

SEGMENT_BYTES = 1 << 20
BODY_BYTES = 40_000
# So many entries in a segment.
IN_SEGMENT = SEGMENT_BYTES // (BODY_BYTES + 48)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[BadSectors]:
    require_loop_devices()
    (tmp_path / "disk").mkdir()
    disk = BadSectors(tmp_path / "image", tmp_path / "disk")
    yield disk
    disk.close()


def make_store(folder: Path) -> DLedgerMmapFileStore:
    root, codec = str(folder / "disk/dledger-n0"), EntryCodec(crc32c)
    return DLedgerMmapFileStore(RealFileSystem(), root, SEGMENT_BYTES, 1 << 16, codec)


def fill(store: DLedgerMmapFileStore, count: int) -> None:
    for _ in range(count):
        entries = EntryCodec(crc32c).encode(
            [bytes([store.last_index % 256]) * BODY_BYTES],
            first_index=store.last_index + 1,
            term=1,
            position=place(store.end_position, BODY_BYTES + 48, SEGMENT_BYTES),
            previous_chain_crc=store.last_chain_crc,
        )
        store.append(entries)


def filled(folder: Path) -> DLedgerMmapFileStore:
    store = make_store(folder)
    store.open()
    fill(store, 6 * IN_SEGMENT)
    store.write_checkpoint(store.last_index)
    store.close()
    return make_store(folder)


def test_a_damaged_segment_is_cut_and_filled_again(tmp_path: Path, disk: BadSectors) -> None:
    store = filled(tmp_path)
    bad = tmp_path / f"disk/dledger-n0/data/{2 * SEGMENT_BYTES:020d}"
    disk.damage(bad)
    found: list[CorruptStoreError] = []
    report = store.open(on_damage=found.append)
    assert [error.path for error in found] == [str(bad)]
    assert report.last_index == 2 * IN_SEGMENT - 1
    fill(store, 4 * IN_SEGMENT)
    store.sync()
    for index in range(0, store.last_index, 10):
        assert store.read_verified(index, 1).first_index == index
    store.close()


def test_a_member_alone_reads_all_but_the_damage(tmp_path: Path, disk: BadSectors) -> None:
    store = filled(tmp_path)
    disk.damage(tmp_path / f"disk/dledger-n0/data/{2 * SEGMENT_BYTES:020d}")
    assert store.open().last_index == 6 * IN_SEGMENT - 1
    with pytest.raises(UnreadableError, match="Input/output error"):
        store.read_verified(2 * IN_SEGMENT, 1)
    assert store.read_verified(2 * IN_SEGMENT - 1, 1).count == 1
    assert store.read_verified(4 * IN_SEGMENT, 1).count == 1
    store.abandon()


def test_a_damaged_index_is_made_from_the_data(tmp_path: Path, disk: BadSectors) -> None:
    store = filled(tmp_path)
    disk.damage(tmp_path / f"disk/dledger-n0/index/{0:020d}")
    report = store.open()
    assert (report.last_index, report.rebuilt_units) == (6 * IN_SEGMENT - 1, 6 * IN_SEGMENT)
    assert store.read_verified(3, 1).first_index == 3
    store.close()


def test_a_member_with_bad_sectors_is_repaired_by_its_group(tmp_path: Path) -> None:
    require_loop_devices()
    settings = (f"mappedFileSizeCommitLog={SEGMENT_BYTES}", "maxMessageSize=65536")
    mount = tmp_path / "data/n1"
    mount.mkdir(parents=True)
    disk = BadSectors(tmp_path / "image", mount)
    try:
        with small_group(tmp_path, *settings) as group:
            assert group.data == tmp_path / "data"
            with Load(addresses(group), BODY_BYTES) as load:
                load.wait_for_more(4 * IN_SEGMENT)
                wait_until_whole(group)
                load.stop()
            stop_and_verify(group)
        bad = mount / f"dledger-n1/data/{SEGMENT_BYTES:020d}"
        disk.damage(bad)
        with small_group(tmp_path, *settings) as group:
            with Load(addresses(group), BODY_BYTES) as load:
                load.wait_for_more(10)
                wait_until(lambda: "recovered, it votes" in group.log_text("n1"), what="n1 whole")
                wait_until(lambda: is_whole(group), what="a whole group")
                load.stop()
            assert f"{bad} is damaged at offset 0" in group.log_text("n1")
            stop_and_verify(group)
        assert len(bad.read_bytes()) == SEGMENT_BYTES
    finally:
        disk.close()
