"""State files that are damaged, older or another store's: the log tells what they held, or the
member does not serve until another one has told it.
"""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.commitlog.checkpoint import StateMark
from ledgermq.protocol.codes import RequestCode
from tests.e2e.kept_cluster import KeptCluster
from tests.waiting import wait_until

FILES = ("topics.json", "consumerOffset.json")


def fill(cluster: KeptCluster) -> None:
    """Makes what every test looks for."""
    cluster.put_topic("orders")
    cluster.send("orders", b"1")
    cluster.send("orders", b"2")
    cluster.commit("g", "orders", 2)
    cluster.wait_until_swept()


def is_whole(cluster: KeptCluster, node: str | None = None) -> bool:
    return cluster.cluster.offsets("g", node=node) == {"orders": {0: 2}}


def forget_log(cluster: KeptCluster, node: str = "n0") -> None:
    """Has the checkpoint say that no sweep in the log tells all of the state: a Java leader did."""
    mark = cluster.mark(node)
    assert mark.state is not None
    state = replace(mark.state, logged_from=mark.index + 1)
    cluster.write_mark(replace(mark, state_index=-1, state=state), node)


@pytest.mark.parametrize("damage", [os.urandom(200), b"", b'{"topicConfigTable":{}}'])
def test_damaged_state_files_are_made_again_from_the_log(tmp_path: Path, damage: bytes) -> None:
    with KeptCluster(1, tmp_path) as cluster:
        fill(cluster)
        cluster.cluster.restart("n0")
        # What only the second life knows stands in no older copy.
        cluster.put_topic("late")
        cluster.stop()
        for name in FILES:
            cluster.config(name).write_bytes(damage)
        cluster.start()
        assert {"orders", "late"} <= cluster.topics() and is_whole(cluster)
        # What was found is kept for people, and the next start has good files.
        assert cluster.config("topics.json.refused").read_bytes() == damage
        cluster.stop()
        assert "late" in cluster.read("topics.json")["topicConfigTable"]


def test_topic_that_was_made_again_keeps_its_new_messages(tmp_path: Path) -> None:
    """What a replay tells of a removal was done long ago."""
    with KeptCluster(1, tmp_path) as cluster:
        fill(cluster)
        cluster.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")
        cluster.put_topic("orders")
        cluster.send("orders", b"3")
        cluster.stop()
        cluster.config("topics.json").write_bytes(b"noise")
        cluster.start()
        assert [m.body for m in cluster.cluster.messages("orders")] == [b"3"]


def test_older_copies_are_not_believed(tmp_path: Path) -> None:
    with KeptCluster(1, tmp_path) as cluster:
        fill(cluster)
        cluster.stop()
        shutil.copytree(cluster.root() / "config", tmp_path / "older")
        cluster.start()
        cluster.put_topic("late")
        cluster.commit("g", "orders", 1)
        cluster.stop()
        for name in FILES:
            shutil.copy(tmp_path / "older" / name, cluster.config(name))
        cluster.start()
        assert "late" in cluster.topics()
        assert cluster.cluster.offsets("g") == {"orders": {0: 1}}


def test_edit_is_taken_only_when_an_operator_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def edit() -> None:
        path = cluster.config("topics.json")
        path.write_text(path.read_text().replace('"orders"', '"edited"'))

    with KeptCluster(1, tmp_path) as cluster:
        fill(cluster)
        cluster.stop()
        edit()
        cluster.start()
        assert "orders" in cluster.topics() and "edited" not in cluster.topics()
        cluster.stop()
        edit()
        assert main(["store", "accept-state", str(cluster.root())]) == 0
        assert "takes these files as they are" in capsys.readouterr().out
        cluster.start()
        assert "edited" in cluster.topics() and "orders" not in cluster.topics()
        # It stands in the log again, and the files are sealed: this holds from now on.
        assert not cluster.config("acceptState.json").exists()
        cluster.wait_until_swept()
        cluster.stop()
        cluster.config("topics.json").unlink()
        cluster.start()
        assert "edited" in cluster.topics()


def test_files_of_another_program_are_taken_where_none_had_seals(tmp_path: Path) -> None:
    """A store of Java, or of a former program."""
    with KeptCluster(1, tmp_path) as cluster:
        fill(cluster)
        cluster.stop()
        cluster.write_mark(replace(cluster.mark(), state=None))
        for name in FILES:
            value = cluster.read(name)
            del value["ledgermqSeal"]
            text = json.dumps(value).replace('"orders"', '"edited"')
            cluster.config(name).write_text(text)
        cluster.start()
        assert "edited" in cluster.topics()
        cluster.stop()
        assert "ledgermqSeal" in cluster.read("topics.json")


def test_broker_alone_does_not_serve_with_half_of_its_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with KeptCluster(1, tmp_path) as cluster:
        fill(cluster)
        cluster.stop()
        forget_log(cluster)
        good = cluster.config("topics.json").read_bytes()
        cluster.config("topics.json").write_bytes(good[:50])
        for _ in range(2):
            # A second start finds files that the first one has written: it doubts them still.
            cluster.start()
            wait_until(lambda: cluster.status()["stateAlarm"], what="the alarm of a broker")
            alarm = cluster.status()["stateAlarm"]
            assert "topics.json: it has no seal" in alarm and "store accept-state" in alarm
            assert cluster.cluster.leader is None
            cluster.stop()
        cluster.config("topics.json").write_bytes(good)
        assert main(["store", "accept-state", str(cluster.root())]) == 0
        cluster.start()
        assert "orders" in cluster.topics() and is_whole(cluster)
        assert cluster.status()["stateAlarm"] == ""


def test_member_without_state_gets_it_from_the_leader_before_it_leads(tmp_path: Path) -> None:
    with KeptCluster(3, tmp_path, preferredLeaderId="n0") as cluster:
        fill(cluster)
        wait_until(lambda: is_whole(cluster, "n0"), what="the offsets on n0")
        cluster.stop()
        forget_log(cluster)
        for name in FILES:
            cluster.config(name).write_bytes(b"noise")
        cluster.start()
        # Another one leads first, and has its state told; then n0 may.
        assert "orders" in cluster.topics() and is_whole(cluster)
        wait_until(lambda: cluster.cluster.leader == "n0", what="n0 to lead", deadline_s=60)
        assert "orders" in cluster.topics() and is_whole(cluster)
        assert cluster.status("n0")["stateAlarm"] == ""
        cluster.stop()
        state = cluster.mark().state
        assert isinstance(state, StateMark) and state.doubt == ""


def test_group_waits_where_no_member_has_its_state(tmp_path: Path) -> None:
    with KeptCluster(3, tmp_path) as cluster:
        fill(cluster)
        nodes = cluster.nodes
        wait_until(lambda: all(is_whole(cluster, node) for node in nodes), what="the offsets")
        cluster.stop()
        good = cluster.config("topics.json", "n1").read_bytes()
        for node in nodes:
            forget_log(cluster, node)
            cluster.config("topics.json", node).write_bytes(b"noise")
        cluster.start()
        wait_until(
            lambda: all(cluster.status(node)["stateAlarm"] for node in nodes),
            what="the alarm of each member",
        )
        assert cluster.cluster.leader is None
        cluster.stop()
        # An operator takes what one of them has.
        cluster.config("topics.json", "n1").write_bytes(good)
        assert main(["store", "accept-state", str(cluster.root("n1"))]) == 0
        cluster.start()
        assert cluster.cluster.wait_for_leader() == "n1"
        wait_until(
            lambda: not any(cluster.status(node)["stateAlarm"] for node in nodes),
            what="all members to have the state",
        )
