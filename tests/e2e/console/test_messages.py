"""Messages: searched, shown, browsed; hostile ones, too."""

import json
from typing import Any

import pytest

from ledgermq.client import Message, SendResult
from ledgermq.client.blocking import Producer
from tests.e2e.console.api_client import Api, Refused
from tests.waiting import wait_until

TOPIC = "ConsoleMessages"
# Markup, control characters, text that runs backwards, broken UTF-8, and a body that is compressed.
BODIES = [
    b"<script>alert(1)</script>\x1b[31m",
    json.dumps({"order": 7, "note": "</script>\u202e"}).encode(),
    bytes(range(256)) * 4,
    b"\xff\xfe broken \xc3",
    b"needle in a haystack " * 2000,
    b"",
]


@pytest.fixture(scope="module")
def sent(name_server: str) -> list[SendResult]:
    with Producer(name_server) as producer:
        return [
            producer.send(
                Message(TOPIC, body or b" ", keys=f"key{i} all", tags="even" if i % 2 == 0 else "")
            )
            for i, body in enumerate(BODIES)
        ]


def search(api: Api, **wanted: Any) -> Any:
    begun = api.call("start_search", {"topic": TOPIC, **wanted})

    def ended() -> Any:
        now = api.call("get_search", search=begun.id)
        return now if now.state != "running" else None

    return wait_until(ended, what="the end of a search")


def test_messages_are_found_by_all_that_is_known_of_them(api: Api, sent: list[SendResult]) -> None:
    wait_until(lambda: search(api, key="key1").found == 1, what="the index")
    first = sent[1]
    for wanted in (
        {"key": "key1"},
        {"unique_key": first.message_id},
        {"offset_id": first.offset_message_id, "topic": ""},
        {
            "broker": first.broker_name,
            "queue": first.queue_id,
            "at_offset": first.queue_offset,
        },
        {"text": '"order": 7'},
    ):
        found = search(api, **wanted)
        assert [row.message_id for row in found.rows] == [first.message_id], (wanted, found)
        assert found.state == "done"
    assert search(api, key="all").found == len(BODIES)
    assert search(api, tag="even").found == 3
    assert search(api, text="needle in a haystack").found == 1
    assert search(api, text="needle", tag="odd").found == 0
    assert search(api, begin_ms=1, end_ms=2).found == 0


def test_a_search_keeps_to_its_budget(api: Api, sent: list[SendResult]) -> None:
    full = search(api, found_max=2)
    assert (full.state, full.found) == ("full", 2)
    poor = search(api, scan_max=1)
    assert poor.state == "budget" and "scan_max" in poor.reason and poor.scanned < poor.total
    after = api.call("get_search", search=full.id, query={"after": 1})
    assert len(after.rows) == 1 and after.found == 2
    assert api.call("stop_search", search=full.id).state == "full"


def test_a_search_is_its_sessions_own_and_says_what_it_needs(api: Api) -> None:
    for body, field in (
        ({}, "topic"),
        ({"topic": TOPIC, "at_offset": 1}, "at_offset"),
        ({"topic": TOPIC, "found_max": 0}, "found_max"),
        ({"topic": TOPIC, "x": 1}, "body"),
    ):
        with pytest.raises(Refused) as refused:
            api.call("start_search", body)
        assert (refused.value.status, refused.value.error.field) == (400, field)
    with pytest.raises(Refused) as refused:
        api.call("get_search", search="nobody's")
    assert refused.value.status == 404
    gone = search(api, topic="NoSuchTopic")
    assert gone.found == 0 and "NoSuchTopic" in gone.reason
    # An id names an address; one that is no broker of the cluster is not asked.
    other = search(api, offset_id="7F00000100000016" + "0" * 16, topic="")
    assert "no broker of this cluster" in other.reason


