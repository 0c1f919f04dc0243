"""`ledgermq admin`: what is taken out of a cluster, traces, and settings of the name server."""

import json
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client import Message, blocking
from tests.e2e.test_cli_admin import run
from tests.e2e.up_cluster import UpCluster
from tests.waiting import wait_until

TOPIC, GROUP, TRACES, CLUSTER = "ExportOrders", "export-readers", "ExportTraces", "DefaultCluster"


class Place:
    """The cluster, with a topic and a group."""

    def __init__(self, cluster: UpCluster) -> None:
        self.name_server = cluster.name_server
        self.broker = cluster.nodes()[0]["address"]
        for topic in (TOPIC, TRACES, f"%RETRY%{GROUP}"):
            self.admin("updateTopic", "-c", CLUSTER, "-t", topic, "-r", 2, "-w", 2)
            wait_until(lambda name=topic: self.has_route(name), what=f"the route of {topic}")
        self.admin("updateSubGroup", "-c", CLUSTER, "-g", GROUP, "-r", 5)

    def has_route(self, topic: str) -> bool:
        return run("admin", "topicRoute", "-n", self.name_server, "-t", topic)[0] == 0

    def admin(self, *words: object) -> Any:
        """The JSON that a subcommand prints."""
        code, out, err = run("admin", words[0], "--json", "-n", self.name_server, *words[1:])
        assert code == 0, err
        return json.loads(out)

    def text(self, *words: object) -> str:
        """What a person sees of a subcommand."""
        code, out, err = run("admin", words[0], "-n", self.name_server, *words[1:])
        assert code == 0, err
        return out


@pytest.fixture(scope="module")
def place(up_cluster: UpCluster) -> Place:
    return Place(up_cluster)


def test_topics_and_groups_are_exported(place: Place, tmp_path: Path) -> None:
    document = place.admin("exportMetadata", "-c", CLUSTER)
    topics, groups = document["topicConfigTable"], document["subscriptionGroupTable"]
    assert topics[TOPIC] == {
        "order": False, "perm": 6, "readQueueNums": 2, "topicFilterType": "SINGLE_TAG",
        "topicName": TOPIC, "topicSysFlag": 0, "writeQueueNums": 2,
    }  # fmt: skip
    assert groups[GROUP]["retryMaxTimes"] == 5 and document["exportTime"] > 0
    assert not {"TBW102", "SCHEDULE_TOPIC_XXXX", f"%RETRY%{GROUP}"} & topics.keys()
    assert "TOOLS_CONSUMER" not in groups
    of_broker = ("exportMetadata", "-b", place.broker)
    assert f"%RETRY%{GROUP}" in place.admin(*of_broker, "-s")["topicConfigTable"]
    assert place.admin(*of_broker, "-t", "-f", tmp_path / "new") == [
        {"exported": str(tmp_path / "new" / "topic.json")}
    ]
    written = json.loads((tmp_path / "new" / "topic.json").read_text())
    assert TOPIC in written["topicConfigTable"] and "subscriptionGroupTable" not in written
    place.admin(*of_broker, "-g", "-f", tmp_path)
    written = json.loads((tmp_path / "subscriptionGroup.json").read_text())
    assert GROUP in written["subscriptionGroupTable"] and "topicConfigTable" not in written
    rows = [line.split() for line in place.text("exportMetadata", "-c", CLUSTER).splitlines()]
    assert ["topic", TOPIC, "2", "2", "6"] in rows and ["group", GROUP, "5"] in rows


def test_settings_are_exported(place: Place) -> None:
    document = place.admin("exportConfigs", "-c", CLUSTER)
    settings = document["brokerConfigs"]["broker-a"]
    assert (settings["brokerName"], settings["brokerId"]) == ("broker-a", "0")
    assert (settings["filterServerNums"], settings["useTLS"]) == ("0", "false")
    scale = document["clusterScale"]
    assert scale == {"namesrvSize": 1, "masterBrokerSize": 1, "slaveBrokerSize": 0}
    assert "messageDelayLevel" in place.text("exportConfigs", "-c", CLUSTER)


def test_figures_are_exported(place: Place, tmp_path: Path) -> None:
    document = place.admin("exportMetrics", "-c", CLUSTER)
    quota = document["evaluateReport"]["broker-a"]["runtimeQuota"]
    assert quota["topicSize"] >= 2 and quota["groupSize"] >= 1
    assert 0 < float(quota["diskRatio"]["commitLogDiskRatio"]) < 1
    assert set(document["totalData"]["totalTps"]) == {
        "totalNormalInTps", "totalNormalOutTps", "totalTransInTps", "totalScheduleInTps",
    }  # fmt: skip
    assert "runtimeQuota.tps.normalInTps" in place.text("exportMetrics", "-c", CLUSTER)
    (tmp_path / "metrics.json").mkdir()
    words = ("exportMetrics", "-c", CLUSTER, "-n", place.name_server, "-f", tmp_path)
    code, _, err = run("admin", *words)
    assert code == 1 and "metrics.json: Is a directory" in err


def test_the_way_of_a_message_is_found_by_its_traces(place: Place) -> None:
    asked = "AC11000100014F2C0000000000000000"
    place_of_it = ("senders", TOPIC, asked, "", "", "h", 5)
    sent = ("Pub", 1_600_000_000_000, "r", *place_of_it, 7, 0, "offset", "true")
    body = "\x01".join(map(str, sent)) + "\x02"
    with blocking.Producer(place.name_server) as producer:
        producer.send(Message(TRACES, body.encode(), keys=f"other {asked}"))
    words = ("queryMsgTraceById", "-i", asked, "-t", TRACES)
    command = ("admin", words[0], "--json", "-n", place.name_server, *words[1:])
    wait_until(lambda: run(*command)[0] == 0, what="the trace in the index")
    (row,) = place.admin(*words)
    assert (row["type"], row["group"], row["ms"], row["status"]) == (
        "Pub", "senders", 7, "success",
    )  # fmt: skip
    assert (row["client"], row["time"][:5]) == ("127.0.0.1", "2020-")
    code, _, err = run("admin", *words[:1], "-n", place.name_server, "-i", "other2", "-t", TRACES)
    assert code == 1 and "no trace of the message other2 in ExportTraces" in err


def test_settings_of_the_name_server_are_changed(place: Place) -> None:
    def told() -> str:
        rows = {row["key"]: row["value"] for row in place.admin("getNamesrvConfig")}
        return str(rows["orderMessageEnable"])

    change = ("updateNamesrvConfig", "-k", "orderMessageEnable", "-v")
    assert told() == "false"
    place.admin(*change, "true")
    assert told() == "true"
    place.admin(*change, "false")
    words = ("updateNamesrvConfig", "-n", place.name_server, "-k", "kvConfigPath", "-v", "/x")
    code, _, err = run("admin", *words)
    assert code == 1 and "kvConfigPath cannot be changed" in err
