"""Put times: measured by the turn, told by the message."""

from ledgermq.broker.counts.put_times import PutTimes


def test_turn_is_measured_when_its_last_message_is_committed() -> None:
    times = PutTimes()
    times.appended(9, 10, 1000.0)
    times.appended(11, 2, 1005.0)
    assert not times.waits_below(9)
    assert times.waits_below(10)
    times.committed(10, 1004.0)
    assert (times.turns.count, times.messages.count) == (1, 10)
    times.committed(12, 1305.0)
    assert (times.turns.count, times.messages.count) == (2, 12)
    assert times.longest_ms == 300.0
    assert not times.waits_below(10**9)


def test_text_is_that_of_upstream() -> None:
    times = PutTimes()
    times.appended(0, 3, 0.0)
    times.committed(1, 25.0)
    assert times.text().startswith("[<=0ms]:0 [0~10ms]:0 [10~50ms]:3 [50~100ms]:0 ")
    assert times.text().endswith(" [10s~]:0")


def test_what_was_lost_is_not_measured() -> None:
    times = PutTimes()
    times.appended(0, 3, 0.0)
    times.forget()
    times.committed(10, 25.0)
    assert times.turns.count == 0


def test_turns_without_a_majority_take_no_memory() -> None:
    times = PutTimes()
    for index in range(20_000):
        times.appended(index, 1, 0.0)
    times.committed(20_000, 1.0)
    assert times.turns.count == 10_000


def test_shares_are_those_of_the_last_minutes() -> None:
    times = PutTimes()
    times.appended(0, 100, 0.0)
    times.committed(1, 400.0)
    assert times.latency_ms(0.99) == 500
    times.minute_over()
    assert times.latency_ms(0.99) == 500
    times.minute_over()
    assert times.latency_ms(0.99) == 0
