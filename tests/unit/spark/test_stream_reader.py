"""Where a stream begins, ends and goes on, decided over queues in memory."""

import json
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows

from ledgermq.spark import SparkSourceError, stream_reader
from ledgermq.spark.errors import UnknownTopicError
from ledgermq.spark.options import read_options
from ledgermq.spark.schema import COLUMN_NAMES, message_schema
from ledgermq.spark.stream_reader import TopicStreamReader
from tests.unit.spark.queues_in_memory import FIRST, Queues

ALL = ReadAllAvailable()


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> Queues:
    found = Queues()
    monkeypatch.setattr(stream_reader, "Cluster", lambda *_: found)
    return found


def reader_of(**options: str) -> TopicStreamReader:
    """A reader as the driver of a query makes it."""
    given = {"nameServer": "h:1", "topic": "T", "readTimeoutMs": "200", **options}
    return TopicStreamReader(read_options(given, is_stream=True), message_schema(COLUMN_NAMES))


def kept(document: dict[str, Any]) -> dict[str, Any]:
    """A document as it comes back from a checkpoint."""
    found: dict[str, Any] = json.loads(json.dumps(document))
    return found


def ranges(reader: TopicStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    """What a batch reads, as (queue, start, end)."""
    parts: list[Any] = reader.partitions(kept(start), kept(end))
    return [(part.queue_id, part.start_offset, part.end_offset) for part in parts]


def test_a_query_from_the_latest_first_notes_where_it_begins(queues: Queues) -> None:
    reader = reader_of()
    start = kept(reader.initialOffset())
    queues.grow(5)
    noted = kept(reader.latestOffset(start, ALL))
    assert noted == {**start, "is_start": True}
    assert ranges(reader, reader.initialOffset(), noted) == []
    end = reader.latestOffset(noted, ALL)
    assert ranges(reader, noted, end) == [(0, 100, 105), (1, 50, 55)]


def test_a_start_that_was_noted_holds_whatever_the_queues_hold_after_a_crash(
    queues: Queues,
) -> None:
    """The driver dies when Spark has written the end of the first batch, or has run it as well."""
    dying = reader_of()
    noted = kept(dying.latestOffset(kept(dying.initialOffset()), ALL))
    before = dict(queues.ends)
    # A new leader may know less for a moment; later there is more.
    for count in (-5, 7):
        queues.ends = dict(before)
        queues.grow(count)
        assert ranges(reader_of(), reader_of().initialOffset(), noted) == []
    reader = reader_of()
    end = reader.latestOffset(noted, ALL)
    assert ranges(reader, noted, end) == [(0, 100, 107), (1, 50, 57)]


def test_nothing_new_is_the_same_text(queues: Queues) -> None:
    """Spark compares texts; another one would be a batch without rows, again and again."""
    reader = reader_of()
    noted = kept(reader.latestOffset(kept(reader.initialOffset()), ALL))
    assert json.dumps(reader.latestOffset(noted, ALL)) == json.dumps(noted)
    queues.grow(1)
    end = kept(reader.latestOffset(noted, ALL))
    assert json.dumps(reader.latestOffset(end, ALL)) == json.dumps(end)
    assert json.dumps(reader_of().latestOffset(end, ALL)) == json.dumps(end)


@pytest.mark.parametrize("offsets", ["earliest", '{"T": {"a": {"0": 10, "1": 0}}}'])
def test_a_start_that_does_not_move_needs_no_batch_of_its_own(queues: Queues, offsets: str) -> None:
    reader = reader_of(startingOffsets=offsets)
    start = kept(reader.initialOffset())
    end = reader.latestOffset(start, ALL)
    assert ranges(reader, start, end) == [(0, 10, 100), (1, 0, 50)]


def test_an_end_that_was_fixed_before_the_start_leaves_nothing_to_read(queues: Queues) -> None:
    """Trigger.AvailableNow asks for the end first."""
    reader = reader_of()
    reader.prepareForTriggerAvailableNow()
    queues.grow(3)
    noted = kept(reader.latestOffset(kept(reader.initialOffset()), ALL))
    assert reader.latestOffset(noted, ALL) == noted


def test_available_now_waits_for_a_leader_that_lacks_what_was_read(queues: Queues) -> None:
    reader = reader_of(startingOffsets="earliest")
    start = kept(reader.latestOffset(kept(reader.initialOffset()), ALL))
    queues.grow(-20)
    again = reader_of(startingOffsets="earliest")
    again.prepareForTriggerAvailableNow()
    with pytest.raises(SparkSourceError, match="ends at 80, but was read up to 100: was the topic"):
        again.latestOffset(start, ALL)
    queues.grow(20)
    assert again.latestOffset(start, ALL) == start


def test_a_topic_that_was_made_again_is_no_silent_end(queues: Queues) -> None:
    reader = reader_of()
    start = kept(reader.initialOffset())
    queues.ends[FIRST] = (0, 3)
    with pytest.raises(SparkSourceError, match="ends at 3, but was read up to 100: was the topic"):
        reader_of().latestOffset(start, ALL)


def test_a_topic_that_is_unknown_for_a_moment_does_not_end_a_stream(queues: Queues) -> None:
    reader = reader_of(readTimeoutMs="30000")
    start = kept(reader.initialOffset())
    queues.unknown_count = 2
    assert reader.reportLatestOffset()["topics"] == start["topics"]
    queues.unknown_count = 2
    noted = reader.latestOffset(start, ALL)
    assert reader.latestOffset(noted, ALL) == noted and queues.unknown_count == 0
    # Before a stream has begun, an unknown topic is a mistake of its user.
    queues.unknown_count = 1
    with pytest.raises(UnknownTopicError, match="topic 'T' is unknown"):
        reader_of().initialOffset()


def test_a_batch_waits_for_enough_rows_or_until_the_first_has_waited_long_enough(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]
    monkeypatch.setattr(stream_reader.time, "monotonic", lambda: now_s[0])
    reader = reader_of(minRowsPerTrigger="10", maxTriggerDelayMs="5000")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    offset = kept(reader.latestOffset(kept(reader.initialOffset()), limit))
    now_s[0] = 100.0
    assert reader.latestOffset(offset, limit) == offset, "time without messages does not count"
    queues.grow(2)
    assert reader.latestOffset(offset, limit) == offset
    now_s[0] = 104.9
    assert reader.latestOffset(offset, limit) == offset
    now_s[0] = 105.0
    offset, before = kept(reader.latestOffset(offset, limit)), offset
    assert ranges(reader, before, offset) == [(0, 100, 102), (1, 50, 52)]
    queues.grow(4)
    assert reader.latestOffset(offset, limit) == offset, "the delay begins anew"
    queues.grow(1)
    assert ranges(reader, offset, reader.latestOffset(offset, limit)) == [
        (0, 102, 107),
        (1, 52, 57),
    ]
    # What is to end with what is there now waits for nothing.
    now = reader_of(minRowsPerTrigger="1000")
    now.prepareForTriggerAvailableNow()
    assert now.latestOffset(offset, limit) != offset
    assert reader_of(minRowsPerTrigger="1000").latestOffset(offset, ALL) != offset


def test_the_tighter_limit_of_rows_and_bytes_counts(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_reader, "mean_record_bytes", lambda *_: 100.0)
    start = kept(reader_of(startingOffsets="earliest").initialOffset())
    for rows, size, expected in ((30, 2000, 20), (15, 2000, 15), (15, 10, 1)):
        reader = reader_of(
            startingOffsets="earliest", maxRowsPerTrigger=str(rows), maxBytesPerTrigger=str(size)
        )
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert sum(high - low for _, low, high in ranges(reader, start, end)) == expected
