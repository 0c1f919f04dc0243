"""How fast topics and groups come into being: for an address, and for an account."""

from __future__ import annotations

from typing import Any

import pytest

from ledgermq.broker.clients.creation_rates import CreationRates
from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.state.errors import SystemBusyError
from tests.unit.broker.parts import ListConnection, Parts


class Bench:
    def __init__(self, **settings: str) -> None:
        self.clock_ms = 5_000_000.0
        self.rates = CreationRates(load_broker_config(None, settings), lambda: self.clock_ms)

    def groups(self, maker: Any, count: int) -> int:
        """How many of so many groups were let through."""
        for number in range(count):
            try:
                self.rates.take_group(maker, f"g{number}")
            except SystemBusyError:
                return number
        return count


def connection(address: bytes = b"\x0a\x00\x00\x09", account: str | None = None) -> Any:
    made = ListConnection()
    made.context, made.account = (address, 1), account
    return made


def test_a_fleet_behind_one_address_starts_at_once() -> None:
    """2,000 clients, each with a group and a topic of its own."""
    bench = Bench()
    for number in range(2000):
        bench.rates.take_group(connection(), f"g{number}")
        bench.rates.take_topic(connection(), f"t{number}")


def test_an_address_has_a_burst_and_then_so_many_a_second() -> None:
    bench = Bench(maxNewGroupsPerAddress="2", maxNewGroupsAtOnce="10")
    assert bench.groups(connection(), 20) == 10
    bench.clock_ms += 1000
    assert bench.groups(connection(), 20) == 2
    # Another address has its own, and topics are counted apart.
    assert bench.groups(connection(b"\x0a\x00\x00\x0a"), 20) == 10
    bench.rates.take_topic(connection(), "t")


def test_an_account_is_counted_over_all_its_addresses() -> None:
    bench = Bench(maxNewGroupsPerAccount="1", maxNewGroupsAtOnce="3")
    taken = [bench.groups(connection(bytes((10, 0, 0, n)), "team"), 2) for n in range(3)]
    assert taken == [2, 1, 0]
    message = r"account team creates more than 1 groups a second \(key maxNewGroupsPerAccount\)"
    with pytest.raises(SystemBusyError, match=message + r".* 3 at once \(key maxNewGroupsAtOnce"):
        bench.rates.take_group(connection(account="team"), "g")
    assert bench.groups(connection(account="others"), 1) == 1


def test_addresses_of_one_ipv6_network_are_one() -> None:
    bench = Bench(maxNewGroupsPerAddress="1", maxNewGroupsAtOnce="4")
    network = b"\x20\x01\x0d\xb8\x00\x00\x00\x01"
    one, other = network + b"\x00" * 8, network + b"\xff" * 8
    assert bench.groups(connection(one), 3) == 3 and bench.groups(connection(other), 3) == 1


def test_what_is_there_or_on_its_way_costs_nothing() -> None:
    parts = Parts(maxNewGroupsPerAddress="1", maxNewGroupsAtOnce="2").lead(is_prompt=False)
    for _ in range(5):
        parts.state.group_for_use("g", connection())
        parts.state.topic_for_group("%RETRY%g", 1, 0, connection())
    parts.state.group_for_use("h", connection())
    with pytest.raises(SystemBusyError, match="maxNewGroupsPerAddress"):
        parts.state.group_for_use("i", connection())
    # The broker itself has no maker.
    parts.state.group_for_use("i")


def test_retry_topics_of_groups_that_stand_in_no_table_are_counted() -> None:
    settings = {"enableLmq": "true", "maxNewTopicsPerAddress": "1", "maxNewTopicsAtOnce": "2"}
    parts = Parts(**settings).lead(is_prompt=False)
    for number in range(2):
        parts.state.topic_for_group(f"%RETRY%%LMQ%{number}", 1, 0, connection())
    with pytest.raises(SystemBusyError, match="maxNewTopicsPerAddress"):
        parts.state.topic_for_group("%RETRY%%LMQ%2", 1, 0, connection())
