"""Closing: the end of an ``async with`` block, for what has nothing to do there but to close."""

import abc
import warnings


class Closing(abc.ABC):
    """Something that closes at the end of the block, whether it failed or not."""

    # True from the begin of its block to its end.
    _is_open = False

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @abc.abstractmethod
    async def close(self) -> None:
        """Closes it. Safe to call twice."""

    def __del__(self) -> None:
        if self._is_open and not self._is_elsewhere():
            name = type(self).__name__
            warnings.warn(
                f"a {name} was never closed; use it in an async with block, or call close()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def _is_elsewhere(self) -> bool:
        """True in a process that only has a copy of it."""
        return False
