"""A half message that asks not to be asked about: for how long that holds, and what it costs."""

from ledgermq.state import names
from tests.unit.broker.waits.test_transactions import RULES, Bench


def test_time_of_immunity_has_an_end() -> None:
    """It was stored again in each round until it was too old, here 60 times, by default 4,320."""
    bench = Bench()
    bench.send(b"open", CHECK_IMMUNITY_TIME_IN_SECONDS="9" * 17)
    for _ in range(2 * RULES.checks_max + 1):
        bench.walk()
    assert len(bench.asked) == RULES.checks_max
    assert bench.log.bodies(names.HALF_EXPIRED_TOPIC) == [b"open"]
    assert len(bench.log.bodies(names.HALF_TOPIC)) <= 2 * RULES.checks_max + 1


def test_time_of_immunity_up_to_its_limit_is_kept() -> None:
    bench = Bench()
    seconds = RULES.immunity_max_ms // 1000
    half = bench.send(b"slow", CHECK_IMMUNITY_TIME_IN_SECONDS=str(seconds))
    for _ in range(seconds * 1000 // RULES.check_interval_ms - 1):
        bench.walk()
    assert bench.asked == []
    bench.walk()
    assert bench.asked == [(b"slow", bench.copy_of(half).record.queue_offset)]
