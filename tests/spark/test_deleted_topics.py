"""Topics that are deleted under a stream: it ends with the cause, or goes on with the others."""

import re
from typing import Any

import pytest
from pyspark.sql.streaming import datasource as limits

from ledgermq.client.blocking import AdminClient
from ledgermq.spark.cluster import Cluster
from ledgermq.spark.errors import ClusterError, UnknownTopicError
from tests.e2e.up_cluster import UpCluster
from tests.spark.test_stream_read import rows_between, stream, through_json
from tests.spark.topics import send_numbered
from tests.waiting import wait_until

ALL = limits.ReadAllAvailable()


def delete(name_server: str, topic: str) -> None:
    """Deletes a topic; when this returns no name server knows it."""
    with AdminClient(name_server) as admin:
        admin.delete_topic(topic)

    def is_gone() -> bool:
        with Cluster((name_server,), 5.0) as cluster:
            try:
                cluster.queues([topic], unknown_s=0)
            except UnknownTopicError:
                return True
        return False

    wait_until(is_gone, what=f"no route to {topic}")


@pytest.fixture
def readers() -> Any:
    made: list[Any] = []
    yield made
    for reader in made:
        reader.stop()


def test_a_stream_whose_topic_is_deleted_says_so(cluster: UpCluster, readers: list[Any]) -> None:
    """Neither as nothing new, nor as an empty batch: what was to be read is gone."""
    send_numbered(cluster.name_server, "DeletedUnder", 20)
    reader = stream(cluster, topic="DeletedUnder", startingOffsets="earliest", readTimeoutMs=1500)
    readers.append(reader)
    start = reader.initialOffset()
    end = reader.latestOffset(through_json(start), ALL)
    delete(cluster.name_server, "DeletedUnder")
    unknown = re.escape(f"topic 'DeletedUnder' is unknown to the name server {cluster.name_server}")
    with pytest.raises(ClusterError, match=f"DeletedUnder.*{unknown}"):
        rows_between(reader, start, end)
    with pytest.raises(ClusterError, match=f"the topics of the stream: {unknown}"):
        reader.latestOffset(through_json(end), ALL)


def test_a_stream_of_a_pattern_goes_on_with_the_others(
    cluster: UpCluster, readers: list[Any]
) -> None:
    for topic in ("DeletedOne", "DeletedOther"):
        send_numbered(cluster.name_server, topic, 10)
    reader = stream(
        cluster, topicPattern="Deleted(One|Other)", startingOffsets="earliest", readTimeoutMs=1500
    )
    readers.append(reader)
    start = reader.initialOffset()
    end = reader.latestOffset(through_json(start), ALL)
    assert rows_between(reader, start, end) == sorted([*range(10), *range(10)])
    delete(cluster.name_server, "DeletedOther")
    send_numbered(cluster.name_server, "DeletedOne", 5, start=10)
    after = reader.latestOffset(through_json(end), ALL)
    assert rows_between(reader, end, after) == list(range(10, 15))
    # Its place is kept: made again, it would be told from what was read.
    assert after["topics"]["DeletedOther"] == end["topics"]["DeletedOther"]


def test_a_batch_whose_topic_is_deleted_goes_on_where_loss_is_allowed(
    cluster: UpCluster, readers: list[Any]
) -> None:
    """Its end is in the checkpoint: the stream would never get beyond it."""
    for topic in ("DeletedPlanned", "DeletedKept"):
        send_numbered(cluster.name_server, topic, 10)
    options = {"topicPattern": "Deleted(Planned|Kept)", "startingOffsets": "earliest"}
    reader = stream(cluster, **options, readTimeoutMs=1500, failOnDataLoss="false")
    readers.append(reader)
    start = reader.initialOffset()
    end = reader.latestOffset(through_json(start), ALL)
    delete(cluster.name_server, "DeletedPlanned")
    assert rows_between(reader, start, end) == list(range(10))
    send_numbered(cluster.name_server, "DeletedKept", 5, start=10)
    after = reader.latestOffset(through_json(end), ALL)
    assert rows_between(reader, end, after) == list(range(10, 15))


def test_a_topic_that_is_closed_for_reading_ends_no_stream_of_a_pattern(
    cluster: UpCluster, readers: list[Any]
) -> None:
    for topic in ("ClosedOne", "ClosedOther"):
        send_numbered(cluster.name_server, topic, 10)
    reader = stream(cluster, topicPattern="Closed(One|Other)", startingOffsets="earliest")
    readers.append(reader)
    start = reader.initialOffset()
    end = reader.latestOffset(through_json(start), ALL)
    with AdminClient(cluster.name_server) as admin:
        admin.update_topic("ClosedOther", permission=2)  # Writing.

    def is_closed() -> bool:
        with Cluster((cluster.name_server,), 5.0) as asked:
            return not asked.queues(["ClosedOther"], are_found=True)

    wait_until(is_closed, what="a route without queues to read")
    send_numbered(cluster.name_server, "ClosedOne", 5, start=10)
    after = reader.latestOffset(through_json(end), ALL)
    assert rows_between(reader, end, after) == list(range(10, 15))
    assert after["topics"]["ClosedOther"] == end["topics"]["ClosedOther"]
