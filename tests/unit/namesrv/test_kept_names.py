"""A broker name whose broker has no connection stays with its account, for a while."""

from __future__ import annotations

import pytest

from ledgermq.namesrv.errors import HeldError
from tests.unit.namesrv.test_route_table import (
    ANYBODY,
    MASTER,
    OTHER,
    REPLICA,
    SHOP,
    make_table,
    told,
)


def test_a_name_stays_with_its_account_while_its_broker_connects_anew() -> None:
    """Silent for no longer than a broker may be: two accounts may both have the right to a name."""
    table = make_table()
    table.register(told(), SHOP, owner=1, now_ms=500)
    table.owner_lost(1)
    assert table.topics() == [] and table.clusters().broker_addr_table == {}
    with pytest.raises(HeldError, match="broker-a is held: account shop registered it"):
        table.register(told(REPLICA), OTHER, owner=2, now_ms=1500)
    table.register(told(), SHOP, owner=3, now_ms=1500)
    table.owner_lost(3)
    table.register(told(REPLICA), OTHER, owner=2, now_ms=2501)
    assert table.route("TopicA").broker_datas[0].broker_addrs == {0: REPLICA}
    table.owner_lost(2)
    # Who unregisters has left, also when that comes on a new connection.
    table.unregister(REPLICA, "broker-a", SHOP, owner=4)
    with pytest.raises(HeldError):
        table.register(told(), SHOP, owner=3, now_ms=2501)
    table.unregister(REPLICA, "broker-a", OTHER, owner=4)
    table.register(told(), SHOP, owner=3, now_ms=2501)
    table.unregister(MASTER, "broker-a", SHOP, owner=3)
    table.register(told(REPLICA), OTHER, owner=2, now_ms=2501)
    table.unregister(REPLICA, "broker-a", OTHER, owner=2)
    table.register(told(), SHOP, owner=3, now_ms=2501)


def test_names_that_are_kept_for_who_comes_back_are_few() -> None:
    table = make_table(brokers_max=100, brokers_per_registrant_max=3)
    for number in range(10):
        table.register(told(broker_name=f"b-{number}"), SHOP, owner=1)
        table.owner_lost(1)
    # The first ones are kept, so that nobody lets go of a name by more of them.
    table.register(told(broker_name="b-9"), OTHER, owner=2)
    with pytest.raises(HeldError):
        table.register(told(broker_name="b-0"), OTHER, owner=2)
    # Without accounts the last word counts, at once.
    table.register(told(broker_name="free"), ANYBODY, owner=3)
    table.owner_lost(3)
    assert len(table._kept_names) == 3
    # One that was kept too long is another account's, and is kept for that one.
    table.register(told(broker_name="b-0"), OTHER, owner=2, now_ms=4000)
    table.owner_lost(2)
    with pytest.raises(HeldError, match="account other"):
        table.register(told(broker_name="b-0"), SHOP, owner=1, now_ms=4500)
    table.expire(9000)
    assert not table._kept_names and not table._kept_names._counts
