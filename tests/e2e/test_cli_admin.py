"""`ledgermq admin` and `ledgermq log` against a running name server and broker."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ledgermq.cli.main import main
from ledgermq.cli.remote import Remote, UnreachableError
from tests.e2e.wire_client import WireClient
from tests.free_ports import free_ports
from tests.processes import LiveProgram, broker, name_server, run_ledgermq
from tests.waiting import wait_until

CLUSTER = "TestCluster"
TOPIC = "Orders"


def run(*words: object) -> tuple[int, str, str]:
    """Runs a command in this process; returns exit code, output and complaints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    return code, out.getvalue(), err.getvalue()


class Place(NamedTuple):
    """A name server, a broker, and the store of the broker."""

    namesrv: str
    broker: LiveProgram
    store: Path

    def admin(self, *words: object) -> Any:
        """The JSON that a subcommand prints."""
        code, out, err = run("admin", words[0], "--json", "-n", self.namesrv, *words[1:])
        assert code == 0, err
        return json.loads(out)

    def wait_for_queues(self, topic: str, count: int) -> None:
        """Waits until the name server knows a topic with so many queues: the broker tells it."""

        def are_known() -> bool:
            code, out, _ = run("admin", "topicRoute", "--json", "-n", self.namesrv, "-t", topic)
            return code == 0 and json.loads(out)["queueDatas"][0]["readQueueNums"] == count

        wait_until(are_known, what=f"{count} queues of {topic}")

    def fails(self, *words: object) -> str:
        """The one line in which a subcommand says why it failed."""
        code, out, err = run("admin", words[0], "-n", self.namesrv, *words[1:])
        assert (code, out) == (1, ""), err
        assert len(err.splitlines()) == 1, err
        return err


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("admin")
    settings = [f"brokerClusterName={CLUSTER}"]
    with (
        name_server(folder) as namesrv,
        broker(folder, *settings, namesrv=namesrv) as program,
    ):
        program.wait_until_serving()
        place = Place(namesrv, program, folder / "broker-a")
        wait_until(lambda: place.admin("clusterList"), what="a registered broker")
        place.admin("updateTopic", "-c", CLUSTER, "-t", TOPIC, "-r", 2, "-w", 2)
        place.wait_for_queues(TOPIC, 2)
        with WireClient(program.address) as client:
            for number in range(10):
                assert client.send(TOPIC, number % 2, b"%d" % number).code == 0
        yield place


def test_cluster_list(place: Place) -> None:
    (row,) = place.admin("clusterList")
    assert (row["cluster"], row["broker"], row["id"]) == (CLUSTER, "broker-a", 0)
    assert row["address"] == place.broker.address
    assert row["version"]
    _, text, _ = run("admin", "clusterList", "-m", "-n", place.namesrv)
    assert text.splitlines()[0].split()[:4] == ["cluster", "broker", "id", "address"]
    assert place.broker.address in text


def test_topic_list(place: Place) -> None:
    assert {"topic": TOPIC} in place.admin("topicList")
    assert {"cluster": CLUSTER, "topic": TOPIC} in place.admin("topicList", "-c")


def test_topic_route(place: Place) -> None:
    route = place.admin("topicRoute", "-t", TOPIC)
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": place.broker.address}
    assert route["queueDatas"][0]["writeQueueNums"] == 2
    _, text, _ = run("admin", "topicRoute", "-t", TOPIC, "-n", place.namesrv)
    assert f"0={place.broker.address}" in text


def test_topic_status(place: Place) -> None:
    rows = place.admin("topicStatus", "-t", TOPIC)
    assert [(row["queue"], row["min_offset"], row["max_offset"]) for row in rows] == [
        (0, 0, 5),
        (1, 0, 5),
    ]
    assert all(row["last_update"].startswith("20") for row in rows)


