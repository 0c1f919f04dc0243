"""When a name server is told of this broker, and how often it is tried while it does not answer."""

from typing import Any

import pytest
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.registration.registration import Registration
from ledgermq.protocol.command import decode, encode
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.transport import TurnOutput
from ledgermq.state.topics import TopicTable
from tests.unit.broker.registration.rig import REGISTER, Rig, id_of, names_of


def test_each_new_connection_begins_with_the_registration_of_the_moment() -> None:
    rig = Rig()
    for broker_id in (1, 0):
        if broker_id == 0:
            rig.lead()
        rig.accept()
        (request,) = rig.told()
        assert (request.code, id_of(request)) == (REGISTER, str(broker_id))
        rig.answer(request)
        assert (rig.server.is_registered, rig.server.registered_id) == (True, broker_id)
        rig.lose()
        rig.pass_s(0.1)


def test_registration_that_is_not_answered_is_made_on_a_new_connection_at_once() -> None:
    rig = Rig()
    rig.accept()
    rig.answer(rig.told()[0])
    # The name server vanishes; then this broker becomes the leader.
    rig.lead()
    rig.server.register()
    rig.pass_s(2.1)
    assert rig.transport.disconnecting
    rig.lose()
    rig.pass_s(0.1)
    rig.accept()
    (request,) = rig.told()
    assert id_of(request) == "0"
    rig.answer(request)
    assert (rig.server.is_registered, rig.server.registered_id) == (True, 0)


def test_new_role_is_told_though_a_former_registration_is_not_answered_yet() -> None:
    rig = Rig()
    rig.accept()
    first = rig.told()[0]
    rig.lead()
    rig.server.register()
    (second,) = rig.told()
    assert id_of(second) == "0"
    rig.answer(first)
    rig.answer(second)
    assert rig.server.registered_id == 0
    # The name server may have served the first one last.
    (third,) = rig.told()
    assert (id_of(third), names_of(third)) == ("0", names_of(second))


def test_name_server_that_was_away_for_a_minute_is_told_within_a_second() -> None:
    rig = Rig()
    rig.lead()
    rig.pass_s(60)
    attempts_count = len(rig.clock.tcpClients)
    assert attempts_count >= 55
    rig.pass_s(1.05)
    assert len(rig.clock.tcpClients) > attempts_count
    rig.accept()
    assert [id_of(request) for request in rig.told()] == ["0"]


def test_one_that_refuses_connections_is_tried_each_second() -> None:
    rig = Rig()
    for _ in range(60):
        factory: Any = rig.clock.tcpClients[-1][2]
        attempts_count = len(rig.clock.tcpClients)
        factory.clientConnectionFailed(None, Failure(ConnectionRefusedError()))
        rig.pass_s(1.01)
        assert len(rig.clock.tcpClients) > attempts_count


def test_slow_name_server_gets_more_time_each_time_but_no_more_than_configured() -> None:
    rig = Rig()
    waits = []
    for _ in range(4):
        rig.accept()
        waits.append(rig.patience_s())
    assert waits == pytest.approx([2.0, 4.0, 6.0, 6.0], abs=0.05)
    rig.accept()
    rig.answer(rig.told()[0])
    rig.server.register()
    assert rig.patience_s() == pytest.approx(2.0, abs=0.05)
    short = Rig(answer_timeout_ms=500)
    short.accept()
    assert short.patience_s() == pytest.approx(0.5, abs=0.05)


def test_refusal_is_asked_about_again_after_a_growing_wait() -> None:
    rig = Rig()
    rig.accept()
    (request,) = rig.told()
    for wait_s in (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0):
        rig.answer(request, code=1)
        assert rig.server.is_registered is False
        rig.pass_s(wait_s - 0.1)
        assert rig.told() == []
        rig.pass_s(0.2)
        (request,) = rig.told()
    # A change does not wait for that.
    rig.answer(request, code=1)
    rig.server.register()
    (request,) = rig.told()
    rig.answer(request)
    assert rig.server.is_registered is True
    rig.pass_s(60)
    assert rig.told() == []


def test_broker_without_a_role_is_told_to_nobody() -> None:
    rig = Rig()
    rig.leadership.role = "UNKNOWN"
    rig.accept()
    assert rig.told() == []
    rig.follow()
    rig.server.register()
    assert len(rig.told()) == 1


@pytest.mark.parametrize("code", [0, 1])
def test_nothing_is_told_or_left_after_the_end(code: int) -> None:
    rig = Rig()
    rig.accept()
    rig.answer(rig.told()[0], code)
    rig.server.leave()
    rig.server.register()
    rig.pass_s(5)
    assert rig.told() == []
    rig.server.stop()
    rig.lose()
    rig.server.client.output.stop()
    assert rig.clock.getDelayedCalls() == []


def test_name_servers_do_not_wait_for_each_other() -> None:
    clock = MemoryReactorClock()
    config = load_broker_config(None, {"namesrvAddr": "10.0.0.8:9876;10.0.0.9:9876"})
    leadership = Leadership("n0", 1)
    leadership.changed("FOLLOWER", 1, "n1")
    registration = Registration(
        config,
        leadership,
        TopicTable(10),
        reactor=clock,
        output=TurnOutput(clock),
        address=lambda: "10.0.0.1:10911",
        ha_address=lambda: "10.0.0.1:10912",
    )
    registration.start()
    # Nothing comes back from the first one.
    for _ in range(3000):
        clock.advance(0.01)
    attempts = [attempt for attempt in clock.tcpClients if attempt[0] == "10.0.0.9"]
    factory: Any = attempts[-1][2]
    protocol, transport = factory.buildProtocol(None), StringTransport()
    protocol.makeConnection(transport)
    clock.advance(0)
    request = decode(FrameDecoder().feed(transport.value())[0])
    assert (request.code, request.ext_fields["brokerId"]) == (REGISTER, "1")  # type: ignore[index]
    protocol.dataReceived(encode(request.response(0)))
    first, second = registration.servers.values()
    assert (first.is_registered, second.is_registered) == (None, True)
