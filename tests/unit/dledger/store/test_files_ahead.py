"""Files made ahead of their use: no append waits for one, and an opened store is as before."""

from pathlib import Path

import pytest

from ledgermq.dledger.disk_job import do_now
from ledgermq.dledger.entry import INDEX_UNIT_BYTES
from ledgermq.dledger.store.errors import StoreFailedError
from tests.fault.lossy_disk import new_disk
from tests.unit.dledger.store.test_file_store import (
    INDEX_SEGMENT_BYTES,
    fill,
    make_store,
    next_entries,
    refuse_files,
)


@pytest.mark.parametrize("body_bytes", [10, 100])
def test_what_makes_files_ahead_lets_no_append_wait_for_one(
    tmp_path: Path, body_bytes: int
) -> None:
    """With bodies of 10 bytes the index comes to the end of a file first, with 100 the data."""
    store = make_store(tmp_path)
    store.open()
    fill(store, 1, body_bytes)
    for _ in range(4 * INDEX_SEGMENT_BYTES // INDEX_UNIT_BYTES):
        if store.wants_ahead:
            do_now(store.begin_ahead())
            assert not store.wants_ahead
        entries = next_entries(store, [b"x" * body_bytes])
        assert store.has_room([entries])
        store.append(entries)
    last_index = store.last_index
    store.close()
    again = make_store(tmp_path)
    again.open()
    assert again.last_index == last_index
    again.close()


def test_files_made_ahead_are_no_part_of_the_store_that_opens_again(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.open()
    fill(store, INDEX_SEGMENT_BYTES // INDEX_UNIT_BYTES - 1, 10)
    do_now(store.begin_ahead())
    last_index, end = store.last_index, store.end_position
    assert len(list((tmp_path / "dledger-n0" / "index").iterdir())) == 2
    store.close()
    again = make_store(tmp_path)
    again.open()
    assert (again.last_index, again.end_position) == (last_index, end)
    fill(again, 3, 10)
    assert again.last_index == last_index + 3
    again.close()


def test_an_error_of_the_segment_made_ahead_is_final(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be one of a sync, after which nobody knows what is on the disk."""
    disk = new_disk()
    store = make_store(tmp_path, disk)
    store.open()
    fill(store, 6)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "reserve", refuse_files)
        with pytest.raises(OSError, match="Too many open files"):
            do_now(store.begin_ahead())
    last_index = store.last_index
    with pytest.raises(StoreFailedError, match="Too many open files"):
        fill(store, 1)
    assert store.last_index == last_index
    store.close()
    again = make_store(tmp_path, disk)
    again.open()
    assert again.last_index == last_index
    again.close()