def test_consumer_progress(place: Place) -> None:
    with WireClient(place.broker.address) as client:
        fields = {"consumerGroup": "accounts", "topic": TOPIC, "queueId": "0", "commitOffset": "3"}
        assert client.ask(15, fields).code == 0
        heart_beat = {
            "clientID": "127.0.0.1@1",
            "producerDataSet": [],
            "consumerDataSet": [
                {
                    "groupName": "accounts", "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                    "unitMode": False,
                    "subscriptionDataSet": [
                        {"topic": TOPIC, "subString": "*", "subVersion": 1, "tagsSet": [],
                         "codeSet": [], "classFilterMode": False, "expressionType": "TAG"}
                    ],
                }
            ],
        }  # fmt: skip
        assert client.ask(34, None, json.dumps(heart_beat).encode()).code == 0

        def is_known() -> bool:
            return {"topic": "%RETRY%accounts"} in place.admin("topicList")

        wait_until(is_known, what="the retry topic of the group")
        rows = place.admin("consumerProgress", "-g", "accounts")
    (first,) = [row for row in rows if (row["topic"], row["queue"]) == (TOPIC, 0)]
    assert (first["broker_offset"], first["consumer_offset"], first["behind"]) == (5, 3, 2)
    groups = {row["group"]: row["behind"] for row in place.admin("consumerProgress")}
    assert "accounts" in groups


def test_broker_status_and_settings(place: Place) -> None:
    rows = place.admin("brokerStatus", "-b", place.broker.address)
    assert {row["key"]: row["value"] for row in rows}["brokerVersionDesc"] == "V4_9_3"
    rows = place.admin("getBrokerConfig", "-c", CLUSTER)
    assert {row["key"]: row["value"] for row in rows}["brokerClusterName"] == CLUSTER


def test_connections_of_groups(place: Place) -> None:
    group = "connected"
    member = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [{"topic": TOPIC, "subString": "*", "subVersion": 1}],
    }
    beat = {"clientID": "c1", "consumerDataSet": [member], "producerDataSet": [{"groupName": "p"}]}
    with WireClient(place.broker.address) as client:
        assert client.ask(34, None, json.dumps(beat).encode()).code == 0
        place.wait_for_queues(f"%RETRY%{group}", 1)
        (consumer,) = place.admin("consumerConnection", "-g", group)
        (producer,) = place.admin("producerConnection", "-g", "p", "-t", TOPIC)
    assert consumer["client"] == producer["client"] == "c1"
    assert (consumer["language"], consumer["version"]) == ("JAVA", 399)
    refusal = place.fails("producerConnection", "-g", "nobody", "-t", TOPIC)
    assert "the producer group[nobody] not exist" in refusal


def test_a_topic_is_made_changed_and_deleted(place: Place) -> None:
    place.admin("updateTopic", "-b", place.broker.address, "-t", "Short", "-r", 1, "-w", 1)
    place.wait_for_queues("Short", 1)
    place.admin("updateTopic", "-c", CLUSTER, "-t", "Short", "-r", 3, "-w", 3, "-o", "true")
    place.wait_for_queues("Short", 3)
    # An attribute that the broker knows, and one that it refuses by its name.
    change = ("updateTopic", "-b", place.broker.address, "-t", "Short", "-r", 3, "-w", 3)
    place.admin(*change, "-a", "+message.type=FIFO")
    assert "unsupported key: color" in place.fails(*change, "-a", "+color=red")
    place.admin(*change, "--attributes=-message.type")
    assert "nonexistent key" in place.fails(*change, "--attributes=-message.type")
    assert place.admin("deleteTopic", "-c", CLUSTER, "-t", "Short") == [{"deleted": "Short"}]
    assert "Short" in place.fails("topicRoute", "-t", "Short")


