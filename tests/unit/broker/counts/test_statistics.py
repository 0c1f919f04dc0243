"""Counters over a minute, an hour and a day."""

from typing import Any

import pytest

from ledgermq.broker.counts import statistics as module
from ledgermq.broker.counts.statistics import SAMPLE_MS, Statistics
from ledgermq.protocol.bodies import BrokerStatsData


class Counted:
    """Statistics with a clock that the test moves."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.statistics = Statistics("C", self.now_ms)

    def pass_samples(self, count: int) -> None:
        for _ in range(count):
            self.now_ms += SAMPLE_MS
            self.statistics.sample(self.now_ms)

    def put(self, topic: str, count: int, size: int) -> None:
        counter = self.statistics.put_counter(topic)
        counter[0] += count
        counter[1] += size

    def view(self, name: str, key: str) -> BrokerStatsData:
        data = self.statistics.view(name, key, self.now_ms)
        assert data is not None
        return data


def test_counter_is_seen_before_the_first_sample() -> None:
    counted = Counted()
    counted.put("T", 5, 500)
    counted.now_ms += 1000
    data = counted.view("TOPIC_PUT_NUMS", "T")
    assert (data.stats_minute.sum, data.stats_minute.tps) == (5, 5.0)
    assert data.stats_day.sum == 5
    size = counted.view("TOPIC_PUT_SIZE", "T")
    assert (size.stats_minute.sum, size.stats_minute.avgpt) == (500, 100.0)


def test_minute_forgets_what_the_hour_and_the_day_remember() -> None:
    counted = Counted()
    counted.put("T", 60, 60)
    counted.pass_samples(1)
    assert counted.view("TOPIC_PUT_NUMS", "T").stats_minute.sum == 60
    counted.pass_samples(7)
    data = counted.view("TOPIC_PUT_NUMS", "T")
    assert (data.stats_minute.sum, data.stats_hour.sum, data.stats_day.sum) == (0, 60, 60)
    counted.pass_samples(7 * 60)
    data = counted.view("TOPIC_PUT_NUMS", "T")
    assert (data.stats_hour.sum, data.stats_day.sum) == (0, 60)


def test_counter_without_growth_for_a_day_is_dropped() -> None:
    counted = Counted()
    counted.put("T", 1, 1)
    counted.pass_samples(27 * 360)
    assert counted.statistics.view("TOPIC_PUT_NUMS", "T", counted.now_ms) is None
    counted.put("T", 1, 1)
    assert counted.view("TOPIC_PUT_NUMS", "T").stats_minute.sum == 1


def test_pulls_and_send_backs_are_counted_by_topic_and_group() -> None:
    counted = Counted()
    counted.statistics.got("T", "g", 30, 3000)
    counted.statistics.got("T", "g", 2, 200)
    counted.statistics.sent_back("T", "g")
    counted.now_ms += 2000
    data = counted.view("GROUP_GET_NUMS", "T@g")
    # Two pulls: 16 messages each on the average.
    assert (data.stats_minute.sum, data.stats_minute.avgpt) == (32, 16.0)
    assert counted.view("GROUP_GET_SIZE", "T@g").stats_minute.sum == 3200
    assert counted.view("SNDBCK_PUT_NUMS", "T@g").stats_minute.sum == 1
    assert counted.statistics.get_rate("T", "g", counted.now_ms) == 16.0
    assert counted.statistics.get_rate("T", "other", counted.now_ms) == 0.0


def test_totals_of_the_broker_do_not_fall_when_a_counter_is_dropped() -> None:
    counted = Counted()
    counted.put("T", 5, 50)
    counted.pass_samples(10)
    counted.put("U", 1, 10)
    while counted.statistics.view("TOPIC_PUT_NUMS", "T", counted.now_ms) is not None:
        counted.put("U", 1, 10)
        counted.pass_samples(1)
    data = counted.view("BROKER_PUT_NUMS", "C")
    assert (data.stats_minute.sum, data.stats_hour.sum) == (6, 6 * 60)


def test_whole_broker_is_the_sum_of_its_topics() -> None:
    counted = Counted()
    counted.put("T", 3, 3)
    counted.put("U", 4, 4)
    assert counted.view("BROKER_PUT_NUMS", "C").stats_minute.sum == 7
    assert counted.view("BROKER_GET_NUMS", "C").stats_minute.sum == 0


@pytest.mark.parametrize(
    ("name", "key"), [("TOPIC_PUT_NUMS", "U"), ("NO_SUCH", "T"), ("GROUP_GET_NUMS", "T")]
)
def test_what_was_not_counted_is_not_there(name: str, key: str) -> None:
    counted = Counted()
    counted.put("T", 1, 1)
    assert counted.statistics.view(name, key, counted.now_ms) is None


def test_number_of_counters_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COUNTERS_MAX", 2)
    counted = Counted()
    for topic in "TUV":
        counted.put(topic, 1, 1)
    kept: dict[str, Any] = counted.statistics.puts
    assert list(kept) == ["T", "U"]
