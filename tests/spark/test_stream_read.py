"""The streaming read as Spark drives it, without a session: offsets, limits, queues, restarts."""

import json
from typing import Any

import pytest
from pyspark.sql.streaming import datasource as limits

from ledgermq.client import Message
from ledgermq.spark import SparkSourceError
from tests.e2e.up_cluster import UpCluster
from tests.spark import direct
from tests.spark.topics import send_all, send_numbered


def stream(cluster: UpCluster, **options: object) -> Any:
    """A reader of a stream."""
    source = direct.source_of({"nameServer": cluster.name_server, **options})
    return source.streamReader(source.schema())


def through_json(document: dict[str, Any]) -> dict[str, Any]:
    """A document as it comes back from a checkpoint."""
    found: dict[str, Any] = json.loads(json.dumps(document))
    return found


def rows_between(reader: Any, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """The numbers of the messages of a micro-batch, sorted."""
    return sorted(
        int(row["body"].split()[1])
        for part in reader.partitions(through_json(start), through_json(end))
        for batch in reader.read(part)
        for row in batch.to_pylist()
    )


def count_of(document: dict[str, Any]) -> int:
    """The sum of all offsets."""
    return sum(
        offset
        for brokers in document["topics"].values()
        for queues in brokers.values()
        for offset in queues.values()
    )


def test_limits_cut_a_stream_into_batches_that_hold_all_rows(cluster: UpCluster) -> None:
    send_numbered(cluster.name_server, "StreamLimits", 100)
    reader = stream(cluster, topic="StreamLimits", startingOffsets="earliest", maxRowsPerTrigger=30)
    try:
        limit = reader.getDefaultReadLimit()
        assert limit == limits.ReadMaxRows(30)
        offset, batches = reader.initialOffset(), []
        assert count_of(offset) == 0
        while (after := reader.latestOffset(through_json(offset), limit)) != offset:
            batches.append(rows_between(reader, offset, after))
            # Planned again, as after a crash: the same rows.
            assert rows_between(reader, offset, after) == batches[-1]
            offset = through_json(after)
        assert [len(batch) for batch in batches] == [30, 30, 30, 10]
        assert sorted(sum(batches, [])) == list(range(100))
        whole = reader.latestOffset(reader.initialOffset(), limits.ReadAllAvailable())
        assert count_of(whole) == count_of(reader.reportLatestOffset()) == 100
    finally:
        reader.stop()


def test_a_query_that_dies_before_its_first_batch_is_done_goes_on_from_its_start(
    cluster: UpCluster,
) -> None:
    """Spark keeps the end of the first batch and asks the next driver for its start again."""
    send_numbered(cluster.name_server, "StreamStart", 4)
    dying = stream(cluster, topic="StreamStart", startingOffsets="latest")
    try:
        start = through_json(dying.initialOffset())
        send_numbered(cluster.name_server, "StreamStart", 4, start=4)
        kept = through_json(dying.latestOffset(start, limits.ReadAllAvailable()))
        assert rows_between(dying, dying.initialOffset(), kept) == []
    finally:
        dying.stop()
    send_numbered(cluster.name_server, "StreamStart", 4, start=8)
    reader = stream(cluster, topic="StreamStart", startingOffsets="latest")
    try:
        assert rows_between(reader, reader.initialOffset(), kept) == []
        end = reader.latestOffset(kept, limits.ReadAllAvailable())
        assert rows_between(reader, kept, end) == list(range(4, 12))
    finally:
        reader.stop()


def test_a_limit_of_bytes_is_about_kept(cluster: UpCluster) -> None:
    send_all(cluster.name_server, [Message("StreamBytes", b"x" * 900) for _ in range(40)])
    reader = stream(
        cluster, topic="StreamBytes", startingOffsets="earliest", maxBytesPerTrigger=12_000
    )
    try:
        after = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
        assert 8 <= count_of(after) <= 12
    finally:
        reader.stop()


def test_available_now_ends_where_the_topic_ended(cluster: UpCluster) -> None:
    send_numbered(cluster.name_server, "StreamNow", 20)
    reader = stream(cluster, topic="StreamNow", startingOffsets="earliest")
    try:
        start = reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        send_numbered(cluster.name_server, "StreamNow", 20, start=20)
        end = reader.latestOffset(start, limits.ReadAllAvailable())
        assert rows_between(reader, start, end) == list(range(20))
        assert reader.latestOffset(end, limits.ReadAllAvailable()) == end
    finally:
        reader.stop()


def test_a_new_topic_of_a_pattern_is_entered_first_and_then_read(cluster: UpCluster) -> None:
    send_numbered(cluster.name_server, "StreamNewA", 10)
    reader = stream(cluster, topicPattern="StreamNew.*", startingOffsets="latest")
    try:
        start = reader.latestOffset(reader.initialOffset(), limits.ReadAllAvailable())
        send_numbered(cluster.name_server, "StreamNewB", 5)
        entered = reader.latestOffset(start, limits.ReadAllAvailable())
        assert set(entered["topics"]) == {"StreamNewA", "StreamNewB"}
        assert rows_between(reader, start, entered) == []
        end = reader.latestOffset(through_json(entered), limits.ReadAllAvailable())
        assert rows_between(reader, entered, end) == list(range(5))
    finally:
        reader.stop()


def test_a_pattern_waits_for_its_first_topic(cluster: UpCluster) -> None:
    reader = stream(cluster, topicPattern="StreamFirst.*", startingOffsets="latest")
    try:
        start = reader.latestOffset(reader.initialOffset(), limits.ReadAllAvailable())
        assert start["topics"] == {}
        assert reader.latestOffset(through_json(start), limits.ReadAllAvailable()) == start
        assert reader.reportLatestOffset()["topics"] == {}
        assert rows_between(reader, start, start) == []
        send_numbered(cluster.name_server, "StreamFirstA", 5)
        entered = reader.latestOffset(through_json(start), limits.ReadAllAvailable())
        end = reader.latestOffset(through_json(entered), limits.ReadAllAvailable())
        assert rows_between(reader, entered, end) == list(range(5))
    finally:
        reader.stop()


def test_progress_is_published_for_a_group(cluster: UpCluster) -> None:
    send_numbered(cluster.name_server, "StreamGroup", 8)
    reader = stream(cluster, topic="StreamGroup", startingOffsets="earliest", groupId="lag_view")
    try:
        end = reader.latestOffset(reader.initialOffset(), limits.ReadAllAvailable())
        reader.commit(through_json(end))
    finally:
        reader.stop()
    assert direct.committed(cluster.name_server, "lag_view", "StreamGroup") == 8


def test_a_checkpoint_of_another_version_is_refused(cluster: UpCluster) -> None:
    reader = stream(cluster, topic="StreamLimits")
    with pytest.raises(SparkSourceError, match="offsets of version 7"):
        reader.partitions({"v": 7, "topics": {}}, {"v": 7, "topics": {}})
