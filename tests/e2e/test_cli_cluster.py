"""The commands `topics`, `groups`, `lag`, `top`, `dlq` against a running cluster."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.cli.main import main
from ledgermq.client import Message, blocking
from ledgermq.client.admin.topics import kind_of
from ledgermq.protocol.names import ROUND_TRIP_TOPIC
from tests.e2e.test_admin_dead_letters import bury, wait_for_leaders
from tests.free_ports import free_ports
from tests.processes import broker, name_server
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)


def run(*words: object) -> tuple[int, str, str]:
    """Runs a command in this process; returns exit code, output and complaints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([str(word) for word in words])
        except SystemExit as end:
            code = int(str(end.code))
    return code, out.getvalue(), err.getvalue()


def told(namesrv: str, *words: object) -> Any:
    """The JSON that a command prints."""
    code, out, err = run(*words, "--json", "-n", namesrv)
    assert (code, err) == (0, ""), err
    return json.loads(out)


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("cluster_commands")
    with name_server(folder) as address, broker(folder, namesrv=address) as program:
        wait_for_leaders(address, program)
        yield address


@pytest.fixture
def admin(namesrv: str) -> Iterator[blocking.AdminClient]:
    with blocking.AdminClient(namesrv) as admin:
        yield admin


def test_topics(namesrv: str) -> None:
    assert told(namesrv, "topics", "create", "cc_topic", "--queues", 2) == [{"created": "cc_topic"}]
    with blocking.Producer(namesrv, "pg_cc") as producer:
        producer.send(Message("cc_topic", b"x"))
    assert {"topic": "cc_topic", "kind": "normal"} in told(namesrv, "topics")
    assert {one["kind"] for one in told(namesrv, "topics")} == {"normal"}
    assert "system" in {one["kind"] for one in told(namesrv, "topics", "--all")}
    # What nobody made who looks at the list is not in it.
    listed = {one["topic"] for one in told(namesrv, "topics")}
    assert {"DefaultCluster_REPLY_TOPIC", ROUND_TRIP_TOPIC} & listed == set()
    own = told(namesrv, "topics", "show", "DefaultCluster_REPLY_TOPIC")
    assert own["kind"] == kind_of(ROUND_TRIP_TOPIC) == "system"
    shown = told(namesrv, "topics", "show", "cc_topic")
    assert (shown["messages"], [one["write_queues"] for one in shown["brokers"]]) == (1, [2])
    # A time is ISO 8601 with its zone.
    (updated,) = [one["updated"] for one in shown["queues"] if one["updated"]]
    assert datetime.datetime.fromisoformat(updated).tzinfo is not None
    # Options may stand anywhere.
    code, out, _ = run("topics", "show", "-n", namesrv, "cc_topic")
    assert code == 0 and "cc_topic: normal, 1 messages, groups: none" in out
    assert "read, write" in out
    told(namesrv, "topics", "update", "cc_topic", "--permission", 4)
    code, out, err = run("topics", "delete", "cc_topic", "-n", namesrv)
    assert (code, out) == (1, "") and "say --yes" in err
    assert told(namesrv, "topics", "delete", "cc_topic", "--yes") == [{"deleted": "cc_topic"}]
    code, _, err = run("topics", "show", "cc_topic", "-n", namesrv, "--json")
    error = json.loads(err)
    assert code == 1 and error["kind"] == "NotFoundError" and error["retriable"] is False
    assert error["topic"] == "cc_topic"


