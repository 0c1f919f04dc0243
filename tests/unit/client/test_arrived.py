"""What a pull brought: in order, and as many are woken as there is work for."""

import asyncio

from ledgermq.client.arrived import Arrived
from ledgermq.client.process_queue import ProcessQueue
from tests.unit.client.parts import QUEUE, messages, run


def test_a_pull_wakes_as_many_as_there_is_work_for() -> None:
    async def scenario() -> None:
        arrived, held = Arrived(), ProcessQueue(QUEUE, 0)
        got: list[int] = []

        async def take() -> None:
            while (item := await arrived.get()) is not None:
                got.append(item[1].queue_offset)

        workers = [asyncio.create_task(take()) for _ in range(3)]
        await asyncio.sleep(0)
        for first, end in ((0, 1), (1, 6), (6, 6), (6, 8)):
            arrived.put_all(held, messages(first, end))
            for _ in range(5):
                await asyncio.sleep(0)
            assert got == list(range(end))
        # One that no longer waits is not woken in the place of another.
        workers.pop().cancel()
        await asyncio.sleep(0)
        arrived.put_all(held, messages(8, 10))
        for _ in range(5):
            await asyncio.sleep(0)
        assert got == list(range(10))
        for _ in workers:
            arrived.put_nowait(None)
        await asyncio.gather(*workers)

    run(scenario())
