"""The live tail of a topic: what came since the last look, within a budget."""

import random
from typing import Any

import pytest

from ledgermq.client import Message
from ledgermq.client.blocking import Producer
from tests.e2e.console.api_client import Api, Refused
from tests.e2e.console.test_changes import done
from tests.waiting import wait_until

TOPIC = "Tailed"


@pytest.fixture(scope="module")
def topic(console_cluster: Any) -> str:
    api = Api(console_cluster.console).opened()
    done(api, "create_topic", topic=TOPIC, read_queues=2, write_queues=2)
    wait_until(lambda: api.call("get_topic", topic=TOPIC).route, what="the route")
    return TOPIC


def look(api: Api, cursor: str = "", **wanted: Any) -> Any:
    return api.call("look_at_tail", {"cursor": cursor, **wanted}, topic=TOPIC)


def send(name_server: str, bodies: list[bytes], tags: str = "") -> None:
    with Producer(name_server) as producer:
        for body in bodies:
            producer.send(Message(TOPIC, body, tags=tags))


def test_what_came_is_shown_once_and_the_newest_first(
    api: Api, topic: str, name_server: str
) -> None:
    send(name_server, [b"before"])
    first = wait_until(lambda: look(api), what="a look")
    assert (first.rows, first.passed) == ([], 0)
    send(name_server, [b"one", b"two", b"<b>three</b>"])
    seen: list[str] = []
    cursor = first.cursor

    def three() -> bool:
        nonlocal cursor
        told = look(api, cursor)
        cursor = told.cursor
        seen[:0] = [row.preview for row in told.rows]
        assert told.read_bytes == sum(row.body_bytes for row in told.rows)
        return len(seen) >= 3

    wait_until(three, what="three messages")
    assert sorted(seen) == ["<b>three</b>", "one", "two"]
    assert look(api, cursor).rows == []
    assert look(api).rows == []


def test_what_is_too_much_is_passed_over_and_counted(
    api: Api, topic: str, name_server: str
) -> None:
    first = look(api)
    send(name_server, [b"%d" % i for i in range(40)])
    wait_until(lambda: sum_of_ends(api) >= 40, what="the messages")
    told = look(api, first.cursor, limit=4)
    assert len(told.rows) == 4 and told.passed == 36
    # The newest are those that are shown.
    assert {row.preview for row in told.rows} <= {"36", "37", "38", "39"}
    assert look(api, told.cursor).passed == 0
    # Bodies of more than a mebibyte, although few.
    # They do not get smaller on the way.
    send(name_server, [random.Random(1).randbytes(400_000)] * 8)
    wait_until(lambda: sum_of_ends(api) >= 48, what="the long ones")
    long = look(api, told.cursor, limit=200)
    assert long.passed > 0 and len(long.rows) + long.passed == 8
    # Once the mebibyte is used up, a read that is under way on the other queue ends.
    assert long.read_bytes <= 1024 * 1024 + 2 * 400_000


def sum_of_ends(api: Api) -> int:
    rows = api.call("get_topic_queues", topic=TOPIC).rows
    return int(sum(row.max_offset for row in rows)) - 4


def test_tag_and_text_choose(api: Api, topic: str, name_server: str) -> None:
    first = look(api)
    send(name_server, [b"red apple", b"red pear"], tags="fruit")
    send(name_server, [b"red brick"], tags="stone")
    wait_until(lambda: len(look(api, first.cursor).rows) == 3, what="the messages")
    assert {row.preview for row in look(api, first.cursor, tag="fruit").rows} == {
        "red apple",
        "red pear",
    }
    assert [row.preview for row in look(api, first.cursor, text="brick").rows] == ["red brick"]


@pytest.mark.parametrize(
    ("topic_name", "body", "status", "field"),
    [
        ("NoSuchTopic", {}, 404, "topic"),
        (TOPIC, {"cursor": "none of ours"}, 400, "cursor"),
        (TOPIC, {"limit": 201}, 400, "limit"),
    ],
)
def test_what_cannot_be_is_refused(
    api: Api, topic: str, topic_name: str, body: dict[str, Any], status: int, field: str
) -> None:
    with pytest.raises(Refused) as refused:
        api.call("look_at_tail", body, topic=topic_name)
    assert (refused.value.status, refused.value.error.field) == (status, field)
