"""Store times never fall along a log, whatever the clocks of those who write it say."""

import pytest

from ledgermq.commitlog import opening_record
from ledgermq.protocol.record import decode_record
from tests.unit.commitlog.single_member import HOST, START_MS, Broker, message

HOUR_MS = 3_600_000


def sent(broker: Broker, count: int, first: int = 0) -> None:
    """So many messages, one a second by the broker's clock, each with a key of its own."""
    for n in range(first, first + count):
        broker.send(message(b"%d" % n, properties=b"KEYS\x01k%d all" % n))
        broker.now_ms += 1000


def store_times(broker: Broker) -> list[int]:
    """Of all records, those in no queue among them."""
    store, ledger = broker.store, broker.ledger_store
    places = [ledger.position_at(i) + 48 for i in range(ledger.first_index, ledger.last_index + 1)]
    return [decode_record(store.record_at(place)).store_timestamp for place in places]


def falls(times: list[int]) -> list[tuple[int, int]]:
    return [pair for pair in zip(times, times[1:], strict=False) if pair[1] < pair[0]]


def restarted(broker: Broker, ahead_ms: int, *, is_clean: bool = True) -> Broker:
    """The next process, by another clock."""
    now_ms = broker.now_ms
    if is_clean:
        broker.close()
    else:
        broker.kill()
    again = Broker(broker.root)
    again.now_ms = now_ms + ahead_ms
    return again


@pytest.mark.parametrize("is_clean", [True, False])
def test_times_go_on_over_a_restart_with_a_clock_that_is_behind(tmp_path, is_clean):
    broker = Broker(tmp_path).lead()
    sent(broker, 20)
    begun_ms = broker.now_ms
    broker = restarted(broker, -HOUR_MS, is_clean=is_clean).lead()
    sent(broker, 20, 20)
    assert falls(store_times(broker)) == []
    # As long as the clock is behind nothing else is said of the new ones.
    assert set(store_times(broker)[21:]) == {begun_ms - 1000}
    # Of two messages as near to a time the earlier one counts.
    assert broker.store.offset_by_time("TopicTest", 0, START_MS + 15_000) == 15
    found = broker.store.query("TopicTest", "all", 99, START_MS, START_MS + 40_000)
    assert len(found.parts) == 40
    broker.now_ms += 2 * HOUR_MS
    sent(broker, 1, 40)
    assert store_times(broker)[-1] == broker.now_ms - 1000
    assert falls(store_times(broker)) == []
    broker.close()


def test_a_member_that_followed_goes_on_where_the_leader_was(tmp_path):
    leader, follower = Broker(tmp_path / "a").lead(), Broker(tmp_path / "b")
    sent(leader, 5)
    follower.ledger_store.append(leader.ledger_store.read(0, 1 << 20))
    follower.now_ms = START_MS - HOUR_MS
    follower.commit()
    follower.lead(2)
    sent(follower, 15, 5)
    assert falls(store_times(follower)) == []
    latest_ms = store_times(leader)[-1]
    for at_ms, offset in ((START_MS + 2000, 2), (latest_ms, 4), (latest_ms + HOUR_MS, 19)):
        assert follower.store.offset_by_time("TopicTest", 0, at_ms) == offset
    for key, begin_ms, count in (
        ("all", START_MS, 20),
        ("all", latest_ms, 16),
        ("k17", latest_ms, 1),
    ):
        found = follower.store.query("TopicTest", key, 99, begin_ms, latest_ms)
        assert len(found.parts) == count
    assert follower.store.query("TopicTest", "all", 99, latest_ms + 1, 1 << 60).parts == []
    leader.close()
    follower.close()


def test_a_member_that_leads_again_forgets_the_times_of_what_was_cut(tmp_path):
    broker = Broker(tmp_path).lead()
    sent(broker, 3)
    broker.now_ms += 5 * HOUR_MS
    broker.send(message(b"lost"), commit=False)
    broker.store.resign()
    broker.ledger_store.truncate(broker.ledger_store.last_index)
    broker.now_ms -= 5 * HOUR_MS
    broker.lead(3)
    sent(broker, 1, 3)
    assert store_times(broker)[-1] == broker.now_ms - 1000
    broker.close()


def test_an_opening_record_stands_behind_what_is_not_dispatched(tmp_path):
    broker = Broker(tmp_path).lead()
    broker.now_ms += HOUR_MS
    broker.send(message(b"tail"), commit=False)
    last = broker.ledger_store.read(broker.ledger_store.last_index, 1).data[48:]
    broker.now_ms -= 2 * HOUR_MS
    assert broker.store.next_store_time(last) == START_MS + HOUR_MS
    assert broker.store.next_store_time(b"") == START_MS
    assert broker.store.next_store_time(b"no record") == START_MS
    broker.now_ms += 5 * HOUR_MS
    assert broker.store.next_store_time(last) == broker.now_ms
    broker.commit()
    broker.close()


