"""Turns of those who read messages: few at once, and fewer of one account."""

import asyncio

from ledgermq.console.turns import Turns


def test_of_one_account_few_are_at_work() -> None:
    async def run() -> None:
        turns, at_work = Turns(3, 2), []
        is_over = asyncio.Event()

        async def work(owner: str) -> None:
            async with turns.turn(owner):
                at_work.append(owner)
                await is_over.wait()

        tasks = [asyncio.create_task(work(owner)) for owner in ["a"] * 5 + ["b"] * 2]
        for _ in range(10):
            await asyncio.sleep(0)
        assert at_work == ["a", "a", "b"]
        tasks[0].cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(at_work) == 4
        is_over.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert sorted(at_work) == ["a"] * 5 + ["b"] * 2
        assert not turns._owners

    asyncio.run(run())


def test_without_accounts_all_share_the_whole() -> None:
    async def run() -> None:
        turns = Turns(3, 1)
        async with turns.turn(""), turns.turn(""), turns.turn(""):
            pass

    asyncio.run(run())