def test_bodies_are_shown_as_what_they_are(api: Api, sent: list[SendResult]) -> None:
    def shown(number: int) -> Any:
        one = sent[number]
        place = {"broker": one.broker_name, "queue": one.queue_id, "offset": one.queue_offset}
        detail = api.call("get_message", topic=TOPIC, **place)
        assert api.call("get_body", topic=TOPIC, **place) == (BODIES[number] or b" ")
        return detail

    assert shown(0).body.kind == "text" and "<script>" in shown(0).body.text
    assert shown(1).body.kind == "json" and '\n  "order": 7' in shown(1).body.text
    binary = shown(2).body
    assert (binary.kind, binary.text, binary.hex[:8]) == ("binary", None, "00010203")
    assert shown(3).body.kind == "binary"
    packed = shown(4).body
    assert packed.compression == "zlib" and packed.bytes == len(BODIES[4])
    assert packed.stored_bytes < packed.bytes and packed.hex_cut and not packed.text_cut
    assert shown(0).properties["KEYS"] == "key0 all"
    raw = api.raw("GET", api.target("/api/v1/clusters/{cluster}/audit", {}, {}))
    assert b"view_message" in raw[2]


def test_a_body_is_a_file_to_save_and_never_a_page(api: Api, sent: list[SendResult]) -> None:
    one = sent[0]
    path = f"/api/v1/clusters/DefaultCluster/topics/{TOPIC}/messages"
    target = f"{path}/{one.broker_name}/{one.queue_id}/{one.queue_offset}/body"
    _, headers, _ = api.raw("GET", target)
    assert headers["content-type"] == "application/octet-stream"
    assert headers["content-disposition"].startswith("attachment")
    assert headers["x-content-type-options"] == "nosniff"
    with pytest.raises(Refused) as refused:
        api.call("get_message", topic=TOPIC, broker=one.broker_name, queue=0, offset=10**6)
    assert refused.value.status == 404
    with pytest.raises(Refused) as refused:
        api.call("get_message", topic=TOPIC, broker=one.broker_name, queue="x", offset=0)
    assert refused.value.error.field == "queue"


def test_delayed_messages_are_counted_and_listed(api: Api, name_server: str) -> None:
    with Producer(name_server) as producer:
        sent = producer.send(Message(TOPIC, b"later", delay_level=18))
    found = wait_until(
        lambda: [one for one in api.call("get_delayed").levels if one.waiting], what="a level"
    )
    assert [(one.level, one.delay, one.waiting) for one in found] == [(18, "2h", 1)]
    rows = api.call("browse_delayed", level=18).rows
    assert [row.message_id for row in rows] == [sent.message_id]
    assert api.call("browse_half").total == 0


def test_a_list_of_messages_goes_on_at_its_cursor(api: Api, name_server: str) -> None:
    with Producer(name_server) as producer:
        for i in range(7):
            producer.send(Message("ConsoleBrowse", str(i).encode(), delay_level=17))
    wait_until(
        lambda: api.call("browse_delayed", level=17).total == 7, what="seven delayed messages"
    )
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        part = api.call("browse_delayed", level=17, query={"limit": 3, "cursor": cursor})
        seen += [row.preview for row in part.rows]
        cursor = part.next
    assert seen == [str(i) for i in reversed(range(7))]
    with pytest.raises(Refused) as refused:
        api.call("browse_delayed", level=17, query={"cursor": "x"})
    assert refused.value.error.field == "cursor"


def test_a_message_without_traces_has_none(api: Api, sent: list[SendResult]) -> None:
    trace = api.call("get_trace", message_id=sent[0].message_id, query={"topic": TOPIC})
    assert trace.message.message_id == sent[0].message_id
    assert [step.kind for step in trace.steps] == ["stored"]


def test_rules_of_a_cluster_without_accounts_say_so(api: Api) -> None:
    access = api.call("get_access")
    assert not access.enabled and access.reason
    question = {"access_key": "x", "kind": "topic", "name": TOPIC, "what": "PUB"}
    with pytest.raises(Refused) as refused:
        api.call("ask_may", question)
    assert refused.value.error.code == "no_rules"
