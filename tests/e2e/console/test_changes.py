"""Changes: shown before they are made, made once, told item by item, written down."""

import threading
from typing import Any

import pytest

from ledgermq.client import Message, TransactionState
from ledgermq.client.blocking import Producer, PullConsumer, TransactionalProducer
from tests.e2e.console.api_client import Api, Refused
from tests.waiting import wait_until


def preview(api: Api, kind: str, **wanted: Any) -> Any:
    return api.call("preview_action", {"kind": kind, **wanted})


def confirmed(api: Api, action: Any) -> Any:
    api.call("confirm_action", {"token": action.token}, action=action.id)

    def ended() -> Any:
        now = api.call("get_action", action=action.id)
        return now if now.state in ("done", "stopped") else None

    return wait_until(ended, what="the end of a change")


def done(api: Api, kind: str, **wanted: Any) -> Any:
    action = confirmed(api, preview(api, kind, **wanted))
    assert {item.state for item in action.items} == {"done"}, action.items
    return action


def test_a_topic_is_created_changed_and_deleted(api: Api) -> None:
    action = preview(api, "create_topic", topic="Made", read_queues=3, write_queues=3)
    assert [(item.before, item.state) for item in action.items] == [("", "will")]
    with pytest.raises(Refused):
        api.call("get_topic", topic="Made")
    assert confirmed(api, action).counts == {"done": 1}
    assert api.call("get_topic", topic="Made").config[0].read_queues == 3
    with pytest.raises(Refused) as refused:
        preview(api, "create_topic", topic="Made")
    assert refused.value.error.code == "exists"
    changed = done(api, "update_topic", topic="Made", perm=4)
    assert changed.items[0].before == "3 read, 3 write, perm 6"
    assert changed.items[0].after == "3 read, 3 write, perm 4"
    with pytest.raises(Refused) as refused:
        preview(api, "update_topic", topic="Made", perm=4)
    assert refused.value.error.code == "nothing_to_do"
    done(api, "delete_topic", topic="Made")
    with pytest.raises(Refused):
        api.call("get_topic", topic="Made")
    with pytest.raises(Refused) as refused:
        preview(api, "delete_topic", topic="TBW102")
    assert refused.value.error.code == "system"
    entries = api.call("get_audit", query={"filter": "topic Made"}).entries
    assert {one.action for one in entries} == {"create_topic", "update_topic", "delete_topic"}
    assert all(one.outcome == "done" for one in entries)


