"""Files that the log should begin with and that are gone; a directory without room for names."""

import errno
import os
from pathlib import Path

import pytest
from crc32c import crc32c

from ledgermq.dledger.entry import EntryCodec, place
from ledgermq.dledger.store import RealFileSystem
from ledgermq.dledger.store.errors import CorruptStoreError, DiskFullError
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore

SEGMENT_BYTES = 1024


def make_store(directory: Path) -> DLedgerMmapFileStore:
    return DLedgerMmapFileStore(
        RealFileSystem(),
        str(directory / "dledger-n0"),
        SEGMENT_BYTES,
        32 * 8,
        EntryCodec(crc32c),
    )


def fill(store: DLedgerMmapFileStore, count: int) -> None:
    for _ in range(count):
        store.append(
            EntryCodec(crc32c).encode(
                [bytes(100)],
                first_index=store.last_index + 1,
                term=1,
                position=place(store.end_position, 148, SEGMENT_BYTES),
                previous_chain_crc=store.last_chain_crc,
            )
        )


def without_first_file(directory: Path) -> Path:
    """Makes a store of three segments, and removes its first one."""
    store = make_store(directory)
    store.open()
    fill(store, 20)
    store.write_checkpoint(19)
    store.close()
    first = directory / f"dledger-n0/data/{0:020d}"
    first.unlink()
    return first


def test_a_log_whose_first_file_is_gone_is_damaged(tmp_path: Path) -> None:
    first = without_first_file(tmp_path)
    names = sorted(path.name for path in first.parent.iterdir())
    with pytest.raises(CorruptStoreError) as caught:
        make_store(tmp_path).open()
    assert str(caught.value) == (
        f"{first} is damaged at offset 0 (entry 0): file is missing, expected there"
    )
    assert sorted(path.name for path in first.parent.iterdir()) == names
    # A member of a group gets all of it from the others.
    found: list[CorruptStoreError] = []
    store = make_store(tmp_path)
    store.open(on_damage=found.append)
    assert [str(error) for error in found] == [str(caught.value)]
    assert (store.first_index, store.last_index) == (0, -1)
    fill(store, 3)
    store.close()
    store = make_store(tmp_path)
    store.open()
    assert (store.first_index, store.last_index) == (0, 2)
    store.close()


def test_a_first_file_that_another_program_removed_is_no_damage_then_or_later(
    tmp_path: Path,
) -> None:
    first = without_first_file(tmp_path)
    # As when Java has run: its checkpoint is none that our claim names.
    for name in ("checkpoint", "checkpoint.bak"):
        (tmp_path / "dledger-n0" / name).write_bytes(b"#Java\ncommittedIndex=19\nendIndex=19\n")
    for _ in range(2):
        store = make_store(tmp_path)
        store.open()
        assert store.first_position == SEGMENT_BYTES and store.last_index >= 19
        fill(store, 1)
        store.write_checkpoint(store.last_index)
        store.close()
    assert not first.exists()


def test_a_directory_that_takes_no_more_names_is_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(DiskFullError):
        RealFileSystem().reserve(str(tmp_path / "data" / f"{0:020d}"), 1024)
