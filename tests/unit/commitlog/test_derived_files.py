"""Queues and key index between memory and disk: nothing is lost, whatever the disk does."""

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ledgermq.commitlog.config import StoreConfig
from ledgermq.commitlog.consume_queue import ConsumeQueue
from ledgermq.commitlog.derived_files import DerivedFiles
from ledgermq.commitlog.errors import DamagedFileError, FilesBehindError
from ledgermq.commitlog.layout import QUEUE_UNIT
from ledgermq.dledger.store.errors import DiskFullError
from ledgermq.dledger.store.filesystem import RealFileSystem
from tests.unit.commitlog.flushed import flush, run
from tests.unit.commitlog.single_member import Broker
from tests.unit.commitlog.test_dispatch import derived, files_of, some_messages
from tests.unit.commitlog.test_store import mark

SEGMENT_BYTES = 200
# In the path of each file of the ledger.
IN_LEDGER = "/dledger-"


def units(first: int, count: int) -> bytes:
    return b"".join(QUEUE_UNIT.pack(1000 * n + 1, 100, n) for n in range(first, first + count))


@pytest.fixture
def files() -> DerivedFiles:
    return DerivedFiles(RealFileSystem(), 3)


@pytest.fixture
def queue(tmp_path, files) -> ConsumeQueue:
    return ConsumeQueue("T", 0, str(tmp_path / "q"), files, SEGMENT_BYTES)


def content(queue: ConsumeQueue) -> bytes:
    directory = Path(queue._directory)
    return b"".join((directory / name).read_bytes() for name in sorted(os.listdir(directory)))


def test_dispatch_touches_no_file_and_readers_find_all(tmp_path, queue, files):
    queue.put(0, units(0, 35), 0)
    assert not (tmp_path / "q").exists()
    assert queue.units(3, 20) == units(3, 20)
    changes = files.take()
    queue.put(35, units(35, 10), 0)
    assert not (tmp_path / "q").exists()
    for step in changes.steps():
        step()
        # Written or not, landed or not.
        assert queue.units(0, 99) == units(0, 45)
    assert content(queue) == units(0, 35) + bytes(100)
    files.landed(changes)
    assert queue.units(0, 99) == units(0, 45)
    assert queue.units(38, 2) == units(38, 2)
    flush(files)
    assert content(queue) == units(0, 45) + bytes(100)
    assert queue.units(0, 99) == units(0, 45)


def test_what_comes_during_a_flush_belongs_to_the_next(queue, files):
    queue.put(0, units(0, 3), 0)
    changes = files.take()
    lease = files.lease
    assert not queue.add(3, units(3, 1), lease)
    queue.put(3, units(3, 1), 0)
    assert queue.add(4, units(4, 1), lease)
    run(changes.steps())
    files.landed(changes)
    assert content(queue) == units(0, 3) + bytes(140)
    flush(files)
    assert content(queue) == units(0, 5) + bytes(100)


def test_two_flushes_do_not_overlap(files):
    files.take()
    with pytest.raises(AssertionError):
        files.take()


def test_each_step_is_one_file_and_every_new_name_is_synced(tmp_path, monkeypatch):
    """A thousand topics that begin at once must not hold the broker up, one sync after another."""
    synced = []
    monkeypatch.setattr(RealFileSystem, "sync_directory", lambda _, path: synced.append(path))
    files = DerivedFiles(RealFileSystem(), 9)
    for n in range(2):
        name = str(tmp_path / "topic" / str(n))
        ConsumeQueue("topic", n, name, files, SEGMENT_BYTES).put(0, units(0, 12), 0)
    changes = files.take()
    steps = changes.steps()
    made = []
    for _ in range(4):
        next(steps)()
        made.append(sum(len(names) for _, _, names in os.walk(tmp_path)))
    assert (made, synced) == ([1, 2, 3, 4], [])
    run(steps)
    inside = [tmp_path, tmp_path / "topic", tmp_path / "topic" / "0", tmp_path / "topic" / "1"]
    assert synced == [str(path) for path in inside]


