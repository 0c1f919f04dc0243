"""Messages reach the listener several at a time; those that fail are given back."""

import asyncio
from datetime import timedelta

import pytest

from ledgermq.client import concurrent_work
from ledgermq.client.arrived import Arrived
from ledgermq.client.concurrent_work import ConcurrentWork
from ledgermq.client.errors import RefusedError, UnreachableError
from ledgermq.client.failed_tries import FailedTries
from ledgermq.client.listening import Listening
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.user_function import UserFunction
from tests.unit.client.parts import QUEUE, message, run


class Bench:
    """Work whose listener fails for odd offsets."""

    def __init__(self, *, gives_back: bool = True, workers: int = 2) -> None:
        self.calls: list[int] = []
        self.done: list[int] = []
        self.given_back: list[int] = []
        # What the next tries to give back end with.
        self.refusals: list[Exception] = []
        self.open = asyncio.Event()
        self.open.set()
        self.arrived = Arrived()
        self.held = ProcessQueue(QUEUE, 0)
        tries = FailedTries("concurrent", None, 1.0)
        self.listening = Listening("g", UserFunction(self.listen, 1), tries=tries)
        self.work = ConcurrentWork(
            self.listening,
            self.arrived,
            lambda held, one: self.done.append(one.queue_offset),
            self.give_back if gives_back else None,
            workers,
        )
        self.work.start()

    async def listen(self, one: ReceivedMessage) -> None:
        self.calls.append(one.queue_offset)
        await self.open.wait()
        if one.queue_offset % 2:
            raise ValueError("odd")

    async def give_back(self, one: ReceivedMessage) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.given_back.append(one.queue_offset)

    def arrive(self, *offsets: int, times: int = 0) -> None:
        for offset in offsets:
            self.arrived.put_nowait((self.held, message(offset, times=times)))

    async def wait_done(self, count: int) -> None:
        while len(self.done) < count:
            await asyncio.sleep(0.001)


def test_failed_messages_are_given_back_and_all_are_counted() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.arrive(0, 1, 2, 3)
        await bench.wait_done(4)
        assert sorted(bench.given_back) == [1, 3]
        tally = bench.listening.tallies["T"]
        assert (tally.consumed_count, tally.failed_count) == (2, 2)
        await bench.work.stop(1)

    run(scenario())


@pytest.mark.parametrize("times", [-100, -(2**31), 2**31 - 1])
def test_whatever_a_sender_says_of_earlier_tries_a_failed_message_is_given_back(times: int) -> None:
    async def scenario() -> None:
        bench = Bench(workers=1)
        bench.arrive(1, times=times)
        bench.arrive(2)
        await bench.wait_done(2)
        assert bench.given_back == [1] and bench.done == [1, 2]
        await bench.work.stop(1)

    run(scenario())


def test_failure_of_what_tells_the_log_leaves_a_message_no_less_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        bench = Bench(workers=1)
        bench.arrive(1, 2)
        await bench.wait_done(2)
        assert bench.given_back == [1]
        await bench.work.stop(1)

    def fail(*_: object) -> str:
        raise ArithmeticError("of the text")

    monkeypatch.setattr(FailedTries, "told", fail)
    run(scenario())


def test_nobody_takes_back_what_a_broadcast_consumer_failed() -> None:
    async def scenario() -> None:
        bench = Bench(gives_back=False)
        bench.arrive(0, 1)
        await bench.wait_done(2)
        assert bench.given_back == []
        await bench.work.stop(1)

    run(scenario())


def test_as_many_messages_as_workers_are_with_the_listener() -> None:
    async def scenario() -> None:
        bench = Bench(workers=3)
        bench.open.clear()
        bench.arrive(*range(0, 10, 2))
        await asyncio.sleep(0.01)
        assert bench.calls == [0, 2, 4]
        bench.open.set()
        await bench.wait_done(5)
        await bench.work.stop(1)

    run(scenario())


@pytest.mark.parametrize("is_dropped", [False, True])
def test_giving_back_is_tried_until_the_queue_is_lost(is_dropped: bool) -> None:
    """Counted as consumed without being given back, the message would be lost."""

    async def scenario() -> None:
        bench = Bench()
        bench.refusals = [UnreachableError("away", retriable=True)] * 2
        if is_dropped:
            bench.refusals = [UnreachableError("away", retriable=True)] * 1000
        bench.arrive(1)
        while len(bench.refusals) in (2, 1000):
            await asyncio.sleep(0.001)
        bench.held.is_dropped = is_dropped
        if not is_dropped:
            await bench.wait_done(1)
        await bench.work.stop(5)
        assert bench.given_back == bench.done == ([] if is_dropped else [1])

    run(scenario())


def test_what_is_dropped_before_its_turn_never_reaches_the_listener() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.held.is_dropped = True
        bench.arrive(0, 2)
        await bench.work.stop(1)
        assert bench.calls == bench.done == []

    run(scenario())


def test_stop_cancels_a_listener_that_takes_too_long() -> None:
    async def scenario() -> None:
        bench = Bench(workers=1)
        bench.open.clear()
        bench.arrive(0)
        while not bench.calls:
            await asyncio.sleep(0)
        await bench.work.stop(0.01)
        bench.open.set()
        await asyncio.sleep(0.01)
        assert bench.done == []

    run(scenario())


def test_a_refusal_that_stays_leaves_the_worker_to_others_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        bench = Bench(workers=1)
        bench.refusals = [RefusedError(16, "no right")] * 4
        bench.arrive(1, 3, 2)
        await bench.wait_done(1)
        assert bench.done == [2] and bench.calls == [1, 3, 2]
        await bench.work.stop(1)
        # Slowly: nothing came again meanwhile, and nothing comes after the end.
        assert len(bench.refusals) == 2 and bench.given_back == []

    run(scenario())
    monkeypatch.setattr(concurrent_work, "_GIVE_BACK_PAUSE", timedelta(seconds=0.01))

    async def later() -> None:
        bench = Bench(workers=1)
        bench.refusals = [RefusedError(16, "no right")] * 4
        bench.arrive(1, 3)
        await bench.wait_done(2)
        assert bench.given_back == bench.done == [1, 3] and bench.calls == [1, 3] * 3
        await bench.work.stop(1)

    run(later())


def test_message_whose_listener_lets_a_cancelled_wait_pass_is_given_back() -> None:
    async def listen(one: ReceivedMessage) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.cancel()
        await waiting

    async def scenario() -> None:
        bench = Bench()
        bench.listening._function = UserFunction(listen, 1)
        bench.arrive(0, 1)
        await bench.wait_done(2)
        assert sorted(bench.given_back) == [0, 1]
        await bench.work.stop(1)

    run(scenario())
