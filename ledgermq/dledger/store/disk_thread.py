"""DiskThread: the one thread that waits for the disk.

Twisted's pool keeps a team of threads with a coordinator; a sync of half a millisecond should not
cost as much again to be handed over. This one takes a function from a queue, runs it and hands over
what came of it, and nothing else.
"""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol

from twisted.python.failure import Failure

# Told from the thread: whether the function returned, and what, or the Failure.
Answer = Callable[[bool, Any], object]


class WorkerThread(Protocol):
    """Runs functions one by one, off the reactor; a Twisted ThreadPool of one thread is one."""

    def callInThreadWithCallback(
        self, answer: Answer, function: Callable[..., object], *arguments: Any
    ) -> None:
        """Has a function called, and its result handed to `answer`, in the thread."""


class DiskThread:
    """A thread that begins with the first function, and ends when it is told to."""

    def __init__(self, name: str) -> None:
        """`name` is what debuggers show."""
        self._name = name
        # None ends the thread.
        self._work: SimpleQueue[tuple[Answer, Callable[..., object], tuple[Any, ...]] | None]
        self._work = SimpleQueue()
        self._thread: Thread | None = None

    def callInThreadWithCallback(
        self, answer: Answer, function: Callable[..., object], *arguments: Any
    ) -> None:
        """See WorkerThread."""
        if self._thread is None:
            # A process that is ended by its main thread does not wait for the disk.
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._work.put((answer, function, arguments))

    def stop(self) -> None:
        """Waits until what was asked for is done, and the thread has ended."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._work.put(None)
            thread.join()

    def _run(self) -> None:
        while True:
            work = self._work.get()
            if work is None:
                return
            answer, function, arguments = work
            try:
                result = function(*arguments)
            except BaseException:
                answer(False, Failure())
            else:
                answer(True, result)
            # Nothing of a job is kept while there is no other one.
            del work, answer, function, arguments
