"""UserThreads: threads for functions of the user that may block, and may never return.

The standard library's pools are joined when a program ends, so that one call that hangs keeps it
from ending for ever. These threads are daemons: whoever closes in order has waited for the calls as
long as it wants to, and what still runs then ends with the program.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class _Call(NamedTuple):
    """What a thread is to do."""

    function: Callable[[], Any]
    outcome: Future[Any]


class UserThreads:
    """Up to so many threads, made when they are needed; idle ones wait for more."""

    def __init__(self, threads_max: int) -> None:
        """Starts no thread yet."""
        self._threads_max = threads_max
        # Taken from by the threads; None ends one of them.
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        # Released by a thread that has nothing to do.
        self._idle = threading.Semaphore(0)
        # Guards what follows; held while a call is put, so that none comes behind the end.
        self._gate = threading.Lock()
        self._thread_count = 0
        self._is_closed = False

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Has a function called in a thread.

        Raises:
            RuntimeError: it was closed, or the program ends and no thread begins any more.
        """
        outcome: Future[T] = Future()
        with self._gate:
            if self._is_closed:
                raise RuntimeError("these threads were ended")
            if not self._idle.acquire(blocking=False) and self._thread_count < self._threads_max:
                number = self._thread_count
                threading.Thread(
                    target=self._work, name=f"ledgermq-user_{number}", daemon=True
                ).start()
                self._thread_count += 1
            self._calls.put(_Call(lambda: function(*args), outcome))
        return outcome

    def close(self) -> None:
        """Cancels the calls that have not begun; threads end when their call does."""
        with self._gate:
            if self._is_closed:
                return
            self._is_closed = True
            while True:
                try:
                    call = self._calls.get_nowait()
                except queue.Empty:
                    break
                if call is not None:
                    call.outcome.cancel()
            for _ in range(self._thread_count):
                self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            if call.outcome.set_running_or_notify_cancel():
                try:
                    result = call.function()
                except BaseException as error:
                    call.outcome.set_exception(error)
                else:
                    call.outcome.set_result(result)
            # Not held while it waits: a message may be large.
            del call
            self._idle.release()
