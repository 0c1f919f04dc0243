"""Twin: what the blocking classes share, an event loop in a thread while a `with` block lasts."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from ledgermq.client.errors import ClosedError

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
        self._thread = threading.Thread(target=self._run, name="ledgermq-client", daemon=True)
        self._thread.start()

    @property
    def is_foreign(self) -> bool:
        """True in the child of a fork, which the thread did not follow."""
        return os.getpid() != self._process_id

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine there and returns its result, or raises its error."""
        if self.is_foreign:
            coroutine.close()
            raise ClosedError(
                f"this client was opened in process {self._process_id} and cannot be used in"
                f" {os.getpid()}, a fork of it; make and open one there"
            )
        if self._loop.is_closed():
            coroutine.close()
            raise ClosedError("this client is closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C here must not leave it running there.
            future.cancel()
            raise

    def stop(self) -> None:
        """Ends loop and thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()


class Twin(Generic[F]):
    """A blocking object and the asyncio one behind it."""

    def __init__(self, twin: F) -> None:
        self._twin = twin
        # None outside of the `with` block.
        self._thread: _LoopThread | None = None

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
        if self._thread is None:
            coroutine.close()
            raise ClosedError("not open; use it in a with block")
        return self._thread.call(coroutine)

    def _end(self, coroutine: Coroutine[Any, Any, None]) -> None:
        thread, self._thread = self._thread, None
        if thread is None or thread.is_foreign:
            coroutine.close()
            return
        try:
            thread.call(coroutine)
        finally:
            thread.stop()
