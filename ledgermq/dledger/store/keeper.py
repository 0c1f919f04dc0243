"""Keeper: the one owner of a broker's disk. All that may wait for it goes through one queue.

    reactor                                   the keeper's thread
    run(begin) ──► queue ──► begin() ────────► job.run()
    Deferred ◄── next begin() ◄── job.end() ◄──── returns

Votes, cuts, syncs, segments made and dropped are jobs of one queue, done one by one in the order in
which they were asked for. `begin` is called when the disk is free, not when the job is asked for:
a sync covers all that was written by then, and however many wait for it, they share it.

Work that has no order among those jobs, like the flush of a thousand queue files, goes beside the
queue in steps (`run_steps`): a few steps between two jobs, so that no send waits for all of it.

What may be said by whom: the queue, the tables and every number are the reactor's. The thread has
nothing but the job that it runs. A disk without room (DiskFullError) ends one job; any other error
of a job is final: nobody knows what is on the disk, so that every waiting and every later job fails
with it and the disk is not asked again.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorFromThreads
from twisted.python.failure import Failure

from ledgermq.dledger.disk_job import Begin, DiskJob
from ledgermq.dledger.store.disk_thread import DiskThread, WorkerThread
from ledgermq.dledger.store.errors import DiskFullError
from ledgermq.measures.histogram import Histogram

# Steps that are done between two jobs: each may be a sync of one file.
_STEPS_MAX: Final = 4
# Of the last sync among those before it.
_SYNC_WEIGHT: Final = 0.1

_Waiter = Deferred[None]
_T = TypeVar("_T")


class Keeper:
    """Runs disk jobs in one thread, in their order."""

    def __init__(self, reactor: IReactorFromThreads, thread: WorkerThread | None = None) -> None:
        """The thread starts with the first job.

        Args:
            reactor: the loop that jobs come from and are ended in.
            thread: runs the jobs; None makes one, which `stop` ends.
        """
        self._reactor = reactor
        self._own_thread = DiskThread("keeper") if thread is None else None
        self._thread: WorkerThread = thread or cast(DiskThread, self._own_thread)
        self._queue: deque[tuple[Begin, _Waiter]] = deque()
        self._steps: deque[tuple[Iterator[Callable[[], None]], _Waiter]] = deque()
        self._is_running = False
        # Jobs and parts of steps that were given to the thread: one that hangs is the last one.
        self.begun_count = 0
        # Of syncs, as the thread measured them.
        self.sync_seconds = Histogram()
        # About what the last ten of them took each; 0 before the first.
        self.recent_sync_s = 0.0
        # The last thing that ran was a part of the steps, so that a job comes next.
        self._was_steps = False
        # What ended all; None while the disk is well.
        self._failure: Failure | None = None
        self._stopped: _Waiter | None = None

    @property
    def is_busy(self) -> bool:
        """Whether the thread has something to do; see `begun_count`."""
        return self._is_running

    def run(self, begin: Begin) -> Deferred[None]:
        """Has a job done when all that were asked for before are.

        Returns:
            Fires in the reactor when the job has ended. It fails with DiskFullError when that job
            found no room, and with the error that ended everything, at once when that was before.
        """
        return self._add(self._queue, begin)

    def run_steps(self, steps: Iterator[Callable[[], None]]) -> Deferred[None]:
        """Has some steps done in their order, beside the queue; the iterator runs in the thread.

        Returns:
            As `run`.
        """
        return self._add(self._steps, steps)

    def _add(self, waiting: deque[tuple[_T, _Waiter]], work: _T) -> Deferred[None]:
        assert self._stopped is None, "a stopped keeper takes no jobs"
        waiter: _Waiter = Deferred()
        if self._failure is not None:
            waiter.errback(self._failure)
            return waiter
        waiting.append((work, waiter))
        if not self._is_running:
            self._go_on()
        return waiter

    def timed(self, job: DiskJob) -> DiskJob:
        """Returns a sync that is counted in `sync_seconds`; the thread hands its time over."""
        seconds = 0.0

        def run() -> None:
            nonlocal seconds
            begun = time.perf_counter()
            job.run()
            seconds = time.perf_counter() - begun

        def end() -> DiskJob | None:
            self.sync_seconds.observe(seconds)
            self.recent_sync_s += (seconds - self.recent_sync_s) * _SYNC_WEIGHT
            return job.end()

        return DiskJob(run, end)

    def stop(self) -> Deferred[None]:
        """Takes no more jobs; fires when those there are were done and the thread ended."""
        if not self._is_running:
            self._stopped = succeed(None)
            self._end_thread()
            return succeed(None)
        if self._stopped is None:
            self._stopped = Deferred()
        stopped: _Waiter = Deferred()
        self._stopped.addCallback(lambda _: stopped.callback(None))
        return stopped

    # The reactor's side.

    def _go_on(self) -> None:
        """Gives the thread what comes next, if there is anything."""
        while not self._is_running and self._failure is None and (self._queue or self._steps):
            if self._queue and (self._was_steps or not self._steps):
                begin, waiter = self._queue.popleft()
                self._was_steps = False
                try:
                    job = begin()
                except Exception:
                    self._fail(Failure(), waiter)
                    return
                if job is None:
                    waiter.callback(None)
                    continue
                self._begin(job, waiter)
            else:
                self._was_steps = True
                self._begin_steps(*self._steps[0])

    def _begin(self, job: DiskJob, waiter: _Waiter) -> None:
        self._call(
            job.run,
            ended=lambda _: self._ended(job, waiter),
            failed=lambda failure: self._failed(failure, waiter),
        )

    def _begin_steps(self, steps: Iterator[Callable[[], None]], waiter: _Waiter) -> None:
        self._call(
            lambda: _take_steps(steps),
            ended=lambda has_more: self._steps_ended(has_more, waiter),
            failed=lambda failure: self._steps_failed(failure, waiter),
        )

    def _call(
        self,
        function: Callable[[], object],
        *,
        ended: Callable[[Any], None],
        failed: Callable[[Failure], None],
    ) -> None:
        self._is_running = True
        self.begun_count += 1

        def answer(is_done: bool, result: Any) -> None:
            self._reactor.callFromThread(ended if is_done else failed, result)

        self._thread.callInThreadWithCallback(answer, function)

    def _ended(self, job: DiskJob, waiter: _Waiter) -> None:
        self._is_running = False
        try:
            following = job.end()
        except Exception:
            self._fail(Failure(), waiter)
            return
        if following is not None:
            self._begin(following, waiter)
            return
        self._answer(waiter)

    def _steps_ended(self, has_more: bool, waiter: _Waiter) -> None:
        self._is_running = False
        if has_more:
            self._answer(None)
            return
        self._steps.popleft()
        self._answer(waiter)

    def _answer(self, waiter: _Waiter | None) -> None:
        # The next job starts before the answer goes out, so that the disk does not wait for it.
        self._go_on()
        if waiter is not None:
            waiter.callback(None)
        self._end_when_idle()

    def _steps_failed(self, failure: Failure, waiter: _Waiter) -> None:
        self._steps.popleft()
        self._failed(failure, waiter)

    def _failed(self, failure: Failure, waiter: _Waiter) -> None:
        self._is_running = False
        if failure.check(DiskFullError):
            self._go_on()
            waiter.errback(failure)
            self._end_when_idle()
        else:
            self._fail(failure, waiter)

    def _fail(self, failure: Failure, waiter: _Waiter) -> None:
        """Ends it all: nothing runs, and nobody waits any more."""
        self._failure = failure
        waiters = [waiter, *(pair[1] for pair in (*self._queue, *self._steps))]
        self._queue.clear()
        self._steps.clear()
        for waiting in waiters:
            waiting.errback(failure)
        self._end_when_idle()

    def _end_when_idle(self) -> None:
        if self._stopped is not None and not self._is_running and not self._stopped.called:
            self._end_thread()
            self._stopped.callback(None)

    def _end_thread(self) -> None:
        if self._own_thread is not None:
            self._own_thread.stop()


class GroupCommit:
    """A sync that many wait for: all that was written until it begins is covered by it."""

    def __init__(self, keeper: Keeper, begin: Begin) -> None:
        """Binds the sync.

        Args:
            keeper: runs it.
            begin: takes down what is written and not yet on the disk.
        """
        self._keeper = keeper
        self._begin_sync = begin
        # Who waits for the sync that was asked for and has not begun; None: there is none.
        self._coming: list[_Waiter] | None = None

    @property
    def is_asked(self) -> bool:
        """Whether a sync was asked for that has not begun: it covers what is written now, too."""
        return self._coming is not None

    def request(self) -> Deferred[None]:
        """Has all that was written up to now brought to the disk.

        Returns:
            Fires when it is there; fails with the error that ended the keeper.
        """
        waiter: _Waiter = Deferred()
        if self._coming is not None:
            self._coming.append(waiter)
            return waiter
        waiters = self._coming = [waiter]
        synced = self._keeper.run(self._begin)
        synced.addCallbacks(lambda _: _call_all(waiters), lambda f: self._failed(f, waiters))
        return waiter

    def _begin(self) -> DiskJob | None:
        self._coming = None
        job = self._begin_sync()
        return None if job is None else self._keeper.timed(job)

    def _failed(self, failure: Failure, waiters: list[_Waiter]) -> None:
        # One that was asked for behind the failing one never begins.
        self._coming = None
        for waiter in waiters:
            waiter.errback(failure)


def _call_all(waiters: list[_Waiter]) -> None:
    for waiter in waiters:
        waiter.callback(None)


def _take_steps(steps: Iterator[Callable[[], None]]) -> bool:
    """In the thread: does the next few steps; tells whether there may be more."""
    for _ in range(_STEPS_MAX):
        step = next(steps, None)
        if step is None:
            return False
        step()
    return True
