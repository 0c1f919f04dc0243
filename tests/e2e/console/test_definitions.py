"""Topics and consumer groups as one document: exported, compared, made so again."""

from typing import Any

import msgspec
import pytest

from tests.e2e.console.api_client import Api, Refused
from tests.e2e.console.test_changes import confirmed, done, preview

TOPIC, GROUP = "Defined", "Definers"


def definitions(api: Api) -> dict[str, Any]:
    """The document as JSON has it; that it is of its shape is checked on the way."""
    api.call("get_definitions")
    _, _, body = api.raw("GET", api.target("/api/v1/clusters/{cluster}/definitions", {}, {}))
    found: dict[str, Any] = msgspec.json.decode(body)
    return found


def test_what_is_exported_is_imported_without_a_difference(api: Api) -> None:
    done(api, "create_topic", topic=TOPIC, read_queues=3, write_queues=2, order=True)
    done(api, "create_group", group=GROUP, retry_max=4)
    told = definitions(api)
    (topic,) = (one for one in told["topics"] if one["topic"] == TOPIC)
    assert (topic["read_queues"], topic["write_queues"], topic["order"]) == (3, 2, True)
    assert topic["brokers"] == ["broker-a"]
    (group,) = (one for one in told["groups"] if one["group"] == GROUP)
    assert group["retry_max"] == 4
    names = {one["topic"] for one in told["topics"]}
    assert not any(name.startswith(("%RETRY%", "%DLQ%", "RMQ_SYS_")) for name in names)
    with pytest.raises(Refused) as refused:
        preview(api, "import_definitions", definitions=told)
    assert refused.value.error.code == "nothing_to_do"


def test_only_what_differs_is_shown_and_made(api: Api) -> None:
    done(api, "create_topic", topic="DefinedOld", read_queues=1, write_queues=1)
    told = definitions(api)
    (old,) = (one for one in told["topics"] if one["topic"] == "DefinedOld")
    old["read_queues"] = old["write_queues"] = 5
    new = old | {"topic": "DefinedNew", "brokers": []}
    group = {
        "group": "DefinersNew", "brokers": [], "consume_enabled": True, "from_min_enabled": False,
        "broadcast_enabled": False, "retry_queues": 2, "retry_max": 3, "notify_members": True,
    }  # fmt: skip
    wanted = {"topics": [*told["topics"], new], "groups": [*told["groups"], group]}
    action = preview(api, "import_definitions", definitions=wanted)
    assert [(item.target, bool(item.before)) for item in action.items] == [
        ("broker-a: topic DefinedOld", True),
        ("broker-a: topic DefinedNew", False),
        ("broker-a: group DefinersNew", False),
    ]
    assert "2 to create, 1 to change" in action.summary
    ended = confirmed(api, action)
    assert ended.counts == {"done": 3}, ended.items
    after = definitions(api)
    made = {one["topic"]: one for one in after["topics"]}
    assert made["DefinedOld"]["read_queues"] == made["DefinedNew"]["write_queues"] == 5
    assert group | {"brokers": ["broker-a"]} in after["groups"]
    # Nothing was deleted, and nothing else changed.
    assert {one["topic"] for one in told["topics"]} < set(made)


@pytest.mark.parametrize(
    ("topic", "status", "field"),
    [
        ({"topic": "%RETRY%x"}, 400, "definitions"),
        ({"read_queues": 70_000}, 400, "definitions.topics[1].read_queues"),
        ({"brokers": ["nobody"]}, 404, "broker"),
        ({"more": 1}, 400, "definitions.topics[1]"),
    ],
)
def test_a_document_that_cannot_be_is_refused_whole(
    api: Api, topic: dict[str, Any], status: int, field: str
) -> None:
    one = {
        "topic": "Never", "brokers": [], "read_queues": 1, "write_queues": 1, "perm": 6,
        "order": False, "message_type": "",
    }  # fmt: skip
    with pytest.raises(Refused) as refused:
        preview(api, "import_definitions", definitions={"topics": [one, one | topic], "groups": []})
    assert refused.value.status == status and refused.value.error.field == field
    assert "Never" not in {row.topic for row in api.call("get_topics").rows}


def test_a_name_that_stands_twice_is_refused(api: Api) -> None:
    one = {
        "topic": "Twice", "brokers": [], "read_queues": 1, "write_queues": 1, "perm": 6,
        "order": False, "message_type": "",
    }  # fmt: skip
    twice = [one, one | {"brokers": ["broker-a"]}]
    with pytest.raises(Refused) as refused:
        preview(api, "import_definitions", definitions={"topics": twice, "groups": []})
    assert refused.value.error.value == "broker-a: topic Twice"
