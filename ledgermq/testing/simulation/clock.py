"""Time of a simulated world: one heap of events, and a reactor for each running program.

Events are run in the order of their time, and of their making when times are equal; nothing else
decides. A program's reactor can be paused (its events wait and then come in one burst) and ended
(its events are dropped), as a stopped or killed process has it.
"""

import heapq
from collections.abc import Callable
from functools import partial
from typing import Any, Final

# A delay that is not zero lets time go on, however small it is.
_SHORTEST_MS: Final = 0.001


class SimCall:
    """A planned call, as Twisted's IDelayedCall."""

    __slots__ = ("arguments", "function", "is_pending", "keywords", "reactor", "time_ms")

    def __init__(
        self,
        time_ms: float,
        function: Callable[..., object],
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
        reactor: "SimReactor | None",
    ) -> None:
        self.time_ms = time_ms
        self.function = function
        self.arguments = arguments
        self.keywords = keywords
        self.reactor = reactor
        self.is_pending = True

    def active(self) -> bool:
        """Tells whether the call is still to come."""
        return self.is_pending

    def cancel(self) -> None:
        """Makes the call not happen."""
        self.is_pending = False

    def getTime(self) -> float:
        """Returns when it comes, in seconds."""
        return self.time_ms / 1000.0


class Timeline:
    """All that is going to happen."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        # Events run so far.
        self.event_count = 0
        self._heap: list[tuple[float, int, SimCall]] = []
        self._made_count = 0

    def at(self, delay_ms: float, function: Callable[..., object], *arguments: Any) -> SimCall:
        """Plans a call of the world itself."""
        call = SimCall(self.now_ms + delay_ms, function, arguments, {}, None)
        self.push(call)
        return call

    def push(self, call: SimCall) -> None:
        """Takes a call into the heap."""
        self._made_count += 1
        heapq.heappush(self._heap, (call.time_ms, self._made_count, call))

    def run_until(self, end_ms: float, stop: Callable[[], bool] | None = None) -> bool:
        """Runs what comes up to a time; with `stop`, tells whether that came true before."""
        heap = self._heap
        while heap and heap[0][0] <= end_ms:
            time_ms, _, call = heapq.heappop(heap)
            self.now_ms = max(self.now_ms, time_ms)
            if not call.is_pending:
                continue
            reactor = call.reactor
            if reactor is None:
                call.is_pending = False
                self.event_count += 1
                call.function(*call.arguments)
            elif reactor.takes(call):
                call.is_pending = False
                self.event_count += 1
                reactor.run(call)
            if stop is not None and stop():
                return True
        self.now_ms = max(self.now_ms, end_ms)
        return False


class SimReactor:
    """The reactor of one running program; it ends with it."""

    def __init__(self, timeline: Timeline, enter: Callable[..., object]) -> None:
        """Binds the program.

        Args:
            timeline: the world's.
            enter: runs a function of the program with its arguments, and ends the program when that
                stops its machine.
        """
        self._timeline = timeline
        self._enter = enter
        self.is_dead = False
        self.is_paused = False
        # What came due while the program was paused.
        self._backlog: list[SimCall] = []
        # Calls that were run.
        self.turn_count = 0
        # Called when the program is gone: its thread goes with it.
        self.on_end: Callable[[], None] = _nothing

    def seconds(self) -> float:
        """Returns the monotonic time."""
        return self._timeline.now_ms / 1000.0

    def callLater(
        self, delay: float, function: Callable[..., object], *arguments: Any, **keywords: Any
    ) -> SimCall:
        """Plans a call of the program."""
        delay_ms = max(delay * 1000.0, _SHORTEST_MS) if delay > 0 else 0.0
        time_ms = self._timeline.now_ms + delay_ms
        call = SimCall(time_ms, function, arguments, keywords, self)
        self._timeline.push(call)
        return call

    def callFromThread(
        self, function: Callable[..., object], *arguments: Any, **keywords: Any
    ) -> None:
        """Plans a call for the next turn."""
        self.callLater(0.0, function, *arguments, **keywords)

    def takes(self, call: SimCall) -> bool:
        """Tells whether the program may run a call now; a paused one keeps it."""
        if self.is_paused and not self.is_dead:
            self._backlog.append(call)
        return not (self.is_dead or self.is_paused)

    def run(self, call: SimCall) -> None:
        """Runs a call of the program."""
        self.turn_count += 1
        if call.keywords:
            self._enter(partial(call.function, *call.arguments, **call.keywords))
        else:
            self._enter(call.function, *call.arguments)

    def resume(self) -> None:
        """Lets a paused program go on: what came due comes at once, in order."""
        self.is_paused = False
        backlog, self._backlog = self._backlog, []
        for call in backlog:
            call.time_ms = self._timeline.now_ms
            if call.is_pending:
                self._timeline.push(call)

    def end(self) -> None:
        """Nothing of the program runs any more."""
        self.is_dead = True
        self._backlog.clear()
        self.on_end()


def _nothing() -> None:
    """There is no thread."""
