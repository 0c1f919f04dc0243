"""PutTimes: how long messages take from the append to the majority, measured once for each turn.

What a turn appends is noted with its last index and its time, which is over when the commit passes
that index: a turn of a thousand messages costs two looks at the clock. Pure: time is passed in.
"""

from collections import deque
from typing import Final

from ledgermq.broker.slow_turn import SlowTurn
from ledgermq.measures.histogram import Histogram

# Turns whose commit is waited for; more are not measured.
_WAITING_MAX: Final = 10_000
# Upper ends in ms of upstream's table of put times, and its names; the last has no end.
SPANS_MS: Final = (0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
SPAN_NAMES: Final = (
    "<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s", "1~2s", "2~3s",
    "3~4s", "4~5s", "5~10s", "10s~",
)  # fmt: skip
# For the shares below which 99 and 99.9 % are, finer than upstream's spans.
_LATENCY_MS: Final = (
    1,
    2,
    3,
    5,
    7,
    10,
    15,
    20,
    30,
    50,
    75,
    100,
    150,
    200,
    300,
    500,
    1000,
    2000,
    5000,
)


class PutTimes:
    """The times of one broker.

    Attributes:
        turns: seconds of each turn; its values are turns, not messages.
        messages: ms of each message, in upstream's spans.
        longest_ms: of all since the start.
        sent: seconds of each message that a client sent, from its reading.
        slow_ms: what takes longer is slow.
    """

    def __init__(self) -> None:
        self.turns = Histogram()
        self.messages = Histogram(SPANS_MS)
        self.longest_ms = 0.0
        self.sent, self.slow_ms = Histogram(), float("inf")
        # Last index, messages and time of what a turn appended, how many of them clients sent,
        # when the first was read, and when all had been checked, oldest first.
        self._waiting: deque[tuple[int, int, float, int, float, float]] = deque()
        # Of this minute and of the one before.
        self._recent, self._former = Histogram(_LATENCY_MS), Histogram(_LATENCY_MS)

    def appended(
        self,
        last_index: int,
        count: int,
        now_ms: float,
        sent_count: int = 0,
        read_ms: float = 0.0,
        checked_ms: float = 0.0,
    ) -> None:
        """Notes what a turn appended.

        Args:
            count: of messages, those of the broker itself included.
            sent_count: of those that clients sent.
            read_ms: when the first of these had been read.
            checked_ms: when all had been checked.
        """
        if len(self._waiting) < _WAITING_MAX:
            turn = (last_index, count, now_ms, sent_count, read_ms, checked_ms)
            self._waiting.append(turn)

    def waits_below(self, end_index: int) -> bool:
        """Whether `committed` has anything to do: it is asked more often than the clock should."""
        return bool(self._waiting) and self._waiting[0][0] < end_index

    def committed(self, end_index: int, now_ms: float) -> SlowTurn | None:
        """Notes that all below an index is committed.

        Returns:
            The oldest turn whose messages took longer than `slow_ms`, with the number of all that
            did; None when there is none.
        """
        waiting, slow, slow_count = self._waiting, None, 0
        while waiting and waiting[0][0] < end_index:
            _, count, begun_ms, sent_count, read_ms, checked_ms = waiting.popleft()
            if sent_count:
                sent_ms = max(now_ms - read_ms, 0.0)
                self.sent.observe(sent_ms / 1000, sent_count)
                if sent_ms > self.slow_ms:
                    slow_count += sent_count
                    slow = slow or SlowTurn(0, read_ms, checked_ms, begun_ms, now_ms)
            took_ms = max(now_ms - begun_ms, 0.0)
            self.turns.observe(took_ms / 1000)
            self.messages.observe(took_ms, count)
            self._recent.observe(took_ms, count)
            self.longest_ms = max(self.longest_ms, took_ms)
        return None if slow is None else slow._replace(message_count=slow_count)

    def forget(self) -> None:
        """Drops what waits: nobody will tell when it is committed."""
        self._waiting.clear()

    def minute_over(self) -> None:
        """Has what is older than two minutes forgotten for `latency_ms`."""
        self._recent, self._former = self._former, self._recent
        self._recent.clear()

    def latency_ms(self, share: float) -> float:
        """Returns below which time a share of the messages of the last minute or two was."""
        both = Histogram(_LATENCY_MS)
        pairs = zip(self._recent.counts, self._former.counts, strict=True)
        both.counts = [recent + former for recent, former in pairs]
        return both.quantile(share)

    def text(self) -> str:
        """Returns upstream's table: spans and messages in each."""
        pairs = zip(SPAN_NAMES, self.messages.counts, strict=True)
        return " ".join(f"[{name}]:{count}" for name, count in pairs)