def test_a_token_begins_one_run_and_only_its_own(api: Api) -> None:
    action = preview(api, "create_topic", topic="Once")
    for token, number in (("x", action.id), (action.token, "x")):
        with pytest.raises(Refused) as refused:
            api.call("confirm_action", {"token": token}, action=number)
        assert refused.value.status in (403, 404)
    results: list[Any] = []

    def confirm() -> None:
        mine = Api(f"http://{api.host}:{api.port}/").opened()
        results.append(mine.call("confirm_action", {"token": action.token}, action=action.id))

    threads = [threading.Thread(target=confirm) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended = confirmed(api, action)
    assert {one.begun_ms for one in results} == {ended.begun_ms}
    assert ended.counts == {"done": 1}
    begun = api.call("get_audit", query={"filter": "topic Once"}).entries
    assert sum("begun" in one.detail for one in begun) == 1
    assert action.id in [row.id for row in api.call("get_actions").rows]


def test_the_second_of_two_operators_is_told(api: Api) -> None:
    done(api, "create_topic", topic="Contested")
    first = preview(api, "update_topic", topic="Contested", read_queues=4, write_queues=4)
    second = preview(api, "update_topic", topic="Contested", read_queues=5, write_queues=5)
    assert confirmed(api, first).counts == {"done": 1}
    late = confirmed(api, second)
    assert late.counts == {"skipped": 1}
    assert "somebody changed it" in late.items[0].reason and "4 read" in late.items[0].reason
    assert api.call("get_topic", topic="Contested").config[0].read_queues == 4


def test_a_message_is_sent_once(api: Api) -> None:
    done(api, "create_topic", topic="Tried")
    done(api, "send_message", topic="Tried", body="<b>\u202e hello", keys="k", tags="t")
    assert api.call("get_topic", topic="Tried").messages == 1
    begun = api.call("start_search", {"topic": "Tried"})
    (row,) = wait_until(lambda: api.call("get_search", search=begun.id).rows, what="the message")
    assert (row.keys, row.tags, row.body_bytes) == ("k", "t", 12)
    place = {"broker": row.broker, "queue": row.queue, "offset": row.offset}
    done(api, "resend_message", topic="Tried", message=place, target="Tried")
    again = api.call("start_search", {"topic": "Tried"})
    wait_until(
        lambda: api.call("get_search", search=again.id).state == "done", what="the end of a search"
    )
    found = api.call("get_search", search=again.id)
    # A copy keeps the id of its message.
    assert [one.message_id for one in found.rows] == [row.message_id] * 2


def test_producers_are_asked_again_about_what_was_put_aside(api: Api, name_server: str) -> None:
    """A half message whose producer knows no end for too long, and then does."""
    knows = TransactionState.UNKNOWN
    done(api, "create_topic", topic="Paid")
    wait_until(lambda: api.call("get_topic", topic="Paid").route, what="the route")
    with TransactionalProducer(name_server, "payers", lambda _: knows) as producer:
        producer.send_half(Message("Paid", b"paid"))

        def put_aside() -> Any:
            begun = api.call("start_search", {"topic": "TRANS_CHECK_MAX_TIME_TOPIC"})
            ended = wait_until(lambda: api.call("get_search", search=begun.id), what="a search")
            return ended.rows

        (row,) = wait_until(put_aside, what="the half message that is put aside", deadline_s=60)
        place = {"broker": row.broker, "queue": row.queue, "offset": row.offset}
        assert api.call("get_topic", topic="Paid").messages == 0
        knows = TransactionState.COMMIT
        done(api, "resume_check", message=place)
        wait_until(lambda: api.call("get_topic", topic="Paid").messages == 1, what="its commit")
    with pytest.raises(Refused):
        preview(api, "resume_check", message=place | {"offset": 99})


@pytest.fixture
def group(api: Api, name_server: str) -> tuple[str, str]:
    """A topic with ten messages in one queue, and a group that has consumed four."""
    topic, name = "Moved", "Movers"
    if topic not in [row.topic for row in api.call("get_topics").rows]:
        done(api, "create_topic", topic=topic, read_queues=1, write_queues=1)
        done(api, "create_group", group=name)
        wait_until(lambda: api.call("get_topic", topic=topic).route, what="the route")
        with Producer(name_server) as producer:
            for i in range(10):
                producer.send(Message(topic, str(i).encode()))
    with PullConsumer(name_server, name) as consumer:
        (queue,) = consumer.queues(topic)
        consumer.commit(queue, 4)
        wait_until(lambda: consumer.committed(queue) == 4, what="the offset")
    return topic, name


@pytest.mark.parametrize(
    ("to", "value", "after"),
    [
        ("earliest", None, 0),
        ("latest", None, 10),
        ("offset", 7, 7),
        ("offset", 99, 10),
        ("shift", -3, 1),
        ("shift", -99, 0),
    ],
)
def test_a_group_goes_on_elsewhere(
    api: Api, group: tuple[str, str], to: str, value: int | None, after: int
) -> None:
    topic, name = group
    action = preview(api, "reset_offset", group=name, topic=topic, to=to, value=value)
    (item,) = action.items
    assert (item.before, item.after) == ("4", str(after))
    assert confirmed(api, action).counts == {"done": 1}
    (row,) = api.call("get_group_queues", group=name, query={"filter": topic}).rows
    assert row.committed == after


def test_a_reset_that_is_overtaken_moves_nothing(
    api: Api, group: tuple[str, str], name_server: str
) -> None:
    topic, name = group
    action = preview(api, "reset_offset", group=name, topic=topic, to="earliest")
    with PullConsumer(name_server, name) as consumer:
        (queue,) = consumer.queues(topic)
        consumer.commit(queue, 9)
    late = confirmed(api, action)
    assert late.counts == {"skipped": 1} and "now: 9" in late.items[0].reason


def test_offsets_are_given_to_another_group(api: Api, group: tuple[str, str]) -> None:
    topic, name = group
    done(api, "create_group", group="Heirs")
    done(api, "clone_offsets", group=name, target="Heirs", topic=topic)
    (row,) = api.call("get_group_queues", group="Heirs", query={"filter": topic}).rows
    assert row.committed == 4
    done(api, "delete_group", group="Heirs", topics=True)
    with pytest.raises(Refused):
        api.call("get_consumer_group", group="Heirs")


def test_settings_and_permissions_are_changed(api: Api) -> None:
    action = preview(api, "change_setting", key="brokerPermission", value="4")
    assert (action.items[0].before, action.items[0].after) == ("6", "4")
    ended = confirmed(api, action)
    assert ended.items[0].state in ("done", "failed")
    if ended.items[0].state == "done":
        done(api, "change_setting", key="brokerPermission", value="6")
    done(api, "set_writable", broker="broker-a", writable=False)
    done(api, "set_writable", broker="broker-a", writable=True)
    done(api, "clean_files", broker="broker-a", what="expired_queues")
    done(api, "change_setting", key="logLevel.ledgermq.dledger", value="debug")
    done(api, "change_setting", key="logLevel.ledgermq.dledger", value="info")
    refusals = (("a b", "1"), ("key", "1\nother=2"), ("a.b", "1"), ("logLevel.", "debug"))
    for key, value in refusals:
        with pytest.raises(Refused) as refused:
            preview(api, "change_setting", key=key, value=value)
        assert refused.value.status == 400


def test_what_is_wanted_is_read_strictly(api: Api) -> None:
    for body in (
        {"kind": "none"},
        {"kind": "create_topic"},
        {"kind": "create_topic", "topic": ""},
        {"kind": "create_topic", "topic": "T", "perm": 7},
        {"kind": "create_topic", "topic": "T", "x": 1},
        {"kind": "create_topic", "topic": "T" * 256},
        {"kind": "create_topic", "topic": "<b>\u202e"},
        {"kind": "reset_offset", "group": "g", "topic": "t", "to": "there"},
        b"{",
        b"[" * 100_000,
    ):
        with pytest.raises(Refused) as refused:
            api.call("preview_action", body)
        assert refused.value.status == 400, body
    with pytest.raises(Refused) as refused:
        preview(api, "delete_group", group="NoSuchGroup")
    assert refused.value.status == 404
    # What brokers refuse is told as they tell it, and the item has failed.
    action = confirmed(api, preview(api, "create_topic", topic="<b>"))
    assert action.counts == {"failed": 1} and action.items[0].reason


def test_a_preview_that_nobody_confirms_changes_nothing(api: Api) -> None:
    action = preview(api, "create_topic", topic="NotMade")
    assert api.call("stop_action", action=action.id).state == "stopped"
    after = api.call("confirm_action", {"token": action.token}, action=action.id)
    assert after.state == "stopped"
    with pytest.raises(Refused):
        api.call("get_topic", topic="NotMade")
