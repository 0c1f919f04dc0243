"""Tasks that live as long as their client, whatever fails in one of their turns.

Sharing queues out, heart beats, pulls, commits: each of them is one turn after the other, and a
client without one of them is worse than none, for it looks alive. So an error that nobody foresaw
must not end the task: it is told with its cause, the task waits, longer after each failure, and
goes on. What may well fail (a broker that is away) is the business of the turn itself.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final
from weakref import WeakKeyDictionary

from ledgermq.client.errors import ClientError
from ledgermq.client.troubles import Troubles

# A failure that may pass, and has not passed for so long, is no news for a debug log any more.
_LASTING_S: Final = 10.0
# Pauses after failures: the first, and the longest.
_PAUSE_S: Final = 0.1
_PAUSE_S_MAX: Final = 10.0

_log = logging.getLogger("ledgermq.client")
# A loop may have a clock of its own.
_troubles: WeakKeyDictionary[asyncio.AbstractEventLoop, Troubles] = WeakKeyDictionary()


async def keep_going(what: str, turn: Callable[[], Awaitable[bool | None]]) -> None:
    """Takes one turn after the other until it is cancelled, or a turn says that it was the last.

    Args:
        what: names the work in the log.
        turn: does a part of the work, waiting for its time included; returns True when all is done.
            After an Exception it is called again, so what it keeps must be whole then.
    """
    loop = asyncio.get_running_loop()
    failures = 0
    while True:
        begun_s = loop.time()
        try:
            if await turn():
                return
            failures = 0
            continue
        except (Exception, asyncio.CancelledError) as error:
            if is_own_end(error):
                raise
            failure: BaseException = error
        # A long turn was a good one up to its end.
        failures = 1 if loop.time() - begun_s > _PAUSE_S_MAX else failures + 1
        pause_s = min(_PAUSE_S * (1 << min(failures - 1, 10)), _PAUSE_S_MAX)
        _log.error("%s failed; it goes on in %g s", what, pause_s, exc_info=failure)
        await asyncio.sleep(pause_s)


async def all_of(work: Iterable[Awaitable[object]]) -> None:
    """Waits until all of something is done, one failing or not, and raises the worst failure.

    An error that nobody foresaw is worse than a ClientError; of several, those that are not raised
    are told.
    """
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    unforeseen = [failure for failure in failures if not isinstance(failure, ClientError)]
    for failure in unforeseen[1:]:
        _log.error("more than one thing failed; another one:", exc_info=failure)
    for failure in (*unforeseen, *failures):
        raise failure


def is_own_end(error: BaseException) -> bool:
    """Tells whether the running task is being cancelled.

    A CancelledError may also come from what the task waited for, which somebody else cancelled.
    """
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling() > 0)


def tell_failure(task: asyncio.Task[None]) -> None:
    """Logs why a task that nobody waits for has failed, unless it was cancelled."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a task of the client has failed", exc_info=error)


def level_of(error: ClientError) -> int:
    """Returns the level for the log of a failure that is tried again: what trying does not heal is
    told at level warning, once in a while."""
    return logging.INFO if error.retriable else loudness(error.what)


def loudness(trouble: str) -> int:
    """Returns the level at which the running loop's clients tell a trouble now."""
    loop = asyncio.get_running_loop()
    return _troubles.setdefault(loop, Troubles()).level_of(trouble, loop.time())


class Lasting:
    """What is tried again and again, and how loudly its failures are told.

    What may pass is told at level info, until nothing has succeeded for 10 s.
    """

    __slots__ = ("_failing_since_s", "_what")

    def __init__(self, what: str) -> None:
        """Has not failed yet; failures of things of one name are told as one."""
        self._what = what
        self._failing_since_s: float | None = None

    def level_of(self, error: ClientError) -> int:
        """Returns the level for the log of a failure."""
        if self._failing_since_s is None:
            self._failing_since_s = asyncio.get_running_loop().time()
        if error.retriable and not self.is_lasting:
            return logging.INFO
        # Texts of brokers may hold numbers that change with each answer.
        return loudness(f"{self._what}: {type(error).__name__} {error.code}")

    @property
    def is_lasting(self) -> bool:
        """True when nothing has succeeded for long."""
        since_s = self._failing_since_s
        return since_s is not None and asyncio.get_running_loop().time() - since_s >= _LASTING_S

    def succeeded(self) -> None:
        """Notes a success."""
        self._failing_since_s = None
