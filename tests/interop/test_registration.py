"""A broker of ours registers with Apache's name servers: all topics, then what changes.

A tap between them keeps what is told.
"""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from ledgermq.protocol.codes import RequestCode
from tests.e2e.wire_client import WireClient
from tests.interop.closed import broker_settings, wire
from tests.interop.mqadmin import CLUSTER_NAME
from tests.interop.stock_broker import JavaCluster, JavaClusterPlan
from tests.interop.wire_tap import Frame, WireTap
from tests.processes import SMALL_STORE, LiveProgram
from tests.waiting import wait_until

# More than one registration holds.
TOPIC_COUNT = 1500
DROPS = {"deleteTopicWithBrokerRegistration": "true"}


class Place:
    """A stock name server, and a broker of ours that reaches it through a tap."""

    def __init__(self, cluster: JavaCluster, tap: WireTap, frames: list[Frame]) -> None:
        self.cluster = cluster
        self.frames = frames
        self._tap = tap

    @property
    def drops_missing(self) -> bool:
        return bool(self.cluster.plan.namesrv_keys)

    def start_broker(self) -> LiveProgram:
        keys = [
            f"brokerClusterName={CLUSTER_NAME}",
            "brokerName=ours",
            "brokerIP1=127.0.0.1",
            f"namesrvAddr=127.0.0.1:{self._tap.port}",
            f"listenPort={self.cluster.broker_ports[0]}",
            # A port that no connection of others has.
            "enableDLegerCommitLog=true",
            "dLegerGroup=ours",
            "dLegerSelfId=n0",
            f"dLegerPeers=n0-127.0.0.1:{self.cluster.dledger_ports[0]}",
            f"storePathRootDir={self.cluster.directory / 'store-0'}",
            "registerNameServerPeriod=10000",
            "diskMaxUsedSpaceRatio=95",
            *SMALL_STORE,
            *broker_settings(self.cluster.directory, is_among_stock=True),
        ]
        return LiveProgram(["broker", "--json", *keys], self.cluster.directory / "broker.log")

    def tell_broker(self, code: RequestCode, **fields: Any) -> None:
        with wire(f"127.0.0.1:{self.cluster.broker_ports[0]}") as client:
            answer = client.ask(code.value, fields)
            assert answer.code == 0, answer.remark

    def put_topics(self, *names: str) -> None:
        with wire(f"127.0.0.1:{self.cluster.broker_ports[0]}") as client:
            for name in names:
                fields = {
                    "topic": name, "defaultTopic": "TBW102", "readQueueNums": "4",
                    "writeQueueNums": "4", "perm": "6", "topicFilterType": "SINGLE_TAG",
                    "topicSysFlag": "0", "order": "false",
                }  # fmt: skip
                answer = client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC.value, fields)
                assert answer.code == 0, answer.remark

    def topics(self) -> set[str]:
        """All that the name server knows."""
        with WireClient(self.cluster.namesrv) as client:
            answer = client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER.value)
        return set(json.loads(answer.body)["topicList"])

    def has_route(self, topic: str) -> bool:
        with WireClient(self.cluster.namesrv) as client:
            answer = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC.value, {"topic": topic})
        address = f"127.0.0.1:{self.cluster.broker_ports[0]}"
        return answer.code == 0 and address in answer.body.decode()

    def codes(self) -> list[int]:
        return [frame.code for frame in self.frames if not frame.is_response]

    def registrations(self) -> list[dict[str, Any]]:
        """The topics of each registration that was told."""
        bodies = [f for f in self.frames if f.code == 103 and not f.is_response]
        wrapper = "topicConfigSerializeWrapper"
        return [json.loads(body_of(frame))[wrapper]["topicConfigTable"] for frame in bodies]


def body_of(frame: Frame) -> bytes:
    head_bytes = int.from_bytes(frame.raw[4:8], "big") & 0xFFFFFF
    return frame.raw[8 + head_bytes :]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("version", "keys"),
    [("4.9.3", {}), ("4.9.7", {}), ("5.3.3", {}), ("5.3.3", DROPS)],
    ids=["4.9.3", "4.9.7", "5.3.3", "5.3.3-drops"],
)
def test_a_stock_name_server_is_told_all_and_then_what_changes(
    tmp_path: Path, version: str, keys: dict[str, str]
) -> None:
    plan = JavaClusterPlan(version=version, foreign_members=frozenset({0}), namesrv_keys=keys)
    cluster = JavaCluster(tmp_path, plan)
    frames: list[Frame] = []
    names = {f"topic-{number:06}" for number in range(TOPIC_COUNT)}
    with closing(WireTap("namesrv", cluster.namesrv_port, frames.append)) as tap, ExitStack() as on:
        place = Place(cluster, tap, frames)
        broker = on.enter_context(place.start_broker())
        on.enter_context(cluster)
        broker.wait_until_serving()
        place.put_topics(*sorted(names))
        wait_until(lambda: names <= place.topics(), what="topics that were made one by one")
        # A new process has a new connection, on which all is told.
        assert broker.stop() == 0
        wait_until(lambda: not place.topics() & names, what="the farewell")
        frames.clear()
        broker = on.enter_context(place.start_broker()).wait_until_serving()
        wait_until(lambda: names <= place.topics(), what="all topics after a restart")
        wait_until(lambda: 319 in place.codes(), what="the question after its settings")
        told = place.registrations()
        assert (max(map(len, told)) > TOPIC_COUNT) is place.drops_missing
        # One more topic.
        frames.clear()
        place.put_topics("Fresh")
        wait_until(lambda: place.has_route("Fresh"), what="the route of a new topic")
        assert names <= place.topics()
        (told_fresh,) = [told for told in place.registrations() if "Fresh" in told]
        assert (len(told_fresh) == 1) is not place.drops_missing
        # One topic less; only a name server with that setting drops it without a tool.
        place.tell_broker(RequestCode.DELETE_TOPIC_IN_BROKER, topic="topic-000007")
        if place.drops_missing:
            wait_until(lambda: not place.has_route("topic-000007"), what="the removed topic's end")
        place.put_topics("Later")
        wait_until(lambda: place.has_route("Later"), what="the route of the next topic")
        assert names - {"topic-000007"} | {"Fresh", "Later"} <= place.topics()
        # What is settled is asked from time to time, and told nothing.
        frames.clear()
        wait_until(lambda: 105 in place.codes(), what="the question after the route")
        answers = [frame for frame in frames if frame.is_response and frame.request_code == 322]
        assert [answer.ext_fields["changed"] for answer in answers] == ["false"]
        assert 103 not in place.codes()
