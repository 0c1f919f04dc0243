"""One message of a queue at a time, in order, and only under a valid lock."""

import asyncio
from typing import Any

from ledgermq.client.arrived import Arrived
from ledgermq.client.errors import UnreachableError
from ledgermq.client.listening import Listening
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.orderly_work import OrderlyWork
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.user_function import UserFunction
from ledgermq.protocol.bodies import MessageQueue
from tests.unit.client.parts import OTHER, QUEUE, message, run


class Locks:
    """Valid as the test says."""

    def __init__(self) -> None:
        self.valid = True

    def is_valid(self, queue: MessageQueue) -> bool:
        return self.valid


class Bench:
    """Work with a listener that a test can fail and hold."""

    def __init__(self, **changes: Any) -> None:
        self.calls: list[tuple[int, int]] = []
        self.done: list[tuple[int, int]] = []
        self.buried: list[int] = []
        # (queue id, offset) -> failures to come.
        self.failures: dict[tuple[int, int], int] = {}
        self.burials_refused = 0
        self.open = asyncio.Event()
        self.open.set()
        self.locks = Locks()
        self.arrived = Arrived()
        settings = {"concurrency": 2, "pause_s": 0.001, "tries_max": None} | changes
        self.work = OrderlyWork(
            Listening("g", UserFunction(self.listen, 1)),
            self.arrived,
            lambda held, one: self.done.append((one.queue.queue_id, one.queue_offset)),
            self.bury,
            self.locks,  # type: ignore[arg-type]
            **settings,
        )
        self.work.start()

    async def listen(self, one: ReceivedMessage) -> None:
        key = (one.queue.queue_id, one.queue_offset)
        self.calls.append(key)
        await self.open.wait()
        if self.failures.get(key, 0):
            self.failures[key] -= 1
            raise ValueError("as the test says")

    async def bury(self, one: ReceivedMessage) -> None:
        if self.burials_refused:
            self.burials_refused -= 1
            raise UnreachableError("nobody there", retriable=True)
        self.buried.append(one.queue_offset)

    def arrive(self, held: ProcessQueue, *offsets: int) -> None:
        for offset in offsets:
            self.arrived.put_nowait((held, message(offset, held.queue)))

    async def wait_done(self, count: int) -> None:
        while len(self.done) < count:
            await asyncio.sleep(0.001)


def test_a_failing_message_holds_up_its_queue_and_no_other() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.failures[0, 1] = 3
        first, second = ProcessQueue(QUEUE, 0), ProcessQueue(OTHER, 0)
        bench.arrive(first, 0, 1, 2)
        bench.arrive(second, 0, 1)
        await bench.wait_done(5)
        assert [offset for queue, offset in bench.calls if queue == 0] == [0, 1, 1, 1, 1, 2]
        assert bench.done.index((1, 1)) < bench.done.index((0, 1))
        await bench.work.stop(1)

    run(scenario())


def test_nothing_is_consumed_without_a_valid_lock() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.locks.valid = False
        bench.arrive(ProcessQueue(QUEUE, 0), 0)
        await asyncio.sleep(0.02)
        assert bench.calls == []
        bench.locks.valid = True
        await bench.wait_done(1)
        await bench.work.stop(1)

    run(scenario())


def test_a_queue_taken_again_waits_for_the_call_that_still_runs() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.open.clear()
        old, new = ProcessQueue(QUEUE, 0), ProcessQueue(QUEUE, 0)
        bench.arrive(old, 0, 1)
        while not bench.calls:
            await asyncio.sleep(0)
        old.is_dropped = True
        settled = asyncio.ensure_future(bench.work.settled(QUEUE))
        bench.arrive(new, 0)
        await asyncio.sleep(0.01)
        assert bench.calls == [(0, 0)] and not settled.done()
        bench.open.set()
        await settled
        # Offset 1 of the dropped queue never came to the listener.
        assert bench.calls == [(0, 0), (0, 0)]
        assert bench.done == [(0, 0), (0, 0)]
        await bench.work.stop(1)

    run(scenario())


def test_a_message_is_buried_after_its_tries() -> None:
    async def scenario() -> None:
        bench = Bench(tries_max=2)
        bench.failures[0, 0] = 100
        bench.burials_refused = 1
        bench.arrive(ProcessQueue(QUEUE, 0), 0, 1)
        await bench.wait_done(2)
        # One call more for the burial that failed.
        assert bench.calls == [(0, 0)] * 4 + [(0, 1)]
        assert bench.buried == [0]
        await bench.work.stop(1)

    run(scenario())


def test_no_more_queues_than_allowed_are_at_work() -> None:
    async def scenario() -> None:
        bench = Bench(concurrency=1)
        bench.open.clear()
        bench.arrive(ProcessQueue(QUEUE, 0), 0)
        bench.arrive(ProcessQueue(OTHER, 0), 0)
        await asyncio.sleep(0.01)
        assert len(bench.calls) == 1
        bench.open.set()
        await bench.wait_done(2)
        await bench.work.stop(1)

    run(scenario())


def test_stop_cancels_a_listener_that_takes_too_long() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.open.clear()
        bench.arrive(ProcessQueue(QUEUE, 0), 0, 1)
        while not bench.calls:
            await asyncio.sleep(0)
        await bench.work.stop(0.01)
        await bench.work.settled(QUEUE)
        assert (bench.calls, bench.done) == ([(0, 0)], [])

    run(scenario())
