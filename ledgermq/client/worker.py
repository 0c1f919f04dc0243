"""Which worker calls the listener in which something happens.

A listener may close its consumer, which waits for listeners: not for the one that calls, and it
does not cancel it either. What the listener starts, tasks and threads, knows its worker, too.
"""

import asyncio
from contextvars import ContextVar
from typing import Any, Final

_worker: Final[ContextVar[asyncio.Task[Any] | None]] = ContextVar("ledgermq_worker", default=None)


def set_worker() -> None:
    """Makes the running task the worker of all that it calls from now on."""
    _worker.set(asyncio.current_task())


def own_worker() -> asyncio.Task[Any] | None:
    """Returns the worker from whose listener this is called; None outside of listeners."""
    return _worker.get()
