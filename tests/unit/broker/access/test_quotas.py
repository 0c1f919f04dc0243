"""Quotas of accounts: reads are held back first, then requests are refused with the reason."""

from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.testing import MemoryReactorClock

from ledgermq.broker.access.quota import Quota
from ledgermq.broker.access.quotas import Quotas
from ledgermq.broker.access.rules import parse_rules
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand, encode
from ledgermq.protocol.rate_limit import Allowance
from ledgermq.protocol.transport import CommandProtocol, TurnShares
from ledgermq.state.errors import AccessRulesError, SystemBusyError
from tests.unit.protocol.wires import Recorder, Wire


class Holding:
    """A connection that notes how long it was held."""

    def __init__(self) -> None:
        self.is_open = True
        self.held_s: list[float] = []

    def hold(self, seconds: float) -> None:
        self.held_s.append(seconds)


class Bench:
    """Quotas on a clock of its own."""

    def __init__(self, messages_s: int = 0, bytes_s: int = 0, connections: int = 0) -> None:
        self.now_ms = 5000.0
        config: Any = SimpleNamespace(
            account_messages_s=messages_s,
            account_bytes_s=bytes_s,
            account_connections=connections,
        )
        self.quotas = Quotas(config, lambda: self.now_ms)

    def ask(
        self,
        connection: Any,
        count: int = 1,
        *,
        account: str = "alice",
        own: Quota | None = None,
        body: bytes = b"",
        code: int = 310,
    ) -> int:
        """Returns how many of so many requests are let in."""
        let_in = 0
        for _ in range(count):
            try:
                command = RemotingCommand(code=code, body=body)
                self.quotas.charge(connection, account, own or Quota(), command)
            except SystemBusyError:
                continue
            let_in += 1
        return let_in


def test_an_allowance_lends_and_is_paid_back() -> None:
    allowance = Allowance(100)
    assert allowance.use(100, 1.0) == 0
    assert allowance.use(50, 1.0) == pytest.approx(0.5)
    assert allowance.debt_s(1.25) == pytest.approx(0.25)
    # A clock that goes back adds nothing.
    assert allowance.debt_s(0.5) == pytest.approx(0.25)
    assert allowance.debt_s(9.0) == 0
    assert allowance.use(101, 9.0) == pytest.approx(0.01)


def test_without_quotas_nothing_is_held_or_refused() -> None:
    bench, connection = Bench(), Holding()
    assert bench.ask(connection, 10_000, body=bytes(10_000)) == 10_000
    assert not connection.held_s


def test_reads_are_held_back_before_anything_is_refused() -> None:
    bench, connection = Bench(messages_s=100), Holding()
    assert bench.ask(connection, 100) == 100
    assert not connection.held_s
    assert bench.ask(connection) == 1
    assert connection.held_s == [pytest.approx(0.01)]
    # A client that is held as it is told gets its hundred a second, and no refusal.
    taken = 0
    begun_ms = bench.now_ms
    while bench.now_ms < begun_ms + 10_000:
        connection.held_s.clear()
        taken += bench.ask(connection)
        bench.now_ms += 1000 * connection.held_s[0] if connection.held_s else 0
    assert 950 <= taken <= 1050 and bench.quotas.refused_count == 0


def test_what_a_request_costs_besides_its_own_bytes_counts() -> None:
    """Sent back by 200 bytes, a message of 4 MiB was stored twice and 60 bytes were counted."""
    bench = Bench(bytes_s=1000)
    connection: Any = Holding()
    connection.account = "alice"
    # Of somebody who has no quota, or asked for nothing yet.
    bench.quotas.use_bytes(connection, 9000)
    assert not connection.held_s
    assert bench.ask(connection) == 1
    bench.quotas.use_bytes(connection, 1500)
    assert connection.held_s == [pytest.approx(0.5)]
    bench.quotas.use_bytes(connection, 9000)
    assert bench.ask(connection) == 0
    assert bench.ask(Holding(), account="bob") == 1


def test_quota_that_is_taken_away_holds_nobody() -> None:
    bench = Bench()
    connection: Any = Holding()
    connection.account = "alice"
    bench.ask(connection, own=Quota(bytes_s=1000))
    bench.quotas.use_bytes(connection, 9000)
    assert connection.held_s.pop()
    bench.ask(connection)
    bench.quotas.use_bytes(connection, 9000)
    assert not connection.held_s


