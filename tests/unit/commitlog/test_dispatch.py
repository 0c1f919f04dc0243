"""Dispatch: committed entries only, in order, once; leader and follower alike."""

import os

import pytest

from ledgermq.commitlog import STATE_TOPIC, DispatchError
from ledgermq.protocol.errors import RemoteProtocolError
from tests.unit.commitlog.flushed import flush
from tests.unit.commitlog.single_member import Broker, message


@pytest.fixture
def broker(tmp_path):
    made = Broker(tmp_path / "leader").lead()
    yield made
    made.close()


def derived(broker) -> dict[str, bytes]:
    """What the files of a store have once all that was made is written, checkpoint apart."""
    broker.store._key_index.settle()
    flush(broker.store._files)
    return files_of(broker.root)


def files_of(root) -> dict[str, bytes]:
    """Path and content of every queue and index file; index files go by another clock."""
    found = {}
    for part in ("consumequeue", "index"):
        for directory, _, names in os.walk(f"{root}/{part}"):
            for n, name in enumerate(sorted(names)):
                key = name if part == "consumequeue" else str(n)
                with open(f"{directory}/{name}", "rb") as file:
                    found[f"{os.path.relpath(directory, root)}/{key}"] = file.read()
    return found


def some_messages(count, first=0):
    return [
        message(
            b"m%d" % n,
            topic=f"Topic{n % 2}",
            queue_id=n % 3,
            properties=f"UNIQ_KEY\x01{n:032X}\x02TAGS\x01T{n % 5}\x02KEYS\x01k{n} all".encode(),
        )
        for n in range(first, first + count)
    ]


def test_uncommitted_message_is_invisible(broker):
    results = broker.send(*some_messages(6), commit=False)
    assert broker.pull("Topic0").message_count == 0
    assert broker.store.record_at(results[0].physical_offset) is None
    assert broker.store.query("Topic0", "k0", 9, 0, 1 << 60).parts == []
    broker.commit(results[2].index + 1)
    assert broker.store.max_offset("Topic0", 0) == 1
    assert broker.store.max_offset("Topic1", 0) == 0
    broker.commit()
    assert broker.store.max_offset("Topic1", 0) == 1


def test_follower_makes_the_same_files_as_the_leader(broker, tmp_path):
    follower = Broker(tmp_path / "follower")
    for turn in range(5):
        broker.send(*some_messages(20, 20 * turn))
    first = 0
    while first <= broker.ledger_store.last_index:
        entries = broker.ledger_store.read(first, 3000)
        follower.ledger_store.append(entries)
        first = entries.last_index + 1
    follower.commit()
    assert derived(follower) == derived(broker)
    assert len(derived(broker)) == 7
    follower.close()


def test_commits_may_cut_through_what_was_appended_together(broker, tmp_path):
    results = broker.send(*some_messages(50), commit=False)
    for result in results[::7]:
        broker.commit(result.index + 1)
    broker.commit()
    whole = Broker(tmp_path / "whole").lead()
    whole.send(*some_messages(50))
    assert derived(whole) == derived(broker)
    whole.close()


def test_range_that_was_dispatched_before_is_skipped(broker):
    broker.send(*some_messages(9))
    before = derived(broker)
    broker.store.committed(0, 10)
    assert derived(broker) == before


def test_missing_range_is_refused(broker):
    broker.send(*some_messages(3), commit=False)
    with pytest.raises(DispatchError, match="missing"):
        broker.store.committed(2, 4)
    broker.commit()


def test_entries_of_a_later_leader_replace_what_was_appended_here(broker):
    """What this member appended as a leader is only a shortcut; the log is what counts."""
    broker.send(*some_messages(4), commit=False)
    broker.ledger_store.truncate(1)
    broker.ledger.term = 2
    other = Broker(f"{broker.root}-other").lead()
    other.send(*some_messages(6, 100))
    bodies = [bytes(body) for body in other.ledger_store.read(1, 1 << 20).bodies()]
    broker.ledger.propose(bodies)
    broker.commit()
    assert broker.store.max_offset("Topic0", 1) == 1
    assert b"m100" in broker.pull("Topic0", 1).parts[0]
    other.close()


def test_everybody_is_told_once_for_each_range(broker):
    told = []
    broker.store.on_dispatched(told.append)
    broker.send(message(properties=b"TAGS\x01TagA"), message(queue_id=1), message(sys_flag=0x4))
    assert told == [[("TopicTest", 0, 1, 2598919), ("TopicTest", 1, 1, 0)]]
    broker.store.committed(0, 3)
    assert len(told) == 1


def state(body):
    return message(body, topic=STATE_TOPIC, sys_flag=0x4)


def test_watched_bodies_arrive_in_order_with_their_index(broker):
    seen = []
    broker.store.watch_topic(STATE_TOPIC, lambda body, index: seen.append((body, index)))
    broker.send(state(b"a"), message(), state(b"b"))
    broker.send(state(b"c"))
    assert seen == [(b"a", 1), (b"b", 3), (b"c", 4)]
    assert broker.store.max_offset(STATE_TOPIC, 0) == 0


def test_watcher_sees_the_queues_as_they_were_at_its_record(broker):
    """A topic is deleted between two of its records that are committed together."""
    broker.store.watch_topic(STATE_TOPIC, lambda body, index: broker.store.delete_topic("T"))
    broker.send(message(topic="T"), state(b"delete T"), message(topic="T"))
    assert broker.store.min_offset("T", 0) == 1
    assert broker.store.max_offset("T", 0) == 2
    assert broker.pull("T", offset=1).message_count == 1


def test_entry_that_is_no_record_ends_dispatch(broker):
    broker.ledger.propose([b"not a record" * 20])
    with pytest.raises(RemoteProtocolError):
        broker.commit()
    assert isinstance(broker.store.failure, RemoteProtocolError)
    with pytest.raises(RemoteProtocolError):
        broker.store.committed(0, 2)


def test_queue_offset_with_a_gap_ends_dispatch(broker, tmp_path):
    other = Broker(tmp_path / "other").lead()
    other.send(message(b"0"), message(b"1"), message(b"2"))
    bodies = [bytes(body) for body in other.ledger_store.read(1, 1 << 20).bodies()]
    broker.ledger.propose([bodies[0], bodies[2]])
    with pytest.raises(DispatchError, match="gap"):
        broker.commit()
    assert broker.store.max_offset("TopicTest", 0) <= 1
    other.close()


def test_more_than_the_bound_of_pending_records_is_read_back_from_the_log(tmp_path):
    broker = Broker(tmp_path, pending_records_max=10).lead()
    for turn in range(4):
        broker.send(*some_messages(6, 6 * turn), commit=False)
    broker.commit()
    assert sum(broker.store.max_offset(f"Topic{t}", q) for t in range(2) for q in range(3)) == 24
    broker.close()
