"""Who made a topic waits for name servers: for which, and how often for one that hangs."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.registration.registration import Registration
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.transport import TurnOutput
from ledgermq.state.topics import TopicConfig, TopicTable
from tests.unit.broker.registration.rig import REGISTER, names_of

HOSTS = ("10.0.0.8", "10.0.0.9")


class End:
    """The name server's end of a connection."""

    def __init__(self, clock: MemoryReactorClock, host: str) -> None:
        factory: Any = [attempt for attempt in clock.tcpClients if attempt[0] == host][-1][2]
        self.protocol, self.transport = factory.buildProtocol(None), StringTransport()
        self.decoder = FrameDecoder()
        self.protocol.makeConnection(self.transport)

    def told(self) -> list[RemotingCommand]:
        frames = self.decoder.feed(self.transport.value())
        self.transport.clear()
        return [decode(frame) for frame in frames]

    def answer(self, code: int = 0) -> list[RemotingCommand]:
        """Answers what came; returns it."""
        came = self.told()
        for request in came:
            self.protocol.dataReceived(encode(request.response(code, "because")))
        return came

    def lose(self) -> None:
        self.protocol.connectionLost(Failure(ConnectionDone()))


class Place:
    """A leader and two name servers that know all its topics."""

    def __init__(self) -> None:
        self.clock = MemoryReactorClock()
        self.topics = TopicTable(1000)
        self.leadership = Leadership("n0", 1)
        self.registration = Registration(
            load_broker_config(None, {"namesrvAddr": ";".join(f"{host}:9876" for host in HOSTS)}),
            self.leadership,
            self.topics,
            reactor=self.clock,
            output=TurnOutput(self.clock),
            address=lambda: "10.0.0.1:10911",
            ha_address=lambda: "10.0.0.1:10912",
        )
        self.put("First")
        self.leadership.changed("LEADER", 2, "n0")
        self.leadership.serve()
        self.registration.start()
        self.ends = [End(self.clock, host) for host in HOSTS]
        self.settle()

    def put(self, name: str) -> None:
        self.topics.put(TopicConfig(name), 1_700_000_000_000)
        self.registration.topics_changed()

    def make(self, name: str) -> Deferred[None]:
        """Makes a topic as a tool does."""
        self.put(name)
        return self.registration.told()

    def turn(self) -> None:
        self.clock.advance(0)
        self.clock.advance(0)

    def settle(self) -> None:
        for _ in range(10):
            self.turn()
            for end in self.ends:
                end.answer()

    def pass_s(self, seconds: float) -> None:
        for _ in range(round(seconds * 100)):
            self.clock.advance(0.01)


def test_topic_is_made_when_both_name_servers_know_it() -> None:
    place = Place()
    made = place.make("New")
    place.turn()
    first, second = place.ends
    (request,) = first.answer()
    assert (request.code, names_of(request)) == (REGISTER, ["New"])
    place.turn()
    assert not made.called
    second.answer()
    assert made.called


def test_topics_that_are_waited_for_are_told_without_delay() -> None:
    place = Place()
    for number in range(20):
        made = place.make(f"New-{number}")
        place.settle()
        assert made.called
    assert place.clock.seconds() == 0
    # Nobody waits for those that clients make by a send.
    place.put("Sent")
    place.turn()
    assert place.ends[0].told() == []


def test_what_comes_while_an_answer_is_outstanding_waits_for_the_next_one() -> None:
    place = Place()
    early = place.make("Early")
    place.turn()
    late = place.make("Late")
    place.turn()
    for end in place.ends:
        end.answer()
    assert early.called and not late.called
    place.settle()
    assert late.called


def test_name_server_that_hangs_is_waited_for_once_and_for_two_seconds() -> None:
    place = Place()
    alive, hung = place.ends
    made = place.make("New")
    place.turn()
    alive.answer()
    place.pass_s(1.9)
    assert not made.called
    place.pass_s(0.2)
    assert made.called
    assert hung.transport.disconnecting
    hung.lose()
    # It takes connections, but answers nothing.
    place.pass_s(0.2)
    place.ends[1] = End(place.clock, HOSTS[1])
    for number in range(5):
        made = place.make(f"Next-{number}")
        place.turn()
        alive.answer()
        assert made.called
    # Now it does again.
    place.settle()
    made = place.make("Last")
    place.turn()
    alive.answer()
    assert not made.called
    place.settle()
    assert made.called


@pytest.mark.parametrize("how", ["lost", "refused"])
def test_name_server_that_is_lost_or_refuses_ends_the_wait(how: str) -> None:
    place = Place()
    made = place.make("New")
    place.turn()
    place.ends[0].answer()
    if how == "lost":
        place.ends[1].lose()
    else:
        place.ends[1].answer(code=1)
    assert made.called
    # Nor is it waited for until it answers again.
    made = place.make("Next")
    place.turn()
    place.ends[0].answer()
    assert made.called


def test_without_a_change_nobody_waits() -> None:
    assert Place().registration.told().called
