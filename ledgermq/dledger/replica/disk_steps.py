"""DiskSteps: what of a Ready waits for the disk, done by the keeper one by one.

A step that finds no room is tried again each second, for as long as it takes: the cause can pass,
and nothing of the Ready was spoken of. Any other error is told, and nothing more is done.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from twisted.python.failure import Failure

from ledgermq.dledger.disk_job import Begin, DiskJob
from ledgermq.dledger.store.errors import DiskFullError
from ledgermq.dledger.store.keeper import Keeper

# How long a disk without room is left alone before a step is tried again.
ROOM_RETRY_S: Final = 1.0


class DiskSteps:
    """Steps of one Ready at a time."""

    def __init__(
        self,
        reactor: Any,
        keeper: Keeper,
        *,
        no_room: Callable[[BaseException], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Nothing is to be done yet.

        Args:
            reactor: gives time.
            keeper: does the steps.
            no_room: told each time a step found no room.
            failed: told of the error that ends it all.
        """
        self._reactor = reactor
        self._keeper = keeper
        self._no_room = no_room
        self._failed = failed
        self._steps: deque[Begin] = deque()
        self._done: Callable[[], None] = _nothing
        # There are steps that have not ended: no other Ready is taken.
        self.is_waiting = False
        self._retry_call: Any = None
        self._is_stopped = False

    def do(self, steps: Iterable[Begin], done: Callable[[], None]) -> None:
        """Has steps done in order, and calls `done` behind the last one, perhaps at once."""
        assert not self.is_waiting, "the steps of a Ready before have not ended"
        self.is_waiting = True
        self._steps.extend(steps)
        self._done = done
        self._go_on()

    def stop(self) -> None:
        """Begins no other step, and tells nobody of what is under way."""
        self._is_stopped = True
        if self._retry_call is not None:
            self._retry_call.cancel()
            self._retry_call = None

    def _go_on(self) -> None:
        self._retry_call = None
        if self._is_stopped:
            return
        if not self._steps:
            self.is_waiting = False
            self._done()
            return
        begin = self._steps.popleft()
        kept: list[DiskJob | None] = []

        def begin_once() -> DiskJob | None:
            # The tables change when a job is begun; one that found no room is run a second time.
            if not kept:
                kept.append(begin())
            return kept[0]

        ended = self._keeper.run(begin_once)
        ended.addCallbacks(
            lambda _: self._go_on(), lambda failure: self._stuck(failure, begin_once)
        )

    def _stuck(self, failure: Failure, step: Begin) -> None:
        if self._is_stopped:
            return
        assert failure.value is not None
        if not failure.check(DiskFullError):
            self._failed(failure.value)
            return
        self._steps.appendleft(step)
        self._retry_call = self._reactor.callLater(ROOM_RETRY_S, self._go_on)
        self._no_room(failure.value)


def _nothing() -> None:
    """Nothing follows."""
