"""The face: flushes, the lock, queue offsets."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ledgermq.commitlog import DispatchError, StoreLock, StoreLostError
from ledgermq.commitlog.checkpoint import Checkpoints
from ledgermq.dledger.store.filesystem import RealFileSystem
from tests.unit.commitlog.single_member import Broker, message


@pytest.fixture
def broker(tmp_path):
    made = Broker(tmp_path, flush_interval_ms=1000, flush_records=50).lead()
    yield made
    made.close()


def mark(broker):
    return Checkpoints(RealFileSystem(), broker.root).read()


def test_flush_is_due_after_a_time_or_a_number_of_records(broker):
    store = broker.store
    store.end_flush(run(store.begin_flush(5000)))
    assert not store.is_flush_due(99_000)
    broker.send(message())
    assert not store.is_flush_due(5999)
    assert store.is_flush_due(6000)
    # Nor does a clock that was set back put it off.
    assert store.is_flush_due(4999)
    broker.send(*[message() for _ in range(49)])
    assert store.is_flush_due(5000)


def run(job):
    job.run()
    return job


def test_checkpoint_tells_what_was_dispatched_when_the_flush_began(broker):
    broker.send(message(), message())
    job = broker.store.begin_flush(0)
    assert not broker.store.is_flush_due(1 << 60)
    with pytest.raises(DispatchError):
        broker.store.begin_flush(0)
    broker.send(message())
    broker.store.end_flush(run(job))
    assert (mark(broker).index, mark(broker).queues) == (2, [("TopicTest", 0, 0, 2)])
    assert not mark(broker).is_clean
    broker.store.flush()
    assert (mark(broker).index, mark(broker).queues) == (3, [("TopicTest", 0, 0, 3)])


def test_checkpoint_stays_when_a_sync_fails(broker, monkeypatch):
    broker.send(message())
    broker.store.flush()
    before = mark(broker)
    broker.send(message())

    def fail(descriptor):
        raise OSError(5, "input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        job = broker.store.begin_flush(0)
        with pytest.raises(OSError, match="input/output"):
            job.run()
    assert mark(broker) == before
    # All is still there, and may be done once more.
    assert broker.pull(offset=1).message_count == 1
    broker.store.take_back_flush()
    broker.store.flush()
    assert mark(broker).queues == [("TopicTest", 0, 0, 2)]
    assert broker.pull(offset=1).message_count == 1


def test_running_store_is_never_called_clean(broker):
    assert not mark(broker).is_clean


def test_queue_offsets_go_on_where_the_former_leader_stopped(broker):
    broker.send(message(), message(queue_id=1), message())
    broker.store.resign()
    broker.lead(2)
    results = broker.send(message(), message(queue_id=1), message(queue_id=2))
    assert [result.queue_offset for result in results] == [2, 1, 0]


def test_lock_keeps_another_process_out(tmp_path):
    lock = StoreLock(str(tmp_path))
    assert lock.take()
    assert (tmp_path / "abort").exists()
    program = (
        "import sys\nfrom ledgermq.commitlog import StoreInUseError, StoreLock\n"
        "try:\n    StoreLock(sys.argv[1]).take()\nexcept StoreInUseError:\n    sys.exit(7)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    assert subprocess.run(command, check=False).returncode == 7
    lock.release(is_clean=True)
    assert (tmp_path / "lock").read_bytes() == b"lock"
    assert not (tmp_path / "abort").exists()
    assert subprocess.run(command, check=False).returncode == 0
    # The other one ended without a release.
    assert not StoreLock(str(tmp_path)).take()


def remove(root):
    shutil.rmtree(root)


def remove_lock(root):
    (root / "lock").unlink()


def replace_lock(root):
    (root / "lock").rename(root / "former")
    (root / "lock").write_bytes(b"lock")


def replace_with_a_file(root):
    root.rename(root.with_name("moved"))
    root.touch()


@pytest.mark.parametrize("lose", [remove, remove_lock, replace_lock, replace_with_a_file])
def test_lock_on_a_file_that_is_not_there_any_more_is_told(tmp_path, lose):
    root = tmp_path / "store"
    lock = StoreLock(str(root))
    lock.take()
    lock.check()
    lose(root)
    with pytest.raises(StoreLostError, match=f"{root}/lock is not the file that this broker lock"):
        lock.check()
    lock.release(is_clean=False)


def test_many_queues_keep_few_files_open(tmp_path):
    broker = Broker(tmp_path, open_files_max=8).lead()
    for n in range(40):
        broker.send(message(b"%d" % n, queue_id=n))
    broker.store.flush()
    assert broker.store._files.open_count == 8
    for n in range(40):
        assert broker.pull(queue_id=n).message_count == 1
        assert broker.store._files.open_count == 8
    broker.close()


def test_the_name_of_a_new_store_is_on_disk_before_anything_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        RealFileSystem, "sync_directory", lambda self, directory: synced.append(directory)
    )
    lock = StoreLock(str(tmp_path / "new" / "store"))
    lock.take()
    lock.release(is_clean=True)
    assert synced == [str(tmp_path), str(tmp_path / "new")]