def test_groups_and_lag(namesrv: str, admin: blocking.AdminClient) -> None:
    admin.create_topic("cc_lag", queue_count=1)
    with blocking.Producer(namesrv, "pg_cc") as producer:
        for number in range(5):
            producer.send(Message("cc_lag", b"%d" % number))
    with blocking.PullConsumer(namesrv, "cc_group") as consumer:
        for queue in consumer.queues("cc_lag"):
            consumer.commit(queue, 1)
    assert {"group": "cc_group", "members": 0, "behind": 4, "topics": ["cc_lag"]} in told(
        namesrv, "groups"
    )
    shown = told(namesrv, "groups", "show", "cc_group")
    assert shown["problems"] == ["nobody consumes: no member is connected, 4 messages wait"]
    code, out, _ = run("groups", "show", "cc_group", "-n", namesrv)
    assert code == 0 and "problem: nobody consumes" in out

    (line,) = told(namesrv, "lag", "cc_group")
    assert (line["consumed"], line["end"], line["behind"]) == (1, 5, 4)
    assert datetime.datetime.fromisoformat(line["consumed_to"])
    # Groups of brokers and tools are in no list.
    assert [one["group"] for one in told(namesrv, "lag")] == ["cc_group"]
    assert {one["group"] for one in told(namesrv, "groups")} == {"cc_group"}
    code, _, err = run("lag", "cc_group", "--over", 3, "-n", namesrv)
    assert code == 1 and "4 messages wait, allowed are 3" in err
    assert run("lag", "cc_group", "--over", 4, "-n", namesrv)[0] == 0
    code, out, _ = run("lag", "--watch", "--rounds", 3, "--interval", 0.1, "-n", namesrv)
    assert code == 0 and out.count("cc_group") == 3

    reset = ("groups", "reset", "cc_group", "cc_lag", "--to")
    assert told(namesrv, *reset, "first")[0]["after"] == 0
    code, out, _ = run(*reset, "first", "-n", namesrv)
    assert code == 0 and "nothing is changed" in out
    # One message comes again, and none is skipped; to the end it is the other way round.
    assert out.splitlines()[1].split()[-4:] == ["1", "0", "1", "0"]
    _, out, _ = run(*reset, "last", "-n", namesrv)
    assert out.splitlines()[1].split()[-4:] == ["1", "5", "0", "4"]
    assert told(namesrv, "lag", "cc_group")[0]["consumed"] == 1
    moment = datetime.datetime.now(datetime.UTC).isoformat()
    (change,) = told(namesrv, *reset, moment, "--yes")
    # Behind the last message of a queue brokers go on at that one, as upstream's do.
    assert (change["before"], change["after"], change["again"]) == (1, 4, -3)
    assert told(namesrv, *reset, "last", "--yes")[0]["after"] == 5
    assert told(namesrv, "lag", "cc_group")[0]["behind"] == 0
    assert told(namesrv, "groups", "delete", "cc_group", "--yes") == [{"deleted": "cc_group"}]
    assert run("groups", "show", "cc_group", "-n", namesrv)[0] == 1


def test_top(namesrv: str) -> None:
    code, out, _ = run("top", "--rounds", 2, "--interval", 0.1, "--json", "-n", namesrv)
    rounds = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and len(rounds) == 2
    (one,) = rounds[0]["brokers"]
    assert (one["broker"], one["role"], one["behind"], one["notes"]) == (
        "broker-a",
        "leader",
        0,
        "",
    )
    assert datetime.datetime.fromisoformat(rounds[0]["time"])
    code, out, _ = run("top", "--rounds", 1, "-n", namesrv)
    assert code == 0 and "1 brokers" in out and "broker-a" in out