def test_few_files_stay_open_and_none_that_was_removed(tmp_path, files):
    queues = [ConsumeQueue("T", n, f"{tmp_path}/{n}", files, SEGMENT_BYTES) for n in range(7)]
    for queue in queues:
        queue.put(0, units(0, 5), 0)
    flush(files)
    assert files.open_count == 3
    for queue in queues:
        assert queue.units(0, 9) == units(0, 5)
        assert files.open_count <= 3
        before = files.open_count
        queue.delete()
        assert files.open_count == before - 1
    assert files.has_removals
    flush(files)
    assert [names for _, _, names in os.walk(tmp_path) if names] == []
    assert not files.has_removals


def test_a_handle_that_a_flush_has_is_not_closed_under_it(tmp_path, files):
    """A sync that found its file closed would say that it is durable."""
    queues = [ConsumeQueue("T", n, f"{tmp_path}/{n}", files, SEGMENT_BYTES) for n in range(7)]
    for queue in queues:
        queue.put(0, units(0, 2), 0)
    flush(files)
    for queue in queues:
        queue.put(2, units(2, 2), 0)
    changes = files.take()
    steps = changes.steps()
    for _ in queues:
        # Others are opened, so that those of the flush are the least recently used.
        for other in queues:
            assert other.units(0, 1) == units(0, 1)
        next(steps)()
    run(steps)
    files.landed(changes)
    assert [content(queue) for queue in queues] == [units(0, 4) + bytes(120)] * 7


def test_files_go_when_no_checkpoint_names_them_and_one_made_anew_stays(queue, files):
    queue.put(0, units(0, 25), 0)
    flush(files)
    queue.delete()
    assert len(content(queue)) == 3 * SEGMENT_BYTES
    queue.put(25, units(25, 1), 0)
    changes = files.take()
    run(changes.steps())
    assert len(content(queue)) == 3 * SEGMENT_BYTES
    run(changes.removal_steps())
    files.landed(changes)
    assert os.listdir(queue._directory) == [f"{2 * SEGMENT_BYTES:020d}"]
    assert queue.units(25, 9) == units(25, 1)


def test_a_queue_that_is_deleted_while_its_file_is_made_leaves_none(queue, files):
    queue.put(0, units(0, 5), 0)
    changes = files.take()
    queue.delete()
    run(changes.steps())
    files.landed(changes)
    flush(files)
    assert os.listdir(queue._directory) == []
    assert (queue.min_offset, queue.max_offset) == (5, 5)


def test_a_queue_that_is_cut_while_it_is_written_ends_where_it_was_cut(queue, files):
    queue.put(0, units(0, 35), 0)
    changes = files.take()
    queue.put(35, units(35, 3), 0)
    queue.restore(0, 12)
    assert queue.units(0, 99) == units(0, 12)
    run(changes.steps())
    files.landed(changes)
    queue.put(12, units(100, 2), 0)
    assert queue.units(0, 99) == units(0, 12) + units(100, 2)
    flush(files)
    assert content(queue) == units(0, 12) + units(100, 2) + bytes(120)
    assert queue.units(0, 99) == units(0, 12) + units(100, 2)


def test_too_much_in_memory_is_written_at_once(queue, files):
    files.held_max = 20
    queue.put(0, units(0, 15), 0)
    files.made(15)
    assert not Path(queue._directory).exists()
    queue.put(15, units(15, 6), 0)
    files.made(6)
    assert content(queue) == units(0, 21) + bytes(180)
    assert not files.is_behind


def test_a_flush_that_does_not_end_has_messages_refused(tmp_path):
    broker = Broker(tmp_path).lead()
    broker.store._files.held_max = 100
    broker.send(*some_messages(30))
    job = broker.store.begin_flush(0)
    # A unit and three keys of each.
    broker.send(*some_messages(25, 30))
    broker.send(*some_messages(1, 55))
    with pytest.raises(FilesBehindError, match="104 units .* more than 100"):
        broker.send(*some_messages(1, 56))
    assert broker.pull("Topic1", 1, offset=9).message_count == 1
    job.run()
    broker.store.end_flush(job)
    with pytest.raises(FilesBehindError):
        broker.send(*some_messages(1, 56))
    assert broker.store.is_flush_due(1 << 40)
    broker.store.flush()
    broker.send(*some_messages(1, 56))
    broker.close()


# What a disk may refuse.


class FullDisk(RealFileSystem):
    """Has room for so many more writes to files that are not the ledger's."""

    writes_left = 1 << 30

    def reserve(self, path, size_bytes):
        file = super().reserve(path, size_bytes)
        return file if IN_LEDGER in path else FullFile(self, file)

    def open(self, path):
        file = super().open(path)
        return file if IN_LEDGER in path else FullFile(self, file)


