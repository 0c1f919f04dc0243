"""What retention gives up, and that everything pointing there goes along."""

import os

import pytest

from ledgermq.commitlog.config import StoreConfig
from ledgermq.commitlog.retention import CleanReason, SegmentAge, decide, used_percent, used_ratio
from ledgermq.protocol.record import decode_record
from tests.unit.commitlog.single_member import START_MS, Broker, clean, message

HOUR_MS = 3_600_000
CONFIG = StoreConfig(root="unused", reserved_hours=10)
NOW_MS = 1000 * HOUR_MS
# Twelve segments, one an hour, the youngest an hour old.
SEGMENTS = [SegmentAge(100 * (n + 1), NOW_MS - HOUR_MS * (20 - n)) for n in range(12)]


def decided(**changes):
    arguments = {
        "now_ms": NOW_MS,
        "local_hour": 12,
        "disk_percent": 50,
        "was_disk_full": False,
        "config": CONFIG,
    }
    return decide(changes.pop("segments", SEGMENTS), **(arguments | changes))


@pytest.mark.parametrize(
    ("changes", "drop_before", "reason"),
    [
        ({}, 0, CleanReason.NONE),
        ({"local_hour": 4}, 1000, CleanReason.HOUR),
        ({"is_asked": True}, 1000, CleanReason.ASKED),
        ({"disk_percent": 75}, 0, CleanReason.NONE),
        ({"disk_percent": 76}, 1000, CleanReason.DISK),
        ({"disk_percent": 86}, 1000, CleanReason.DISK_FORCED),
        ({"disk_percent": -1}, 0, CleanReason.NONE),
        ({"local_hour": 4, "segments": []}, 0, CleanReason.HOUR),
        ({"local_hour": 4, "segments": SEGMENTS[9:]}, 1000, CleanReason.HOUR),
        ({"local_hour": 4, "segments": SEGMENTS[10:]}, 0, CleanReason.HOUR),
        ({"disk_percent": 86, "segments": SEGMENTS[10:]}, 1200, CleanReason.DISK_FORCED),
    ],
)
def test_decision(changes, drop_before, reason):
    decision = decided(**changes)
    assert (decision.drop_before, decision.reason) == (drop_before, reason)


@pytest.mark.parametrize(
    ("changes", "drop_before"),
    [
        ({"local_hour": 4, "needed_position": 450}, 400),
        ({"local_hour": 4, "needed_position": 500}, 500),
        ({"is_asked": True, "needed_position": 0}, 0),
        ({"disk_percent": 76, "needed_position": 450}, 400),
        ({"disk_percent": 86, "needed_position": 450}, 1000),
        ({"local_hour": 4, "needed_position": 5000}, 1000),
    ],
)
def test_what_a_follower_lacks_stays_unless_the_disk_forces_it(changes, drop_before):
    assert decided(**changes).drop_before == drop_before


def test_age_counts_on_a_full_disk_when_cleaning_may_not_be_forced():
    config = StoreConfig(root="unused", reserved_hours=10, force_clean=False)
    decision = decided(config=config, disk_percent=99, segments=SEGMENTS[10:])
    assert (decision.drop_before, decision.reason) == (0, CleanReason.DISK)


@pytest.mark.parametrize(
    ("percent", "was_full", "is_full"),
    [(90, False, False), (91, False, True), (90, True, True), (86, True, True), (85, True, False)],
)
def test_appends_are_refused_between_two_levels(percent, was_full, is_full):
    assert decided(disk_percent=percent, was_disk_full=was_full).is_disk_full is is_full


@pytest.mark.parametrize(
    ("sizes", "percent"),
    [((100, 50, 50), 50), ((1000, 499, 399), 56), ((100, 0, 0), 100), ((0, 0, 0), -1)],
)
def test_used_part_is_rounded_up(sizes, percent):
    assert used_percent(*sizes) == percent


@pytest.mark.parametrize(
    ("sizes", "ratio"),
    [((100, 50, 50), 0.5), ((1000, 500, 300), 0.625), ((100, 0, 0), 1.0), ((0, 0, 0), 0.0)],
)
def test_used_part_is_one_of_what_may_be_used(sizes, ratio):
    """What the system keeps for root is neither used nor free."""
    assert used_ratio(*sizes) == ratio


def test_settings_are_checked():
    with pytest.raises(ValueError, match="rise"):
        StoreConfig(root="", disk_clean_percent=95)
    with pytest.raises(ValueError, match="open_files_max"):
        StoreConfig(root="", open_files_max=0)


