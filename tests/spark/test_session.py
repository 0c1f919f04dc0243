"""The source in a real Spark session: what only Spark can judge. Each query costs a second."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import col

from ledgermq.spark import lag_of
from tests.e2e.up_cluster import UpCluster
from tests.spark import direct
from tests.spark.session import patiently
from tests.spark.topics import send_numbered

COUNT = 200
# The first query of a session starts a Java machine and its Python processes.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def topic(cluster: UpCluster) -> str:
    send_numbered(cluster.name_server, "SparkSession", COUNT)
    return "SparkSession"


def test_all_columns_of_all_messages(spark: Any, cluster: UpCluster, topic: str) -> None:
    reader = spark.read.format("rocketmq").option("nameServer", cluster.name_server)
    rows = reader.option("topic", topic).load().collect()
    by_number = {int(row.properties["number"]): row for row in rows}
    assert sorted(by_number) == list(range(COUNT)) and len(rows) == COUNT
    for number, row in by_number.items():
        assert row.topic == topic
        assert row.brokerName
        assert bytes(row.body) == f"body {number}".encode()
        assert row.tags == ("A", "B", None)[number % 3]
        assert row["keys"] == f"key-{number} all"
        assert row.properties["who"] == "tést"
        assert row.msgId == row.properties["UNIQ_KEY"]
        assert row.reconsumeTimes == 0
        assert 0 <= (row.storeTimestamp - row.bornTimestamp).total_seconds() < 60
    assert len({(row.queueId, row.queueOffset) for row in rows}) == COUNT


def test_filters_that_are_pushed_down(spark: Any, cluster: UpCluster, topic: str) -> None:
    reader = spark.read.format("rocketmq").option("nameServer", cluster.name_server)
    reader = reader.options(topic=topic, filterPushdown=True, columns="tags,queueId,keys")
    frame = reader.load().where("tags in ('A', 'B') and queueId < 2")
    rows = frame.collect()
    assert rows and {row.tags for row in rows} == {"A", "B"}
    assert {row.queueId for row in rows} <= {0, 1}
    whole = spark.read.format("rocketmq").options(nameServer=cluster.name_server, topic=topic)
    pushing = whole.load(), whole.options(filterPushdown=True, timeSlackMs=1000).load()
    text = "tags <> 'A' and keys like 'key-1%' and queueOffset > 1 and not queueId in (0, 1)"
    first = min(row.storeTimestamp for row in pushing[0].collect())
    plain, pushed = [
        sorted(
            (row.queueId, row.queueOffset)
            for row in frame.where(text).where(col("storeTimestamp") >= first).collect()
        )
        for frame in pushing
    ]
    assert pushed == plain and 0 < len(plain) < COUNT / 4


def test_a_schema_of_the_user_and_errors(spark: Any, cluster: UpCluster, topic: str) -> None:
    reader = spark.read.format("rocketmq").option("nameServer", cluster.name_server)
    reader = reader.option("topic", topic)
    frame = reader.schema("body binary, queueId int").load()
    assert frame.columns == ["body", "queueId"]
    with pytest.raises(Exception, match="column body is string; allowed: binary"):
        reader.schema("body string").load().collect()


def test_rows_become_messages(spark: Any, cluster: UpCluster) -> None:
    frame = spark.range(50).selectExpr(
        "concat('body ', id) as body",
        "concat('key-', id) as keys",
        "if(id % 2 = 0, 'even', null) as tags",
        "map('number', cast(id as string), 'none', null) as properties",
        "'one' as queueKey",
    )
    writer = frame.repartition(2).write.format("rocketmq").mode("append")
    writer.options(nameServer=cluster.name_server, topic="SparkWritten").save()
    rows = direct.read_written({"nameServer": cluster.name_server, "topic": "SparkWritten"})
    by_number = {int(row["body"].split()[1]): row for row in rows}
    assert sorted(by_number) == list(range(50)) and len(rows) == 50
    assert len({row["queueId"] for row in rows}) == 1, "one queue key, one queue"
    row_ids = set()
    for number, row in by_number.items():
        properties = dict(row["properties"])
        row_ids.add(properties["SPARK_ROW_ID"])
        assert properties["number"] == str(number) and "none" not in properties
        assert (row["keys"], row["tags"]) == (f"key-{number}", None if number % 2 else "even")
    assert len(row_ids) == 50
    assert {row_id.rpartition("-")[0].count("-") for row_id in row_ids} == {2}


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (["id as body"], "column body is bigint; allowed: binary or string"),
        (["'x' as body", "1 as nonsense"], "column nonsense is unknown; allowed: topic, body"),
        (["'x' as keys"], "column body is missing"),
    ],
)
def test_columns_that_do_not_fit_are_named(
    spark: Any, cluster: UpCluster, columns: list[str], words: str
) -> None:
    frame = spark.range(1).selectExpr(*columns)
    writer = frame.write.format("rocketmq").mode("append")
    with pytest.raises(Exception, match=words):
        writer.options(nameServer=cluster.name_server, topic="SparkRefused").save()


def test_a_stream_from_topic_to_topic_goes_on_where_it_ended(
    spark: Any, cluster: UpCluster, tmp_path: Path
) -> None:
    """Two runs with one checkpoint; the second sees only what came in between."""

    def run() -> None:
        reader = spark.readStream.format("rocketmq").option("nameServer", cluster.name_server)
        frame = reader.options(topic="StreamIn", startingOffsets="earliest").load()
        writer = frame.select("body", "keys", "tags", "properties").writeStream
        writer = writer.format("rocketmq").option("nameServer", cluster.name_server)
        writer = writer.options(topic="StreamOut", checkpointLocation=str(tmp_path))
        writer = writer.trigger(availableNow=True)
        assert patiently(lambda: writer.start().awaitTermination(800))

    send_numbered(cluster.name_server, "StreamIn", 60)
    run()
    send_numbered(cluster.name_server, "StreamIn", 30, start=60)
    run()
    rows = direct.read_written({"nameServer": cluster.name_server, "topic": "StreamOut"})
    assert sorted(int(row["body"].split()[1]) for row in rows) == list(range(90))
    ids = {dict(row["properties"])["SPARK_ROW_ID"] for row in rows}
    assert len(ids) == 90
    for row in rows:
        number = int(row["body"].split()[1])
        assert row["keys"] == f"key-{number} all"
        assert row["tags"] == ("A", "B", None)[number % 3]
        assert dict(row["properties"])["who"] == "tést"


def test_progress_tells_the_lag(spark: Any, cluster: UpCluster, tmp_path: Path) -> None:
    send_numbered(cluster.name_server, "StreamLag", 30)
    reader = spark.readStream.format("rocketmq").option("nameServer", cluster.name_server)
    frame = reader.options(topic="StreamLag", startingOffsets="earliest", maxRowsPerTrigger=20)
    writer = frame.load().writeStream.format("noop").trigger(availableNow=True)

    def run() -> list[int]:
        query = writer.option("checkpointLocation", str(tmp_path)).start()
        assert query.awaitTermination(800)
        told = [progress for progress in query.recentProgress if progress["numInputRows"]]
        return [sum(lag_of(progress).values()) for progress in told]

    assert patiently(run) == [10, 0]


def test_a_stream_from_the_latest_that_dies_in_its_first_batch_misses_nothing(
    spark: Any, cluster: UpCluster, tmp_path: Path
) -> None:
    """As a kill leaves it: Spark has written down the first batch, but not that it is done."""
    send_numbered(cluster.name_server, "StreamLatest", 4)
    reader = spark.readStream.format("rocketmq").option("nameServer", cluster.name_server)
    writer = reader.options(topic="StreamLatest", startingOffsets="latest").load().writeStream
    writer = writer.option("checkpointLocation", str(tmp_path))

    def die(_rows: Any, _batch: int) -> None:
        raise RuntimeError("dies in its first batch")

    with pytest.raises(StreamingQueryException, match="dies in its first batch"):
        patiently(lambda: writer.foreachBatch(die).start().awaitTermination(800))
    assert (tmp_path / "offsets" / "0").exists() and not (tmp_path / "commits" / "0").exists()
    send_numbered(cluster.name_server, "StreamLatest", 20, start=4)
    found: list[tuple[int, int]] = []

    def see(rows: Any, batch: int) -> None:
        found.extend((batch, int(bytes(row.body).split()[1])) for row in rows.collect())

    writer = writer.foreachBatch(see).trigger(availableNow=True)
    assert patiently(lambda: writer.start().awaitTermination(800))
    assert sorted(found) == [(1, number) for number in range(4, 24)]
