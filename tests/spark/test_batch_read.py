"""The batch read of a real broker: what comes, in which bounds, and what is said when it cannot."""

import json
from typing import Any

import pytest

from ledgermq.client import Message
from ledgermq.spark import SparkSourceError
from tests.e2e.up_cluster import UpCluster
from tests.spark import direct
from tests.spark.topics import send_all, send_numbered

TOPIC = "SparkBatch"
COUNT = 500


@pytest.fixture(scope="module")
def options(cluster: UpCluster) -> dict[str, object]:
    send_numbered(cluster.name_server, TOPIC, COUNT)
    return {"nameServer": cluster.name_server, "topic": TOPIC}


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    """The numbers of the messages, sorted."""
    return sorted(int(row["body"].split()[1]) for row in rows)


def test_small_fetches_and_many_partitions_give_the_same_rows(options: dict[str, object]) -> None:
    rows = direct.read_rows(
        {**options, "rowsPerPartition": 37, "fetchBytes": 16384, "columns": "body,queueOffset"}
    )
    assert list(rows[0]) == ["body", "queueOffset"]
    assert numbers(rows) == list(range(COUNT))


def test_offsets_bound_the_read(options: dict[str, object]) -> None:
    whole = direct.read_rows(options)
    broker = whole[0]["brokerName"]
    rows = direct.read_rows(
        {
            **options,
            "startingOffsets": json.dumps({TOPIC: {broker: {"0": 3}}}),
            "endingOffsets": json.dumps({TOPIC: {broker: {"0": 10, "1": 0}}}),
        }
    )
    assert [row["queueOffset"] for row in rows if row["queueId"] == 0] == list(range(3, 10))
    assert [row for row in rows if row["queueId"] == 1] == []
    assert len(rows) == 7 + len([row for row in whole if row["queueId"] > 1])


def test_tags_and_keys_select(options: dict[str, object]) -> None:
    tagged = direct.read_rows({**options, "tags": "A || B"})
    assert numbers(tagged) == [number for number in range(COUNT) if number % 3 != 2]
    found = direct.read_rows({**options, "keys": "key-7,key-9,nothing"})
    assert numbers(found) == [7, 9]


def test_times_bound_the_read(options: dict[str, object]) -> None:
    def read(**bounds: int) -> list[dict[str, Any]]:
        return direct.read_rows({**options, **bounds})

    times = sorted(int(row["storeTimestamp"].timestamp() * 1000) for row in read())
    middle = times[COUNT // 2]
    later, earlier = read(startingTimestamp=middle), read(endingTimestamp=middle)
    assert len(later) == len([at for at in times if at >= middle])
    assert len(earlier) == COUNT - len(later)
    assert len(read(endingTimestamp=times[-1] + 1)) == COUNT
    assert read(startingTimestamp=times[-1] + 1) == []


def test_compressed_and_empty_bodies(cluster: UpCluster) -> None:
    text = b"long " * 1000
    send_all(cluster.name_server, [Message("SparkPacked", text), Message("SparkPacked", b"x")])
    options = {"nameServer": cluster.name_server, "topic": "SparkPacked"}
    rows = direct.read_rows(options)
    assert sorted(row["body"] for row in rows) == [text, b"x"]
    assert {row["keys"] for row in rows} == {None}
    assert direct.read_rows({**options, "endingOffsets": "earliest"}) == []


def test_a_pattern_finds_topics(cluster: UpCluster, options: dict[str, object]) -> None:
    rows = direct.read_rows({"nameServer": cluster.name_server, "topicPattern": "SparkBat.*"})
    assert numbers(rows) == list(range(COUNT))
    # As with Spark's source for Kafka, topics that are to come are no error.
    assert direct.read_rows({"nameServer": cluster.name_server, "topicPattern": "NoSuch.*"}) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"columns": "body,nonsense"}, ["columns", "reconsumeTimes"]),
        ({"nonsense": "1"}, ["nonsense", "startingOffsets"]),
        ({"topic": "NoSuchTopic"}, ["NoSuchTopic", "unknown to the name server"]),
        ({"startingOffsets": "latest", "endingOffsets": "earliest"}, ["start lies behind the end"]),
        ({"startingOffsets": '{"SparkBatch": {"nobody": {"0": 1}}}'}, ["Offsets", "nobody"]),
        ({"nameServer": "127.0.0.1:1", "readTimeoutMs": "200"}, ["127.0.0.1:1", "tried for"]),
    ],
)
def test_what_is_wrong_is_named(
    options: dict[str, object], changes: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(SparkSourceError) as caught:
        direct.read_rows({**options, **changes})
    for word in words:
        assert word in str(caught.value)


def test_offsets_behind_the_end_are_refused(options: dict[str, object]) -> None:
    broker = direct.read_rows(options)[0]["brokerName"]
    for name in ("startingOffsets", "endingOffsets"):
        with pytest.raises(SparkSourceError, match="the queue ends before the"):
            direct.read_rows({**options, name: json.dumps({TOPIC: {broker: {"0": 100_000}}})})


def test_a_batch_of_rows_stays_small_when_bodies_were_compressed(cluster: UpCluster) -> None:
    """Otherwise one fetch could be a thousand times as much in the memory of a task."""
    bodies = [bytes([number]) * 50_000 for number in range(40)]
    send_all(cluster.name_server, [Message("Packed", body) for body in bodies])
    given = {"nameServer": cluster.name_server, "topic": "Packed", "fetchBytes": 16384}
    for more in ({}, {"columns": "body"}, {"columns": "queueOffset"}):
        source = direct.source_of({**given, **more})
        reader = source.reader(source.schema())
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        assert sum(batch.num_rows for batch in batches) == len(bodies)
        if "body" in batches[0].schema.names:
            sizes = [sum(map(len, batch.column("body").to_pylist())) for batch in batches]
            assert max(sizes) <= 4 * 16384
            found = [body for batch in batches for body in batch.column("body").to_pylist()]
            assert sorted(found) == bodies
