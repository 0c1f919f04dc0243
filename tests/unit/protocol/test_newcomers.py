"""Connections of which nobody knows yet whose they are."""

import pytest

from tests.unit.protocol.slow_port import Port, chunk


@pytest.mark.parametrize("address", ["10.0.0.9", "2001:db8::{:x}"])
def test_newcomers_of_an_address_are_judged_by_what_those_before_them_asked_for_first(
    address: str,
) -> None:
    """Each asks once, for much, and nobody knows yet for whom."""
    port = Port(0.004)
    modest = port.wire()
    modest.protocol.account = "modest"
    port.receiver.seconds_of[modest.protocol] = 0.00002
    asked = late = 0
    newcomers = []
    for _ in range(40):
        some = [port.wire() for _ in range(5)]
        newcomers += some
        for number, wire in enumerate(some, len(newcomers)):
            # Of IPv6, each comes from another address of one network.
            wire.protocol.peer_host = address.format(number)
            wire.protocol.account = "crowd"
            wire.protocol.dataReceived(chunk(1))
        if len(port.receiver.opaques(modest.protocol)) == asked:
            modest.protocol.dataReceived(chunk(1, first=asked))
            asked += 1
            late += len(port.receiver.opaques(modest.protocol)) < asked
        worked = len(port.receiver.worked)
        port.turn()
        # At first nobody is known; then one of them in a turn.
        assert len(newcomers) < 20 or len(port.receiver.worked) - worked <= 1
    assert asked >= 38 and late <= 3
    for _ in range(600):
        port.turn()
    assert all(port.receiver.opaques(wire.protocol) for wire in newcomers)


def test_newcomers_that_come_at_one_moment_stand_behind_who_is_known() -> None:
    """What each of them asks for first is little: nobody knew that it is much together."""
    port = Port(0.0006)
    known = port.wire()
    known.protocol.account = "modest"
    port.receiver.seconds_of[known.protocol] = 0.00002
    known.protocol.dataReceived(chunk(1))
    port.turn()
    newcomers = [port.wire() for _ in range(60)]
    for wire in newcomers:
        wire.protocol.account = "crowd"
        wire.protocol.dataReceived(chunk(1))
    turns_s = []
    for asked in range(1, 40):
        known.protocol.dataReceived(chunk(1, first=asked))
        begun_s = port.reactor.seconds()
        port.turn()
        turns_s.append(port.reactor.seconds() - begun_s)
        assert len(port.receiver.opaques(known.protocol)) == asked + 1
    # As those together who ask for much, and one request more.
    assert max(turns_s) < 0.002 + 0.0006 + 0.0001
    assert all(len(port.receiver.opaques(wire.protocol)) == 1 for wire in newcomers)
