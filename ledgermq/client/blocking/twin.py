"""Twin: what the blocking classes share, an event loop in a thread while a `with` block lasts.

A call runs in the loop's thread, and whoever made it waits for it. Calls and the end may meet in
any order: a call is either refused, or it has an end, because the loop cancels what it still runs
before it closes.
"""

import asyncio
import concurrent.futures
import logging
import os
import threading
import warnings
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar

from ledgermq.client.errors import ClientError, ClosedError

# How long a task may take to end that is cancelled.
_CANCEL_S: Final = 10.0

_log = logging.getLogger("ledgermq.client")

T = TypeVar("T")
A = TypeVar("A")
P = ParamSpec("P")


class Face(Protocol):
    """An asyncio producer or consumer."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *error: Any) -> None: ...

    async def close(self) -> None: ...


F = TypeVar("F", bound=Face)


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._process_id = os.getpid()
        self._loop = asyncio.new_event_loop()
        # Held while a call is handed over, or the end is told: the loop takes both in this order.
        self._gate = threading.Lock()
        # Set once, under the gate, by the thread that ends it.
        self._is_ending = False
        # What ended the loop before anybody told it to, as a listener's sys.exit() does; set by the
        # loop's thread, under the gate, before it tells.
        self.failure: BaseException | None = None
        # Called when the loop has ended by itself. Guarded by the gate.
        self._on_failure: list[Callable[[], None]] = []
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
                reason = "closed" if self.failure is None else f"ended by {self.failure!r}"
                raise ClosedError(f"this client is {reason}")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError as error:
            raise ClosedError("this client was closed meanwhile") from error
        except BaseException:
            # Ctrl-C here must not leave it running there.
            future.cancel()
            raise

    def post(self, callback: Callable[[], None]) -> None:
        """Has something called there, and does not wait for it.

        Raises:
            ClosedError: the client is closed.
        """
        with self._gate:
            if self._is_ending:
                raise ClosedError("this client is closed")
            self._loop.call_soon_threadsafe(callback)

    def check_caller(self, coroutine: Coroutine[Any, Any, Any] | None = None) -> None:
        """Drops the coroutine of a caller that would wait for itself.

        Raises:
            ClientError: it is the loop's own thread that calls.
        """
        if threading.current_thread() is self._thread:
            if coroutine is not None:
                coroutine.close()
            raise ClientError(
                "a blocking call in the client's own thread would wait for itself; call it from"
                " another one than a coroutine or a callback of this client runs in"
            )

    def when_failed(self, told: Callable[[], None]) -> None:
        """Has something called when the loop ends by itself, at once when it has."""
        with self._gate:
            self._on_failure.append(told)
            has_failed = self.failure is not None
        if has_failed:
            told()

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
        except BaseException as error:
            # No Exception ends a loop: a task or callback of the user wants the program to end.
            with self._gate:
                self._is_ending, self.failure = True, error
            _log.error("the client's thread was ended by %r", error)
        finally:
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=_CANCEL_S))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
        with self._gate:
            told = list(self._on_failure) if self.failure is not None else []
        for tell in told:
            tell()


class Twin(Generic[F]):
    """A blocking object and the asyncio one behind it."""

    def __init__(self, twin: F, owner: "Twin[Any] | None" = None) -> None:
        self._twin = twin
        # Whose loop it runs on; None runs on one of its own.
        self._owner = owner
        # None outside of the `with` block.
        self._thread: LoopThread | None = None
        # Of several threads that close, one does.
        self._ending = threading.Lock()
        # Called at the end of the `with` block.
        self._on_closed: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        if self._owner is None:
            self._thread = LoopThread()
        elif self._owner._thread is None:
            raise ClosedError("the client it was made of is not open; use it in a with block")
        else:
            self._thread = self._owner._thread
        try:
            self._thread.call(self._twin.__aenter__())
        except BaseException:
            self._stop(self._thread)
            self._thread = None
            raise
        return self

    @classmethod
    def of(cls, twin: F, owner: "Twin[Any]") -> Self:
        """Returns a blocking object around an asyncio one that lives on the loop of another."""
        made = cls.__new__(cls)
        Twin.__init__(made, twin, owner)
        return made

    def __exit__(self, *error: object) -> None:
        self._end(self._twin.__aexit__(*error))

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
            if self._on_closed is not None:
                self._on_closed()
        is_gone = self._owner is not None and self._owner._thread is None
        if thread is None or thread.is_foreign or is_gone:
            coroutine.close()
            return
        if thread.failure is not None:
            coroutine.close()
            self._stop(thread)
            return
        try:
            thread.call(coroutine)
        finally:
            self._stop(thread)

    def _when_closed(self, told: Callable[[], None]) -> None:
        """Has something called at the end, at once when it is closed already."""
        self._on_closed = told
        if self._thread is None:
            told()

    def __del__(self) -> None:
        thread = getattr(self, "_thread", None)
        if thread is not None and not thread.is_foreign:
            name = type(self).__name__
            warnings.warn(
                f"a {name} was never closed; use it in a with block, or call close()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def _stop(self, thread: LoopThread) -> None:
        if self._owner is None:
            thread.stop()


def waits(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Returns a coroutine of the asyncio face as a method that returns when it has ended."""

    @wraps(method)
    def call(twin: Twin[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return twin._call(method(twin._twin, *args, **kwargs))

    return call


def runs(method: Callable[Concatenate[A, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Returns a function of the asyncio face as a method: it, too, runs in the loop's thread."""

    @wraps(method)
    def call(twin: Twin[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def run() -> T:
            return method(twin._twin, *args, **kwargs)

        return twin._call(run())

    return call