class FullFile:
    def __init__(self, disk, file):
        self.disk, self.file = disk, file
        self.read, self.sync, self.written_ranges = file.read, file.sync, file.written_ranges
        self.close = file.close

    def write(self, offset, data):
        if self.disk.writes_left <= 0:
            self.file.write(offset, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        self.disk.writes_left -= 1
        self.file.write(offset, data)


@pytest.mark.parametrize("room", range(8))
def test_without_room_a_flush_changes_nothing_and_the_next_one_does_its_work_too(tmp_path, room):
    """As a disk that keeps former versions of its blocks says it, though they are reserved."""
    disk = FullDisk()
    broker = Broker(tmp_path / "a", file_system=disk).lead()
    broker.send(*some_messages(60))
    job = broker.store.begin_flush(0)
    disk.writes_left = room
    with pytest.raises(DiskFullError, match="no room on the disk"):
        job.run()
    broker.store.take_back_flush()
    assert broker.store.is_flush_due(1 << 40)
    broker.send(*some_messages(60, 60))
    assert broker.pull("Topic0", 0, offset=0).message_count == 20
    assert len(broker.store.query("Topic1", "k59", 9, 0, 1 << 60).parts) == 1
    disk.writes_left = 1 << 30
    broker.store.flush()
    assert mark(broker).queues[0] == ("Topic0", 0, 0, 20)
    assert broker.pull("Topic0", 0, offset=0).message_count == 20
    whole = Broker(tmp_path / "whole").lead()
    whole.send(*some_messages(120))
    assert derived(broker) == derived(whole)
    broker.close()
    whole.close()


class ForgetfulDisk(RealFileSystem):
    """Fails a sync, and forgets then what it should have written: it counts as clean."""

    def __init__(self):
        self.fails = False
        # Path, offset and bytes of what was synced.
        self.durable = {}

    def reserve(self, path, size_bytes):
        file = super().reserve(path, size_bytes)
        return file if IN_LEDGER in path else ForgetfulFile(self, path, file)

    def open(self, path):
        file = super().open(path)
        return file if IN_LEDGER in path else ForgetfulFile(self, path, file)


class ForgetfulFile:
    def __init__(self, disk, path, file):
        self.disk, self.path, self.file = disk, path, file
        self.read, self.written_ranges = file.read, file.written_ranges
        self.dirty: dict[int, bytes] = {}

    def write(self, offset, data):
        self.file.write(offset, data)
        self.dirty[offset] = bytes(data)

    def sync(self):
        dirty, self.dirty = self.dirty, {}
        if self.disk.fails:
            raise OSError(errno.EIO, "Input/output error")
        self.disk.durable.setdefault(self.path, {}).update(dirty)


def test_what_a_failed_sync_forgot_is_written_anew(tmp_path):
    """Reading it back and finding it right would prove nothing."""
    disk = ForgetfulDisk()
    broker = Broker(tmp_path, file_system=disk, index_entry_count=50).lead()
    broker.send(*some_messages(60))
    job = broker.store.begin_flush(0)
    disk.fails = True
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            job.run()
    disk.fails = False
    job.run()
    broker.store.end_flush(job)
    broker.close()
    assert len(disk.durable) == len(files_of(tmp_path))
    for path, parts in disk.durable.items():
        content = Path(path).read_bytes()
        on_disk = bytearray(len(content))
        for offset, data in parts.items():
            on_disk[offset : offset + len(data)] = data
        assert bytes(on_disk) == content, path


TRUNCATED = """
import os, sys
sys.path.insert(0, sys.argv[2])
from tests.unit.commitlog.single_member import Broker, message
from tests.unit.commitlog.test_dispatch import some_messages
broker = Broker(sys.argv[1], queue_segment_bytes=8000).lead()
broker.send(*some_messages(60))
broker.store.flush()
# Now no store into a mapping of one of these files can succeed.
for part in ("consumequeue", "index"):
    for directory, _, names in os.walk(f"{sys.argv[1]}/{part}"):
        for name in names:
            os.truncate(f"{directory}/{name}", 0)
broker.send(*some_messages(60, 60))
print(broker.pull("Topic0", 0, offset=10).message_count)
broker.store.flush()
try:
    broker.pull("Topic0", 0, offset=0)
except Exception as error:
    print(type(error).__name__)
"""


def printed_by(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).resolve().parents[3])
    words = [sys.executable, "-c", program, *arguments, root]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def test_no_store_into_a_mapping_ends_the_process(tmp_path):
    """On a disk that has no room for a page the process would be gone (SIGBUS)."""
    done = printed_by(TRUNCATED, str(tmp_path))
    assert done.returncode != -signal.SIGBUS
    # What the files have lost is told as damage, by which they are made again.
    assert done.stdout.split() == ["10", "DamagedFileError"], done.stderr


