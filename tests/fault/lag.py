"""How much later than due this process gets a processor: what a busy machine adds to any bound."""

import asyncio
from typing import Final

_BEAT_S: Final = 0.05


class Lag:
    """A heart that beats while a test measures; its lateness is the machine's, not the product's.

    Processes of the product wait for the same processors, each of them as long, and a hand-over
    goes through several, one after the other: so all lateness counts, not only the longest.
    """

    def __init__(self) -> None:
        self.total_s = 0.0

    async def beat(self) -> None:
        """Beats for ever."""
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + _BEAT_S
            await asyncio.sleep(_BEAT_S)
            self.total_s += loop.time() - due_s
