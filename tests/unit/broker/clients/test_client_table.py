"""Clients, subscriptions and parked pulls as plain tables."""

from typing import Any

import pytest

from ledgermq.broker.clients import client_table as module
from ledgermq.broker.clients.client_table import Client, ClientTable
from ledgermq.broker.counts.rates import Rates
from ledgermq.broker.selectors.filters import Subscription, subscription_of
from ledgermq.state.errors import (
    InvalidRequestError,
    SubscriptionParseError,
    SystemBusyError,
)

# Java's hash codes.
TAG_A = 2598919
TAG_B = 2598920


def client(name: str = "c1", seen_ms: int = 0) -> Client:
    return Client(name, 0, 399, "10.0.0.9:1", seen_ms)


def subscription(topic: str, version: int = 1, expression: str = "*") -> Subscription:
    return subscription_of(topic, expression, "TAG", version)


def register(
    table: ClientTable,
    connection: Any,
    *topics: Subscription,
    name: str = "c1",
    group: str = "g",
    seen_ms: int = 0,
) -> bool:
    return table.register_consumer(
        connection,
        client(name, seen_ms),
        group,
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscriptions=topics,
    )


def test_heart_beat_that_says_nothing_new_changes_nothing() -> None:
    table = ClientTable()
    assert register(table, "a", subscription("T"))
    assert not register(table, "a", subscription("T"))
    assert table.memberships_count == 1


def test_new_member_and_new_or_lost_topic_are_changes() -> None:
    table = ClientTable()
    register(table, "a", subscription("T"))
    assert register(table, "b", subscription("T"), name="c2")
    assert register(table, "a", subscription("T"), subscription("U"))
    assert register(table, "a", subscription("T"))
    # A newer version of the same topics is none.
    assert not register(table, "a", subscription("T", 2))
    group = table.find_group("g")
    assert group is not None and group.subscriptions["T"].version == 2


def test_older_subscription_does_not_replace_a_newer_one() -> None:
    table = ClientTable()
    register(table, "a", subscription("T", 5, "A"))
    register(table, "b", subscription("T", 4, "B"), name="c2")
    group = table.find_group("g")
    assert group is not None and group.subscriptions["T"].expression == "A"


def test_full_table_takes_no_member_and_leaves_no_group_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MEMBERSHIPS_MAX", 1)
    table = ClientTable()
    table.register_producer("a", client(), "p")
    with pytest.raises(SystemBusyError, match="1 memberships and 0 groups, allowed are 1"):
        register(table, "b", subscription("T"))
    with pytest.raises(SystemBusyError):
        table.register_producer("b", client(), "p2")
    assert table.find_group("g") is None and table.memberships_count == 1
    # Who is a member stays one.
    table.register_producer("a", client(seen_ms=5), "p")
    assert [one.seen_ms for one in table.producers_of("p")] == [5]


def test_number_of_groups_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GROUPS_MAX", 1)
    table = ClientTable()
    table.register_producer("a", client(), "p")
    table.register_producer("b", client(), "p")
    with pytest.raises(SystemBusyError, match="2 memberships and 1 groups"):
        table.register_producer("c", client(), "p2")


def test_a_lost_connection_leaves_a_few_groups_at_a_time_and_is_not_found_meanwhile() -> None:
    table = ClientTable()
    for number in range(5):
        table.register_producer("a", client(), f"p{number}")
        register(table, "a", subscription("T"), group=f"g{number}")
    register(table, "b", subscription("T"), group="g0")
    assert table.connection_lost("a", 4) == []
    assert table.find_producer("c1") is None and table.memberships_count == 7
    table.producer_ids.hold("new", "c1", "another account")
    assert table.connection_lost("a", 4) == ["g0", "g1", "g2"]
    assert table.has_groups("a")
    assert table.connection_lost("a", 4) == ["g3", "g4"]
    assert not table.has_groups("a") and table.connection_lost("a", 4) == []
    assert table.consumer_group_names == ["g0"] and table.producer_group_names == []


def test_names_of_live_groups_are_in_order() -> None:
    table = ClientTable()
    for name in ("g3", "g1", "g2"):
        register(table, "a", subscription("T"), group=name)
        table.register_producer("a", client(), "p" + name)
    assert table.consumer_group_names == ["g1", "g2", "g3"]
    assert table.producer_group_names == ["pg1", "pg2", "pg3"]
    table.unregister_consumer("a", "g1")
    table.unregister_producer("a", "pg3")
    assert table.consumer_group_names == ["g2", "g3"]
    assert table.producer_group_names == ["pg1", "pg2"]
    table.connection_lost("a")
    assert table.consumer_group_names == table.producer_group_names == []


def test_closed_connection_leaves_all_groups() -> None:
    table = ClientTable()
    register(table, "a", subscription("T"))
    register(table, "b", subscription("T"), name="c2")
    table.register_producer("a", client(), "pg")
    assert [table.wants(name, "T") for name in ("g", "h")] == [True, False]
    assert table.connection_lost("a") == ["g"]
    assert table.producers_of("pg") == []
    assert table.connection_lost("b") == ["g"]
    assert table.find_group("g") is None
    assert table.connection_lost("b") == []
    assert table.memberships_count == 0


def test_what_subscriptions_take_is_that_of_those_that_are_there() -> None:
    table = ClientTable()
    for wanted in (
        [subscription("T", 1, "a||b"), subscription("U", 1)],
        [subscription("T", 2, "a||b||" + "c" * 99), subscription("U", 1, "not newer")],
        [subscription("T", 3, "a")],
        [subscription("V", 1, "a||b||c")],
        [],
    ):
        register(table, "a", *wanted)
        group = table.find_group("g")
        assert group is not None
        fresh = ClientTable()
        register(fresh, "a", *group.subscriptions.values())
        assert table._subscriptions_bytes == fresh._subscriptions_bytes
        assert group.subscriptions_bytes == fresh._subscriptions_bytes


