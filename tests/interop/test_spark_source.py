"""The Spark source and the segment source against stock brokers, with and without a ledger."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client import Message
from ledgermq.spark import SparkSourceError
from tests.interop.stock_broker import JavaCluster, JavaClusterPlan
from tests.spark import direct
from tests.spark.topics import send_all
from tests.waiting import wait_until

COUNT = 4000
# Small files, so that there are several.
KEYS = {"mappedFileSizeCommitLog": "524288"}


@pytest.fixture(scope="module", params=[0, 1], ids=["plain", "ledger"])
def stock(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaCluster]:
    """A stock broker with messages in the topic Spark."""
    plan = JavaClusterPlan(dledger_members=request.param, broker_keys=KEYS)
    with JavaCluster(tmp_path_factory.mktemp("java"), plan) as cluster:
        draws = random.Random(1)
        send_all(
            cluster.namesrv,
            [
                Message(
                    "Spark",
                    f"{number} ".encode() + draws.randbytes(draws.choice([0, 100, 400])),
                    tags=("A", "B", "")[number % 3],
                    keys=f"key-{number}",
                    properties={"number": str(number)},
                )
                for number in range(COUNT)
            ]
            + [Message("Spark", b"4000 " + b"x" * 5000)],
        )
        yield cluster


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    """The numbers of the messages; a send that was tried again may be stored twice."""
    return sorted({int(row["body"].split()[0]) for row in rows})


def test_all_messages_of_a_stock_broker_are_rows(stock: JavaCluster) -> None:
    options = {"nameServer": stock.namesrv, "topic": "Spark"}
    rows = direct.read_rows(options)
    assert numbers(rows) == list(range(COUNT + 1))
    for row in rows:
        number = int(row["body"].split()[0])
        if number < COUNT:
            assert row["tags"] == ("A", "B", None)[number % 3]
            assert dict(row["properties"])["number"] == str(number)
    tagged = direct.read_rows({**options, "tags": "A"})
    assert numbers(tagged) == list(range(0, COUNT, 3))


def test_times_bound_a_read_from_a_stock_broker(stock: JavaCluster) -> None:
    options = {"nameServer": stock.namesrv, "topic": "Spark"}
    times = sorted(
        round(row["storeTimestamp"].timestamp() * 1000) for row in direct.read_rows(options)
    )
    middle = times[COUNT // 2]
    later = len(direct.read_rows({**options, "startingTimestamp": middle}))
    earlier = len(direct.read_rows({**options, "endingTimestamp": middle}))
    assert later == len([at for at in times if at >= middle])
    assert later + earlier == len(times)
    # A stock broker answers a search behind its end with the last message.
    assert len(direct.read_rows({**options, "endingTimestamp": times[-1] + 1})) == len(times)
    assert direct.read_rows({**options, "startingTimestamp": times[-1] + 1}) == []


def test_its_files_give_the_rows_that_it_serves(stock: JavaCluster) -> None:
    served = direct.read_rows({"nameServer": stock.namesrv, "topic": "Spark"})
    options = {"path": Path(stock.directory) / "store-0", "topics": "Spark", "brokerName": "stock"}

    def read() -> list[dict[str, Any]]:
        # The checkpoint of a ledger comes every few seconds.
        with contextlib.suppress(SparkSourceError):
            rows = direct.read_segments(options)
            return rows if len(rows) == len(served) else []
        return []

    rows = wait_until(read, what="a checkpoint that covers all", deadline_s=60)

    def place(row: dict[str, Any]) -> tuple[int, int]:
        return row["queueId"], row["queueOffset"]

    assert sorted(rows, key=place) == sorted(served, key=place)
