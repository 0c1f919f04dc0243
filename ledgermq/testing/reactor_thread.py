"""ReactorThread: a private reactor that runs in a thread of its own.

Each cluster has one, made with it and gone with it. Not Twisted's global reactor: that can be
neither chosen nor started again for whoever uses it already (asyncio, another framework, a plain
test), so nothing is installed, no signal is taken, and the module `twisted.internet.reactor` is not
even imported. Not one for the whole process: when the last thread and the last descriptor of a
cluster are gone with its `close`, a test can tell that nothing was left behind, and what a broken
test did to one cluster cannot slow the next one down. It costs a thread and a pipe.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.pollreactor import PollReactor
from twisted.python.failure import Failure

from ledgermq.testing.errors import ClusterError

T = TypeVar("T")

# A call that takes longer has gone wrong.
CALL_TIMEOUT_S: Final = 120.0


class _PrivateReactor(PollReactor):
    """Leaves alone what Twisted keeps for the whole process; it has no descriptor but its pipe."""

    # Twisted would note our thread as the one of the global reactor.
    _registerAsIOThread = False


class ReactorThread:
    """The reactor of one cluster.

    Attributes:
        reactor: for calls in its own thread only.
        leftovers: what was still to come when it ended; empty when all was stopped in order.
    """

    def __init__(self, name: str) -> None:
        """Starts the thread, which does not keep the program from ending."""
        make: Any = _PrivateReactor
        self.reactor: Any = make()
        # Twisted measures delays on the wall clock.
        self.reactor.seconds = time.monotonic
        self.leftovers: list[str] = []
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Calls a function in the reactor's thread, and waits for its result.

        Args:
            function: may return a Deferred or a coroutine, whose result is waited for.

        Raises:
            ClusterError: the reactor has ended, or the result does not come.
        """
        assert threading.current_thread() is not self._thread, "the reactor cannot wait for itself"
        if not self._thread.is_alive():
            raise ClusterError("the cluster is closed")
        future: Future[Any] = Future()

        def fail(failure: Failure) -> None:
            future.set_exception(failure.value)

        def run() -> None:
            outcome: Deferred[Any] = maybeDeferred(function, *arguments)
            outcome.addCallbacks(future.set_result, fail)

        self.reactor.callFromThread(run)
        try:
            return future.result(CALL_TIMEOUT_S)
        except TimeoutError as error:
            if future.done():
                raise
            raise ClusterError(f"no result within {CALL_TIMEOUT_S:g} s") from error

    def stop(self) -> None:
        """Ends the reactor and its thread, and closes what it had open."""
        if self._thread.is_alive():
            self.reactor.callFromThread(self.reactor.stop)
            self._thread.join()
        # Not in the thread itself: the call above may be about to wake a reactor that, awake for
        # another reason, has stopped by then.
        waker, self.reactor.waker = self.reactor.waker, None
        if waker is not None:
            waker.connectionLost(None)

    def _run(self) -> None:
        reactor = self.reactor
        try:
            reactor.run(installSignalHandlers=False)
        finally:
            self.leftovers = [str(call) for call in reactor.getDelayedCalls()]
