"""What the console shows of a cluster that somebody uses."""

import re
import urllib.request

import pytest

from ledgermq.broker.admin.inspection import CHANGEABLE_KEYS
from ledgermq.client import Message
from ledgermq.client.blocking import Producer, PullConsumer, PushConsumer
from ledgermq.console.routes import ROUTES, Gives
from tests.e2e.console.api_client import Api, Refused
from tests.e2e.up_cluster import UpCluster
from tests.processes import run_ledgermq
from tests.waiting import wait_until

# Whatever somebody may name a thing, as far as brokers take it; and what a body may hold.
HOSTILE = "<img src=x onerror=alert(1)>\x00\x1b[31m\u202e"


@pytest.fixture(scope="module")
def orders(name_server: str, console_cluster: UpCluster) -> str:
    """A topic with 20 messages, and a group that consumed some."""
    with Producer(name_server) as producer:
        sent = [
            producer.send(Message("Orders", f"{i} {HOSTILE}".encode(), keys=f"k{i}", tags="T"))
            for i in range(20)
        ]
    route = ("admin", "topicRoute", "-t", "Orders", "-n", name_server)
    wait_until(lambda: run_ledgermq(*route).returncode == 0, what="the route")
    with PullConsumer(name_server, "OrderReaders") as consumer:
        for queue in sorted({one.queue for one in sent}):
            consumer.commit(queue, 1)
    api = Api(console_cluster.console).opened()
    # Lists and figures are up to some seconds old.
    wait_until(
        lambda: (
            api.call("get_topics", query={"filter": "orders", "columns": "span,groups"}).rows
            and api.call("get_topic", topic="Orders").messages == 20
            and api.call("get_topic_groups", topic="Orders").rows
            and api.call("get_consumer_groups", query={"filter": "orderreaders"}).rows
        ),
        what="topic and group in the lists",
    )
    return "Orders"


def test_topics_are_listed_with_what_their_columns_want(api: Api, orders: str) -> None:
    bare = api.call("get_topics", query={"filter": "ord"})
    assert [row.topic for row in bare.rows] == [orders]
    assert bare.rows[0].messages is None and bare.rows[0].in_per_s is None
    full = api.call("get_topics", query={"filter": "ORD", "columns": "rates,span,groups"})
    assert (full.rows[0].messages, full.rows[0].groups) == (20, 1)
    assert full.answers.asked == full.answers.answered == 1
    assert full.kinds["system"] > 3 and full.kinds["normal"] >= 1


def test_topics_are_sorted_and_paged_on_the_server(api: Api, orders: str) -> None:
    query = {"kinds": "system,normal", "sort": "messages", "order": "desc", "limit": 1}
    page = api.call("get_topics", query=query)
    assert len(page.rows) == 1 and page.total > 5
    assert page.rows[0].messages >= 20
    others = api.call("get_topics", query=query | {"offset": 1, "limit": 200})
    assert len(others.rows) == page.total - 1
    assert page.rows[0].topic not in {row.topic for row in others.rows}


def test_a_topic_tells_settings_route_queues_and_groups(api: Api, orders: str) -> None:
    topic = api.call("get_topic", topic=orders)
    assert topic.messages == 20 and not topic.differs
    assert topic.route[0].addresses["0"] == topic.route[0].addresses["0"]
    queues = api.call("get_topic_queues", topic=orders)
    assert sum(row.messages for row in queues.rows) == 20
    assert all(row.oldest_ms for row in queues.rows if row.messages)
    groups = api.call("get_topic_groups", topic=orders)
    assert [row.group for row in groups.rows] == ["OrderReaders"]
    assert groups.rows[0].lag_messages == 20 - len(queues.rows)


def test_groups_are_judged_in_a_word(api: Api, orders: str) -> None:
    query = {"filter": "orderreaders", "columns": "lag,clients,dead_letters"}
    # What brokers tell of groups is kept for a moment.
    (row,) = wait_until(lambda: api.call("get_consumer_groups", query=query).rows, what="the group")
    assert (row.state, row.online, row.dead_letters) == ("offline", 0, 0)
    assert row.lag_messages and row.lag_ms is not None
    by_lag = {"sort": "lag_messages", "order": "desc", "limit": 1, "state": "offline"}
    # The figures of all groups may be from before this one; after a change they are loaded anew.
    action = api.call("preview_action", {"kind": "create_topic", "topic": "Fresh"})
    api.call("confirm_action", {"token": action.token}, action=action.id)
    wait_until(
        lambda: api.call("get_action", action=action.id).state == "done", what="the end of a change"
    )
    assert api.call("get_consumer_groups", query=by_lag).rows[0].group == "OrderReaders"
    group = api.call("get_consumer_group", group="OrderReaders")
    assert group.lag_messages == row.lag_messages and "nobody is online" in group.state_text
    queues = api.call(
        "get_group_queues",
        group="OrderReaders",
        query={"sort": "lag_messages", "order": "desc", "owners": True},
    )
    lags = [one.lag_messages for one in queues.rows]
    assert lags == sorted(lags, reverse=True) and sum(lags) == row.lag_messages
    assert api.call("get_group_clients", group="OrderReaders").total == 0
    hour = api.call("get_group_history", group="OrderReaders").series
    assert [one.name for one in hour] == ["lag_messages", "lag_ms"]
    assert hour[0].values[-1] == row.lag_messages and hour[1].values[-1]


