"""Who holds a client id, and whose turn it is to be asked about a half message."""

import pytest

from ledgermq.broker.clients.client_ids import ClientIds
from ledgermq.broker.clients.client_table import Client, ClientTable
from ledgermq.broker.clients.producer_turns import ProducerTurns
from ledgermq.state.errors import AccessDeniedError


def producer(account: str | None, client_id: str = "c") -> Client:
    return Client(client_id, 0, 399, "10.0.0.9:5555", 0, account)


def test_id_belongs_to_the_account_that_came_first() -> None:
    ids = ClientIds()
    ids.hold("a", "c", "shop")
    ids.hold("b", "c", "shop")
    with pytest.raises(AccessDeniedError, match="client id c lives on a connection of another"):
        ids.hold("x", "c", "thief")
    ids.forget("a")
    with pytest.raises(AccessDeniedError):
        ids.check("c", "thief")
    ids.forget("b")
    ids.hold("x", "c", "thief")


def test_address_that_may_do_everything_takes_part_and_is_protected() -> None:
    ids = ClientIds()
    ids.hold("a", "c", "shop")
    ids.hold("tool", "c", None)
    # Who held it goes on.
    ids.hold("a", "c", "shop")
    ids.check("c", "shop")
    ids.forget("a")
    with pytest.raises(AccessDeniedError):
        ids.hold("x", "c", "thief")
    ids.hold("other", "c", None)


def test_connection_that_signs_as_another_account_takes_its_id_along() -> None:
    ids = ClientIds()
    ids.hold("a", "c", None)
    with pytest.raises(AccessDeniedError):
        ids.hold("a", "c", "shop")
    ids.forget("a")
    ids.hold("a", "c", "shop")
    ids.hold("a", "c", None)
    with pytest.raises(AccessDeniedError):
        ids.check("c", "shop")


def test_connection_holds_a_bounded_number_of_ids() -> None:
    ids = ClientIds()
    for number in range(1000):
        ids.hold("a", f"c{number}", "thief")
    assert len(ids._holders) == 64
    ids.check("c0", "shop")
    ids.forget("a")
    assert not ids._holders and not ids._ids_of


def test_ids_are_free_when_a_client_is_in_no_group() -> None:
    table = ClientTable()
    table.register_producer("a", producer("shop"), "p")
    table.register_producer("a", producer("shop"), "q")
    table.unregister_producer("a", "p")
    with pytest.raises(AccessDeniedError):
        table.producer_ids.check("c", "thief")
    table.unregister_producer("a", "q")
    table.producer_ids.check("c", "thief")


def join(table: ClientTable, connection: str, account: str | None, group: str) -> None:
    """Registers client c as a consumer."""
    table.register_consumer(
        connection,
        producer(account),
        group,
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscriptions=[],
    )


def test_a_member_is_not_kept_out_by_who_took_its_id_elsewhere() -> None:
    """Whoever may not read for a group cannot take the ids of its members ahead of them."""
    table = ClientTable()
    table.register_producer("x", producer("thief"), "p")
    join(table, "x", "thief", "of the thief")
    join(table, "a", "shop", "g")
    with pytest.raises(AccessDeniedError):
        table.register_producer("a", producer("shop"), "q")
    # Of two that may read for a group, the first keeps its id.
    with pytest.raises(AccessDeniedError):
        join(table, "x", "thief", "g")
    group = table.find_group("g")
    assert group is not None and list(group.members) == ["a"]
    # Nothing is left of who was refused.
    assert table.memberships_count == 3
    table.connection_lost("x")
    assert table.memberships_count == 1 and not table.has_groups("x")
    table.unregister_consumer("a", "g")
    join(table, "x", "thief", "g")


def test_turns_go_round_among_those_that_are_meant() -> None:
    turns = ProducerTurns()
    for number in range(3):
        turns.add("g", "shop", f"s{number}")
        turns.add("g", "thief", f"t{number}")
    asked = [turns.next("g", lambda account: account == "shop") for _ in range(6)]
    assert asked == ["s0", "s1", "s2"] * 2
    assert {turns.next("g", lambda account: True) for _ in range(6)} >= {"s0", "t0"}
    assert turns.next("g", lambda account: account == "nobody") is None
    for number in range(3):
        turns.remove("g", "shop", f"s{number}")
    assert turns.next("g", lambda account: account == "shop") is None
    assert turns.next("unknown", lambda account: True) is None


def test_producer_that_signs_as_another_account_stands_in_its_line() -> None:
    table = ClientTable()
    table.register_producer("a", producer("shop"), "p")
    table.register_producer("a", producer(None), "p")
    assert table.next_producer("p", lambda account: account == "shop") is None
    assert table.next_producer("p", lambda account: account is None) == "a"
    table.connection_lost("a")
    assert table.next_producer("p", lambda account: True) is None
    assert not table._turns._groups
