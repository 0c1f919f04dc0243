"""The Spark source and the segment source against stock brokers, with and without a ledger."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client import ClientConfig, Credentials, Message, ProducerConfig
from ledgermq.client.blocking import Producer
from ledgermq.spark import SparkSourceError
from tests.interop.stock_broker import JavaCluster, JavaClusterPlan
from tests.spark import direct
from tests.spark.session import small_session
from tests.spark.topics import send_all
from tests.waiting import wait_until

COUNT = 4000
# Small files, so that there are several.
KEYS = {"mappedFileSizeCommitLog": "524288"}
# The first query of a session starts a Java machine and its Python processes.
pytestmark = pytest.mark.timeout(900)


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


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session."""
    yield from small_session(tmp_path_factory.mktemp("warehouse"))


def test_a_query_reads_a_stock_broker_and_writes_to_it(stock: JavaCluster, spark: Any) -> None:
    """What was read is written to another topic, and the same is read there."""
    reader = spark.read.format("rocketmq").option("nameServer", stock.namesrv)
    rows = reader.option("topic", "Spark").load().where("queueOffset < 100").cache()
    writer = rows.select("body", "tags", "keys").write.format("rocketmq").mode("append")
    writer.options(nameServer=stock.namesrv, topic="SparkAgain").save()
    written = direct.read_written({"nameServer": stock.namesrv, "topic": "SparkAgain"})
    sent = {(bytes(row.body), row.tags, row["keys"]) for row in rows.collect()}
    assert len(sent) >= 100
    assert {(row["body"], row["tags"], row["keys"]) for row in written} == sent


RULES = """
accounts:
- {accessKey: reports, secretKey: secret-1, admin: false, topicPerms: [Spark=PUB|SUB],
   groupPerms: [readers=SUB]}
"""


def test_a_stock_broker_that_refuses_an_account_is_not_asked_again(tmp_path: Path) -> None:
    """Its refusals have the code of any failure; only the words tell that they do not pass."""
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(RULES)
    plan = JavaClusterPlan(
        broker_keys={**KEYS, "aclEnable": "true"}, jvm_options=(f"-Drocketmq.home.dir={home}",)
    )
    with JavaCluster(tmp_path, plan) as secured:
        account = Credentials(access_key="reports", secret_key="secret-1")
        config = ProducerConfig(client=ClientConfig(credentials=account), timeout_s=60)
        with Producer(secured.namesrv, config=config) as producer:
            producer.send(Message("Spark", b"0 body"))
        own = {"accessKey": "reports", "secretKey": "secret-1"}
        options = {"nameServer": secured.namesrv, "topic": "Spark", **own}
        # Who waited for better days would wait longer than the test may take.
        reading = {**options, "groupId": "readers", "readTimeoutMs": "3600000"}
        writing = {**options, "sendTimeoutMs": "3600000"}
        assert numbers(direct.read_written(reading)) == [0]
        for changes, words in (
            ({"secretKey": "secret-2"}, "AclException"),
            ({"accessKey": "nobody1"}, "No acl config for nobody1"),
        ):
            with pytest.raises(SparkSourceError, match=words):
                direct.read_rows({**reading, **changes})
            with pytest.raises(SparkSourceError, match=f"after 1 tries: .*{words}"):
                direct.write_rows({**writing, **changes}, [b"1"])
        source = direct.source_of(reading)
        parts = source.reader(source.schema()).partitions()
        stranger = direct.source_of({**reading, "groupId": "strangers"})
        with pytest.raises(SparkSourceError, match="AclException"):
            list(stranger.reader(stranger.schema()).read(parts[0]))
        with pytest.raises(SparkSourceError, match="after 1 tries: .*AclException"):
            direct.write_rows({**writing, "topic": "Other"}, [b"1"])
