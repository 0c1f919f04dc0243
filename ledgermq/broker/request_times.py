"""RequestTimes: how long requests take, by their codes, and a line in the log for those too slow.

What is answered at once is measured by runs: requests of one code that come one after the other in
a chunk cost two looks at the clock together. What is answered later is measured one by one; sends
are not, for they are answered by the turn: `put_times.py` has their times. A pull that finds
nothing and waits counts with the work that it took, not with the wait that it asked for.

A slow request is told once a second at most for each code, and lines of one code are joined
(`logs/repeats.py`): where all is slow, the log must not be what is slowest.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from twisted.logger import Logger

from ledgermq.broker.slow_turn import SlowTurn
from ledgermq.measures.histogram import Histogram
from ledgermq.protocol.codes import RequestCode

# Sends: what they take is known when a majority has them.
BY_TURN: Final = frozenset(
    (
        int(RequestCode.SEND_MESSAGE),
        int(RequestCode.SEND_MESSAGE_V2),
        int(RequestCode.SEND_BATCH_MESSAGE),
    )
)
# The code under which all sends are told.
SENDS: Final = int(RequestCode.SEND_MESSAGE)
_TOLD_EACH_S: Final = 1.0

_log = Logger()


class RequestTimes:
    """The times of one broker.

    Attributes:
        by_code: seconds of requests but sends; only codes that somebody answers.
        slow: how many were slow, by code.
        slow_s: what takes longer is slow.
        followers: tells how far each follower is, for people.
    """

    def __init__(self, slow_ms: int = 0, seconds: Callable[[], float] = time.perf_counter) -> None:
        """Begins empty.

        Args:
            slow_ms: key slowRequestMs; 0: nothing is slow.
            seconds: monotonic.
        """
        self.seconds = seconds
        self.slow_s = slow_ms / 1000 if slow_ms else float("inf")
        self.by_code: dict[int, Histogram] = {}
        self.slow: dict[int, int] = {}
        self.followers: Callable[[], str] = str
        # When a slow request of a code was told last.
        self._told_s: dict[int, float] = {}

    def took(self, code: int, count: int, begun_s: float, connection: Any) -> float:
        """Counts a run of requests that were worked on one after the other; returns the time."""
        now_s = self.seconds()
        if not count or code in BY_TURN:
            return now_s
        took_s = now_s - begun_s
        self._histogram(code).observe(took_s / count, count)
        if took_s > self.slow_s and self._is_told(code, count, now_s):
            self._tell(
                code,
                "slow: {count} requests {name} of {peer} took {took_ms} ms: all of it was work",
                count=count,
                peer=connection.peer,
                took_ms=_ms(took_s),
            )
        return now_s

    def answered(self, code: int, begun_s: float, worked_s: float, connection: Any) -> None:
        """Counts a request that was answered later than in its turn.

        Args:
            begun_s: when the work on it began.
            worked_s: when that was done, and it began to wait.
        """
        now_s = self.seconds()
        took_s = now_s - begun_s
        self._histogram(code).observe(took_s)
        if took_s > self.slow_s and self._is_told(code, 1, now_s):
            self._tell(
                code,
                "slow: request {name} of {peer} took {took_ms} ms: work {worked_ms}, wait for the"
                " log or for others {waited_ms}",
                peer=connection.peer,
                took_ms=_ms(took_s),
                worked_ms=_ms(worked_s - begun_s),
                waited_ms=_ms(now_s - worked_s),
            )

    def sent_slowly(self, turn: SlowTurn, peer: str, message_id: str, answered_ms: float) -> None:
        """Tells of the oldest turn of those that were committed together.

        Args:
            peer: who sent its first message.
            message_id: of that.
            answered_ms: when all of them were answered.
        """
        if not self._is_told(SENDS, turn.message_count, self.seconds()):
            return
        self._tell(
            SENDS,
            "slow: {count} messages sent took {took_ms} ms: check {check_ms}, append {append_ms},"
            " replicate {replicate_ms}, answer {answer_ms}; the first is {message_id} of {peer};"
            " followers: {followers}",
            count=turn.message_count,
            took_ms=round(answered_ms - turn.read_ms, 1),
            check_ms=round(turn.checked_ms - turn.read_ms, 1),
            append_ms=round(turn.appended_ms - turn.checked_ms, 1),
            replicate_ms=round(turn.committed_ms - turn.appended_ms, 1),
            answer_ms=round(answered_ms - turn.committed_ms, 1),
            message_id=message_id,
            peer=peer,
            followers=self.followers() or "none",
        )

    def _histogram(self, code: int) -> Histogram:
        histogram = self.by_code.get(code)
        if histogram is None:
            histogram = self.by_code[code] = Histogram()
        return histogram

    def _is_told(self, code: int, count: int, now_s: float) -> bool:
        self.slow[code] = self.slow.get(code, 0) + count
        if now_s - self._told_s.get(code, float("-inf")) < _TOLD_EACH_S:
            return False
        self._told_s[code] = now_s
        return True

    def _tell(self, code: int, text: str, **fields: Any) -> None:
        name = name_of(code)
        _log.warn(text, name=name, repeats_as=f"slow {name}", **fields)


def name_of(code: int) -> str:
    """Returns a request code as RocketMQ 5 names it in metrics, in small letters."""
    try:
        return RequestCode(code).name.lower()
    except ValueError:
        return "other"


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
