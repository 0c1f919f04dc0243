"""Twin: what the blocking classes share, an event loop in a thread while a `with` block lasts.

A call runs in the loop's thread, and whoever made it waits for it. Calls and the end may meet in
any order: a call is either refused, or it has an end, because the loop cancels what it still runs
before it closes.
"""

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from ledgermq.client.errors import ClientError, ClosedError

# How long a task may take to end that is cancelled.
_CANCEL_S: Final = 10.0

T = TypeVar("T")


class _Face(Protocol):
    """An asyncio producer or consumer."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    async def close(self) -> None: ...


F = TypeVar("F", bound=_Face)


class _LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._process_id = os.getpid()
        self._loop = asyncio.new_event_loop()
        # Held while a call is handed over, or the end is told: the loop takes both in this order.
        self._gate = threading.Lock()
        # Set once, under the gate, by the thread that ends it.
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, name="ledgermq-client", daemon=True)
        self._thread.start()

    @property
    def is_foreign(self) -> bool:
        """True in the child of a fork, which the thread did not follow."""
        return os.getpid() != self._process_id

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine there and returns its result, or raises its error.

        Raises:
            ClosedError: the client is closed, was closed meanwhile, or belongs to another process.
            ClientError: the loop's own thread calls, and would wait for itself.
        """
        if self.is_foreign:
            coroutine.close()
            raise ClosedError(
                f"this client was opened in process {self._process_id} and cannot be used in"
                f" {os.getpid()}, a fork of it; make and open one there"
            )
        self.check_caller(coroutine)
        with self._gate:
            if self._is_ending:
                coroutine.close()
                raise ClosedError("this client is closed")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError as error:
            raise ClosedError("this client was closed meanwhile") from error
        except BaseException:
            # Ctrl-C here must not leave it running there.
            future.cancel()
            raise

    def check_caller(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Drops the coroutine of a caller that would wait for itself.

        Raises:
            ClientError: it is the loop's own thread that calls.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise ClientError(
                "a blocking call in the client's own thread would wait for itself; call it from"
                " another one than a coroutine or a callback of this client runs in"
            )

    def stop(self) -> None:
        """Ends loop and thread; calls under way get a ClosedError. Safe to call twice."""
        with self._gate:
            if not self._is_ending:
                self._is_ending = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=_CANCEL_S))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()


class Twin(Generic[F]):
    """A blocking object and the asyncio one behind it."""

    def __init__(self, twin: F) -> None:
        self._twin = twin
        # None outside of the `with` block.
        self._thread: _LoopThread | None = None
        # Of several threads that close, one does.
        self._ending = threading.Lock()

    def __enter__(self) -> Self:
        self._thread = _LoopThread()
        try:
            self._thread.call(self._twin.__aenter__())
        except BaseException:
            self._thread.stop()
            self._thread = None
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(self._twin.__aexit__(kind, error, trace))

    def close(self) -> None:
        """Closes as the asyncio face does. Safe to call twice."""
        self._end(self._twin.close())

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine of the twin.

        Raises:
            ClosedError: this is not inside the `with` block.
        """
        thread = self._thread
        if thread is None:
            coroutine.close()
            raise ClosedError("not open; use it in a with block")
        return thread.call(coroutine)

    def _end(self, coroutine: Coroutine[Any, Any, None]) -> None:
        thread = self._thread
        if thread is not None and not thread.is_foreign:
            thread.check_caller(coroutine)
            with self._ending:
                thread, self._thread = self._thread, None
        if thread is None or thread.is_foreign:
            coroutine.close()
            return
        try:
            thread.call(coroutine)
        finally:
            thread.stop()