def test_what_does_not_exist_is_named(place: Place) -> None:
    assert "'Nowhere'; known: TestCluster" in place.fails("updateTopic", "-c", "Nowhere", "-t", "T")
    assert "'Nowhere'" in place.fails("deleteTopic", "-c", "Nowhere", "-t", "T")
    assert "NoSuchTopic" in place.fails("topicRoute", "-t", "NoSuchTopic")
    assert "NoSuchTopic" in place.fails("topicStatus", "-t", "NoSuchTopic")
    assert "noSuchGroup" in place.fails("consumerProgress", "-g", "noSuchGroup")


def test_a_refusal_of_the_broker_is_told(place: Place) -> None:
    text = place.fails("updateTopic", "-c", CLUSTER, "-t", "a/b")
    assert place.broker.address in text and "illegal characters" in text
    assert "-5" in place.fails("updateTopic", "-c", CLUSTER, "-t", "T", "-r", -5)


def test_nobody_there(place: Place) -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    code, _, err = run("admin", "clusterList", "-n", nobody)
    assert code == 1
    assert "no name server answers" in err and nobody in err and "refused" in err
    # The second name server answers.
    assert run("admin", "topicList", "-n", f"{nobody};{place.namesrv}")[0] == 0
    assert nobody in place.fails("updateTopic", "-b", nobody, "-t", "T")


@pytest.mark.parametrize(
    "address", ["nowhere", "", ";", "127.0.0.1:port", "127.0.0.1:99999", ":9876", "a..b:9876"]
)
def test_an_address_that_is_none(place: Place, address: str) -> None:
    code, _, err = run("admin", "clusterList", "-n", address)
    assert code == 1
    assert len(err.splitlines()) == 1
    assert address in err
    assert place.fails("updateTopic", "-b", address or "-", "-t", "T")


def test_who_is_no_name_server(place: Place) -> None:
    code, _, err = run("admin", "topicList", "-n", place.broker.address)
    assert code == 1
    assert f"{place.broker.address} is no name server, but perhaps a broker" in err


def test_who_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with Remote(address, timeout_s=0.1) as remote:
            with pytest.raises(UnreachableError, match=address):
                remote.clusters()


def test_the_name_server_of_the_environment_is_asked(place: Place) -> None:
    environment = {**os.environ, "NAMESRV_ADDR": place.namesrv}
    done = run_ledgermq("admin", "topicList", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert TOPIC in done.stdout.splitlines()


def test_verify_while_the_broker_runs(place: Place) -> None:
    with WireClient(place.broker.address) as client:
        for number in range(300):
            assert client.send("Running", number % 4, b"r" * 200).code == 0
        done = run_ledgermq("log", "verify", place.store)
        assert done.returncode == 0, done.stdout
        assert "DEFECT" not in done.stdout
    code, out, _ = run("log", "stat", place.store)
    assert code == 0 and TOPIC in out
    code, out, _ = run("log", "dump", "--count", 2, place.store)
    assert code == 0 and len(out.splitlines()) == 2


def test_doctor_sees_that_the_ports_are_taken(place: Place) -> None:
    port = place.broker.address.rpartition(":")[2]
    ledger = place.broker.status["dledger"]
    words = [
        f"listenPort={port}", f"storePathRootDir={place.store}", "brokerIP1=127.0.0.1",
        "enableDLegerCommitLog=true", "dLegerGroup=broker-a", "dLegerSelfId=n1",
        f"dLegerPeers=n0-{ledger};n1-127.0.0.1:{free_ports(1)[0]}",
        "mappedFileSizeCommitLog=16777216",
    ]  # fmt: skip
    code, out, _ = run("doctor", "--json", "-n", place.namesrv, *words)
    assert code == 1
    found = json.loads(out)
    told = {(one["check"], one["verdict"]): one["text"] for one in found}
    assert f"listenPort {port}" in told["port", "failed"]
    assert "dLegerPeers" in told["port", "good"]
    assert ledger in told["member", "good"]
    assert "knows 1 brokers" in told["name server", "good"]
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    code, out, _ = run("doctor", "-n", nobody, *words)
    assert code == 1
    assert f"no answer from {nobody}" in out
