"""A topic as Arrow tables: what comes, in how much memory, and what is said when it cannot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow
import pytest

import ledgermq
from ledgermq.client import ClientError, ConfigError, Message, MessageQueue, NoRouteError, blocking
from tests.waiting import wait_until

COUNT = 300
# None of these is what a producer or broker adds.
OWN = ("number", "wörd")


@pytest.fixture(scope="module")
def sent(name_server: str) -> list[Any]:
    """Sends the messages of the topic; their results."""
    results = []
    with blocking.Producer(name_server) as producer, blocking.PullConsumer(name_server) as reader:
        for number in range(COUNT):
            message = Message(
                "ArrowRead",
                f"body {number}".encode() * (1000 if number == 7 else 1),
                tags="even" if number % 2 == 0 else "",
                keys=f"key-{number}",
                properties={"number": str(number), "wörd": "tést"},
            )
            results.append(producer.send(message))

        def is_known() -> bool:
            try:
                return bool(reader.queues("ArrowRead"))
            except NoRouteError:
                return False

        wait_until(is_known, what="the topic")
    return results


def test_table_has_every_message_with_all_that_it_carries(
    name_server: str, sent: list[Any]
) -> None:
    table = ledgermq.read("ArrowRead", name_servers=name_server).read_all()
    rows = {int(dict(row["properties"])["number"]): row for row in table.to_pylist()}
    assert sorted(rows) == list(range(COUNT)) and table.num_rows == COUNT
    for number, row in rows.items():
        result = sent[number]
        assert row["topic"] == "ArrowRead" and row["reconsume_times"] == 0
        place = (row["broker_name"], row["queue_id"], row["queue_offset"])
        assert place == (result.broker_name, result.queue_id, result.queue_offset)
        assert row["message_id"] == result.message_id
        assert row["body"] == f"body {number}".encode() * (1000 if number == 7 else 1)
        assert (row["tags"], row["keys"]) == (None if number % 2 else "even", f"key-{number}")
        assert {name: dict(row["properties"])[name] for name in OWN} == {
            "number": str(number),
            "wörd": "tést",
        }
        assert timedelta() <= row["store_time"] - row["born_time"] < timedelta(minutes=10)


def test_batches_hold_no_more_than_they_are_told(name_server: str, sent: list[Any]) -> None:
    sizes = [
        batch.num_rows
        for batch in ledgermq.read("ArrowRead", name_servers=name_server, batch_rows=7)
    ]
    assert sum(sizes) == COUNT and max(sizes) == 7 and len(sizes) == -(-COUNT // 7)
    reader = ledgermq.read("ArrowRead", name_servers=name_server, batch_bytes=100)
    for batch in reader:
        bodies = [len(body) for body in batch.column("body").to_pylist()]
        assert sum(bodies[:-1]) < 100


def test_range_by_offset_and_by_queue(name_server: str, sent: list[Any]) -> None:
    table = ledgermq.read("ArrowRead", 3, 10, name_servers=name_server).read_all()
    found = {(row["queue_id"], row["queue_offset"]) for row in table.to_pylist()}
    queues = {result.queue_id for result in sent}
    assert found == {(queue, offset) for queue in queues for offset in range(3, 10)}
    queue = sent[0].queue
    table = ledgermq.read("ArrowRead", {queue: 5}, {queue: 8}, name_servers=name_server).read_all()
    assert [(row["queue_id"], row["queue_offset"]) for row in table.to_pylist()] == [
        (queue.queue_id, offset) for offset in (5, 6, 7)
    ]
    behind = ledgermq.read("ArrowRead", 10**9, name_servers=name_server).read_all()
    assert behind.num_rows == 0 and behind.schema.names[0] == "topic"


def test_range_by_time_is_half_open(name_server: str, sent: list[Any]) -> None:
    whole = ledgermq.read("ArrowRead", name_servers=name_server).read_all().to_pylist()
    middle = sorted(row["store_time"] for row in whole)[COUNT // 2]

    def count(start: Any, stop: Any) -> int:
        reader = ledgermq.read("ArrowRead", start, stop, name_servers=name_server)
        return int(reader.read_all().num_rows)

    earlier = sum(row["store_time"] < middle for row in whole)
    assert 0 < earlier < COUNT
    assert count("first", middle) == earlier and count(middle, "last") == COUNT - earlier
    assert count(datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)) == COUNT


def test_what_arrives_later_does_not_come(name_server: str, sent: list[Any]) -> None:
    with blocking.Producer(name_server) as producer:
        producer.send(Message("ArrowLater", b"before"))
        [queue] = {producer.send(Message("ArrowLater", b"too")).queue for _ in range(1)}
        with blocking.PullConsumer(name_server) as consumer:
            wait_until(lambda: _is_there(consumer, queue), what="the topic")
        reader = ledgermq.read("ArrowLater", name_servers=name_server, batch_rows=1)
        producer.send(Message("ArrowLater", b"after"))
        assert reader.read_all().column("body").to_pylist().count(b"after") == 0


def _is_there(consumer: blocking.PullConsumer, queue: MessageQueue) -> bool:
    try:
        return consumer.max_offset(queue) > 0
    except ClientError:
        return False


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"start": -1}, "start is -1; allowed:"),
        ({"start": "begin"}, "start is 'begin'; allowed:"),
        ({"start": True}, "start is True; allowed:"),
        ({"stop": datetime(2026, 1, 1)}, "stop is .*, without a time zone"),
        ({"start": 5, "stop": 4}, "stop is 4, before start, which is 5"),
        ({"batch_rows": 0}, "batch_rows is 0; allowed: 1 or more"),
        (
            {"start": {MessageQueue("Other", "b", 0): 1}},
            "start has .*Other.*, no queue of the topic",
        ),
        (
            {"start": {MessageQueue("ArrowRead", "b", 0): 1}},
            "there is no queue b/0; there are: .*/0",
        ),
    ],
)
def test_wrong_values_are_named(
    name_server: str, sent: list[Any], words: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        ledgermq.read("ArrowRead", name_servers=name_server, **words)


def test_unknown_topic_is_named(name_server: str) -> None:
    with pytest.raises(NoRouteError, match="ArrowUnknown"):
        ledgermq.read("ArrowUnknown", name_servers=name_server, timeout_s=5)


def test_reader_that_is_left_closes_its_consumer(name_server: str, sent: list[Any]) -> None:
    """One that was not closed would warn, which is an error here."""
    reader = ledgermq.read("ArrowRead", name_servers=name_server, batch_rows=5)
    assert isinstance(reader, pyarrow.RecordBatchReader)
    assert reader.read_next_batch().num_rows == 5
    reader.close()
