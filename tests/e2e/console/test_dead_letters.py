"""Dead letters: listed, browsed, chosen, and sent anew, each once."""

from typing import Any

import pytest

from ledgermq.client import Message
from ledgermq.client.blocking import Producer
from tests.e2e.console.api_client import Api, Refused
from tests.e2e.console.test_changes import confirmed, done, preview
from tests.waiting import wait_until

TOPIC, GROUP = "Buried", "Gravediggers"
COUNT = 12


@pytest.fixture(scope="module")
def letters(console_cluster: Any, name_server: str) -> list[str]:
    """Twelve dead letters of one group, as a broker stores them; returns their message ids."""
    api = Api(console_cluster.console).opened()
    done(api, "create_topic", topic=TOPIC, read_queues=1, write_queues=1)
    done(api, "create_group", group=GROUP)
    done(api, "create_topic", topic=f"%DLQ%{GROUP}", read_queues=1, write_queues=1)
    wait_until(lambda: api.call("get_topic", topic=f"%DLQ%{GROUP}").route, what="the route")
    with Producer(name_server) as producer:
        return [
            producer.send(
                Message(
                    f"%DLQ%{GROUP}",
                    f"letter {i} <b>".encode(),
                    keys=f"k{i}",
                    tags="odd" if i % 2 else "even",
                    properties={"RETRY_TOPIC": TOPIC, "ORIGIN_MESSAGE_ID": f"o{i}", "own": str(i)},
                )
            ).message_id
            for i in range(COUNT)
        ]


def sent_anew(api: Api) -> list[Any]:
    begun = api.call("start_search", {"topic": TOPIC})
    wait_until(
        lambda: api.call("get_search", search=begun.id).state == "done", what="the end of a search"
    )
    return list(api.call("get_search", search=begun.id).rows)


def test_groups_with_dead_letters_are_listed_and_browsed(api: Api, letters: list[str]) -> None:
    found = wait_until(
        lambda: [row for row in api.call("get_dead_letters").rows if row.group == GROUP],
        what="the group",
        deadline_s=30,
    )
    assert (found[0].messages, found[0].readable) == (COUNT, True)
    assert found[0].oldest_ms and found[0].newest_ms >= found[0].oldest_ms
    part = api.call("browse_dead_letters", group=GROUP, query={"limit": 5})
    assert [row.message_id for row in part.rows] == letters[::-1][:5]
    assert {row.origin_topic for row in part.rows} == {TOPIC}
    assert part.total == COUNT and part.next is not None
    with pytest.raises(Refused) as refused:
        api.call("browse_dead_letters", group="NoSuchGroup")
    assert refused.value.status == 404


def test_chosen_letters_are_sent_anew_each_once(api: Api, letters: list[str]) -> None:
    wait_until(
        lambda: len(api.call("browse_dead_letters", group=GROUP).rows) == COUNT, what="the letters"
    )
    rows = api.call("browse_dead_letters", group=GROUP).rows
    chosen = [{"broker": row.broker, "queue": row.queue, "offset": row.offset} for row in rows[:3]]
    action = preview(api, "resend_dead_letters", group=GROUP, messages=[*chosen, chosen[0]])
    assert action.total == 3 and sent_anew(api) == []
    ended = confirmed(api, action)
    assert ended.counts == {"done": 3}, ended.items
    wait_until(lambda: len(sent_anew(api)) == 3, what="the messages")
    again = confirmed(api, preview(api, "resend_dead_letters", group=GROUP, messages=chosen))
    assert again.counts == {"skipped": 3}, again.items
    assert {item.reason for item in again.items} == {"already resent"}
    assert {row.message_id for row in sent_anew(api)} == set(letters[-3:])
    assert len(sent_anew(api)) == 3


def test_all_that_fit_are_sent_anew_and_the_rest_is_told(api: Api, letters: list[str]) -> None:
    odd = confirmed(api, preview(api, "resend_dead_letters", group=GROUP, tag="odd", per_s=1000))
    assert sum(odd.counts.values()) == COUNT // 2
    assert odd.counts.get("failed", 0) == 0
    one = preview(api, "resend_dead_letters", group=GROUP, text="letter 4 ")
    assert one.total == 1 and one.items[0].after == TOPIC
    with pytest.raises(Refused) as refused:
        preview(api, "resend_dead_letters", group=GROUP, tag="none")
    assert refused.value.error.code == "nothing_to_do"


def test_a_slow_run_is_watched_and_stopped(api: Api, letters: list[str]) -> None:
    action = preview(api, "resend_dead_letters", group=GROUP, tag="even", per_s=0.5)
    api.call("confirm_action", {"token": action.token}, action=action.id)
    wait_until(
        lambda: api.call("get_action", action=action.id).counts.get("waiting") != action.total,
        what="a first result",
    )
    api.call("stop_action", action=action.id)
    wait_until(lambda: api.call("get_action", action=action.id).state == "stopped", what="its end")
    counts = api.call("get_action", action=action.id).counts
    assert counts["waiting"] > 0
    before = len(sent_anew(api))
    rest = confirmed(api, preview(api, "resend_dead_letters", group=GROUP, per_s=1000))
    assert rest.counts.get("failed", 0) == 0, rest.items
    wait_until(lambda: len(sent_anew(api)) == COUNT, what="all of them")
    assert len({row.message_id for row in sent_anew(api)}) == COUNT >= before
