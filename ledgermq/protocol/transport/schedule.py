"""Schedule: every delayed call of a broker or a name server, so that `stop` leaves none behind."""

from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

_log = Logger()


class Schedule:
    """Periodic calls, and calls at the end of the reactor's turn."""

    def __init__(self, reactor: Any) -> None:
        """Nothing is scheduled yet; `reactor` gives the time."""
        self._reactor = reactor
        # Periodic calls, and calls that come once, by their functions.
        self._periodic: dict[Callable[[], None], Any] = {}
        self._once: dict[Callable[[], None], Any] = {}
        self._is_stopped = False

    def every(self, interval_ms: int, function: Callable[[], None]) -> None:
        """Has a function called again and again; what it raises is logged and ends nothing.

        Args:
            interval_ms: from the end of one call to the next.
            function: known by its name in the log.
        """
        if self._is_stopped:
            return
        assert function not in self._periodic, "a function is called periodically twice"
        self._periodic[function] = self._reactor.callLater(
            interval_ms / 1000, self._run, interval_ms, function
        )

    def _run(self, interval_ms: int, function: Callable[[], None]) -> None:
        del self._periodic[function]
        try:
            function()
        except Exception:
            _log.failure("periodic call {name} failed", name=getattr(function, "__qualname__", "?"))
        self.every(interval_ms, function)

    def soon(self, function: Callable[[], None]) -> None:
        """Has a function called once at the end of this turn, however often it is asked for."""
        self.after(0, function)

    def after(self, delay_ms: int, function: Callable[[], None]) -> None:
        """Has a function called once after a time; nothing happens when it is waiting already."""
        if self._is_stopped or function in self._once:
            return
        self._once[function] = self._reactor.callLater(delay_ms / 1000, self._run_once, function)

    def _run_once(self, function: Callable[[], None]) -> None:
        del self._once[function]
        function()

    def stop(self) -> None:
        """Cancels everything and takes nothing more."""
        self._is_stopped = True
        for call in (*self._periodic.values(), *self._once.values()):
            call.cancel()
        self._periodic.clear()
        self._once.clear()
