"""The keeper's thread of a simulated program: work that has a beginning and an end.

A job runs in a thread of the operating system, but never beside anything else: it runs until it
comes to an operation of the disk that takes time, and waits there; then the world goes on, turns of
the program among it, until that time is over and the job runs on. So whatever a real thread may do
between two lines of the reactor happens here, from a seed:

    the reactor            job
    ...                    sync begins: what is written now is what it must bring to the platter
    a turn, another one    (waits)
    a write: one part      (waits)
                           sync ends: of what was written meanwhile it may have taken any sector
    the rest of the write

A write lets go of the interpreter. So the thread may go on in the midst of one, too (`interrupt`).
"""

import threading
from collections.abc import Callable
from typing import Any, Final

from twisted.python.failure import Failure

from ledgermq.testing.simulation.clock import SimCall, SimReactor
from ledgermq.testing.simulation.disk import MachineStoppedError, SimDisk

# Operations that wait for the platter, by what part of a sync they take.
_PARTS: Final = {"sync": 1.0, "sync_text": 0.3, "sync_directory": 0.2, "create": 0.2}


class SimThread:
    """A thread pool of one thread, whose work takes simulated time."""

    started = True

    def __init__(self, reactor: SimReactor, disk: SimDisk, draw_ms: Callable[[], float]) -> None:
        """Binds the thread to its program.

        Args:
            reactor: of the program; ends the thread with it.
            disk: whose operations the job waits for.
            draw_ms: tells how long each sync takes.
        """
        self._reactor = reactor
        self._disk = disk
        self._draw_ms = draw_ms
        # True while the job runs: all else waits for it.
        self.is_inside = False
        # The job that was begun and has not ended; None while there is none.
        self._work: Callable[[], None] | None = None
        # The job waits for a disk that hangs.
        self._is_held = False
        # The call that lets it go on.
        self._wake: SimCall | None = None
        self._worker: threading.Thread | None = None
        self._go = threading.Semaphore(0)
        self._rest = threading.Semaphore(0)
        # The program has ended: the job is unwound where it stands.
        self._is_over = False
        # What stopped the machine in the job.
        self._stop: MachineStoppedError | None = None
        # Turns of the reactor when the job last came to rest.
        self._turn_count = 0
        disk.thread = self
        reactor.on_end = self._end

    def start(self) -> None:
        """It runs already."""

    def stop(self) -> None:
        """It ends with its program."""

    def callInThreadWithCallback(
        self,
        answer: Callable[[bool, Any], object],
        function: Callable[..., object],
        *arguments: Any,
        **keywords: Any,
    ) -> None:
        """Begins the work, which goes on in later turns, and hands its result to `answer`."""
        assert self._work is None, "one job at a time"

        def work() -> None:
            try:
                result = function(*arguments, **keywords)
            except MachineStoppedError as stop:
                self._stop = stop
            except Exception as error:
                answer(False, Failure(error))
            else:
                answer(True, result)

        self._work = work
        self._wake = self._reactor.callLater(0.0, self._go_on)

    # The world's side.

    def _go_on(self) -> None:
        """Lets the job run to its next wait, or to its end."""
        wake, self._wake = self._wake, None
        if wake is not None and wake.is_pending:
            wake.cancel()
        if self._reactor.turn_count > self._turn_count + 1:
            self._disk.hit("turn between begin and end")
        if self._worker is None:
            self._worker = threading.Thread(target=self._live, daemon=True)
            self._worker.start()
        self.is_inside = True
        self._go.release()
        self._rest.acquire()
        self.is_inside = False
        self._turn_count = self._reactor.turn_count
        stop, self._stop = self._stop, None
        if stop is not None:
            raise stop

    def interrupt(self) -> None:
        """In the midst of a write of the reactor: a job that waits may go on now."""
        if self._wake is not None and not self.is_inside and not self._is_over:
            self._go_on()

    def release(self) -> None:
        """The disk does not hang any more."""
        if self._is_held and not self._is_over:
            self._is_held = False
            self._wake = self._reactor.callLater(0.0, self._go_on)

    def _end(self) -> None:
        self._is_over = True
        if self._worker is not None:
            self._go.release()
            self._worker.join()
            self._worker = None
        if self._disk.thread is self:
            self._disk.thread = None

    # The job's side, in the worker.

    def _live(self) -> None:
        while True:
            self._go.acquire()
            if self._is_over and self._work is None:
                return
            work = self._work
            assert work is not None
            work()
            self._work = None
            if self._is_over:
                return
            self._rest.release()

    def wait(self, kind: str) -> None:
        """Inside a job: an operation of the disk takes its time.

        Raises:
            MachineStoppedError: the program is over.
        """
        part = _PARTS.get(kind)
        if part is None or self._is_over:
            self._check_over(kind)
            return
        self._is_held = self._disk.is_hanging
        if not self._is_held:
            self._wake = self._reactor.callLater(part * self._draw_ms() / 1000.0, self._go_on)
        self._rest.release()
        self._go.acquire()
        self._check_over(kind)

    def _check_over(self, kind: str) -> None:
        if self._is_over:
            raise MachineStoppedError(kind)
