"""Threads: what waits for the disk runs in the reactor's pool, one function asked for at a time."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool


class Threads:
    """Threads of the reactor's pool, which is made when it is first asked for."""

    def __init__(self, reactor: Any) -> None:
        """`reactor` owns the pool."""
        self.reactor = reactor

    def run(self, function: Callable[[], None]) -> Deferred[None]:
        """Calls a function in a thread; fires in the reactor, or fails as the function did."""
        # Of a pool it asks for the function below alone.
        pool: Any = self
        return deferToThreadPool(self.reactor, pool, function)

    def callInThreadWithCallback(
        self,
        answer: Callable[[bool, Any], object],
        function: Callable[..., object],
        *arguments: Any,
    ) -> None:
        """Calls a function in a thread, and there `answer` with what came of it."""
        pool = self.reactor.getThreadPool()
        pool.callInThreadWithCallback(answer, function, *arguments)
