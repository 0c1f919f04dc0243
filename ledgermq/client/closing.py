"""Closing: the end of an ``async with`` block, for what has nothing to do there but to close."""

import abc
from types import TracebackType


class Closing(abc.ABC):
    """Something that closes at the end of the block, whether it failed or not."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @abc.abstractmethod
    async def close(self) -> None:
        """Closes it. Safe to call twice."""
