"""Telling: a consumer's own functions are told of queues that come and go.

Such a function is the program's, so it may take long, or never return. Each call is a task of its
own: whoever waits for it may stop waiting, and after a bound nobody waits any more. That is told at
WARNING, the queues go on, and the call goes on beside them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ledgermq.client.user_function import UserFunction
from ledgermq.protocol.bodies import MessageQueue

# Told of queues that come or go; a plain function runs in a thread.
OnQueues: TypeAlias = Callable[[list[MessageQueue]], Awaitable[None] | None]

_log = logging.getLogger("ledgermq.client")


class Telling:
    """One function, and its calls."""

    def __init__(self, name: str, group: str, function: OnQueues, patience_s: float) -> None:
        """Calls nothing yet.

        Args:
            name: of the argument that the function was given as, for the log.
            group: for the log.
            function: a coroutine function, or a plain one, which runs in a thread.
            patience_s: how long a call is waited for.
        """
        self._name = name
        self._group = group
        self._function = UserFunction[None](function, 1)
        self._patience_s = patience_s
        self._calls: set[asyncio.Task[None]] = set()

    async def tell(self, queues: list[MessageQueue], patience_s: float | None = None) -> None:
        """Calls the function, and returns when it has returned or its time is over; never raises.

        Args:
            queues: which come or go.
            patience_s: how long to wait; None as long as ever.
        """
        if patience_s is None:
            patience_s = self._patience_s
        call = asyncio.get_running_loop().create_task(self._call(queues))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        await asyncio.wait([call], timeout=patience_s)
        if not call.done():
            _log.warning(
                "%s: %s has not returned for %g s, told of %d queues, the first %s;"
                " they go on without it",
                *(self._group, self._name, patience_s, len(queues), queues[0]),
            )

    async def _call(self, queues: list[MessageQueue]) -> None:
        try:
            await self._function.call(queues)
        except Exception:
            _log.exception("%s: %s failed", self._group, self._name)

    def close(self) -> None:
        """Cancels the calls that are not over, and waits for nothing."""
        for call in list(self._calls):
            call.cancel()
        self._function.close()
