"""How far groups were behind in the last hour: few points where nothing changes, none too old."""

from ledgermq.console.lag_history import LagHistory

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def values_of(lags: LagHistory, name: str, since_ms: int = 0) -> list[tuple[int, float | None]]:
    for series in lags.read("readers", since_ms):
        if series.name == name:
            return list(zip(series.at_ms, series.values, strict=True))
    return []


def test_messages_and_time_are_told_as_they_were() -> None:
    lags = LagHistory()
    lags.add("readers", 0, 5, 2000)
    lags.add("readers", MINUTE_MS, 8, None)
    lags.add("readers", 2 * MINUTE_MS, 0, None)
    at_ms = [0, MINUTE_MS, 2 * MINUTE_MS]
    assert values_of(lags, "lag_messages") == list(zip(at_ms, [5, 8, 0], strict=True))
    # Of whoever is behind the time may be unknown; nobody else is behind by any.
    assert values_of(lags, "lag_ms") == list(zip(at_ms, [2000, None, 0], strict=True))
    assert lags.read("others", 0) == []


def test_of_what_does_not_change_the_first_and_the_last_point_are_kept() -> None:
    lags = LagHistory()
    for minute in range(50):
        lags.add("readers", minute * MINUTE_MS, 0, None)
    lags.add("readers", 50 * MINUTE_MS, 3, 10)
    assert values_of(lags, "lag_messages") == [(0, 0), (49 * MINUTE_MS, 0), (50 * MINUTE_MS, 3)]


def test_who_looks_often_adds_a_point_each_ten_seconds() -> None:
    lags = LagHistory()
    for at_ms in range(0, 60_001, 2000):
        lags.add("readers", at_ms, at_ms, at_ms)
    assert [at_ms for at_ms, _ in values_of(lags, "lag_ms")] == list(range(0, 60_001, 10_000))


def test_what_is_older_than_an_hour_goes_but_for_how_the_hour_began() -> None:
    lags = LagHistory()
    for minute in range(300):
        lags.add("readers", minute * MINUTE_MS, minute, minute)
    since_ms = 299 * MINUTE_MS - HOUR_MS
    found = values_of(lags, "lag_messages", since_ms)
    assert found[0] == (since_ms, 239) and found[-1] == (299 * MINUTE_MS, 299)
    assert len(found) == 61
    assert len(values_of(lags, "lag_messages")) <= 62


def test_a_group_that_has_long_kept_up_is_told_for_the_whole_hour() -> None:
    lags = LagHistory()
    for minute in range(300):
        lags.add("readers", minute * MINUTE_MS, 0, None)
    since_ms = 299 * MINUTE_MS - HOUR_MS
    assert values_of(lags, "lag_ms", since_ms) == [(since_ms, 0), (299 * MINUTE_MS, 0)]


def test_groups_that_are_gone_are_forgotten() -> None:
    lags = LagHistory()
    lags.add("readers", 0, 1, 1)
    lags.add("others", 0, 1, 1)
    lags.keep(["others"])
    assert lags.read("readers", 0) == [] and len(lags.read("others", 0)) == 2
