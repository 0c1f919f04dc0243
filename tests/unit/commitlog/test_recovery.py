"""Opening again: after a clean stop, a kill, a power cut, and after somebody removed files."""

import os
import shutil

import pytest

from tests.unit.commitlog.single_member import Broker, message
from tests.unit.commitlog.test_dispatch import derived, files_of, some_messages

SMALL = {"segment_bytes": 65_536, "index_slot_count": 20, "index_entry_count": 50}


@pytest.fixture
def broker(tmp_path):
    """Sixty messages, flushed, then sixty more that only the page cache holds."""
    made = Broker(tmp_path / "a", **SMALL).lead()
    made.send(*some_messages(60))
    made.store.flush()
    made.send(*some_messages(60, 60))
    return made


def reopened(broker):
    return Broker(broker.root, **SMALL)


def test_clean_stop_changes_no_file(broker):
    broker.close()
    before = files_of(broker.root)
    again = reopened(broker)
    assert again.report.was_clean
    assert (again.report.dispatched_count, again.report.rebuilt_queues) == (0, [])
    assert files_of(broker.root) == before
    again.close()
    assert files_of(broker.root) == before


def test_kill_leaves_no_hole(broker):
    expected = derived(broker)
    broker.kill()
    again = reopened(broker)
    assert not again.report.was_clean
    assert again.report.dispatched_count == 60
    assert derived(again) == expected
    again.lead(2).send(*some_messages(6, 120))
    assert again.pull("Topic0", 0, 20).message_count == 1
    again.close()


def test_what_was_written_after_the_checkpoint_is_not_trusted(broker):
    """A power cut may leave any part of the pages written since the last flush."""
    expected = derived(broker)
    broker.kill()
    path = f"{broker.root}/consumequeue/Topic0/0/{0:020d}"
    with open(path, "r+b") as file:
        file.seek(15 * 20)
        file.write(b"\xff" * 100)
        file.seek(90 * 20)
        file.write(b"\xee" * 20)
    again = reopened(broker)
    assert derived(again) == expected
    again.close()


@pytest.mark.parametrize("is_clean", [True, False])
def test_removed_queues_are_made_again_byte_for_byte(broker, is_clean):
    expected = derived(broker)
    broker.close() if is_clean else broker.kill()
    shutil.rmtree(f"{broker.root}/consumequeue")
    again = reopened(broker)
    assert len(again.report.rebuilt_queues) == 6
    assert derived(again) == expected
    again.close()


@pytest.mark.parametrize("is_clean", [True, False])
def test_one_removed_queue_is_made_again(broker, is_clean):
    expected = derived(broker)
    broker.close() if is_clean else broker.kill()
    shutil.rmtree(f"{broker.root}/consumequeue/Topic1/1")
    again = reopened(broker)
    assert again.report.rebuilt_queues == ["Topic1-1"]
    assert derived(again) == expected
    again.close()


@pytest.mark.parametrize("is_clean", [True, False])
def test_removed_key_index_is_made_again(broker, is_clean):
    expected = derived(broker)
    broker.close() if is_clean else broker.kill()
    shutil.rmtree(f"{broker.root}/index")
    again = reopened(broker)
    assert again.report.rebuilt_key_index
    assert derived(again) == expected
    again.close()


@pytest.mark.parametrize("damage", ["removed", "cut", "garbage"])
def test_without_a_checkpoint_everything_is_made_again(broker, damage):
    expected = derived(broker)
    broker.kill()
    path = f"{broker.root}/dispatch.checkpoint"
    if damage == "removed":
        os.unlink(path)
    else:
        with open(path, "r+b") as file:
            file.truncate(50) if damage == "cut" else file.write(b"garbage")
    again = reopened(broker)
    assert again.report.rebuilt_because
    assert derived(again) == expected
    again.close()


def test_file_of_another_size_is_made_again(broker):
    expected = derived(broker)
    broker.close()
    with open(f"{broker.root}/consumequeue/Topic0/0/{0:020d}", "ab") as file:
        file.write(b"x")
    again = reopened(broker)
    assert again.report.rebuilt_queues == ["Topic0-0"]
    assert derived(again) == expected
    again.close()


def test_log_that_lost_its_end_takes_the_queues_with_it(broker):
    """ASYNC_FLUSH and a power cut: queues were synced, the log's last entries were not."""
    broker.store.flush()
    end = broker.ledger_store.last_index
    broker.ledger_store.truncate(end - 29)
    broker.ledger_store.write_checkpoint(end - 30)
    broker.ledger_store.sync()
    again = reopened(broker)
    assert again.report.rebuilt_because == ""
    assert again.store.dispatched_index == end - 30
    clean = Broker(f"{broker.root}-clean", **SMALL).lead()
    clean.send(*some_messages(90))
    queues = {key: data for key, data in derived(again).items() if "queue" in key}
    assert queues == {key: data for key, data in derived(clean).items() if "queue" in key}
    again.lead(2).send(*some_messages(30, 90))
    assert again.store.max_offset("Topic0", 0) == 20
    assert len(again.store.query("Topic1", "k119", 9, 0, 1 << 60).parts) == 1
    assert len(again.store.query("Topic1", "k1", 9, 0, 1 << 60).parts) == 1
    again.close()
    clean.close()


def test_log_with_other_entries_than_were_dispatched_is_dispatched_anew(broker):
    broker.store.flush()
    broker.ledger_store.truncate(61)
    broker.ledger.term = 5
    other = Broker(f"{broker.root}-other", **SMALL).lead()
    other.send(*some_messages(60))
    other.send(*some_messages(70, 500))
    first = 61
    while first <= other.ledger_store.last_index:
        entries = other.ledger_store.read(first, 1 << 20)
        broker.ledger.propose([bytes(body) for body in entries.bodies()])
        first = entries.last_index + 1
    broker.ledger_store.write_checkpoint(broker.ledger_store.last_index)
    broker.kill()
    again = reopened(broker)
    assert "another one" in again.report.rebuilt_because
    queues = {key: data for key, data in derived(again).items() if "queue" in key}
    assert queues == {key: data for key, data in derived(other).items() if "queue" in key}
    again.close()
    other.close()


def test_deleted_topic_keeps_its_numbering_over_restarts(broker):
    assert broker.store.delete_topic("Topic0") == 3
    broker.close()
    again = reopened(broker)
    assert again.store.min_offset("Topic0", 0) == again.store.max_offset("Topic0", 0) == 20
    again.lead(2)
    assert again.send(message(topic="Topic0"))[0].queue_offset == 20
    again.kill()
    third = reopened(again)
    assert third.store.max_offset("Topic0", 0) == 21
    third.close()


def test_uncommitted_end_is_not_dispatched_at_opening(broker):
    broker.send(*some_messages(5, 900), commit=False)
    broker.kill()
    again = reopened(broker)
    assert again.store.dispatched_index == again.ledger_store.last_index - 5
    again.close()


def test_opening_twice_is_opening_once(broker):
    broker.kill()
    first = reopened(broker)
    expected = derived(first)
    first.kill()
    second = reopened(broker)
    assert second.report.dispatched_count == 0
    assert derived(second) == expected
    second.close()


def test_reset_starts_over_at_the_first_entry_of_the_new_log(broker):
    broker.store.resign()
    broker.ledger_store.reset(1000, 65_536 * 4)
    broker.store.reset()
    broker.ledger.commit_index = 999
    broker.lead(9)
    assert broker.send(message())[0].queue_offset == 0
    assert broker.pull().message_count == 1
    broker.close()
