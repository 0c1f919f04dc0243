"""Turns: what takes memory or brokers' time is done for a few at once, and for fewer of an account.

The others wait, each account's in a line of its own, so that one does not keep out the rest.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Turns at one kind of work."""

    def __init__(self, turns_max: int, of_owner_max: int) -> None:
        """
        Args:
            turns_max: at once.
            of_owner_max: of them, those of one owner.
        """
        self._room = asyncio.Semaphore(turns_max)
        self._of_owner_max = of_owner_max
        # By owner that is at work or waits: its own room, and how many of its are there.
        self._owners: dict[str, tuple[asyncio.Semaphore, int]] = {}

    @asynccontextmanager
    async def turn(self, owner: str) -> AsyncIterator[None]:
        """Holds a turn, once there is one.

        Args:
            owner: an account; "" where nobody signs in: all share the whole.
        """
        if not owner:
            async with self._room:
                yield
            return
        own, count = self._owners.get(owner, (asyncio.Semaphore(self._of_owner_max), 0))
        self._owners[owner] = own, count + 1
        try:
            async with own, self._room:
                yield
        finally:
            own, count = self._owners.pop(owner)
            if count > 1:
                self._owners[owner] = own, count - 1
