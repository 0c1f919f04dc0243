"""Signals that ask a program to end, such as SIGTERM: how what runs until then hears of them.

The first of them lets everything end in order. Its handlers are gone then, so that a second one
does what it would do without us.
"""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Iterable
from typing import Any, Final

# What service managers and containers send, and Ctrl-C.
ENDING: Final = (signal.SIGTERM, signal.SIGINT)


async def until_told(signals: Iterable[signal.Signals], ended: Awaitable[object]) -> None:
    """Returns at the first signal, or when what is waited for has ended, and raises what it raised.

    After a signal what is waited for is cancelled, and has let go of what it held. Where the event
    loop cannot take signals (Windows, a thread beside the main one) only the end counts.
    """
    loop = asyncio.get_running_loop()
    told: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not told.done():
            told.set_result(None)

    # With what took each of them before.
    taken: dict[signal.Signals, Any] = {}
    for number in signals:
        with contextlib.suppress(NotImplementedError, RuntimeError):
            before = signal.getsignal(number)
            loop.add_signal_handler(number, tell)
            taken[number] = before
    waiting: asyncio.Future[Any] = asyncio.ensure_future(ended)
    both: list[asyncio.Future[Any]] = [told, waiting]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        for number, before in taken.items():
            loop.remove_signal_handler(number)
            if before is not None:
                signal.signal(number, before)
        await asyncio.wait([waiting])
    if not waiting.cancelled():
        waiting.result()