def test_dead_letters(namesrv: str, admin: blocking.AdminClient) -> None:
    bury(namesrv, admin, "cc_dead", "cc_dead_group", 4)
    letters = told(namesrv, "dlq", "list", "cc_dead_group")
    assert {(one["origin"], one["state"], one["tags"]) for one in letters} == {
        ("cc_dead", "waiting", "TagA")
    }
    assert datetime.datetime.fromisoformat(letters[0]["died"])
    code, out, _ = run("dlq", "list", "cc_dead_group", "-n", namesrv, "--max", 1)
    assert code == 0 and len(out.splitlines()) == 2
    code, out, _ = run("dlq", "show", "-n", namesrv, "cc_dead_group", letters[0]["message"])
    assert code == 0 and letters[0]["id"] in out and "property colour = blue" in out
    assert told(namesrv, "dlq", "show", "cc_dead_group", letters[0]["id"]) == [letters[0]]

    by_hand = ("cc_dead_group", letters[0]["id"], letters[1]["id"], "--rate", 50)
    assert [one["outcome"] for one in told(namesrv, "dlq", "resend", *by_hand)] == ["resent"] * 2
    assert [one["outcome"] for one in told(namesrv, "dlq", "resend", *by_hand)] == [
        "already resent"
    ] * 2
    assert told(namesrv, "dlq", "drop", "cc_dead_group", letters[2]["id"])[0]["outcome"] == (
        "dropped"
    )
    code, out, _ = run("dlq", "resend", "cc_dead_group", "--waiting", "-n", namesrv)
    assert code == 0 and "1 messages of" in out and "say --yes" in out
    preview = told(namesrv, "dlq", "resend", "cc_dead_group", "--waiting")
    assert preview == {"preview": [letters[3]["id"]]}
    assert [
        (one["id"], one["outcome"])
        for one in told(namesrv, "dlq", "resend", "cc_dead_group", "--waiting", "--yes")
    ] == [(letters[3]["id"], "resent")]
    assert told(namesrv, "dlq", "list", "cc_dead_group") == []
    assert run("dlq", "list", "cc_dead_group", "-n", namesrv)[1] == (
        "cc_dead_group has no dead letters\n"
    )
    assert sorted(
        one["state"] for one in told(namesrv, "dlq", "list", "cc_dead_group", "--all")
    ) == ["dropped", "resent", "resent", "resent"]
    assert admin.describe_topic("cc_dead").message_count == 7

    code, out, err = run("dlq", "resend", "cc_dead_group", "broker-a/0/999", "-n", namesrv)
    assert code == 1 and "not found" in out and "1 of 1 messages are not sent again" in err


@pytest.mark.parametrize("words", [("list",), ("resend", "--waiting"), ("drop", "--waiting")])
def test_dead_letters_of_a_group_that_nobody_knows(namesrv: str, words: tuple[str, ...]) -> None:
    """A mistyped name is no group without dead letters."""
    code, out, err = run("dlq", *words, "cc_mistyped", "-n", namesrv)
    assert (code, out, err) == (1, "", "ledgermq: no broker has a group 'cc_mistyped'\n")


