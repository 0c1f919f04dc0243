"""Flusher: group commit in one thread.

    request ──► sync runs ──► done: its requests fire
    request ──► (waits)   ──► next sync ──► fire together

A sync covers what was written before it began, so a request made while one runs waits for the next.
One thread, one sync at a time: however many requests come, they share the disk's next turn. An
error is final: nobody knows what is on the disk, so every waiting and every later request fails
with it and the disk is not asked again.
"""

from collections.abc import Callable

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool


class Flusher:
    """Runs a blocking sync on behalf of many waiters."""

    def __init__(
        self,
        reactor: IReactorFromThreads,
        sync: Callable[[], None],
        pool: ThreadPool | None = None,
    ) -> None:
        """Binds the sync; the thread starts with the first request.

        Args:
            reactor: the loop that requests come from and are answered in.
            sync: blocks until everything written before the call is on disk.
            pool: where to run it; None makes a pool of one thread, which `stop` ends.
        """
        self._reactor = reactor
        self._sync = sync
        self._pool = pool or ThreadPool(0, 1, name="flusher")
        self._owns_pool = pool is None
        # Fires when the running sync ends; None while none runs.
        self._running: Deferred[None] | None = None
        # Requests that the running sync does not cover.
        self._waiting: list[Deferred[None]] = []
        # Those that it covers.
        self._covered: list[Deferred[None]] = []
        self._failure: Failure | None = None
        self._stopped = False
        # Called when nothing runs or waits any more.
        self._idle: list[Deferred[None]] = []

    def request(self) -> Deferred[None]:
        """Returns a Deferred that fires when all that was written up to now is on disk.

        It fails with the error of the sync, at once when an earlier one failed.
        """
        assert not self._stopped, "a stopped flusher takes no requests"
        waiter: Deferred[None] = Deferred()
        if self._failure is not None:
            waiter.errback(self._failure)
            return waiter
        self._waiting.append(waiter)
        if self._running is None:
            self._begin()
        return waiter

    def stop(self) -> Deferred[None]:
        """Takes no more requests; fires when those there are were answered and the thread ended."""
        self._stopped = True
        if self._running is None:
            self._end_pool()
            return succeed(None)
        stopped: Deferred[None] = Deferred()
        self._idle.append(stopped)
        return stopped

    def _begin(self) -> None:
        if self._owns_pool and not self._pool.started:
            self._pool.start()
        self._covered, self._waiting = self._waiting, []
        self._running = deferToThreadPool(self._reactor, self._pool, self._sync)
        self._running.addCallbacks(self._synced, self._failed)

    def _synced(self, _: None) -> None:
        covered, self._covered = self._covered, []
        self._running = None
        # The next sync starts before the answers go out, so that the disk does not wait for them.
        if self._waiting:
            self._begin()
        for waiter in covered:
            waiter.callback(None)
        self._end_when_idle()

    def _failed(self, failure: Failure) -> None:
        self._failure = failure
        waiting = self._covered + self._waiting
        self._covered, self._waiting, self._running = [], [], None
        for waiter in waiting:
            waiter.errback(failure)
        self._end_when_idle()

    def _end_when_idle(self) -> None:
        if self._stopped and self._running is None:
            self._end_pool()
            idle, self._idle = self._idle, []
            for waiter in idle:
                waiter.callback(None)

    def _end_pool(self) -> None:
        if self._owns_pool and self._pool.started:
            self._pool.stop()
