"""Signs of life on the connections that members have made to this one."""

from ledgermq.dledger.replica import wire_binary
from ledgermq.protocol.command import RemotingCommand, encode
from tests.unit.dledger.replica.test_listener import Rig

PING = wire_binary.ping_frame(7)


def test_ping_is_answered_on_its_own_connection_and_reaches_no_member() -> None:
    rig = Rig()
    old, new = rig.connect(), rig.connect()
    old.greet()
    new.greet()
    old.send(PING)
    (answer,) = old.answers()
    assert answer.code == 52014
    assert wire_binary.decode_ping_answer(answer.body) == (7, rig.member.wall_ms)
    assert new.answers() == []
    assert rig.member.messages == []


def test_ping_before_the_greeting_closes_its_connection() -> None:
    caller = Rig().connect()
    caller.send(PING)
    assert caller.answers() == []
    assert caller.transport.disconnecting


def test_connection_of_a_member_that_pings_no_more_is_closed() -> None:
    rig = Rig()
    caller, tool = rig.connect(), rig.connect()
    caller.greet()
    tool.ask_json(51004, remoteId="n9")
    for _ in range(60):
        rig.clock.advance(0.5)
        caller.send(PING)
        caller.answers()
        caller.connection.check(rig.clock.seconds())
        assert not caller.transport.disconnecting
    rig.clock.advance(14.9)
    caller.connection.check(rig.clock.seconds())
    assert not caller.transport.disconnecting
    rig.clock.advance(0.2)
    caller.connection.check(rig.clock.seconds())
    assert caller.transport.disconnecting
    # Whoever is no such member may be silent for as long as before.
    tool.connection.check(rig.clock.seconds())
    assert not tool.transport.disconnecting


def test_ping_of_another_size_closes_its_connection() -> None:
    rig = Rig()
    caller = rig.connect()
    caller.greet()
    caller.send(encode(RemotingCommand(code=52013, flag=2, body=b"short")))
    assert caller.transport.disconnecting
