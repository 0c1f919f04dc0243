"""Times of requests: by code, what is slow, and how often that is told."""

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import formatEvent, globalLogPublisher

from ledgermq.broker.dispatch import Dispatcher
from ledgermq.broker.request_times import RequestTimes, name_of
from ledgermq.logs.repeats import WRITTEN_MAX, Repeats
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.state.errors import SystemBusyError, TopicNotFoundError
from tests.unit.broker.parts import ListConnection, Parts
from tests.unit.broker.sends.test_proposals import message

PULL, HEART_BEAT, LOCK = (
    int(RequestCode.PULL_MESSAGE), int(RequestCode.HEART_BEAT), int(RequestCode.LOCK_BATCH_MQ),
)  # fmt: skip


class Desk:
    """A dispatcher whose processors take as long as they are told."""

    def __init__(self, slow_ms: int = 500) -> None:
        self.now_s = 100.0
        self.takes_s = 0.0
        self.later: Deferred[Any] = Deferred()
        self.times = RequestTimes(slow_ms, lambda: self.now_s)
        self.connection = ListConnection()
        self.dispatcher = Dispatcher(
            send_fields={}, on_connection_lost=lambda connection: None, times=self.times
        )
        self.dispatcher.install(
            {PULL: self.work, HEART_BEAT: self.refuse, LOCK: self.wait, 310: self.work}
        )

    def work(self, connection: Any, command: RemotingCommand) -> None:
        self.now_s += self.takes_s

    def refuse(self, connection: Any, command: RemotingCommand) -> None:
        self.work(connection, command)
        raise TopicNotFoundError("no such topic")

    def wait(self, connection: Any, command: RemotingCommand) -> Deferred[Any]:
        self.work(connection, command)
        return self.later

    def ask(self, *codes: int) -> None:
        commands = [RemotingCommand(code=code, opaque=1) for code in codes]
        self.dispatcher.commands_received(self.connection, commands)  # type: ignore[arg-type]

    def counts(self) -> dict[int, tuple[int, float]]:
        return {
            code: (histogram.count, round(histogram.total, 6))
            for code, histogram in self.times.by_code.items()
        }


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What is logged as slow, joined as the program joins it."""
    found: list[str] = []
    joined = Repeats(lambda event: found.append(formatEvent(event)), lambda: 0.0)

    def keep(event: Any) -> None:
        if "repeats_as" in event:
            joined(event)

    globalLogPublisher.addObserver(keep)
    yield found
    globalLogPublisher.removeObserver(keep)


def test_each_code_has_its_time_and_a_run_is_measured_together() -> None:
    desk = Desk()
    desk.takes_s = 0.25
    desk.ask(PULL, PULL, HEART_BEAT, 9_999, PULL)
    # What nobody answers has no time, and no series that a client could make.
    assert desk.counts() == {PULL: (3, 0.75), HEART_BEAT: (1, 0.25)}


def test_a_later_answer_counts_with_its_wait_and_not_with_what_came_behind() -> None:
    desk = Desk()
    desk.takes_s = 0.25
    desk.ask(PULL, LOCK, PULL)
    assert desk.counts() == {PULL: (2, 0.5)}
    desk.later.callback(None)
    assert desk.counts()[LOCK] == (1, 0.5)


def test_sends_are_left_to_the_turn() -> None:
    desk = Desk()
    desk.ask(310, 310)
    assert desk.counts() == {}


def test_a_slow_request_is_told_with_its_phases(lines: list[str]) -> None:
    desk = Desk()
    desk.takes_s = 0.4
    desk.ask(LOCK)
    desk.now_s += 0.3
    desk.later.callback(None)
    assert lines == [
        "slow: request lock_batch_mq of 10.0.0.9:5555 took 700.0 ms: work 400.0, wait for the log"
        " or for others 300.0"
    ]
    desk.takes_s = 0.501
    desk.ask(PULL)
    assert lines[1:] == [
        "slow: 1 requests pull_message of 10.0.0.9:5555 took 501.0 ms: all of it was work"
    ]


def test_where_all_is_slow_few_lines_say_so_and_all_are_counted(lines: list[str]) -> None:
    desk = Desk()
    desk.takes_s = 0.6
    desk.ask(PULL)
    desk.ask(PULL)
    assert len(lines) == 1, "one a second"
    for _ in range(50):
        desk.takes_s += 0.01
        desk.now_s += 1.0
        desk.ask(PULL)
    # The numbers differ, and still the lines are joined.
    assert len(lines) == WRITTEN_MAX
    assert desk.times.slow == {PULL: 52}


def test_nothing_is_slow_when_it_is_switched_off(lines: list[str]) -> None:
    desk = Desk(slow_ms=0)
    desk.takes_s = 1e6
    desk.ask(PULL)
    assert lines == [] and desk.times.slow == {}


def test_slow_messages_are_told_by_the_turn_with_their_phases(lines: list[str]) -> None:
    parts, connection = Parts(), ListConnection()
    times = RequestTimes(500, lambda: parts.now_ms / 1000)
    times.followers = lambda: "n1 0, n2 4096"
    parts.proposals.times.slow_ms = 500
    parts.proposals.on_slow = times.sent_slowly
    for _ in range(3):
        parts.proposals.add(message(), 100, connection, 7, 0, 0)  # type: ignore[arg-type]
    parts.proposals.add_own([message()], lambda results, error: None)
    parts.now_ms += 20
    parts.turn.end()
    parts.now_ms += 600
    parts.proposals.committed(4)
    [line] = lines
    assert "3 messages sent took 620.0 ms: check 20.0, append 0.0, replicate 600.0, answer 0.0" in (
        line
    )
    assert "of 10.0.0.9:5555; followers: n1 0, n2 4096" in line
    assert times.slow == {int(RequestCode.SEND_MESSAGE): 3}
    sent = parts.proposals.times.sent
    assert (sent.count, round(sent.total, 6)) == (3, 1.86)


def test_codes_have_the_names_of_upstream() -> None:
    assert name_of(310) == "send_message_v2"
    assert name_of(123_456) == "other"


def test_of_turns_that_are_committed_together_the_oldest_is_told(lines: list[str]) -> None:
    parts, connection = Parts(), ListConnection()
    times = RequestTimes(500, lambda: parts.now_ms / 1000)
    parts.proposals.times.slow_ms = 500
    parts.proposals.on_slow = times.sent_slowly
    for wait_ms in (300, 600):
        parts.proposals.add(message(), 100, connection, 7, 0, 0)  # type: ignore[arg-type]
        parts.turn.end()
        parts.now_ms += wait_ms
    # One that is not slow.
    parts.proposals.add(message(), 100, connection, 8, 0, 0)  # type: ignore[arg-type]
    parts.turn.end()
    parts.proposals.committed(3)
    [line] = lines
    assert line.startswith("slow: 2 messages sent took 900.0 ms: ")
    assert times.slow == {int(RequestCode.SEND_MESSAGE): 2}
    # Nothing is told of a commit in which nothing was slow.
    parts.proposals.add(message(), 100, connection, 9, 0, 0)  # type: ignore[arg-type]
    parts.turn.end()
    parts.now_ms += 5000
    parts.proposals.fail_all(SystemBusyError("busy"))
    parts.proposals.committed(4)
    assert len(lines) == 1
