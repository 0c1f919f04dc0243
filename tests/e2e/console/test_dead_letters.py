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


def test_dropped_letters_are_told_and_left_out(api: Api, name_server: str) -> None:
    """Their notes lie among the letters: they are no letters, and name those that are dropped."""
    group, topic = "Undertakers", "Graves"
    done(api, "create_topic", topic=topic, read_queues=1, write_queues=1)
    done(api, "create_group", group=group)
    done(api, "create_topic", topic=f"%DLQ%{group}", read_queues=1, write_queues=1)
    wait_until(lambda: api.call("get_topic", topic=f"%DLQ%{group}").route, what="the route")
    with Producer(name_server) as producer:
        for i in range(5):
            own = {"RETRY_TOPIC": topic, "ORIGIN_MESSAGE_ID": f"g{i}"}
            producer.send(Message(f"%DLQ%{group}", b"letter", properties=own))

    def letters() -> Any:
        return api.call("browse_dead_letters", group=group, query={"columns": "state"})

    wait_until(lambda: len(letters().rows) == 5, what="the letters")
    assert {row.state for row in letters().rows} == {"waiting"}
    assert letters().waiting_max == 5
    one, two = (
        {"broker": r.broker, "queue": r.queue, "offset": r.offset} for r in letters().rows[1:3]
    )
    action = preview(api, "drop_dead_letters", group=group, messages=[one, two])
    assert [item.after for item in action.items] == ["dropped", "dropped"]
    ended = confirmed(api, action)
    assert ended.counts == {"done": 2}, ended.items
    wait_until(lambda: [r.state for r in letters().rows].count("dropped") == 2, what="their states")
    assert [row.state for row in letters().rows] == ["waiting", "dropped", "dropped"] + [
        "waiting"
    ] * 2
    again = confirmed(api, preview(api, "drop_dead_letters", group=group, messages=[one]))
    assert again.counts == {"skipped": 1}
    assert again.items[0].reason == "already dropped"
    # All that are left: neither those dropped nor what says so.
    rest = preview(api, "resend_dead_letters", group=group, per_s=1000)
    assert [int(item.target.rpartition("/")[2]) for item in rest.items] == [0, 1, 4]
    assert confirmed(api, rest).counts == {"done": 3}
    wait_until(lambda: letters().waiting_max == 0, what="that nothing is left to do")
    with pytest.raises(Refused) as refused:
        preview(api, "drop_dead_letters", group=group)
    assert refused.value.error.code == "nothing_to_do"
    noted = [row for row in api.call("get_audit").entries if row.action == "drop_dead_letters"]
    assert noted and noted[0].object == f"group {group}"


def test_states_are_asked_for_by_name_alone(api: Api, letters: list[str]) -> None:
    rows = api.call("browse_dead_letters", group=GROUP).rows
    assert {row.state for row in rows} == {None}
    with pytest.raises(Refused) as refused:
        api.call("browse_dead_letters", group=GROUP, query={"columns": "mood"})
    assert (refused.value.status, refused.value.error.field) == (400, "columns")
