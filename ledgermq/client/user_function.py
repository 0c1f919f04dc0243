"""UserFunction: a function of the user that is called with messages.

A coroutine function runs on the event loop; a plain one runs in a thread, so that it may block. One
that blocks for long holds up its own message only, as long as there are threads left. One that
blocks for ever does not keep the program from ending.
"""

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from types import CoroutineType
from typing import Generic, TypeVar

from ledgermq.client.endless import is_own_end
from ledgermq.client.errors import ClientError, ConfigError
from ledgermq.client.user_threads import UserThreads

R = TypeVar("R")


class UserFunction(Generic[R]):
    """What calls a function of the user, of either kind."""

    def __init__(self, function: Callable[..., Awaitable[R] | R], threads_max: int) -> None:
        """Starts no thread yet.

        Args:
            function: a coroutine function, or a plain one, of one argument.
            threads_max: calls of a plain one that run at the same time.

        Raises:
            ConfigError: it cannot be called.
        """
        if not callable(function):
            raise ConfigError(f"{function!r:.80} is no function")
        self._function = function
        self._is_closed = False
        self._threads: UserThreads | None = None
        if not _is_coroutine_function(function):
            self._threads = UserThreads(threads_max)

    async def call(self, given: object) -> R:
        """Calls it with what it takes and returns its result, or raises its error.

        Raises:
            ClientError: something that it waited for was cancelled by somebody else, and it let
                that pass, or it raised what is no Exception: to whoever calls, it has failed like
                any other function. What wants the program to end is raised as it is.
        """
        result: Awaitable[R] | R
        try:
            if self._threads is not None:
                result = await asyncio.wrap_future(await self._submit(self._threads, given))
            else:
                result = self._function(given)
            # Nearly always; the question below takes as long as all else here.
            if type(result) is CoroutineType:
                returned: R = await result
                return returned
            return await result if inspect.isawaitable(result) else result
        except asyncio.CancelledError as error:
            if self._is_closed or is_own_end(error):
                raise
            raise ClientError("what it waited for was cancelled") from error
        except (Exception, SystemExit, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            raise ClientError(f"it raised {type(error).__name__}: {error}") from error

    async def _submit(self, threads: UserThreads, given: object) -> Future[Awaitable[R] | R]:
        try:
            # In the context of whoever calls, as a coroutine function would run.
            context = contextvars.copy_context()
            return threads.submit(context.run, self._function, given)
        except RuntimeError:
            # The program ends, and no thread begins any more. The function has not failed: the
            # message stays as it is until this is cancelled, and comes again.
            await asyncio.Event().wait()
            raise

    def close(self) -> None:
        """Ends the threads that are idle; those at work end when their call does."""
        self._is_closed = True
        if self._threads is not None:
            self._threads.close()


def _is_coroutine_function(function: Callable[..., object]) -> bool:
    # Of an object with __call__, that is what counts.
    call = type(function).__call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
