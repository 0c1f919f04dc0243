"""The console on Apache's own brokers: everything that it shows, and changes one by one.

The stock broker is asked over the same protocol as ours. Each answer is held to its shape; what a
stock broker cannot tell is null or named, and nothing of it is a fault of the console.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ledgermq.client import Message
from ledgermq.client.blocking import Producer, PullConsumer
from ledgermq.console.routes import ROUTES, Gives
from tests.e2e.console.api_client import Api
from tests.e2e.console.test_changes import confirmed, done, preview
from tests.interop.stock_broker import JavaCluster, JavaClusterPlan
from tests.processes import LiveProgram
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(600)
TOPIC, GROUP = "ConsoleOrders", "ConsoleReaders"
_COUNT = 20


@pytest.fixture(scope="module", params=["4.9.3", "5.3.3"])
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    folder = tmp_path_factory.mktemp("stock")
    plan = JavaClusterPlan(version=request.param)
    with JavaCluster(folder / "cluster", plan) as cluster:
        words = ["console", "-n", cluster.namesrv, "--listen", "127.0.0.1:0", "--json"]
        with LiveProgram(words, folder / "console.log") as program:
            wait_until(lambda: "url" in program.status, what="the console")
            found = Api(program.status["url"], cluster.cluster_name).opened()
            done(found, "create_topic", topic=TOPIC, read_queues=2, write_queues=2)
            done(found, "create_group", group=GROUP)
            wait_until(lambda: found.call("get_topic", topic=TOPIC).route, what="the route")
            with Producer(cluster.namesrv) as producer:
                for i in range(_COUNT):
                    producer.send(Message(TOPIC, f"order {i}".encode(), keys=f"k{i}", tags="T"))
            with PullConsumer(cluster.namesrv, GROUP) as consumer:
                for queue in consumer.queues(TOPIC):
                    consumer.commit(queue, 3)
            yield found


def search(api: Api, **wanted: Any) -> Any:
    begun = api.call("start_search", {"topic": TOPIC, **wanted})

    def ended() -> Any:
        now = api.call("get_search", search=begun.id)
        return now if now.state != "running" else None

    return wait_until(ended, what="the end of a search")


def test_all_pages_are_answered(api: Api) -> None:
    # Apache's broker of 4.9.3 fails when it is asked for its figures in its first second.
    wait_until(
        lambda: api.call("get_overview").members_answering == 1, what="the figures of the broker"
    )
    overview = api.call("get_overview")
    assert overview.members_answering == 1 and overview.groups_without_leader == []
    (group,) = api.call("get_broker_groups").broker_groups
    assert group.kind == "plain" and group.leader == "0" and group.durability.may_lose == 0
    query = {"columns": "rates,span,groups", "filter": TOPIC}
    topics = wait_until(
        lambda: (
            found
            if (found := api.call("get_topics", query=query)).rows[0].messages == _COUNT
            else None
        ),
        what="the messages",
    )
    assert topics.answers.silent == []
    assert sum(row.messages for row in api.call("get_topic_queues", topic=TOPIC).rows) == _COUNT
    assert [row.group for row in api.call("get_topic_groups", topic=TOPIC).rows] == [GROUP]
    query = {"columns": "lag,clients,dead_letters", "filter": GROUP}
    (row,) = wait_until(
        lambda: [
            one
            for one in api.call("get_consumer_groups", query=query).rows
            if one.lag_messages == _COUNT - 6
        ],
        what="the offsets",
    )
    assert row.state == "offline"
    by_lag = {"sort": "lag_messages", "order": "desc", "limit": 1}
    assert api.call("get_consumer_groups", query=by_lag).rows[0].group == GROUP
    assert api.call("get_group_queues", group=GROUP, query={"owners": True}).total >= 2
    hour = api.call("get_group_history", group=GROUP).series
    assert {one.name for one in hour} <= {"lag_messages", "lag_ms"}
    assert api.call("get_configuration", query={"filter": "flushDiskType"}).total == 1
    assert len(api.call("get_delayed").levels) == 18
    for name in ("get_clients", "get_dead_letters", "browse_half", "get_history", "get_access"):
        assert api.call(name) is not None


def test_messages_are_found_and_shown(api: Api) -> None:
    wait_until(lambda: search(api, key="k7").found == 1, what="the index")
    (row,) = search(api, text="order 7").rows
    assert search(api, offset_id=row.offset_id, topic="").rows == [row]
    assert search(api, unique_key=row.message_id).rows == [row]
    assert search(api, tag="T").found == _COUNT
    assert api.call("look_at_tail", {}, topic=TOPIC).rows == []
    place = {"broker": row.broker, "queue": row.queue, "offset": row.offset}
    detail = api.call("get_message", topic=TOPIC, **place)
    assert detail.body.text == "order 7" and detail.groups[0].group == GROUP
    assert api.call("get_body", topic=TOPIC, **place) == b"order 7"


def test_changes_are_made(api: Api) -> None:
    told = api.call("get_definitions")
    assert TOPIC in {one.topic for one in told.topics} and GROUP in {
        one.group for one in told.groups
    }
    reset = preview(api, "reset_offset", group=GROUP, topic=TOPIC, to="latest")
    assert {item.before for item in reset.items} == {"3"}
    assert confirmed(api, reset).counts == {"done": 2}
    changed = confirmed(api, preview(api, "update_topic", topic=TOPIC, perm=4))
    assert changed.counts == {"done": 1}
    done(api, "update_topic", topic=TOPIC, perm=6)
    (broker,) = {row.broker for row in api.call("get_topic_queues", topic=TOPIC).rows}
    done(api, "set_writable", broker=broker, writable=False)
    done(api, "set_writable", broker=broker, writable=True)
    setting = confirmed(api, preview(api, "change_setting", key="fileReservedTime", value="71"))
    assert setting.counts == {"done": 1}


def test_every_route_was_asked_or_is_known_to_be_left(api: Api) -> None:
    """So that a new page is tried here, too."""
    left = {
        "sign_in", "sign_out", "get_broker_group", "get_log", "get_audit", "get_consumer_group",
        "get_group_clients", "get_running", "stop_search", "browse_dead_letters", "browse_delayed",
        "get_trace", "ask_may", "stop_action", "get_actions",
    }  # fmt: skip
    names = {route.name for route in ROUTES if route.gives is not Gives.EVENTS}
    assert names - api.asked <= left
