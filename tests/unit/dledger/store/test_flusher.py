"""Group commit: who waits for which sync, and what an error ends."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from ledgermq.dledger.store.flusher import Flusher


class HandPool:
    """A thread pool whose work is done when the test says so."""

    def __init__(self) -> None:
        self.work: list[tuple[Callable[[bool, Any], None], Callable[[], None]]] = []

    def callInThreadWithCallback(
        self, done: Callable[[bool, Any], None], function: Callable[..., None], *args: Any
    ) -> None:
        self.work.append((done, function))

    def finish_one(self) -> None:
        from_thread, function = self.work.pop(0)

        try:
            function()
        except Exception:
            from_thread(False, Failure())
        else:
            from_thread(True, None)


class DirectReactor:
    """Calls from a thread arrive at once."""

    def callFromThread(self, function: Callable[..., None], *args: Any) -> None:
        function(*args)


class FlusherTests(SynchronousTestCase):
    """With a pool and a reactor in the test's hand."""

    def setUp(self) -> None:
        self.pool = HandPool()
        self.syncs: list[str] = []
        self.error: OSError | None = None
        self.flusher = Flusher(DirectReactor(), self.sync, self.pool)  # type: ignore[arg-type]

    def sync(self) -> None:
        self.syncs.append("sync")
        if self.error is not None:
            raise self.error

    def test_a_request_fires_when_the_sync_ended(self) -> None:
        request = self.flusher.request()
        self.assertNoResult(request)
        self.pool.finish_one()
        self.successResultOf(request)

    def test_requests_made_during_a_sync_share_the_next(self) -> None:
        first = self.flusher.request()
        later = [self.flusher.request() for _ in range(5)]
        self.pool.finish_one()
        self.successResultOf(first)
        for request in later:
            self.assertNoResult(request)
        self.pool.finish_one()
        for request in later:
            self.successResultOf(request)
        self.assertEqual(self.syncs, ["sync", "sync"])

    def test_a_request_made_by_an_answer_waits_for_a_sync_of_its_own(self) -> None:
        made: list[Deferred[None]] = []
        self.flusher.request().addCallback(lambda _: made.append(self.flusher.request()))
        self.pool.finish_one()
        self.assertNoResult(made[0])
        self.pool.finish_one()
        self.successResultOf(made[0])

    def test_an_error_is_final_for_all(self) -> None:
        covered, waiting = self.flusher.request(), self.flusher.request()
        self.error = OSError(5, "input/output error")
        self.pool.finish_one()
        for request in (covered, waiting, self.flusher.request()):
            self.failureResultOf(request, OSError)
        self.assertEqual(self.syncs, ["sync"])
        self.assertEqual(self.pool.work, [])

    def test_stop_waits_for_what_was_asked(self) -> None:
        first, second = self.flusher.request(), self.flusher.request()
        stopped = self.flusher.stop()
        self.pool.finish_one()
        self.assertNoResult(stopped)
        self.pool.finish_one()
        self.successResultOf(stopped)
        self.successResultOf(first)
        self.successResultOf(second)

    def test_stop_of_an_idle_flusher_is_done_at_once(self) -> None:
        self.successResultOf(self.flusher.stop())
