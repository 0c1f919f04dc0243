"""Bodies: the line of all who look into bodies of messages; senders choose how long that takes.

One body is looked into at a time, in a thread: whatever is in them, and however many viewers,
searches and previews there are, they take one processor at most, and the loop goes on meanwhile.
Each account has a line of its own (`Turns`).
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from ledgermq.client.messages import ReceivedMessage
from ledgermq.console.messages import has_text
from ledgermq.console.turns import Turns
from ledgermq.protocol import sysflag

# One that is not compressed, and no longer, takes less time than another thread.
_AT_ONCE_BYTES_MAX: Final = 16 * 1024
_T = TypeVar("_T")


class Bodies:
    """The line of one console."""

    def __init__(self) -> None:
        self._turns = Turns(1, 1)

    async def read(
        self, owner: str, work: Callable[[ReceivedMessage], _T], message: ReceivedMessage
    ) -> _T:
        """Returns what `work` makes of a message; it is called in a thread.

        Args:
            owner: in whose line it waits: an account, "" where nobody signs in.
            work: looks into the body; what it raises is raised.
            message: which.
        """
        async with self._turns.turn(owner):
            working = asyncio.ensure_future(asyncio.to_thread(work, message))
            try:
                return await asyncio.shield(working)
            finally:
                # The thread does not end with who asked: the next one waits for it.
                if not working.done():
                    await asyncio.wait([working])

    async def has_text(self, owner: str, message: ReceivedMessage, text: str) -> bool:
        """Tells whether a body holds a text, and lets others have their turn before."""
        record = message.record
        if record.sys_flag & sysflag.COMPRESSED or len(record.body) > _AT_ONCE_BYTES_MAX:
            return await self.read(owner, lambda one: has_text(one, text), message)
        await asyncio.sleep(0)
        return has_text(message, text)
