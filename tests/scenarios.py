"""Scenarios on asyncio that tests run to their end, each in an event loop of its own."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


def run(scenario: Coroutine[Any, Any, None], deadline_s: float = 90.0) -> None:
    """Runs a scenario; one that hangs fails at the deadline."""

    async def bounded() -> None:
        async with asyncio.timeout(deadline_s):
            await scenario

    asyncio.run(bounded())


async def until(condition: Callable[[], Any], what: str, deadline_s: float = 60.0) -> None:
    """Waits for a condition; its failure says for what."""
    try:
        async with asyncio.timeout(deadline_s):
            while not condition():
                await asyncio.sleep(0.02)
    except TimeoutError as error:
        raise AssertionError(f"after {deadline_s} s still waiting for {what}") from error
