"""FirstCommits: the first offset of a group for a topic is told alone.

A stock broker that is told the first offsets of a group for a topic in two threads at once makes a
table in each, and keeps one of them: it said yes to the others and has forgotten them. So the
first is told to each broker before all others, which go out together, and in pulls, when it has
answered. Source: ConsumerOffsetManager.java of 4.9.3 and 5.3.3.
"""

import asyncio
from collections.abc import Awaitable, Callable

from ledgermq.protocol.bodies import MessageQueue


class FirstCommits:
    """Which brokers have an offset of one group for which topics."""

    def __init__(self) -> None:
        # Of a broker and a topic: set when the first was answered or has failed.
        self._answered: dict[tuple[str, str], asyncio.Event] = {}

    async def tell(self, queue: MessageQueue, tell: Callable[[], Awaitable[None]]) -> None:
        """Calls a function that tells an offset, behind the first one of the topic at the broker.

        When the first fails, none waits any longer: each of them may take as long to fail.
        """
        place = queue.broker_name, queue.topic
        answered = self._answered.get(place)
        if answered is not None:
            await answered.wait()
            await tell()
            return
        answered = self._answered[place] = asyncio.Event()
        try:
            await tell()
        except BaseException:
            del self._answered[place]
            raise
        finally:
            answered.set()

    def is_behind(self, queue: MessageQueue) -> bool:
        """Tells whether the broker has an offset for the topic, so that any may follow."""
        answered = self._answered.get((queue.broker_name, queue.topic))
        return answered is not None and answered.is_set()
