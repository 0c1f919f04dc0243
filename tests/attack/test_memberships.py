"""Groups without end of one account leave places for the clients of others."""

from __future__ import annotations

import pytest

from ledgermq.broker.clients import client_table as module
from ledgermq.broker.clients.client_table import Client, ClientTable
from ledgermq.state.errors import SystemBusyError

GROUPS = 40
MEMBERSHIPS = 80


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> ClientTable:
    monkeypatch.setattr(module, "_GROUPS_MAX", GROUPS)
    monkeypatch.setattr(module, "_MEMBERSHIPS_MAX", MEMBERSHIPS)
    return ClientTable()


def client(account: str | None) -> Client:
    return Client(f"of-{account}", 0, 399, "10.0.0.9:1", 0, account)


def fill(table: ClientTable, account: str | None, groups: int, connections: int) -> int:
    """Registers as a producer of as many groups as it may; returns of how many."""
    count = 0
    for number in range(groups):
        for connection in range(connections):
            try:
                name = f"made-up-{number}"
                table.register_producer(f"{account}-{connection}", client(account), name)
            except SystemBusyError:
                continue
            count += 1
    return count


def join(table: ClientTable, account: str, group: str) -> None:
    table.register_consumer(
        f"{account}-own",
        client(account),
        group,
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscriptions=(),
    )


@pytest.mark.parametrize(("groups", "connections"), [(200, 1), (10, 200)])
def test_one_account_does_not_take_all_places(
    table: ClientTable, groups: int, connections: int
) -> None:
    assert fill(table, "thief-app", groups, connections) <= MEMBERSHIPS // 2
    table.register_producer("shop", client("shop-app"), "order-senders")
    join(table, "shop-app", "order-readers")
    # What is there goes on.
    table.register_producer("thief-app-0", client("thief-app"), "made-up-0")


def test_what_has_gone_counts_no_more(table: ClientTable) -> None:
    for _ in range(3):
        assert fill(table, "thief-app", 20, 1) == 20
        table.connection_lost("thief-app-0")
    assert table.memberships_count == 0
    join(table, "thief-app", "shared-readers")
    join(table, "thief-app", "shared-readers")
    assert table.memberships_count == 1


def test_without_accounts_the_whole_table_is_for_all(table: ClientTable) -> None:
    assert fill(table, None, GROUPS, 1) == GROUPS