@pytest.mark.parametrize(
    "words",
    [
        ("dlq", "list"),
        ("dlq", "list", "g", "id"),
        ("dlq", "show", "g"),
        ("dlq", "resend", "g"),
        ("dlq", "resend", "g", "id", "--waiting"),
        ("dlq", "resend", "g", "id", "--rate", "0"),
        ("dlq", "list", "g", "--from", "yesterday"),
        ("topics", "show"),
        ("topics", "list", "t"),
        ("groups", "reset", "g", "t"),
        ("groups", "show", "g", "t"),
        ("lag", "g", "h"),
        ("lag", "--topic", "t"),
        ("lag", "--interval", "0"),
        ("top", "--rounds", "-1"),
    ],
)
def test_wrong_usage_ends_with_2_before_anybody_is_asked(words: tuple[str, ...]) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "") and err


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_reader_that_goes_away_is_no_failure(namesrv: str, form: tuple[str, ...]) -> None:
    """As `head` does, which has seen enough."""
    topic = f"cc_pipe{len(form)}"
    with blocking.Producer(namesrv, "pg_cc") as producer:
        producer.send(Message(topic, b"more than a pipe takes " * 20_000))
    process = subprocess.Popen(
        [sys.executable, "-m", "ledgermq.cli.main", "consume", "-t", topic, "-g", topic, *form]
        + ["--until-idle", "60", "-n", namesrv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    with process, process.stderr:
        process.stdout.read(1)
        process.stdout.close()
        told = process.stderr.read()
    assert (process.returncode, told) == (0, b"")


def test_one_prefix_and_json_for_every_error(namesrv: str) -> None:
    (port,) = free_ports(1)
    nobody = f"127.0.0.1:{port}"
    commands = (
        ("topics",),
        ("groups",),
        ("lag",),
        ("top", "--rounds", "1"),
        ("dlq", "list", "g"),
        ("admin", "clusterList"),
        ("admin", "topicRoute", "-t", "t"),
        ("send", "-t", "t", "--timeout", "1", "x"),
        ("bench", "produce", "--seconds", "0.1"),
    )
    for words in commands[:-1]:
        code, _, err = run(*words, "-n", nobody)
        assert code == 1 and all(line.startswith("ledgermq: ") for line in err.splitlines()), err
        code, _, err = run(*words, "-n", nobody, "--json")
        assert code == 1
        assert all(nobody in json.loads(line)["error"] for line in err.splitlines()[:1]), err


def test_mqadmin_names_and_names_with_hyphens(namesrv: str) -> None:
    assert told(namesrv, "admin", "topic-list") == told(namesrv, "admin", "topicList")
    (line,) = told(namesrv, "admin", "cluster-list")
    assert line["role"] == "leader"
    code, out, _ = run(
        "admin", "update-topic", "--namesrv-addr", namesrv, "--cluster-name", "DefaultCluster",
        "--topic", "cc_hyphens", "--read-queue-nums", 1, "--write-queue-nums", 1, "--json",
    )  # fmt: skip
    assert code == 0 and json.loads(out)[0]["topic"] == "cc_hyphens"
    code, out, _ = run("admin", "--help")
    assert code == 0
    assert out.index("clusters:") < out.index("topicList") < out.index("groups:")
    assert "  updateSubGroup " in out


def test_lag_of_a_cluster_that_comes_back(namesrv: str) -> None:
    """A round that fails for a reason that may pass does not end the watch."""
    (port,) = free_ports(1)
    code, out, err = run(
        "lag", "--watch", "--rounds", 2, "--interval", 0.1, "-n", f"127.0.0.1:{port}"
    )
    assert (code, out) == (1, "") and len(err.splitlines()) == 2
    wait_until(lambda: run("lag", "-n", namesrv)[0] == 0, what="an answer")


def test_doctor_of_a_cluster_that_runs(
    namesrv: str, tmp_path: Path, admin: blocking.AdminClient
) -> None:
    findings = told(namesrv, "doctor", "--running")
    verdicts = {one["check"]: one["verdict"] for one in findings}
    # How full this machine's disk is, is its own affair; a broker with a finding is not praised.
    is_full = verdicts.pop("disk space", None) == "warning"
    if is_full:
        verdicts["broker"] = "good"
    assert verdicts == {"leader": "good", "broker": "good"}
    code, out, _ = run("doctor", "--running", "-n", namesrv)
    assert code == 0 and "broker-a n0 (127.0.0.1:" in out
    assert is_full or "leader, term 1" in out
    admin.create_topic("cc_doctor", queue_count=1)
    with blocking.PullConsumer(namesrv, "cc_patient") as consumer:
        for queue in consumer.queues("cc_doctor"):
            consumer.commit(queue, 0)
    with blocking.Producer(namesrv, "pg_cc") as producer:
        producer.send(Message("cc_doctor", b"x"))
    (group,) = [
        one
        for one in told(namesrv, "doctor", "--running", "--group", "cc_patient")
        if one["check"] == "group"
    ]
    assert group["verdict"] == "warning" and "nobody consumes" in group["text"]
    assert run("doctor", "--running", "--group", "cc_nobody", "-n", namesrv)[0] == 1
    assert run("doctor", "--running", "key=value")[0] == 2
    assert run("doctor", "--group", "g")[0] == 2


def test_doctor_before_the_name_server_runs(tmp_path: Path) -> None:
    """Order does not matter: a broker may be started first."""
    port, ledger_port, nobody = free_ports(3)
    code, out, err = run(
        "doctor", "--json", f"namesrvAddr=127.0.0.1:{nobody}", f"listenPort={port}",
        "brokerIP1=127.0.0.1", f"storePathRootDir={tmp_path}", "mappedFileSizeCommitLog=65536",
        "mappedFileSizeDLedgerIndex=32768", "maxMessageSize=1024", "dLegerSelfId=n0",
        f"dLegerPeers=n0-127.0.0.1:{ledger_port}", "dLegerGroup=g", "enableDLegerCommitLog=true",
    )  # fmt: skip
    (found,) = [one for one in json.loads(out) if one["check"] == "name server"]
    assert found["verdict"] == "warning" and str(nobody) in found["text"]
    assert code == 0, err