LIMITED = """
import resource, signal, sys
sys.path.insert(0, sys.argv[2])
from tests.unit.commitlog.single_member import Broker
from tests.unit.commitlog.test_dispatch import some_messages
broker = Broker(sys.argv[1], queue_segment_bytes=8000).lead()
broker.send(*some_messages(6))
broker.store.flush()
broker.send(*some_messages(60, 6))
job = broker.store.begin_flush(0)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))
try:
    job.run()
except OSError as error:
    print(error.strerror)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
job.run()
broker.store.end_flush(job)
print(broker.pull("Topic0", 0, offset=0).message_count)
"""


def test_a_kernel_that_refuses_a_write_is_an_error_of_the_flush(tmp_path):
    done = printed_by(LIMITED, str(tmp_path))
    assert done.stdout.splitlines() == ["File too large", "11"], done.stderr


def test_no_file_is_mapped(tmp_path):
    broker = Broker(tmp_path).lead()
    broker.send(*some_messages(60))
    broker.store.flush()
    broker.send(*some_messages(60, 60))
    assert broker.pull("Topic0").message_count == 20
    assert len(broker.store.query("Topic1", "k1", 9, 0, 1 << 60).parts) == 1
    mapped = Path("/proc/self/maps").read_text()
    assert str(tmp_path) not in mapped
    broker.close()


class BadDisk(RealFileSystem):
    """Cannot read what was once written to files of one part; where they are made anew it can."""

    def __init__(self, part):
        self.part = part

    def open(self, path):
        file = super().open(path)
        is_bad = f"/{self.part}/" in path and IN_LEDGER not in path
        return UnreadableFile(file) if is_bad else file


class UnreadableFile:
    def __init__(self, file):
        self.write, self.sync, self.written_ranges = file.write, file.sync, file.written_ranges

    def read(self, offset, size_bytes):
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("part", ["consumequeue", "index"])
def test_a_file_that_cannot_be_read_at_the_start_is_made_again(tmp_path, part, is_clean):
    sizes = {"index_entry_count": 50, "segment_bytes": 8192}
    broker = Broker(tmp_path, **sizes).lead()
    broker.send(*some_messages(120))
    broker.store.flush()
    broker.send(*some_messages(60, 120))
    if is_clean:
        broker.close()
    else:
        broker.kill()
    # Something is read while the store opens: the log has lost its head.
    broker.ledger_store.drop_before(8192)
    again = Broker(tmp_path, file_system=BadDisk(part), **sizes)
    assert again.report.rebuilt_because or again.report.rebuilt_key_index
    again.lead(2)
    assert len(again.store.query("Topic1", "k179", 9, 0, 1 << 60).parts) == 1
    high = again.store.max_offset("Topic1", 2)
    assert again.pull("Topic1", 2, offset=high - 3).message_count == 3
    again.close()
    third = Broker(tmp_path, **sizes)
    assert third.report.rebuilt_because == ""
    third.close()


def test_a_file_that_ends_early_is_told_and_read_no_further(queue, files):
    queue.put(0, units(0, 5), 0)
    flush(files)
    os.truncate(f"{queue._directory}/{0:020d}", 50)
    told = []
    files.on_damage = told.append
    with pytest.raises(DamagedFileError) as caught:
        queue.units(0, 5)
    assert told == [caught.value]
    assert caught.value.is_derived


@pytest.mark.parametrize(
    ("descriptors", "open_max"),
    [(256, 128), (1024, 256), (8000, 2000), (20_000, 5000), (1 << 20, 8000), (-1, 8000)],
)
def test_more_files_stay_open_where_a_process_may_have_more(descriptors, open_max, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda what: (descriptors, 1 << 30))
    assert StoreConfig(root="").open_files_max == open_max
    assert StoreConfig(root="", open_files_max=5).open_files_max == 5