def test_the_overview_and_the_group_agree(api: Api, orders: str) -> None:
    overview = api.call("get_overview")
    assert overview.health in ("ok", "warning") and overview.members_answering == 1
    (group,) = api.call("get_broker_groups").broker_groups
    assert (group.kind, group.leader, group.members[0].role) == ("ledger", "n0", "LEADER")
    assert group.durability.code == "majority_synced" and group.durability.may_lose == 0
    assert api.call("get_broker_group", broker=group.name).leader == "n0"
    wait_until(
        lambda: api.call("get_history", query={"series": "in_per_s,answer_ms"}).series,
        what="a first point",
    )
    wait_until(
        lambda: any(one.topic == orders for one in api.call("get_overview").top_topics),
        what="the rate of the topic",
    )


def test_settings_logs_and_audit(api: Api, console_cluster: UpCluster) -> None:
    settings = api.call("get_configuration", query={"filter": "aclEnable"})
    (one,) = settings.settings
    assert (one.key, one.values[0].value, one.differs) == ("aclEnable", "false", False)
    told = api.call("get_configuration", query={"limit": 200}).settings
    assert {one.key for one in told if one.changeable} == set(CHANGEABLE_KEYS)
    log = api.call("get_log", query={"node": "n0", "filter": "leader"})
    assert log.available and log.nodes == ["console", "n0", "namesrv"]
    assert all("leader" in line.text.lower() for line in log.lines) and log.lines
    assert api.call("get_audit").total >= 0


def test_a_consumer_is_seen_and_tells_about_itself(api: Api, orders: str, name_server: str) -> None:
    with PushConsumer(name_server, "OrderPushers", topic=orders, listener=lambda _: None):
        wait_until(lambda: _has_group(api, "OrderPushers"), what="the group")
        (client,) = wait_until(
            lambda: api.call("get_group_clients", group="OrderPushers").rows, what="a member"
        )
        assert (client.language, client.version) == ("PYTHON", "V4_9_3")
        place = {"group": "OrderPushers", "client": client.client_id}
        wait_until(lambda: api.call("get_running", **place).queues, what="its queues")
        told = api.call("get_running", **place, query={"stacks": True})
        assert orders in {queue.topic for queue in told.queues}
        assert told.stacks_cut is False
        query = {"owners": True, "filter": orders}
        owners = {
            row.owner
            for row in api.call("get_group_queues", group="OrderPushers", query=query).rows
        }
        assert owners <= {client.client_id, None}
        group = api.call("get_consumer_group", group="OrderPushers")
        assert (group.online, group.mode, group.model) == (1, "push", "clustering")
        assert orders in {one.topic for one in group.subscriptions}
        listed = api.call("get_clients", query={"filter": "orderpushers"})
        assert [row.client_id for row in listed.rows] in ([], [client.client_id])


def _has_group(api: Api, group: str) -> bool:
    return any(row.group == group for row in api.call("get_consumer_groups").rows)


def test_unknown_names_and_fields_are_refused(api: Api) -> None:
    for name, path in (
        ("get_topic", {"topic": HOSTILE}),
        ("get_consumer_group", {"group": "../../etc"}),
        ("get_broker_group", {"broker": "none"}),
    ):
        with pytest.raises(Refused) as refused:
            api.call(name, **path)
        assert (refused.value.status, refused.value.error.code) == (404, "not_found")
    for query in ({"limit": 0}, {"limit": 201}, {"sort": "x"}, {"x": 1}, {"columns": "all"}):
        with pytest.raises(Refused) as refused:
            api.call("get_topics", query=query)
        assert refused.value.status == 400 and refused.value.error.field in query
    api.cluster = "none"
    with pytest.raises(Refused) as refused:
        api.call("get_overview")
    assert refused.value.error.field == "cluster"


def test_the_overview_is_there_without_a_script(api: Api, console_cluster: UpCluster) -> None:
    """The page's own words for who has none lead to what is there."""
    page = api.raw("GET", "/")[2].decode()
    links = re.findall(r'href="([^"]+)"', page.partition("<noscript>")[2])
    assert "overview.txt" in links
    for link in links:
        assert api.raw("GET", f"/{link}")[0] == 200, link
    status, headers, body = api.raw("GET", "/overview.txt")
    assert (status, headers["content-type"]) == (200, "text/plain; charset=utf-8")
    first, *rest = body.decode().splitlines()
    assert first == f"{api.cluster}: {api.call('get_overview').health}"
    assert any(line.endswith("LEADER") for line in rest)


def test_the_document_is_served(api: Api) -> None:
    url = f"http://{api.host}:{api.port}/api/v1/openapi.json"
    with urllib.request.urlopen(url) as answer:
        assert answer.read().startswith(b'{\n"openapi":"3.1.0"')
    assert run_ledgermq("console", "--help").returncode == 0
    assert {route.gives for route in ROUTES} == set(Gives)
