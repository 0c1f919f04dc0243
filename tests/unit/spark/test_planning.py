"""Where a read begins and ends, and what is said when it cannot be there."""

import json
import logging
import random
from typing import Any

import pytest

from ledgermq.client import MessageQueue
from ledgermq.spark.errors import OffsetRangeError, OffsetsRemovedError, OptionError
from ledgermq.spark.options import ReadOptions, read_options
from ledgermq.spark.planning import end_offsets, find_queues, moment_of, start_offsets
from tests.unit.spark.queues_in_memory import FIRST, SECOND, Queues


def options_of(**given: object) -> ReadOptions:
    """Options of a table."""
    texts = {name: str(value) for name, value in given.items()}
    return read_options({"nameServer": "h:1", "topic": "T", **texts}, is_stream=False)


def at(offset: int, broker: str = "a") -> str:
    """Offsets of one queue, as a user writes them."""
    return json.dumps({"T": {broker: {"0": offset}}})


def planned(options: ReadOptions) -> tuple[dict[Any, int], dict[Any, int]]:
    """Start and end of each queue."""
    cluster: Any = Queues()
    queues = find_queues(cluster, options)
    return start_offsets(cluster, options, queues), end_offsets(cluster, options, queues)


def test_what_is_not_named_begins_at_the_earliest_and_ends_at_the_latest() -> None:
    assert planned(options_of()) == ({FIRST: 10, SECOND: 0}, {FIRST: 100, SECOND: 50})
    named = options_of(startingOffsets=at(20), endingOffsets=at(30))
    assert planned(named) == ({FIRST: 20, SECOND: 0}, {FIRST: 30, SECOND: 50})
    turned = options_of(startingOffsets="latest", endingOffsets="earliest")
    assert planned(turned) == ({FIRST: 100, SECOND: 50}, {FIRST: 10, SECOND: 0})


def test_offsets_that_retention_removed_are_an_error(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(OffsetsRemovedError) as caught:
        planned(options_of(startingOffsets=at(4)))
    assert str(caught.value) == (
        "offsets 4 to 10 of queue 0 of topic T on a were removed by retention before they were"
        " read; to go on with what is left, set failOnDataLoss=false"
    )
    with caplog.at_level(logging.WARNING, "ledgermq.spark"):
        starts, _ = planned(options_of(startingOffsets=at(4), failOnDataLoss=False))
    assert starts[FIRST] == 10
    assert "skipped: offsets 4 to 10 of queue 0 of topic T on a" in caplog.text


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
def test_offsets_that_are_not_there_yet_are_an_error(name: str) -> None:
    with pytest.raises(OffsetRangeError, match="101 to 100 of queue 0 of topic T on a: the queue"):
        planned(options_of(**{name: at(101)}))
    planned(options_of(**{name: at(100)}))


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
def test_a_queue_that_is_not_there_is_answered_with_those_that_are(name: str) -> None:
    with pytest.raises(OptionError, match=f"option {name} is 'queue 0 of topic T on nobody';") as e:
        planned(options_of(**{name: at(20, "nobody")}))
    assert "queue 0 of topic T on a; queue 1 of topic T on a" in str(e.value)


class SearchedQueues(Queues):
    """Store times somewhat out of order, searched as a stock broker does: the nearest is good."""

    def __init__(self, times_ms: list[int]) -> None:
        super().__init__()
        self.times_ms = times_ms
        self.ends = {FIRST: (0, len(times_ms))}

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        low, high = 0, len(self.times_ms) - 1
        while low < high:
            middle = (low + high) // 2
            if self.times_ms[middle] == timestamp_ms:
                return middle
            if self.times_ms[middle] < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        before = max(0, low - 1)
        is_nearer = abs(self.times_ms[before] - timestamp_ms) < abs(
            self.times_ms[low] - timestamp_ms
        )
        return before if is_nearer else low


@pytest.mark.parametrize("seed", range(20))
def test_no_message_of_the_time_is_left_out_where_times_are_out_of_order(seed: int) -> None:
    rng = random.Random(seed)
    steps = [rng.choice((0, 0, 1, 40)) for _ in range(5000)]
    times_ms = [
        1_700_000_000_000 + sum(steps[:at]) - rng.choice((0, 0, 0, rng.randrange(900)))
        for at in range(0, len(steps), 10)
    ]
    middle_ms = rng.choice(times_ms)
    cluster: Any = SearchedQueues(times_ms)
    start = start_offsets(cluster, options_of(startingTimestamp=middle_ms), [FIRST])[FIRST]
    end = end_offsets(cluster, options_of(endingTimestamp=middle_ms), [FIRST])[FIRST]
    assert all(time_ms < middle_ms for time_ms in times_ms[:start])
    assert all(time_ms >= middle_ms for time_ms in times_ms[end:])
    # Near the place, not the whole queue.
    assert 0 < start or middle_ms - times_ms[0] < 20_000


def test_each_queue_may_begin_and_end_at_a_time_of_its_own() -> None:
    times_ms = [1_700_000_000_000 + 60_000 * number for number in range(50)]
    cluster: Any = SearchedQueues(times_ms)
    cluster.ends = {FIRST: (0, 50), SECOND: (0, 50)}
    options = options_of(
        startingTimestamp=at(times_ms[20]), endingTimestamp=at(times_ms[30]), timeSlackMs=0
    )
    starts = start_offsets(cluster, options, [FIRST, SECOND])
    ends = end_offsets(cluster, options, [FIRST, SECOND])
    assert starts == {FIRST: 20, SECOND: 0} and ends == {FIRST: 31, SECOND: 50}
    assert moment_of(options.starting_ms, FIRST) == times_ms[20]
    assert moment_of(options.starting_ms, SECOND) is None
    for name in ("startingTimestamp", "endingTimestamp"):
        unknown = options_of(**{name: at(1, "nobody")})
        with pytest.raises(OptionError, match=f"option {name} is 'queue 0 of topic T on nobody'"):
            start_offsets(cluster, unknown, [FIRST])
            end_offsets(cluster, unknown, [FIRST])
