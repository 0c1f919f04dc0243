"""Conditions that are pushed down: the same rows as without, and less that a broker gives."""

import contextlib
import random
from typing import Any

import pytest
from pyspark.sql import datasource as of_spark
from pyspark.sql.datasource import Filter

from ledgermq.cli.remote import Remote, UnreachableError
from ledgermq.client import Message
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.route import KVTable
from tests.e2e.up_cluster import UpCluster
from tests.spark import direct
from tests.spark.topics import send_all
from tests.unit.spark.test_filters import plainly
from tests.waiting import wait_until

TOPIC = "SparkPushdown"
COUNT = 600
TAGS = ("A", "B", "", "AaAaAa", "BBBBBB", "A|B")
COLUMNS = ("queueId", "queueOffset", "storeTimestamp", "bornTimestamp", "tags", "keys", "msgId")


@pytest.fixture(scope="module")
def options(cluster: UpCluster) -> dict[str, object]:
    draws = random.Random(3)
    send_all(
        cluster.name_server,
        [
            Message(TOPIC, f"body {n}".encode(), tags=draws.choice(TAGS), keys=f"key-{n % 40}")
            for n in range(COUNT)
        ],
    )
    return {"nameServer": cluster.name_server, "topic": TOPIC, "filterPushdown": "true"}


@pytest.fixture(scope="module")
def whole(options: dict[str, object]) -> list[dict[str, Any]]:
    return direct.read_rows(options)


def passes(wanted: Filter, row: dict[str, Any]) -> bool:
    """Whether a row passes, found without the source."""
    inner = wanted.child if isinstance(wanted, of_spark.Not) else wanted
    value = row[inner.attribute[0]]
    match inner:
        case of_spark.LessThan(_, other) | of_spark.GreaterThanOrEqual(_, other):
            found: bool | None = None
            if value is not None:
                is_less = value < other
                found = is_less if isinstance(inner, of_spark.LessThan) else not is_less
        case _:
            found = plainly(inner, value)
    return found is not None and found != isinstance(wanted, of_spark.Not)


def random_condition(draws: random.Random, whole: list[dict[str, Any]]) -> Filter:
    """A condition on any column, with a value that some row has."""
    name = draws.choice(COLUMNS)
    values = [row[name] for row in whole if row[name] is not None]
    value = draws.choice(values)
    kinds: list[Filter] = [
        of_spark.EqualTo((name,), value),
        of_spark.LessThan((name,), value),
        of_spark.GreaterThanOrEqual((name,), value),
        of_spark.In((name,), tuple(draws.sample(values, 3))),
        of_spark.IsNotNull((name,)),
    ]
    if isinstance(value, str):
        kinds += [of_spark.StringContains((name,), value[:3]), of_spark.IsNull((name,))]
    found = draws.choice(kinds)
    return of_spark.Not(found) if draws.random() < 0.3 else found


@pytest.mark.parametrize("seed", range(30))
def test_rows_are_those_that_a_filter_after_the_read_leaves(
    options: dict[str, object], whole: list[dict[str, Any]], seed: int
) -> None:
    draws = random.Random(seed)
    more = {"timeSlackMs": 10_000} if seed % 2 else {}
    wanted = [random_condition(draws, whole) for _ in range(draws.choice((1, 1, 2, 3)))]
    source = direct.source_of({**options, **more})
    assert list(source.reader(source.schema()).pushFilters(wanted)) == []
    expected = [row for row in whole if all(passes(one, row) for one in wanted)]
    assert direct.read_rows({**options, **more}, wanted) == expected, wanted


def test_a_broker_gives_no_more_than_it_must(
    cluster: UpCluster, options: dict[str, object], whole: list[dict[str, Any]]
) -> None:
    def given(*wanted: Filter, **more: object) -> int:
        """How many messages the broker gives for a read with some conditions."""
        before = given_count(cluster)
        direct.read_rows({**options, **more}, list(wanted))
        return given_count(cluster) - before

    def count(*wanted: Filter) -> int:
        return sum(all(passes(one, row) for one in wanted) for row in whole)

    assert given() == COUNT
    queue, low = of_spark.EqualTo(("queueId",), 1), of_spark.GreaterThanOrEqual(("queueOffset",), 9)
    assert given(queue, low) == count(queue, low) < COUNT / 4
    assert given(of_spark.Not(queue)) == COUNT - count(queue)
    assert given(low, of_spark.LessThan(("queueOffset",), 9)) == 0
    tags = of_spark.EqualTo(("tags",), "A")
    assert given(tags) == count(tags) < COUNT / 3
    # Two tags with the same hash: the broker gives both, and the read tells them apart.
    twins = [of_spark.EqualTo(("tags",), tag) for tag in ("AaAaAa", "BBBBBB")]
    assert given(twins[0]) >= count(twins[0])
    assert given(tags, twins[0]) == 0
    # Far from every message: nothing is read where the user says how far times may be apart.
    first = min(row["storeTimestamp"] for row in whole)
    early = of_spark.LessThan(("storeTimestamp",), first.replace(year=2000))
    assert given(early) == COUNT
    assert given(early, timeSlackMs=1000) <= len({row["queueId"] for row in whole})


def given_count(cluster: UpCluster) -> int:
    """How many messages the broker has given to consumers so far."""
    found: list[int] = []

    def is_answered() -> bool:
        leader = cluster.find_leader()
        assert leader is not None
        # A broker that was asked for many connections in this second refuses one more.
        with Remote(cluster.name_server) as remote, contextlib.suppress(UnreachableError):
            answer = remote.call(leader["address"], RequestCode.GET_BROKER_RUNTIME_INFO)
            found.append(int(KVTable.decode(answer.body).table["msgGetTotalTodayNow"]))
        return bool(found)

    wait_until(is_answered, what="the broker's count")
    return found[0]
