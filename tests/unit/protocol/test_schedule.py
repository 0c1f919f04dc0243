"""Schedule: what is called when, and that nothing is left behind."""

from typing import Any

from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher

from ledgermq.protocol.transport import Schedule


def test_schedule_leaves_nothing_behind() -> None:
    clock = Clock()
    schedule = Schedule(clock)
    calls: list[str] = []

    def tick() -> None:
        calls.append("tick")

    def once() -> None:
        calls.append("once")

    schedule.every(1000, tick)
    schedule.soon(once)
    schedule.soon(once)
    clock.advance(0)
    clock.pump([1.0, 1.0])
    assert calls == ["once", "tick", "tick"]
    schedule.after(500, tick)
    schedule.stop()
    assert clock.getDelayedCalls() == []
    schedule.soon(once)
    schedule.every(1, once)
    assert clock.getDelayedCalls() == []


def test_failing_periodic_call_goes_on() -> None:
    clock = Clock()
    schedule = Schedule(clock)
    calls: list[int] = []
    events: list[Any] = []

    def fail() -> None:
        calls.append(1)
        raise ValueError("once in a while")

    schedule.every(1000, fail)
    globalLogPublisher.addObserver(events.append)
    try:
        clock.pump([1.0, 1.0, 1.0])
    finally:
        globalLogPublisher.removeObserver(events.append)
    assert len(calls) == 3
    schedule.stop()
