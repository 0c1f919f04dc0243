"""Who waits until name servers know a topic: by which he goes on, and for how long."""

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from ledgermq.broker.registration.told_waits import WAIT_S, ToldWaits
from ledgermq.protocol.codes import RequestCode
from ledgermq.state.topics import TopicConfig
from tests.unit.broker.registration.test_account import Broker


class Waits:
    """A line, and what name servers know."""

    def __init__(self, known: int | None) -> None:
        self.clock = Clock()
        self.known = known
        self.line = ToldWaits(self.clock, lambda: self.known)

    def learn(self, known: int | None) -> None:
        self.known = known
        self.line.look()


def went_on(*waits: Deferred[None]) -> list[bool]:
    return [wait.called for wait in waits]


def test_who_asks_for_what_is_known_or_of_nobody_does_not_wait() -> None:
    assert Waits(5).line.wait(5).called
    assert Waits(None).line.wait(5).called


def test_each_goes_on_when_his_change_is_known() -> None:
    waits = Waits(0)
    first, second, third = (waits.line.wait(number) for number in (1, 2, 3))
    waits.learn(2)
    assert went_on(first, second, third) == [True, True, False]
    waits.learn(1)
    assert not third.called
    waits.learn(3)
    assert third.called and not waits.clock.getDelayedCalls()


def test_all_go_on_when_nobody_is_waited_for_any_more() -> None:
    waits = Waits(0)
    first, second = waits.line.wait(1), waits.line.wait(2)
    waits.learn(None)
    assert went_on(first, second) == [True, True]


def test_nobody_waits_for_a_name_server_longer_than_he_may() -> None:
    waits = Waits(0)
    first = waits.line.wait(1)
    waits.clock.advance(WAIT_S / 2)
    second = waits.line.wait(2)
    waits.clock.advance(WAIT_S / 2)
    assert went_on(first, second) == [True, False]
    waits.clock.advance(WAIT_S / 2)
    assert second.called and not waits.clock.getDelayedCalls()


def test_an_end_lets_all_go_on() -> None:
    waits = Waits(0)
    first = waits.line.wait(1)
    waits.line.stop()
    assert first.called and not waits.clock.getDelayedCalls()


def test_a_changed_topic_is_told_at_once_and_waited_for() -> None:
    broker = Broker(None)
    broker.told()
    broker.clock.advance(10.0)
    broker.told()
    topics = broker.registration._topics
    for name in ("orders", "invoices"):
        topics.put(TopicConfig(name, 4, 4), 1_700_000_000_001)
        broker.registration.topics_changed()
        told = broker.registration.told()
        assert not told.called
        (request, *_) = broker.told()
        assert request.code == RequestCode.REGISTER_BROKER and name.encode() in request.body
        assert told.called


def test_a_name_server_that_is_lost_is_not_waited_for() -> None:
    broker = Broker(None)
    broker.told()
    broker.registration._topics.put(TopicConfig("orders", 4, 4), 1_700_000_000_001)
    told = broker.registration.told()
    assert not told.called
    broker.protocol.connectionLost(Failure(ConnectionDone()))
    broker.clock.advance(0)
    assert told.called


def test_what_one_turn_changes_is_told_together() -> None:
    broker = Broker(None)
    broker.told()
    waits = []
    for name in ("orders", "invoices"):
        broker.registration._topics.put(TopicConfig(name, 4, 4), 1_700_000_000_001)
        waits.append(broker.registration.told())
    (request,) = broker.told()
    assert b"orders" in request.body and b"invoices" in request.body
    assert went_on(*waits) == [True, True]


def test_who_leads_no_more_waits_for_nobody() -> None:
    broker = Broker(None)
    broker.told()
    broker.registration._topics.put(TopicConfig("orders", 4, 4), 1_700_000_000_001)
    told = broker.registration.told()
    assert not told.called
    broker.leadership.changed("FOLLOWER", 8, "n1")
    broker.registration.register()
    assert told.called
