"""A bounded number of mappings, and none closed that still has to be synced."""

import re
import resource
from pathlib import Path

import pytest

from ledgermq.commitlog.config import StoreConfig
from ledgermq.commitlog.open_files import OpenFiles
from ledgermq.dledger.store.filesystem import RealFileSystem


@pytest.fixture
def files(tmp_path):
    made = OpenFiles(RealFileSystem(), 3)
    for n in range(6):
        made.create(str(tmp_path), f"{n}", 100)[0] = n
    yield made
    made.close()


def flush(files):
    for file in files.take_dirty()[0]:
        file.sync()
    files.synced()


def test_written_files_stay_open_until_they_are_synced(files):
    assert (files.open_count, files.dirty_count) == (6, 6)
    flush(files)
    assert (files.open_count, files.dirty_count) == (3, 0)


def test_least_recently_used_is_closed_and_opened_again(files, tmp_path):
    flush(files)
    for n in range(6):
        assert files.buffer(f"{tmp_path}/{n}")[0] == n
        assert files.open_count == 3


def test_reading_does_not_open_files_for_ever_while_many_wait_for_a_flush(files, tmp_path):
    """Queues that nobody writes to are read between two flushes, and no flush may come for long."""
    flush(files)
    for n in range(3):
        files.writable(f"{tmp_path}/{n}")
    for n in range(6, 40):
        files.create(str(tmp_path), f"{n}", 100)
    files.take_dirty()
    files.synced()
    for n in range(3):
        files.writable(f"{tmp_path}/{n}")
    for n in (*range(3, 40), *range(3, 40)):
        files.buffer(f"{tmp_path}/{n}")
        assert files.open_count <= 3 + 3 + 1


def test_file_written_during_a_flush_belongs_to_the_next(files, tmp_path):
    taken, directories = files.take_dirty()
    assert (len(taken), directories) == (6, [str(tmp_path)])
    files.writable(f"{tmp_path}/0")[1] = 9
    files.synced()
    assert (files.open_count, files.dirty_count) == (3, 1)
    assert files.writable(f"{tmp_path}/0")[1] == 9


def test_removed_file_is_closed_and_its_directory_synced(files, tmp_path):
    flush(files)
    files.writable(f"{tmp_path}/5")
    files.remove(str(tmp_path), "5")
    assert files.take_dirty() == ([], [str(tmp_path)])
    with pytest.raises(FileNotFoundError):
        files.buffer(f"{tmp_path}/5")


def test_two_flushes_do_not_overlap(files):
    files.take_dirty()
    with pytest.raises(AssertionError):
        files.take_dirty()


def test_a_new_queue_waits_for_no_disk_and_its_flush_syncs_every_new_name(tmp_path, monkeypatch):
    """A thousand topics that begin at once must not hold the broker up, one sync after another."""
    synced = []
    monkeypatch.setattr(RealFileSystem, "sync_directory", lambda _, path: synced.append(path))
    files = OpenFiles(RealFileSystem(), 9)
    files.create(str(tmp_path / "topic" / "0"), "0" * 20, 4096)
    files.create(str(tmp_path / "topic" / "1"), "0" * 20, 4096)
    assert synced == []
    _, directories = files.take_dirty()
    inside = [tmp_path, tmp_path / "topic", tmp_path / "topic" / "0", tmp_path / "topic" / "1"]
    assert directories == [str(path) for path in inside]
    files.synced()
    files.close()


def test_touching_one_page_of_a_file_does_not_read_all_of_it_ahead(files, tmp_path):
    """Thousands of queues got their first messages at once: 3 ms and 6 MB of page cache for each
    stopped a leader for so long that it lost its followers.
    """
    flush(files)
    files.buffer(f"{tmp_path}/0")
    mapped = Path("/proc/self/smaps").read_text()
    flags = re.findall(rf"{tmp_path}/\d\n(?:.*\n)*?VmFlags: (.*)", mapped)
    assert len(flags) == 3
    assert all("rr" in words.split() for words in flags)


def test_lease_ends_with_a_flush_and_with_each_file_that_is_closed_while_written(files, tmp_path):
    lease = files.lease
    files.writable(f"{tmp_path}/0")
    files.buffer(f"{tmp_path}/1")
    files.create(str(tmp_path), "new", 100)
    assert files.lease == lease
    leases = [lease]
    for step in (
        files.take_dirty,
        lambda: files.remove(str(tmp_path), "new"),
        lambda: files.create(str(tmp_path), "0", 100),
        files.close,
    ):
        step()
        leases.append(files.lease)
    assert leases == sorted(set(leases))
    files.synced()


@pytest.mark.parametrize(
    ("descriptors", "files"),
    [(256, 128), (1024, 256), (8000, 2000), (20_000, 5000), (1 << 20, 8000), (-1, 8000)],
)
def test_more_files_stay_open_where_a_process_may_have_more(descriptors, files, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda what: (descriptors, 1 << 30))
    assert StoreConfig(root="").open_files_max == files
    assert StoreConfig(root="", open_files_max=5).open_files_max == 5
