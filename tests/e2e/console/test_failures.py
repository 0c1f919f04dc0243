"""A cluster that loses members while somebody looks: answers come, and say who is missing."""

import json
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.console.api_client import Api, Refused
from tests.e2e.up_cluster import UpCluster
from tests.free_ports import free_ports
from tests.processes import LiveProgram
from tests.waiting import wait_until

_TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpCluster]:
    with UpCluster(tmp_path_factory.mktemp("failing"), console=True) as cluster:
        cluster.wait_for_all()
        yield cluster


@pytest.fixture
def api(cluster: UpCluster) -> Api:
    found = Api(cluster.console).opened()
    wait_until(lambda: found.call("get_overview").members_answering == 3, what="three members")
    return found


@contextmanager
def stream(api: Api, **query: Any) -> Iterator[Iterator[tuple[str, Any]]]:
    """The events of a tab: name and value."""
    target = api.target("/api/v1/clusters/{cluster}/events", query, {})
    with socket.create_connection((api.host, api.port), timeout=_TIMEOUT_S) as link:
        head = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nCookie: {api.cookie or 'a=b'}\r\n\r\n"
        link.sendall(head.encode())
        yield _events(link)


def _events(link: socket.socket) -> Iterator[tuple[str, Any]]:
    with link.makefile("rb") as lines:
        assert b"200" in lines.readline()
        name = ""
        for line in lines:
            text = line.decode().strip()
            if text.startswith("event: "):
                name = text.removeprefix("event: ")
            if text.startswith("data: "):
                yield name, json.loads(text.removeprefix("data: "))


def codes_of(api: Api) -> set[str]:
    """What kinds of events the console has seen."""
    return {event.code for event in api.call("get_overview").events}


def test_a_leader_that_dies_is_seen_and_its_successor_too(cluster: UpCluster, api: Api) -> None:
    leader = cluster.wait_for_leader()
    with stream(api, parts="overview,broker_groups", every_s=1) as events:
        first = dict([next(events), next(events)])
        assert first["broker_groups"]["broker_groups"][0]["leader"] == leader["id"]
        cluster.kill(leader)
        seen = set()
        for name, value in events:
            if name == "broker_groups":
                seen.add(value["broker_groups"][0]["leader"])
            if seen - {leader["id"], None}:
                break
    cluster.wait_for_all()
    wait_until(lambda: api.call("get_overview").health == "ok", what="health")
    # Whether it was seen to be gone depends on how soon it came back.
    assert "leader_changed" in codes_of(api)
    (group,) = api.call("get_broker_groups").broker_groups
    assert group.timeline and {member.member for member in group.members} == {"n0", "n1", "n2"}


def test_a_member_that_is_silent_is_named(cluster: UpCluster, api: Api) -> None:
    leader = cluster.wait_for_leader()
    silent = next(node for node in cluster.nodes() if node["id"] != leader["id"])
    cluster.signal(signal.SIGSTOP, silent)
    try:
        overview = wait_until(
            lambda: found if (found := api.call("get_overview")).members_answering == 2 else None,
            what="the silence",
        )
        assert overview.health == "warning"
        assert [one.address for one in overview.answers.silent] == [silent["address"]]
        assert (overview.answers.asked, overview.answers.answered) == (3, 2)
        reason = next(one for one in overview.reasons if one.code == "member_gone")
        assert reason.values["member"] == silent["id"]
        (group,) = api.call("get_broker_groups").broker_groups
        assert group.durability.may_lose == 0 and group.leader is not None
        settings = api.call("get_configuration", query={"filter": "brokerName"})
        assert len(settings.members) == 2 and settings.answers.silent
    finally:
        cluster.signal(signal.SIGCONT, silent)
    wait_until(lambda: {"member_gone", "member_back"} <= codes_of(api), what="both events")


