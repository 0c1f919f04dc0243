"""Delayed delivery: what is due goes to its real topic once, in bounded appends."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.broker.config.delay_levels import DelayLevels
from ledgermq.broker.records.delayed_messages import (
    delivered_message,
    target_of,
    waiting_message,
)
from ledgermq.broker.waits.delay import DELIVERIES_MAX, DelayedDelivery, DelayQueues
from ledgermq.broker.waits.delay_arrivals import Arrivals
from ledgermq.commitlog import AppendMessage, AppendResult, MessageStore
from ledgermq.protocol.record import encode_record
from ledgermq.state.errors import (
    BrokerError,
    CommitTimeoutError,
    ConfigError,
    SystemBusyError,
)
from ledgermq.state.queue_progress import QueueProgress, Run

HOST = (b"\x0a\x00\x00\x01", 5)
LEVELS = DelayLevels.parse("1s 5s 1m")


def message(body: bytes = b"b", **changes: Any) -> AppendMessage:
    plain = AppendMessage(
        "Real", 7, 3, 1, 17, HOST, (b"\x0a\x00\x00\x02", 6), 2, 0, body, b"A\x01b"
    )
    return plain._replace(**changes)


class Queues:
    """Schedule queues in memory."""

    def __init__(self) -> None:
        self.records: list[bytes | None] = []
        self.units: dict[int, list[tuple[int, int, int]]] = {}
        self.first: dict[int, int] = {}
        self.looks = 0

    def add(self, level: int, stored_ms: int, body: bytes = b"b", **changes: Any) -> None:
        waiting = waiting_message(message(body, **changes), level)
        record = encode_record(
            waiting.topic.encode(), waiting.queue_id, waiting.flag, 0, len(self.records),
            waiting.sys_flag, waiting.born_timestamp, waiting.born_host, stored_ms,
            waiting.store_host, waiting.reconsume_times, 0, waiting.body, waiting.properties,
        )  # fmt: skip
        due_ms = stored_ms + LEVELS.delays_ms[level - 1]
        self.units.setdefault(level - 1, []).append((len(self.records), len(record), due_ms))
        self.records.append(record)

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self.first.get(queue_id, 0)

    def max_offset(self, topic: str, queue_id: int) -> int:
        assert topic == "SCHEDULE_TOPIC_XXXX"
        self.looks += 1
        return len(self.units.get(queue_id, []))

    def queue_units(
        self, topic: str, queue_id: int, offset: int, count_max: int
    ) -> Sequence[tuple[int, int, int]]:
        return self.units[queue_id][offset : offset + count_max]

    def record_at(self, physical_offset: int) -> bytes | None:
        return self.records[physical_offset]


Delivered = Callable[[Sequence[AppendResult], BrokerError | None], None]


class Bench:
    """A delivery with everything around it."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.clock_ms = 7e6
        self.queues = Queues()
        self.progress = QueueProgress()
        self.appends: list[tuple[Sequence[Run], Sequence[AppendMessage], Delivered]] = []
        self.has_room = True
        self.soon: list[Callable[[], None]] = []
        self.delivery = DelayedDelivery(
            LEVELS,
            self.queues,
            self.progress,
            self,
            has_room=lambda: self.has_room,
            now_ms=lambda: self.now_ms,
            clock_ms=lambda: self.clock_ms,
            soon=self.soon.append,
            body_bytes_max=1000,
        )
        self.progress.lead()

    def append(
        self, runs: Sequence[Run], messages: Sequence[AppendMessage], delivered: Delivered
    ) -> None:
        self.appends.append((runs, messages, delivered))

    def run(self, after_ms: int = 0) -> list[bytes]:
        """Lets time pass and runs once; returns the bodies that were appended."""
        self.now_ms += after_ms
        self.clock_ms += after_ms
        before = len(self.appends)
        self.delivery.run()
        return [sent.body for _, messages, _ in self.appends[before:] for sent in messages]

    def commit(self, error: BrokerError | None = None) -> None:
        self.appends[-1][2]([], error)


def test_delivered_message_is_what_was_sent() -> None:
    bench = Bench()
    bench.queues.add(2, bench.now_ms)
    assert bench.run(4999) == []
    assert bench.run(1) == [b"b"]
    runs, [sent], _ = bench.appends[0]
    assert runs == [Run(2, 1, 1)]
    properties = b"A\x01b\x02DELAY\x012\x02REAL_TOPIC\x01Real\x02REAL_QID\x017"
    assert sent == message(properties=properties)


