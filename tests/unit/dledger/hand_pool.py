"""A thread pool in the test's hand, for whatever a keeper is to do."""

from collections.abc import Callable
from typing import Any

from twisted.python.failure import Failure


class HandPool:
    """Does the work of its threads when the test says so, or, without `holds`, at once."""

    def __init__(self, *, holds: bool = True) -> None:
        self.holds = holds
        self.work: list[
            tuple[Callable[[bool, Any], None], Callable[..., Any], tuple[Any, ...]]
        ] = []

    def callInThreadWithCallback(
        self, done: Callable[[bool, Any], None], function: Callable[..., Any], *args: Any
    ) -> None:
        self.work.append((done, function, args))
        if not self.holds:
            self.finish_one()

    def finish_one(self) -> None:
        done, function, args = self.work.pop(0)
        try:
            result = function(*args)
        except Exception:
            done(False, Failure())
        else:
            done(True, result)

    def finish_all(self) -> None:
        while self.work:
            self.finish_one()


class DirectReactor:
    """Calls from a thread arrive at once."""

    def callFromThread(self, function: Callable[..., None], *args: Any) -> None:
        function(*args)
