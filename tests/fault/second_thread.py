"""A second thread of a program that a test stops and lets go on where it likes.

A disk job runs in it as in the keeper's thread, but never beside anything else: wherever either
thread lets go of the interpreter (a sync, the midst of a write) the other one may run, as drawn. So
every order in which the two may really happen can be had, and had again.
"""

import random
import threading
from collections.abc import Callable


class SecondThread:
    """Runs one job at a time, a piece here and a piece there."""

    def __init__(self, rng: random.Random) -> None:
        """`rng` says where the threads change."""
        self._rng = rng
        self._go = threading.Semaphore(0)
        self._rest = threading.Semaphore(0)
        # Written by the thread that runs; the other one waits meanwhile.
        self._thread: threading.Thread | None = None
        self._is_inside = False
        self._error: BaseException | None = None
        # A job was begun and has not ended.
        self.is_busy = False

    def begin(self, run: Callable[[], None]) -> None:
        """Takes a job; nothing of it is done yet."""
        assert not self.is_busy, "one job at a time"
        self.is_busy = True
        # A test that fails leaves it where it stands.
        self._thread = threading.Thread(target=self._live, args=(run,), daemon=True)
        self._thread.start()

    def go_on(self) -> None:
        """Lets the job run to its next rest or its end; raises what it raised."""
        self._is_inside = True
        self._go.release()
        self._rest.acquire()
        self._is_inside = False
        if self._error is not None:
            raise self._error

    def let_go(self) -> None:
        """Whoever runs lets go of the interpreter here: the other one may run."""
        if self._is_inside:
            self._rest.release()
            self._go.acquire()
        elif self.is_busy and self._rng.random() < 0.6:
            self.go_on()

    def _live(self, run: Callable[[], None]) -> None:
        self._go.acquire()
        try:
            run()
        except BaseException as error:
            self._error = error
        finally:
            self.is_busy = False
            self._rest.release()