def test_waits_are_measured_when_the_delivery_is_stored() -> None:
    bench = Bench()
    bench.queues.add(2, bench.now_ms)
    bench.run(5000)
    assert bench.delivery.waits.count == 0
    bench.commit()
    assert bench.delivery.waits.count == 1
    born_ms = bench.appends[0][1][0].born_timestamp
    assert bench.delivery.waits.total == (bench.now_ms - born_ms) / 1000


def test_levels_are_delivered_each_at_its_time_and_once() -> None:
    bench = Bench()
    for level in (3, 2, 1):
        bench.queues.add(level, bench.now_ms, b"%d" % level)
    bench.queues.add(1, bench.now_ms + 500, b"later")
    assert bench.run(1000) == [b"1"]
    bench.commit()
    assert bench.run() == []
    assert bench.run(500) == [b"later"]
    bench.commit()
    assert bench.run(3500) == [b"2"]
    bench.commit()
    assert bench.run(55_000) == [b"3"]


def test_one_append_at_a_time_of_bounded_size() -> None:
    bench = Bench()
    for number in range(DELIVERIES_MAX + 10):
        bench.queues.add(1, bench.now_ms, b"%d" % number)
    assert len(bench.run(1000)) == DELIVERIES_MAX
    assert bench.appends[0][0] == [Run(1, 1, DELIVERIES_MAX)]
    assert bench.run() == []
    bench.commit()
    assert bench.soon == [bench.delivery.run]
    assert len(bench.run()) == 10


def test_no_level_keeps_another_waiting() -> None:
    bench = Bench()
    for number in range(3 * DELIVERIES_MAX):
        bench.queues.add(1, bench.now_ms - 60_000, b"%d" % number)
    bench.queues.add(2, bench.now_ms - 60_000, b"other")
    bench.run()
    bench.commit()
    assert b"other" in bench.run()


def test_nothing_is_looked_at_before_its_time() -> None:
    bench = Bench()
    for level in (1, 2, 3):
        bench.queues.add(level, bench.now_ms)
    bench.run()
    looks = bench.queues.looks
    for _ in range(9):
        bench.run(100)
    assert bench.queues.looks == looks
    assert bench.run(100) == [b"b"]


def test_broker_without_room_or_leadership_delivers_nothing() -> None:
    bench = Bench()
    bench.queues.add(1, bench.now_ms)
    bench.has_room = False
    assert bench.run(1000) == []
    bench.has_room = True
    bench.progress.follow()
    assert bench.run() == []
    bench.progress.lead()
    assert bench.run() == [b"b"]


def test_failed_append_is_tried_again_after_a_pause() -> None:
    bench = Bench()
    bench.queues.add(1, bench.now_ms)
    assert bench.run(1000) == [b"b"]
    bench.commit(SystemBusyError("full"))
    assert bench.run(999) == []
    assert bench.run(1) == [b"b"]


def test_append_that_may_still_commit_is_not_repeated() -> None:
    bench = Bench()
    bench.queues.add(1, bench.now_ms)
    bench.run(1000)
    bench.commit(CommitTimeoutError("no majority"))
    bench.queues.add(1, bench.now_ms, b"next")
    assert bench.run(2000) == [b"next"]


def test_what_cannot_be_delivered_is_passed() -> None:
    bench = Bench()
    stored_ms = bench.now_ms - 60_000
    bench.queues.add(1, stored_ms, b"first")
    bench.queues.add(1, stored_ms, b"gone")
    bench.queues.records[1] = None
    bench.queues.add(1, stored_ms, b"half", topic="RMQ_SYS_TRANS_HALF_TOPIC")
    bench.queues.add(1, stored_ms, b"x" * 1001)
    bench.queues.add(1, stored_ms, b"bad name", topic="a b")
    bench.queues.add(1, stored_ms, b"last")
    assert bench.run() == [b"first", b"last"]
    assert bench.appends[0][0] == [Run(1, 1, 1), Run(1, 5, 0), Run(1, 6, 1)]
    assert bench.progress.cursor(1) == 6


def test_queue_that_retention_shortened_goes_on_at_its_first_message() -> None:
    bench = Bench()
    for number in range(5):
        bench.queues.add(1, bench.now_ms - 60_000, b"%d" % number)
    bench.queues.first[0] = 3
    assert bench.run() == [b"3", b"4"]
    assert bench.progress.cursor(1) == 5