def test_expired_segments_go_with_their_units_and_keys(tmp_path):
    broker = Broker(
        tmp_path, segment_bytes=8192, queue_segment_bytes=200, index_entry_count=11
    ).lead()
    for n in range(60):
        broker.send(message(b"x" * 700, queue_id=n % 2, properties=b"KEYS\x01k%d" % n))
        broker.now_ms += HOUR_MS
    store, ledger = broker.store, broker.ledger_store
    store.flush()
    now_ms = START_MS + 102 * HOUR_MS
    assert clean(store, now_ms, 12, 10).drop_before == 0
    # Somebody wants them to stay for longer.
    assert clean(store, now_ms, 4, 10, reserved_hours=1000).drop_before == 0
    decision = clean(store, now_ms, 4, 10)
    assert decision.reason is CleanReason.HOUR
    assert 0 < ledger.first_position == decision.drop_before
    low = store.min_offset("TopicTest", 0)
    assert 8 < low < 20
    first = decode_record(broker.pull(offset=low).parts[0])
    assert first.physical_offset >= ledger.first_position
    assert first.queue_offset == low
    assert broker.pull(offset=0).next_begin_offset == low
    assert store.query("TopicTest", "k1", 9, 0, 1 << 60).parts == []
    assert len(store.query("TopicTest", "k59", 9, 0, 1 << 60).parts) == 1
    # The files go when no checkpoint names them any more.
    assert store.is_flush_due(now_ms)
    store.flush()
    assert len(os.listdir(tmp_path / "index")) < 6
    assert f"{0:020d}" not in os.listdir(tmp_path / "consumequeue" / "TopicTest" / "0")
    assert first.store_timestamp > now_ms - (72 + 1 + 10) * HOUR_MS
    broker.close()
    again = Broker(tmp_path, segment_bytes=8192, queue_segment_bytes=200, index_entry_count=11)
    assert again.store.min_offset("TopicTest", 0) == low
    assert again.report.rebuilt_queues == []
    again.close()


def test_entry_that_a_follower_lacks_keeps_its_segment(tmp_path):
    broker = Broker(tmp_path, segment_bytes=8192).lead()
    for n in range(60):
        broker.send(message(b"x" * 700, queue_id=n % 2))
        broker.now_ms += HOUR_MS
    store, ledger = broker.store, broker.ledger_store
    store.flush()
    now_ms, needed_index = START_MS + 200 * HOUR_MS, 25
    decision = clean(store, now_ms, 4, 10, needed_index=needed_index)
    assert 0 < decision.drop_before <= ledger.position_at(needed_index)
    assert ledger.position_at(needed_index) - decision.drop_before < 8192
    assert clean(store, now_ms, 4, 10, needed_index=3).drop_before == 0
    assert clean(store, now_ms, 4, 10, needed_index=ledger.last_index + 1).drop_before > 0
    broker.close()


def test_last_segment_stays_on_the_fullest_disk(tmp_path):
    broker = Broker(tmp_path, segment_bytes=8192).lead()
    for _ in range(30):
        broker.send(message(b"x" * 700))
    broker.store.flush()
    for _ in range(3):
        clean(broker.store, START_MS, 12, 99)
    assert broker.store.is_disk_full
    assert broker.ledger_store.first_position == broker.ledger_store.end_position // 8192 * 8192
    assert broker.store.min_offset("TopicTest", 0) < 30
    assert broker.send(message())[0].queue_offset == 30
    broker.close()


def test_what_tells_the_ends_of_queues_stays(tmp_path):
    """A queue without any message left goes on where it was: the mark on disk, or a record in what
    is left of the log, must say where. So neither may be older than what is dropped."""
    sizes = {"segment_bytes": 8192}
    broker = Broker(tmp_path, **sizes).lead()
    broker.send(message(queue_id=1))
    for _ in range(30):
        broker.send(message(b"x" * 700))
    assert clean(broker.store, START_MS, 12, 99).drop_before == 0
    broker.store.flush()
    assert clean(broker.store, START_MS, 12, 99).drop_before > 0
    broker.kill()
    again = Broker(tmp_path, **sizes).lead()
    assert again.send(message(queue_id=1))[0].queue_offset == 1
    again.close()


def test_what_tells_the_whole_state_stays_on_the_fullest_disk(tmp_path):
    """A member that begins with the log's first entry must find the state of the broker in it."""
    broker = Broker(tmp_path, segment_bytes=8192).lead()
    for _ in range(30):
        broker.send(message(b"x" * 700))
    store, ledger = broker.store, broker.ledger_store
    store.flush()
    assert clean(store, START_MS, 12, 99, state_index=-1).drop_before == 0
    dropped = clean(store, START_MS, 12, 99, state_index=15).drop_before
    assert 0 < dropped <= ledger.position_at(15)
    assert ledger.first_index <= 15
    assert clean(store, START_MS, 12, 99, state_index=ledger.last_index).drop_before > dropped
    broker.close()


def test_segments_of_a_clock_that_was_ahead_are_as_old_as_those_behind():
    """They hold up neither themselves nor what is behind them."""
    year_ms = 365 * 24 * HOUR_MS
    segments = [
        one._replace(last_timestamp=one.last_timestamp + year_ms) if at in (2, 3) else one
        for at, one in enumerate(SEGMENTS)
    ]
    decision = decided(local_hour=4, segments=segments)
    assert (decision.drop_before, decision.reason) == (1000, CleanReason.HOUR)
    # Those at the end of the log are young.
    segments = [one._replace(last_timestamp=NOW_MS + year_ms) for one in SEGMENTS]
    assert decided(local_hour=4, segments=segments).drop_before == 0