def test_messages_behind_an_opening_record_are_no_earlier(tmp_path):
    """A leader puts one in the midst of its term, too: it ends the recovery of a follower."""
    broker = Broker(tmp_path).lead()
    broker.now_ms += HOUR_MS
    at = broker.store.next_store_time(b"")
    broker.ledger.propose([opening_record(1, HOST, at)])
    broker.now_ms -= 2 * HOUR_MS
    sent(broker, 1)
    assert store_times(broker)[-1] == at
    broker.close()


def test_where_a_java_leader_let_them_fall_the_latest_counts(tmp_path):
    """Not the last: a batch that is dispatched at once may hold both."""
    broker = Broker(tmp_path)
    ledger = broker.ledger
    for times in ((START_MS, START_MS + 9000, START_MS + 2000), (START_MS + 3000,)):
        ledger.propose([opening_record(1, HOST, at) for at in times])
        broker.commit()
    assert broker.store.dispatched_timestamp == START_MS + 9000
    broker = restarted(broker, 0)
    assert broker.store.dispatched_timestamp == START_MS + 9000
    broker.lead(2)
    assert store_times(broker)[-1] == START_MS + 9000
    broker.close()


def test_a_log_that_was_made_again_tells_its_latest_time(tmp_path):
    broker = Broker(tmp_path).lead()
    sent(broker, 20)
    latest_ms = broker.store.dispatched_timestamp
    broker.kill()
    (tmp_path / "dispatch.checkpoint").unlink()
    again = Broker(tmp_path)
    assert again.report.rebuilt_because
    assert again.store.dispatched_timestamp == latest_ms
    again.close()


def test_a_log_that_was_begun_afresh_has_times_of_its_own(tmp_path):
    broker = Broker(tmp_path, segment_bytes=65_536).lead()
    broker.now_ms += 9 * HOUR_MS
    sent(broker, 2)
    broker.store.resign()
    broker.ledger_store.reset(1000, 65_536 * 4)
    broker.store.reset()
    broker.ledger.commit_index = 999
    broker.now_ms = START_MS
    broker.lead(9)
    sent(broker, 1)
    assert store_times(broker) == [START_MS, START_MS]
    broker.close()


YEAR_MS = 365 * 24 * HOUR_MS


def gone_back(root, **config) -> Broker:
    """Ten messages, ten of a clock that is a year ahead, and ten of the right one."""
    broker = Broker(root, **config).lead()
    broker.store.store_times.set_judge(lambda now_ms, last_ms: now_ms, 60_000)
    sent(broker, 10)
    broker.now_ms += YEAR_MS
    sent(broker, 10, 10)
    broker.now_ms -= YEAR_MS
    sent(broker, 10, 20)
    return broker


@pytest.mark.parametrize("is_clean", [True, False])
def test_store_times_go_back_when_a_judge_says_so(tmp_path, is_clean):
    broker = gone_back(tmp_path)
    assert len(falls(store_times(broker))) == 1
    assert store_times(broker)[-1] == broker.now_ms - 1000
    assert broker.store.dispatched_timestamp == broker.now_ms - 1000
    broker = restarted(broker, 0, is_clean=is_clean).lead()
    sent(broker, 1, 30)
    assert store_times(broker)[-1] == broker.now_ms - 1000
    assert len(falls(store_times(broker))) == 1
    broker.close()


def test_search_by_time_passes_over_a_clock_that_was_ahead(tmp_path):
    broker = gone_back(tmp_path)
    for second in range(10):
        for first in (0, 20):
            at_ms = START_MS + 1000 * (first + second)
            assert broker.store.offset_by_time("TopicTest", 0, at_ms) == first + second
    assert broker.store.offset_by_time("TopicTest", 0, START_MS - HOUR_MS) == 0
    assert broker.store.offset_by_time("TopicTest", 0, START_MS + 29_400) == 29
    assert broker.store.offset_by_time("TopicTest", 0, START_MS + 2 * YEAR_MS) == 29
    broker.close()


@pytest.mark.parametrize("entry_count", [1000, 25])
def test_key_search_finds_what_was_stored_behind_a_clock_ahead(tmp_path, entry_count):
    """Also in an index file that begins with the times of that clock."""
    broker = gone_back(tmp_path, index_entry_count=entry_count)
    for n in (0, 9, 20, 29):
        at_ms = START_MS + 1000 * n
        found = broker.store.query("TopicTest", f"k{n}", 9, at_ms - 1000, at_ms + 1000)
        assert len(found.parts) == 1, n
    assert broker.store.query("TopicTest", "k12", 9, START_MS, START_MS + HOUR_MS).parts == []
    broker.close()