def test_clock_set_back_neither_hastens_nor_delays() -> None:
    bench = Bench()
    bench.queues.add(2, bench.now_ms)
    assert bench.run() == []
    bench.now_ms -= 3_600_000
    assert bench.run(4999) == []
    # The deliver time lies an hour ahead now, and it has waited for its delay.
    assert bench.run(1) == [b"b"]


@pytest.mark.parametrize("ahead_ms", [1000, 60_000, 10 * 365 * 86_400_000])
def test_times_of_a_log_that_are_ahead_neither_hasten_nor_delay(ahead_ms: int) -> None:
    """They never fall: what a leader stores whose clock is behind all has the latest of them."""
    bench = Bench()
    latest_ms = bench.now_ms + ahead_ms
    delivered = {}
    for step in range(40):
        if step < 20:
            bench.queues.add(2, max(bench.now_ms, latest_ms), b"%d" % step)
        for body in bench.run():
            delivered[int(body)] = step * 500
        if bench.appends:
            bench.commit()
            bench.appends.clear()
        bench.run(500)
        for _, messages, _ in bench.appends:
            delivered |= {int(message.body): (step + 1) * 500 for message in messages}
        if bench.appends:
            bench.commit()
            bench.appends.clear()
    waited = {number: at_ms - number * 500 for number, at_ms in delivered.items()}
    assert sorted(waited) == list(range(20))
    # It is noted each second where a queue ends; a little late, but never early.
    late_ms = min(ahead_ms, 1000)
    assert all(5000 <= ms <= 5000 + late_ms + 500 for ms in waited.values()), waited


def test_a_new_leader_counts_from_when_it_saw_a_message() -> None:
    bench = Bench()
    bench.queues.add(1, bench.now_ms + 86_400_000)
    bench.progress.follow()
    assert bench.run(5000) == []
    bench.progress.lead()
    assert bench.run() == []
    assert bench.run(999) == []
    assert bench.run(1) == [b"b"]


def test_notes_are_bounded_and_make_nothing_early() -> None:
    arrivals = Arrivals()
    for number in range(5000):
        arrivals.note(1, 10 * number + 10, 1000.0 * number)
        # Nothing new.
        arrivals.note(1, 10 * number + 10, 1000.0 * number + 500)
    assert len(arrivals._notes[1][0]) <= 256
    for offset in range(0, 50_000, 7):
        seen_ms = arrivals.find_time(1, offset)
        assert seen_ms is not None
        assert 1000.0 * (offset // 10) <= seen_ms <= 4_999_000.0
    assert arrivals.find_time(1, 49_999) == 4_999_000.0
    assert arrivals.find_time(1, 50_000) is None
    assert arrivals.find_time(2, 0) is None
    arrivals.forget_before(1, 49_990)
    assert arrivals.find_time(1, 49_995) == 4_999_000.0
    assert len(arrivals._notes[1][0]) == 1


def test_progress_is_told_level_by_level() -> None:
    bench = Bench()
    bench.queues.add(1, bench.now_ms)
    bench.queues.add(2, bench.now_ms)
    bench.run(1000)
    assert bench.delivery.offsets() == {1: (1, 1), 2: (0, 1)}


@pytest.mark.parametrize("text", ["", "1s 5", "s", "1w", "1s,2s", "-1s", "1 s"])
def test_broker_with_unknown_delays_does_not_start(text: str) -> None:
    with pytest.raises(ConfigError, match="messageDelayLevel"):
        load_broker_config(None, {"brokerIP1": "127.0.0.1", "messageDelayLevel": text})


def test_delays_are_read_in_all_units() -> None:
    assert DelayLevels.parse(" 2s 3m  1h 1d ").delays_ms == (2000, 180_000, 3_600_000, 86_400_000)
    assert [LEVELS.level_of(value) for value in (None, "x", "-1", "0", "2", "9")] == [
        0, 0, 0, 0, 2, 3,
    ]  # fmt: skip


@pytest.mark.parametrize("queue_id", ["", "-1", "x", "9999999999"])
def test_message_without_a_real_queue_has_no_target(queue_id: str) -> None:
    assert target_of({"REAL_TOPIC": "T", "REAL_QID": queue_id}) is None


def test_bytes_that_are_no_record_are_no_message() -> None:
    assert delivered_message(b"\x00" * 200) is None


def test_message_store_fits() -> None:
    fits: type[DelayQueues] = MessageStore
    assert fits is MessageStore
