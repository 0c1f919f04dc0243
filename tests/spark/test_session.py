"""The source in a real Spark session: what only Spark can judge. Each query costs a second."""

from typing import Any

import pytest

from tests.e2e.up_cluster import UpCluster
from tests.spark.topics import send_numbered

COUNT = 200
# The first query of a session starts a Java machine and its Python processes.
pytestmark = pytest.mark.timeout(300)


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


def test_a_schema_of_the_user_and_errors(spark: Any, cluster: UpCluster, topic: str) -> None:
    reader = spark.read.format("rocketmq").option("nameServer", cluster.name_server)
    reader = reader.option("topic", topic)
    frame = reader.schema("body binary, queueId int").load()
    assert frame.columns == ["body", "queueId"]
    with pytest.raises(Exception, match="column body is string; allowed: binary"):
        reader.schema("body string").load().collect()