def test_silent_connections_are_found() -> None:
    table = ClientTable()
    register(table, "a", seen_ms=0)
    register(table, "b", seen_ms=900, name="c2")
    table.register_producer("a", client(seen_ms=0), "pg")
    assert list(table.silent_connections(1000, 500)) == [["a"]]


def test_silent_connections_are_looked_for_in_pieces() -> None:
    table = ClientTable()
    for number in range(12):
        for group in range(500):
            table.register_producer(
                f"c{number}", client(seen_ms=900 * (number % 2), name=f"c{number}"), f"g{group}"
            )
    pieces = []
    for found in table.silent_connections(1000, 500):
        pieces.append(found)
        # Who leaves meanwhile is in nobody's way.
        table.connection_lost("c9")
    assert [name for found in pieces for name in found] == [f"c{n}" for n in range(0, 12, 2)]
    assert len(pieces) == 2


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_everything_is_wanted_without_tags(expression: str | None) -> None:
    assert subscription_of("T", expression, None, 1).matcher is None


def test_tags_are_matched_by_java_hash() -> None:
    matcher = subscription_of("T", " TagA || TagB||TagA ", "", 1).matcher
    assert matcher is not None
    assert matcher(TAG_A) and matcher(TAG_B) and not matcher(0)


def test_foreign_expressions_are_refused() -> None:
    with pytest.raises(SubscriptionParseError):
        subscription_of("T", " || ", "TAG", 1)
    with pytest.raises(SubscriptionParseError, match="has 16385 characters, allowed are 16384"):
        subscription_of("T", "x" * 16_385, "TAG", 1)
    with pytest.raises(SubscriptionParseError, match="has 1001 tags, allowed are 1000"):
        subscription_of("T", "||".join(map(str, range(1001))), "TAG", 1)
    assert len(subscription_of("T", "||".join(map(str, range(1000))), "TAG", 1).tags) == 1000
    with pytest.raises(InvalidRequestError, match="SQL92"):
        subscription_of("T", "a > 1", "SQL92", 1)


def test_rates_are_growth_over_the_window() -> None:
    rates = Rates()
    assert rates.text("put") == "0.0000 0.0000 0.0000"
    for second in range(21):
        rates.sample(second * 1000.0, {"put": 100 * second if second <= 10 else 1000})
    assert rates.per_second("put", 10) == 0.0
    assert rates.per_second("put", 60) == 50.0


def test_producer_is_found_by_its_id_on_its_newest_connection() -> None:
    table = ClientTable()
    table.register_producer("old", client("p"), "g1")
    table.register_producer("new", client("p"), "g1")
    table.register_producer("new", client("p"), "g2")
    assert table.find_producer("p") == "new"
    table.unregister_producer("new", "g1")
    assert table.find_producer("p") == "new"
    table.connection_lost("old")
    assert table.find_producer("p") == "new"
    table.connection_lost("new")
    assert table.find_producer("p") is None


def test_ids_that_a_connection_no_longer_has_are_forgotten() -> None:
    """A client that made up a new id for each heart beat once filled the memory."""
    table = ClientTable()
    for number in range(50):
        table.register_producer("a", client(f"c{number}"), "p")
        table.register_producer("a", client(f"c{number}"), "q")
    assert table.find_producer("c48") is None and table.find_producer("c49") == "a"
    assert len(table._producers_by_id) == len(table._producer_ids) == 1
    table.connection_lost("a")
    assert not table._producers_by_id and not table._producer_ids


def test_id_that_moved_to_another_connection_stays_when_the_former_one_ends() -> None:
    table = ClientTable()
    table.register_producer("a", client("c"), "p")
    table.register_producer("b", client("c"), "p")
    table.register_producer("a", client("d"), "p")
    table.connection_lost("a")
    assert table.find_producer("c") == "b" and table.find_producer("d") is None


def test_clients_of_one_connection_are_in_so_many_groups() -> None:
    table = ClientTable(2)
    table.register_producer("a", client(), "p")
    register(table, "a", subscription("T"))
    with pytest.raises(SystemBusyError, match=r"is in 2 groups, allowed are 2 .*HeartbeatGroups"):
        table.register_producer("a", client(), "q")
    # What it is in already is renewed, and others are free.
    assert not register(table, "a", subscription("T"))
    table.register_producer("b", client("c2"), "q")
    table.unregister_producer("a", "p")
    table.register_producer("a", client(), "q")


def test_subscriptions_of_all_groups_take_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SUBSCRIPTIONS_BYTES_MAX", 1000)
    table = ClientTable()
    register(table, "a", subscription("T", 1, "A||B"))
    long = subscription("T", 2, "A" * 990)
    with pytest.raises(SystemBusyError, match=r"would take \d+ bytes, allowed are 1000"):
        register(table, "a", long)
    group = table.find_group("g")
    assert group is not None and group.subscriptions["T"].expression == "A||B"
    register(table, "a", subscription("T", 3, "A"))
    table.connection_lost("a")
    assert table._subscriptions_bytes == 0


def test_few_silent_connections_are_closed_at_a_time() -> None:
    """A silent one is looked at once: thousands were closed in one turn."""
    table = ClientTable()
    for number in range(200):
        table.register_producer(number, client(), "p")
    pieces = [len(found) for found in table.silent_connections(1 << 40, 1)]
    assert sum(pieces) == 200 and max(pieces) <= 64