def test_a_group_without_a_majority_is_critical(cluster: UpCluster, api: Api) -> None:
    cluster.wait_for_all()
    stopped = [node for node in cluster.nodes() if node["id"] != cluster.wait_for_leader()["id"]]
    cluster.signal(signal.SIGSTOP, *stopped)
    try:
        overview = wait_until(
            lambda: found if (found := api.call("get_overview")).health == "critical" else None,
            what="the loss of the majority",
        )
        assert overview.groups_without_leader == ["broker-a"]
        # What takes a leader is refused, with the reason, and lists are still lists.
        with pytest.raises(Refused) as refused:
            api.call(
                "preview_action", {"kind": "transfer_leader", "broker": "broker-a", "member": "n0"}
            )
        assert refused.value.status in (404, 409)
        assert api.call("get_topics").answers.asked >= 1
    finally:
        cluster.signal(signal.SIGCONT, *stopped)
    cluster.wait_for_all()


def test_the_lead_is_handed_on(cluster: UpCluster, api: Api) -> None:
    cluster.wait_for_all()
    wait_until(lambda: api.call("get_broker_groups").broker_groups[0].leader, what="a leader")
    leader = cluster.wait_for_leader()
    other = next(node for node in cluster.nodes() if node["id"] != leader["id"])
    body = {"kind": "transfer_leader", "broker": "broker-a", "member": other["id"]}
    action = api.call("preview_action", body)
    assert (action.items[0].before, action.items[0].after) == (leader["id"], other["id"])
    api.call("confirm_action", {"token": action.token}, action=action.id)
    ended = wait_until(
        lambda: (
            found if (found := api.call("get_action", action=action.id)).state == "done" else None
        ),
        what="the hand-over",
    )
    assert ended.counts == {"done": 1}, ended.items
    wait_until(lambda: cluster.wait_for_leader()["id"] == other["id"], what="the new leader")


def test_viewers_that_vanish_or_do_not_read_cost_nobody_anything(api: Api) -> None:
    links = []
    for _ in range(20):
        link = socket.create_connection((api.host, api.port), timeout=_TIMEOUT_S)
        target = "/api/v1/clusters/DefaultCluster/events?parts=overview&every_s=1"
        link.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        links.append(link)
    for link in links[:10]:
        link.close()
    assert api.call("get_overview").members == 3
    for link in links[10:]:
        link.close()
    with pytest.raises(Refused) as refused:
        api.call("stream", query={"parts": "all"})
    assert refused.value.error.field == "parts"


def test_a_part_that_cannot_be_told_is_a_problem_of_its_own(api: Api) -> None:
    parts = {"parts": "consumer_group,overview", "consumer_group": "NoSuchGroup", "every_s": 1}
    with stream(api, **parts) as events:
        found = dict([next(events), next(events)])
    assert found["overview"]["members"] == 3
    assert found["problem"]["part"] == "consumer_group"
    assert found["problem"]["code"] == "not_found"


def test_a_name_server_that_is_silent_is_named_and_found_when_it_comes(tmp_path: Path) -> None:
    [port] = free_ports(1)
    address = f"127.0.0.1:{port}"

    def refusal(api: Api) -> Refused:
        with pytest.raises(Refused) as met:
            api.call("get_overview")
        return met.value

    words = ["console", "-n", address, "--listen", "127.0.0.1:0", "--json"]
    with LiveProgram(words, tmp_path / "console.log") as program:
        api = Api(program.wait_until("url").status["url"])
        # Nobody can tell whether there is such a cluster: "there is none" would be wrong.
        assert refusal(api).status == 502
        assert address in refusal(api).error.message
        words = ["namesrv", "--json", "-p", str(port), "bindAddress=127.0.0.1",
                 f"kvConfigPath={tmp_path / 'kvConfig.json'}"]  # fmt: skip
        with LiveProgram(words, tmp_path / "namesrv.log") as name_server:
            name_server.wait_until("address")
            wait_until(lambda: refusal(api).status == 404, what="an answer of the name server")