def test_what_goes_on_through_other_connections_is_refused_with_the_reason() -> None:
    bench = Bench(messages_s=100)
    connections = [Holding() for _ in range(1000)]
    assert sum(bench.ask(connection) for connection in connections) == 301
    assert all(connection.held_s[0] <= 1.0 for connection in connections if connection.held_s)
    connection: Any = connections[0]
    with pytest.raises(SystemBusyError, match=r"alice .* 100 messages a second \(maxMessages"):
        bench.quotas.charge(connection, "alice", Quota(), RemotingCommand(code=310))
    # Others are not touched, and time heals.
    assert bench.ask(Holding(), account="bob") == 1
    bench.now_ms += 1000
    assert bench.ask(Holding()) == 1


def test_bytes_and_messages_of_a_batch_count() -> None:
    bench, connection = Bench(bytes_s=1000), Holding()
    bench.ask(connection, body=bytes(1500))
    assert connection.held_s == [pytest.approx(0.5)]
    bench, connection = Bench(messages_s=10), Holding()
    message = (8).to_bytes(4) + bytes(4)
    bench.ask(connection, body=message * 15, code=int(RequestCode.SEND_BATCH_MESSAGE))
    assert connection.held_s == [pytest.approx(0.5)]
    # Lengths of zero, or beyond the body, end.
    bench.ask(connection, body=bytes(40), code=int(RequestCode.SEND_BATCH_MESSAGE))
    bench.ask(connection, body=b"\xff" * 40, code=int(RequestCode.SEND_BATCH_MESSAGE))


def test_an_account_has_so_many_open_connections() -> None:
    bench = Bench(connections=3)
    connections = [Holding() for _ in range(4)]
    assert [bench.ask(connection, 2) for connection in connections] == [2, 2, 2, 0]
    assert bench.ask(Holding(), account="bob") == 1
    connections[1].is_open = False
    assert [bench.ask(connections[index]) for index in (3, 0, 2)] == [1, 1, 1]


def test_the_rules_of_an_account_go_before_the_defaults() -> None:
    bench = Bench(messages_s=10)
    unlimited, stricter = Holding(), Holding()
    assert bench.ask(unlimited, 1000, own=Quota(messages_s=0)) == 1000
    bench.ask(stricter, 2, account="bob", own=Quota(messages_s=1))
    assert not unlimited.held_s and stricter.held_s == [pytest.approx(1.0)]


def test_members_of_an_account_in_the_file() -> None:
    entry = {"accessKey": "alice-app", "secretKey": "secret-of-alice"}
    rules = parse_rules({"accounts": [{**entry, "maxBytesPerSecond": 5, "maxConnections": 0}]})
    assert rules.accounts["alice-app"].quota == Quota(None, 5, 0)
    assert rules.to_document()["accounts"][0]["maxBytesPerSecond"] == 5
    for value in (-1, 2**53 + 1, "many", True, 1.5):
        with pytest.raises(AccessRulesError, match="maxMessagesPerSecond is .*allowed are 0 to"):
            parse_rules({"accounts": [{**entry, "maxMessagesPerSecond": value}]})


class HoldsOnce(Recorder):
    """Holds the connection at its first request."""

    def commands_received(
        self, connection: CommandProtocol, commands: list[RemotingCommand]
    ) -> int:
        super().commands_received(connection, commands[:1])
        if len(self.received) == 1:
            connection.hold(0.5)
        return 1


def test_a_held_connection_is_not_read_from_and_goes_on_where_it_was() -> None:
    reactor, receiver = MemoryReactorClock(), HoldsOnce()
    protocol = CommandProtocol(reactor, receiver, shares=TurnShares(reactor))
    wire = Wire(reactor, protocol)
    protocol.dataReceived(b"".join(encode(RemotingCommand(code=10)) for _ in range(5)))
    assert len(receiver.received) == 1 and not wire.is_reading
    reactor.advance(0.4)
    assert len(receiver.received) == 1
    reactor.advance(0.2)
    reactor.advance(0)
    assert len(receiver.received) == 5 and wire.is_reading
    assert not reactor.getDelayedCalls()
